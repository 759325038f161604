package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// TestHoldByTheStoresClock: a hold lasts as long as the server asks, whatever time the Store has.
func TestHoldByTheStoresClock(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &weir.Memory{Now: func() time.Time { return time.Now().Add(off) }}
			s := &script{steps: []step{{status: 429, header: http.Header{"Retry-After": {"30"}}}, {status: 200}}}
			rt := &Transport{Base: s, Limiter: &weir.Limiter{Store: store}, Retry: &Retry{}}
			if took, good := fetchAll(t, rt, 1, 1); good != 1 || took < 30*time.Second || took > 32*time.Second {
				t.Errorf("clock off by %v: %d fetched after %v, want 30s", off, good, took)
			}
		})
	}
}

// TestStoreFailures: a Store that fails now and then loses nothing, and one that cannot hold does not make the
// client ask too early.
func TestStoreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{fails: map[weir.Op]int{weir.Take: 2, weir.Debit: 1, weir.Hold: 1, weir.Refund: 1}}
		s := &script{steps: []step{{status: 429, header: http.Header{"Retry-After": {"30"}}}, {status: 200}}}
		rt := &Transport{Base: s, Limiter: &weir.Limiter{Store: store}, Retry: &Retry{}, Gates: []Gate{{Limit: window(10, time.Second)}}}
		if took, good := fetchAll(t, rt, 1, 1); good != 1 || took < 30*time.Second || took > 35*time.Second {
			t.Errorf("%d fetched after %v", good, took)
		}
		store.fails = map[weir.Op]int{weir.Take: 1 << 30}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		if _, err := rt.RoundTrip(r); !errors.Is(err, errStore) {
			t.Errorf("a Store that is down: %v", err)
		}
	})
}

var errStore = errors.New("store: down")

// failingStore fails the first so many of each operation.
type failingStore struct {
	weir.Memory
	mu    sync.Mutex
	fails map[weir.Op]int
}

func (s *failingStore) Apply(ctx context.Context, tx *weir.Tx) error {
	s.mu.Lock()
	s.fails[tx.Op]--
	left := s.fails[tx.Op]
	s.mu.Unlock()
	if left >= 0 {
		return errStore
	}
	return s.Memory.Apply(ctx, tx)
}

// TestRefusalHoldsEverybody: one refusal, on any machine, stops all who share the quota until the server will have them again.
func TestRefusalHoldsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared weir.Memory
		refuse := true
		s := &server{ignored: true}
		s.admit = func(time.Time) http.Header {
			if refuse {
				refuse = false
				return http.Header{"Retry-After": {"60"}}
			}
			return nil
		}
		machine := func() *Transport {
			return &Transport{Base: s, Limiter: &weir.Limiter{Store: &shared}, Retry: &Retry{}, Gates: []Gate{{Limit: window(100, time.Second)}}}
		}
		a, b := machine(), machine()
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { fetchAll(t, a, 1, 1) })
		synctest.Wait()
		wg.Go(func() { fetchAll(t, a, 20, 20) })
		wg.Go(func() { fetchAll(t, b, 20, 20) })
		wg.Wait()
		if len(s.arrivals) != 41 || s.refused != 1 {
			t.Errorf("%d arrivals, %d refused", len(s.arrivals), s.refused)
		}
		for _, at := range s.arrivals {
			if since := at.Sub(begin); since < time.Minute || since > 62*time.Second {
				t.Fatalf("an arrival after %v, within the hold of a minute or long after it", since)
			}
		}
		// Another host has nothing to do with it.
		if d, err := a.Limiter.Peek(t.Context(), window(100, time.Second).For("host:other.example")); err != nil || !d.Allowed {
			t.Errorf("another host: %+v, %v", d, err)
		}
	})
}

// TestZeroTransportListens: without any gate, what a host says still holds for all requests to it.
func TestZeroTransportListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		n := 0
		s.admit = func(time.Time) http.Header {
			if n++; n == 1 {
				return http.Header{"Retry-After": {"30"}}
			}
			return nil
		}
		rt := &Transport{Base: s}
		if _, good := fetchAll(t, rt, 1, 1); good != 0 {
			t.Error("a refusal should come back as it is without Retry")
		}
		if took, good := fetchAll(t, rt, 5, 5); good != 5 || took < 30*time.Second || took > 32*time.Second {
			t.Errorf("%d of 5 in %v, want after 30s", good, took)
		}
	})
}

// TestSlowDownBeforeARefusal: when an answer says that nothing is left, nobody asks before there is more.
func TestSlowDownBeforeARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 5
		refused := 0
		var until time.Time
		rt := &Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			now := time.Now()
			if now.After(until) {
				until, left = now.Add(20*time.Second), 5
			}
			h := http.Header{"Ratelimit-Policy": {`"x";q=5;w=20`}}
			if left == 0 {
				refused++
				return respond(r, 429, h, ""), nil
			}
			left--
			h.Set("Ratelimit", fmt.Sprintf(`"x";r=%d;t=%d`, left, int(math.Ceil(until.Sub(now).Seconds()))+1))
			return respond(r, 200, h, ""), nil
		})}
		if _, good := fetchAll(t, rt, 23, 1); good != 23 || refused != 0 {
			t.Errorf("%d of 23, %d refused", good, refused)
		}
		left, until = 5, time.Now().Add(-time.Second)
		rt.Pace = true // after first use, as nothing runs
		begin := time.Now()
		if _, good := fetchAll(t, rt, 10, 1); good != 10 || refused != 0 {
			t.Errorf("paced: %d of 10, %d refused", good, refused)
		}
		if took := time.Since(begin); took < 30*time.Second {
			t.Errorf("paced: 10 items at 5 in 20s took %v", took)
		}
	})
}

// TestDeadlineFailsAtOnce: whoever cannot wait that long is told so now, not when the time is over.
func TestDeadlineFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		rt := &Transport{Base: s, Retry: &Retry{}, Gates: []Gate{{Limit: window(1, time.Minute)}}}
		fetchAll(t, rt, 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		begin := time.Now()
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example/", nil)
		_, err := rt.RoundTrip(r)
		var limited *weir.LimitedError
		if !errors.As(err, &limited) || limited.Limit != "api" || limited.RetryAfter != time.Minute {
			t.Errorf("%v", err)
		}
		if time.Since(begin) != 0 {
			t.Errorf("after %v", time.Since(begin))
		}
		// A refusal whose wait ends too late gives the refusal back, with its body.
		s.admit = func(time.Time) http.Header { return http.Header{"Retry-After": {"300"}} }
		time.Sleep(2 * time.Minute)
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		begin = time.Now()
		resp, err := rt.RoundTrip(r.WithContext(ctx))
		if err != nil || resp.StatusCode != 429 || time.Since(begin) != 0 {
			t.Fatalf("%v, %v after %v", resp, err, time.Since(begin))
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "slow down" || err != nil {
			t.Errorf("its body: %q, %v", b, err)
		}
	})
}

// TestAbsurdWaits: a server cannot make anybody wait for longer than MaxHold.
func TestAbsurdWaits(t *testing.T) {
	for _, after := range []string{"99999999999999999999", "86400", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{admit: func(time.Time) http.Header { return http.Header{"Retry-After": {after}} }}
			rt := &Transport{Base: s, Retry: &Retry{}}
			r, _ := http.NewRequest("GET", "https://api.example/", nil)
			_, err := rt.RoundTrip(r)
			var hold *HoldError
			if !errors.As(err, &hold) || hold.Asked < 24*time.Hour || hold.Max != defaultMaxHold || hold.Source != "Retry-After" {
				t.Fatalf("%s: %v", after, err)
			}
			s.admit = nil
			begin := time.Now()
			if _, err := rt.RoundTrip(r); err != nil || time.Since(begin) > 11*time.Minute || time.Since(begin) < 10*time.Minute {
				t.Errorf("%s: the next request: %v after %v, want about 10m", after, err, time.Since(begin))
			}
		})
	}
}

// TestForbiddenIsNoRefusal: a 403 of a provider that is known by its header is a refusal only if its body says so.
func TestForbiddenIsNoRefusal(t *testing.T) {
	for body, want := range map[string]int{
		`{"message": "Resource not accessible by integration"}`: 403,
		`{"message": "API rate limit exceeded"}`:                200,
	} {
		synctest.Test(t, func(t *testing.T) {
			forbidden := step{status: 403, header: http.Header{"X-Github-Request-Id": {"1"}}, body: strings.NewReader(body)}
			s := &script{steps: []step{forbidden, {status: 200}}}
			rt := &Transport{Base: s, Retry: &Retry{}}
			r, _ := http.NewRequest("GET", "https://github.example/api/v3/", nil)
			resp, err := rt.RoundTrip(r)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s: %v, %v; want %d", body, resp, err, want)
			}
			if got, _ := io.ReadAll(resp.Body); want == 403 && string(got) != body {
				t.Errorf("the body is %q, want %q", got, body)
			}
			resp.Body.Close()
		})
	}
}

// TestGuardGrowsAndShrinks: refusals that the gate cannot explain widen its margin, quiet periods narrow it.
func TestGuardGrowsAndShrinks(t *testing.T) {
	var g guards
	gate := &Gate{Limit: window(5, 10*time.Second)}
	now := time.Unix(1_800_000_000, 0)
	pad := func() time.Duration {
		return g.limit(gate, "k", now).Rate.Period - gate.Limit.Rate.Period
	}
	refused := func(sent time.Time) { g.refused(gate, "k", sent, now) }
	steps := []struct {
		after time.Duration
		sent  time.Duration // how long before now the request was sent that is refused; 0 none
		want  time.Duration
	}{
		{0, 0, 0},
		{time.Second, 100 * time.Millisecond, 100 * time.Millisecond},
		{time.Second, 1500 * time.Millisecond, 100 * time.Millisecond}, // under way at the first refusal: the same cause
		{time.Second, time.Millisecond, 200 * time.Millisecond},
		{time.Second, time.Millisecond, 400 * time.Millisecond},
		{time.Second, time.Millisecond, 800 * time.Millisecond},
		{time.Second, time.Millisecond, 1250 * time.Millisecond},
		{time.Second, time.Millisecond, 1250 * time.Millisecond},
		{10 * time.Second, 0, 1125 * time.Millisecond},
		{20 * time.Second, 0, 911250 * time.Microsecond},
		{time.Hour, 0, 0},
	}
	for i, s := range steps {
		now = now.Add(s.after)
		if s.sent > 0 {
			refused(now.Add(-s.sent))
		}
		if got := pad(); got != s.want {
			t.Fatalf("step %d: margin %v, want %v", i, got, s.want)
		}
	}
	if len(g.grown) != 0 {
		t.Errorf("%d margins are kept at rest", len(g.grown))
	}
	for i := range 3 * mostGuards {
		g.refused(gate, fmt.Sprint(i), now, now)
	}
	if len(g.grown) > mostGuards {
		t.Errorf("%d margins", len(g.grown))
	}
}

func TestHostKey(t *testing.T) {
	for url, want := range map[string]string{
		"https://API.Example/":       "host:api.example",
		"https://api.example:443/":   "host:api.example",
		"http://api.example:80/x":    "host:api.example",
		"http://api.example.:80/x":   "host:api.example",
		"http://api.example:443/":    "host:api.example:443",
		"https://[2001:db8::1]/":     "host:2001:db8::1",
		"https://[2001:db8::1]:8443": "host:[2001:db8::1]:8443",
	} {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := Host(r); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

func TestTransportValidate(t *testing.T) {
	for _, test := range []struct {
		rt   *Transport
		want string
	}{
		{&Transport{Gates: []Gate{{}}}, "without a limit"},
		{&Transport{Gates: []Gate{{Limit: &weir.Limit{Name: "x"}}}}, "no rate"},
		{&Transport{Gates: []Gate{{Limit: window(1, time.Second), Reopen: 7}}}, "neither AfterAnswer nor AfterStart"},
		{&Transport{Gates: []Gate{{Limit: window(1, time.Second), Guard: time.Minute}}}, "longer than the period"},
		{&Transport{Gates: []Gate{{Limit: &weir.Limit{Name: "x", Rate: weir.Rate{Units: 1, Period: time.Hour}}, Guard: time.Second}}}, "sliding-log"},
		{&Transport{MaxHold: -1}, "negative"},
	} {
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		if _, err := test.rt.RoundTrip(r); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want something about %q", err, test.want)
		}
	}
}
