package httplimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/weir-go/weir"
)

// noon is 12.3 s after a full minute.
var noon = time.Date(2026, 11, 30, 12, 0, 12, 300_000_000, time.UTC)

// clock is a Memory that the test moves on.
type clock struct{ now time.Time }

func (c *clock) limiter() *weir.Limiter {
	return &weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return c.now }}}
}

func take(t testing.TB, lim *weir.Limiter, charges ...weir.Charge) weir.Decision {
	t.Helper()
	d, err := lim.Take(context.Background(), charges...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func rate(t testing.TB, s string) weir.Rate {
	t.Helper()
	r, err := weir.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWriteHeaders(t *testing.T) {
	limit := func(name string, a weir.Algorithm, r string, burst int64) *weir.Limit {
		return &weir.Limit{Name: name, Algorithm: a, Rate: rate(t, r), Burst: burst}
	}
	shadow := limit("shadow", weir.TokenBucket, "1/h", 0)
	shadow.Shadow = true
	lane := limit("lane", weir.TokenBucket, "100/m", 0)
	lane.Headroom = 40

	for _, c := range []struct {
		why          string
		spent        []weir.Charge // before
		ask          []weir.Charge
		policy, left string
	}{
		{"token bucket", nil,
			[]weir.Charge{limit("client", weir.TokenBucket, "100/m", 0).For("k")},
			`"client";q=100;w=60`, `"client";r=99;t=60`},
		{"token bucket, small burst", nil,
			[]weir.Charge{limit("client", weir.TokenBucket, "600/m", 5).For("k")},
			`"client";q=600;w=60`, `"client";r=4;t=1`},
		{"token bucket, burst over its rate", nil,
			[]weir.Charge{limit("client", weir.GCRA, "100/m", 150).For("k").Costing(30)},
			`"client";q=150;w=90`, `"client";r=120;t=72`},
		{"token bucket refuses", []weir.Charge{limit("client", weir.TokenBucket, "100/m", 20).For("k").Costing(18)},
			[]weir.Charge{limit("client", weir.TokenBucket, "100/m", 20).For("k").Costing(5)},
			`"client";q=100;w=60`, `"client";r=2;t=2`},
		{"period under a second", nil,
			[]weir.Charge{limit("client", weir.SlidingLog, "10/100ms", 0).For("k")},
			`"client";q=100;w=1`, `"client";r=9;t=1`},
		{"period of no whole seconds", nil,
			[]weir.Charge{limit("client", weir.FixedWindow, "10/1500ms", 0).For("k")},
			`"client";q=13;w=2`, `"client";r=9;t=2`},
		{"a month", nil,
			[]weir.Charge{limit("client", weir.TokenBucket, "1/30d", 0).For("k")},
			`"client";q=1;w=2592000`, `"client";r=0;t=2592000`},
		{"fixed window", nil,
			[]weir.Charge{limit("window", weir.FixedWindow, "100/m", 0).For("k")},
			`"window";q=100;w=60`, `"window";r=99;t=48`},
		{"fixed window, nothing spent", nil,
			[]weir.Charge{limit("window", weir.FixedWindow, "100/m", 0).For("k").Costing(0)},
			`"window";q=100;w=60`, `"window";r=100;t=48`},
		{"fixed window refuses", []weir.Charge{limit("window", weir.FixedWindow, "100/m", 0).For("k").Costing(100)},
			[]weir.Charge{limit("window", weir.FixedWindow, "100/m", 0).For("k")},
			`"window";q=100;w=60`, `"window";r=0;t=48`},
		{"sliding log", nil,
			[]weir.Charge{limit("log", weir.SlidingLog, "100/m", 0).For("k").Costing(90)},
			`"log";q=100;w=60`, `"log";r=10;t=60`},
		{"leaky bucket", nil,
			[]weir.Charge{limit("queue", weir.LeakyBucket, "10/m", 0).For("k")},
			`"queue";q=10;w=60`, `"queue";r=0;t=6`},
		{"concurrency", nil,
			[]weir.Charge{limit("open", weir.Concurrency, "10/m", 0).For("k")},
			`"open";q=10;qu="concurrent-requests"`, `"open";r=9`},
		{"several, a shadow among them", nil,
			[]weir.Charge{limit("burst", weir.TokenBucket, "100/m", 0).For("k"), shadow.For("k"), limit("daily", weir.FixedWindow, "1000/1d", 0).For("k").Costing(588)},
			`"burst";q=100;w=60, "daily";q=1000;w=86400`, `"burst";r=99;t=60, "daily";r=412;t=43188`},
		{"a refusal tells of those that refuse", []weir.Charge{limit("two", weir.TokenBucket, "2/m", 0).For("k").Costing(2), shadow.For("k")},
			[]weir.Charge{limit("one", weir.TokenBucket, "100/m", 0).For("k"), limit("two", weir.TokenBucket, "2/m", 0).For("k"), shadow.For("k")},
			`"two";q=2;w=60`, `"two";r=0;t=30`},
		{"one limit, two keys", []weir.Charge{limit("each", weir.TokenBucket, "100/m", 0).For("b").Costing(50)},
			[]weir.Charge{limit("each", weir.TokenBucket, "100/m", 0).For("a"), limit("each", weir.TokenBucket, "100/m", 0).For("b")},
			`"each";q=100;w=60`, `"each";r=49;t=30`},
		{"headroom is not there for normal requests", nil,
			[]weir.Charge{lane.For("k")},
			`"lane";q=100;w=60`, `"lane";r=59;t=36`},
		{"rate 0", nil,
			[]weir.Charge{limit("closed", weir.TokenBucket, "0/m", 0).For("k")},
			`"closed";q=0;w=60`, `"closed";r=0`},
		{"only shadows", nil, []weir.Charge{shadow.For("k")}, "", ""},
		{"very large", nil,
			[]weir.Charge{limit("large", weir.FixedWindow, "1125899906842624/h", 0).For("k")},
			`"large";q=999999999999999;w=3600`, `"large";r=999999999999999;t=3588`},
	} {
		c.why = "case " + c.why
		lim := (&clock{now: noon}).limiter()
		for _, charge := range c.spent {
			take(t, lim, charge)
		}
		d := take(t, lim, c.ask...)
		h := http.Header{}
		WriteHeaders(h, &d, FormDraft)
		if got := h.Get("RateLimit-Policy"); got != c.policy {
			t.Errorf("%s: policy %s, want %s", c.why, got, c.policy)
		}
		if got := h.Get("RateLimit"); got != c.left {
			t.Errorf("%s: %s, want %s", c.why, got, c.left)
		}
	}
}

func TestWriteHeadersOldForms(t *testing.T) {
	burst := &weir.Limit{Name: "burst", Rate: rate(t, "100/m")}
	daily := &weir.Limit{Name: "daily", Algorithm: weir.FixedWindow, Rate: rate(t, "50/1d")}
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "2/m")}
	const toMidnight = 43188 // seconds from noon, rounded up
	midnight := strconv.FormatInt(noon.Truncate(24*time.Hour).Add(24*time.Hour).Unix()+1, 10)

	lim := (&clock{now: noon}).limiter()
	admitted := take(t, lim, burst.For(""), daily.For(""), open.For(""))
	take(t, lim, open.For(""))
	refused := take(t, lim, burst.For(""), open.For(""))

	for _, c := range []struct {
		form Form
		d    weir.Decision
		want http.Header
	}{
		{FormDraft07, admitted, http.Header{
			"Ratelimit": {fmt.Sprint("limit=50, remaining=49, reset=", toMidnight)}, "Ratelimit-Policy": {"100;w=60, 50;w=86400"}}},
		{FormDraft06, admitted, http.Header{
			"Ratelimit-Limit": {"50"}, "Ratelimit-Remaining": {"49"}, "Ratelimit-Reset": {strconv.Itoa(toMidnight)}, "Ratelimit-Policy": {"100;w=60, 50;w=86400"}}},
		{FormLegacy, admitted, http.Header{
			"X-Ratelimit-Limit": {"50"}, "X-Ratelimit-Remaining": {"49"}, "X-Ratelimit-Reset": {midnight}}},
		{FormNone, admitted, http.Header{}},
		{FormDraft07, refused, http.Header{"Ratelimit": {"limit=2, remaining=0, reset=1"}}},
	} {
		h := http.Header{}
		WriteHeaders(h, &c.d, c.form)
		if fmt.Sprint(h) != fmt.Sprint(c.want) {
			t.Errorf("%v:\n got %v\nwant %v", c.form, h, c.want)
		}
	}
}

// What an upstream says of its own limits stays.
func TestWriteHeadersAppends(t *testing.T) {
	l := &weir.Limit{Name: "client", Rate: rate(t, "100/m")}
	lim := (&clock{now: noon}).limiter()
	d := take(t, lim, l.For(""))

	h := http.Header{"Ratelimit": {`"theirs";r=1;t=2`}, "Ratelimit-Policy": {`"theirs";q=10;w=10`}}
	theirs := h["Ratelimit"]
	WriteHeaders(h, &d, FormDraft)
	if got := h.Values("RateLimit"); len(got) != 2 || got[0] != `"theirs";r=1;t=2` || got[1] != `"client";r=99;t=60` {
		t.Errorf("RateLimit %q", got)
	}
	if len(h.Values("RateLimit-Policy")) != 2 || len(theirs) != 1 {
		t.Errorf("RateLimit-Policy %q", h.Values("RateLimit-Policy"))
	}

	h = http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"5"}}
	WriteHeaders(h, &d, FormLegacy)
	if h.Get("X-RateLimit-Limit") != "10" || len(h) != 3 {
		t.Errorf("legacy fields of the upstream were replaced: %v", h)
	}
	// A refusal is not the upstream's answer: its one limit is ours.
	for d.Allowed {
		d = take(t, lim, l.For(""))
	}
	WriteHeaders(h, &d, FormLegacy)
	if h.Get("X-RateLimit-Limit") != "100" || h.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("a refusal tells of somebody else's limit: %v", h)
	}

	// Lines that a handler adds do not run into each other's memory.
	h = http.Header{}
	WriteHeaders(h, &d, FormDraft)
	policy := h.Get("RateLimit-Policy")
	h["Ratelimit"] = append(h["Ratelimit"], "next")
	if h.Get("RateLimit-Policy") != policy {
		t.Errorf("RateLimit-Policy became %q", h.Get("RateLimit-Policy"))
	}
}

// Who is held comes back when the hold ends, even to a concurrency limit, of which else nobody knows.
func TestHeld(t *testing.T) {
	for a, want := range map[weir.Algorithm]string{
		weir.TokenBucket:   `"held";r=0;t=90`,
		weir.FixedWindow:   `"held";r=0;t=90`,
		weir.Concurrency:   `"held";r=0;t=90`,
		weir.SlidingWindow: `"held";r=0;t=90`,
	} {
		l := &weir.Limit{Name: "held", Algorithm: a, Rate: rate(t, "10/m")}
		lim := (&clock{now: noon}).limiter()
		if err := lim.Hold(context.Background(), noon.Add(89500*time.Millisecond), l.For("")); err != nil {
			t.Fatal(err)
		}
		d := take(t, lim, l.For(""))
		h := http.Header{}
		WriteHeaders(h, &d, FormDraft)
		if got := h.Get("RateLimit"); got != want || RetryAfter(&d) != 90*time.Second {
			t.Errorf("%v: %s, Retry-After %v; want %s, 1m30s", a, got, RetryAfter(&d), want)
		}
	}
}

func TestForm(t *testing.T) {
	for f := FormDraft; f < forms; f++ {
		text, err := f.MarshalText()
		var back Form
		if err != nil || back.UnmarshalText(text) != nil || back != f {
			t.Errorf("%v: text %q, read as %v, %v", f, text, back, err)
		}
	}
	var f = FormLegacy
	if err := f.UnmarshalText(nil); err != nil || f != FormDraft {
		t.Errorf("empty text is %v, %v", f, err)
	}
	if err := f.UnmarshalText([]byte("draft-7")); err == nil || !strings.Contains(err.Error(), "none of draft, draft-07") {
		t.Errorf("draft-7: error %v", err)
	}
	if _, err := Form(9).MarshalText(); err == nil || Form(9).String() != "Form(9)" {
		t.Errorf("form 9: error %v, %v", err, Form(9))
	}
}

// fields are one limit's numbers as a client reads them.
type fields struct{ q, w, r, t int64 }

// read reads the draft's fields as a client with a parser of structured fields does.
func read(t testing.TB, h http.Header) map[string]*fields {
	t.Helper()
	all := map[string]*fields{}
	for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
		list, err := httpsfv.UnmarshalList(h.Values(name))
		if err != nil {
			t.Fatalf("%s: %v in %q", name, err, h.Values(name))
		}
		for _, member := range list {
			item := member.(httpsfv.Item)
			limit := item.Value.(string)
			f := all[limit]
			if f == nil {
				f = &fields{w: -1, t: -1}
				all[limit] = f
			}
			for key, to := range map[string]*int64{"q": &f.q, "w": &f.w, "r": &f.r, "t": &f.t} {
				if v, ok := item.Params.Get(key); ok {
					*to = v.(int64)
				}
			}
		}
	}
	return all
}

// Whatever the limits and whatever has happened, a client can trust what it reads: the fields parse, r is no more than
// q, neither q in w nor r in t is faster than the limit, t is no later than Retry-After, and asking again then succeeds.
func TestHeadersKeepTheirWord(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	periods := []time.Duration{time.Millisecond, 250 * time.Millisecond, time.Second, 1500 * time.Millisecond, 7 * time.Second, time.Minute, 24 * time.Hour}
	refusals := 0
	for range 3000 {
		l := &weir.Limit{Name: "any", Algorithm: weir.Algorithm(rnd.IntN(6)), // Concurrency comes back when it likes
			Rate: weir.Rate{Units: 1 + rnd.Int64N(40), Period: periods[rnd.IntN(len(periods))]}}
		if l.Algorithm <= weir.LeakyBucket {
			l.Burst = rnd.Int64N(90)
		}
		if l.Validate() != nil {
			continue
		}
		c := &clock{now: noon.Add(time.Duration(rnd.Int64N(int64(time.Hour))).Truncate(time.Microsecond))}
		lim := c.limiter()
		for range 20 {
			charge := l.For("").Costing(rnd.Int64N(min(l.Capacity(), 10) + 1))
			d := take(t, lim, charge)
			h := http.Header{}
			WriteHeaders(h, &d, FormDraft)
			f := read(t, h)["any"]
			fail := func(what string) {
				t.Fatalf("%s: %v %+v, decision %+v, seed %d", what, h, l, d, seed)
			}
			if f.r > f.q || f.r < 0 || f.t < 1 || f.w < 1 {
				fail("numbers out of range")
			}
			limit := float64(l.Rate.Units) / l.Rate.Period.Seconds() * 1.000001
			if float64(f.q)/float64(f.w) > limit {
				fail("q in w is faster than the limit")
			}
			if d.Allowed && l.Algorithm != weir.FixedWindow && float64(f.r)/float64(f.t) > limit { // fixed windows end when they end
				fail("r in t is faster than the limit")
			}
			if d.Allowed {
				c.now = c.now.Add(time.Duration(rnd.Int64N(int64(l.Rate.Period))) / 4)
				continue
			}
			refusals++
			retry := RetryAfter(&d)
			if retry < time.Second || retry%time.Second != 0 || int64(retry/time.Second) < f.t {
				fail(fmt.Sprint("Retry-After ", retry))
			}
			if retry-time.Second >= d.RetryAfter {
				fail(fmt.Sprint("Retry-After is longer than it must be: ", retry))
			}
			c.now = c.now.Add(retry)
			if again, _ := lim.Peek(context.Background(), charge); !again.Allowed {
				fail("refused again after Retry-After")
			}
		}
	}
	if refusals < 1000 {
		t.Errorf("only %d refusals, seed %d", refusals, seed)
	}
}

// Whatever the numbers, what is written is a structured field.
func FuzzWriteHeaders(f *testing.F) {
	f.Add("client", int8(0), int64(100), int64(60_000_000), int64(20), int64(5), int64(3), int64(7), false)
	f.Add("a~!;,=", int8(6), int64(1), int64(1000), int64(0), int64(1<<62), int64(0), int64(0), true)
	f.Add("x", int8(3), int64(1)<<50, int64(86_400_000_000), int64(0), int64(1)<<49, int64(-1), int64(1)<<62, false)
	f.Fuzz(func(t *testing.T, name string, alg int8, units, micros, burst, cost, remaining, next int64, refuse bool) {
		if micros > 1<<50 || micros < 0 {
			return
		}
		l := &weir.Limit{Name: name, Algorithm: weir.Algorithm(alg), Rate: weir.Rate{Units: units, Period: time.Duration(micros) * time.Microsecond}, Burst: burst}
		other := &weir.Limit{Name: "other", Rate: weir.Rate{Units: 1, Period: time.Hour}}
		if l.Validate() != nil || cost < 0 || cost > mostCost {
			return
		}
		lim := (&clock{now: noon}).limiter()
		charges := []weir.Charge{l.For("").Costing(cost), other.For("")}
		d := take(t, lim, charges...)
		if refuse {
			d = take(t, lim, charges...)
		}
		d.Outcomes()[0].Remaining = remaining
		d.Outcomes()[0].Next = time.Duration(max(0, next))
		for form := FormDraft; form < forms; form++ {
			h := http.Header{}
			WriteHeaders(h, &d, form)
			for field, lines := range h {
				_, err := httpsfv.UnmarshalList(lines)
				if field == "Ratelimit" && form == FormDraft07 {
					_, err = httpsfv.UnmarshalDictionary(lines)
				}
				if err != nil {
					t.Fatalf("%v: %s %q: %v", form, field, lines, err)
				}
			}
			if form == FormDraft {
				if f := read(t, h)["other"]; d.Allowed && (f == nil || f.q != 1 || f.w != 3600) {
					t.Fatalf("other: %+v in %v", f, h)
				}
			}
		}
	})
}
