package traffic

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// limited is a server with one limit a client, or for all, in the time of a bubble. It says what tell makes of the true wait.
func limited(limit *weir.Limit, shared bool, tell func(time.Duration) string) transport {
	limiter := &weir.Limiter{}
	return func(r *http.Request) (*http.Response, error) {
		key := r.Header.Get("X-Forwarded-For")
		if shared {
			key = ""
		}
		d, err := limiter.Take(context.Background(), limit.For(key))
		if err != nil {
			return nil, err
		}
		if d.Allowed {
			time.Sleep(3 * time.Millisecond) // of work
			return answer(200), nil
		}
		resp := answer(429)
		resp.Header = http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
		if said := tell(d.RetryAfter); said != "" {
			resp.Header.Set("Retry-After", said)
		}
		return resp, nil
	}
}

func truth(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

func asDate(d time.Duration) string {
	return time.Now().Add(d + time.Second).UTC().Format(http.TimeFormat)
}

func always(s string) func(time.Duration) string {
	return func(time.Duration) string { return s }
}

// Against servers whose truth is known: an honest one is never shown as having broken a promise, a liar always is.
func TestPromises(t *testing.T) {
	perSecond := func(a weir.Algorithm, n int64, period time.Duration) *weir.Limit {
		return &weir.Limit{Name: "client", Algorithm: a, Rate: weir.Rate{Units: n, Period: period}}
	}
	for _, tt := range []struct {
		name      string
		limit     *weir.Limit
		shared    bool
		tell      func(time.Duration) string
		clients   int
		perClient bool
		broken    bool
	}{
		{name: "one client, token bucket", limit: perSecond(weir.TokenBucket, 20, 2*time.Second), tell: truth, clients: 1},
		{name: "one client, GCRA", limit: perSecond(weir.GCRA, 20, 2*time.Second), tell: truth, clients: 1},
		{name: "one client, fixed window", limit: perSecond(weir.FixedWindow, 20, 3*time.Second), tell: truth, clients: 1},
		{name: "one client, sliding window", limit: perSecond(weir.SlidingWindow, 20, 3*time.Second), tell: truth, clients: 1},
		{name: "one client, sliding log", limit: perSecond(weir.SlidingLog, 20, 3*time.Second), tell: truth, clients: 1},
		{name: "many clients", limit: perSecond(weir.SlidingLog, 3, 3*time.Second), tell: truth, clients: 40},
		{name: "many clients, and nothing is shared", limit: perSecond(weir.SlidingLog, 3, 3*time.Second), tell: truth, clients: 40, perClient: true},
		{name: "many clients, one limit", limit: perSecond(weir.TokenBucket, 20, time.Second), shared: true, tell: truth, clients: 40},
		{name: "many clients, one limit, a small one", limit: perSecond(weir.FixedWindow, 3, 3*time.Second), shared: true, tell: truth, clients: 40},
		{name: "says it as a date", limit: perSecond(weir.FixedWindow, 20, 3*time.Second), tell: asDate, clients: 4},

		{name: "says 1 and means 10", limit: perSecond(weir.FixedWindow, 20, 10*time.Second), tell: always("1"), clients: 1, broken: true},
		{name: "says 1 and means 10, to many", limit: perSecond(weir.FixedWindow, 2, 10*time.Second), tell: always("1"), clients: 40, broken: true},
		{name: "says 0", limit: perSecond(weir.FixedWindow, 20, 10*time.Second), tell: always("0"), clients: 1, broken: true},
		{name: "says a date that is over", limit: perSecond(weir.FixedWindow, 20, 10*time.Second), tell: always("Fri, 01 Jan 1999 00:00:00 GMT"), clients: 1, broken: true},
		{name: "one limit for many, and a lie", limit: perSecond(weir.FixedWindow, 3, 20*time.Second), shared: true, tell: always("1"), clients: 40, broken: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := Drive{
					URL: "http://127.0.0.1", Events: asking(Steady(100, 6*time.Second), "a", tt.clients), Ceiling: plenty,
					Transport: limited(tt.limit, tt.shared, tt.tell), PerClient: tt.perClient,
				}
				res, err := d.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				due(t, res)
				p := res.Classes[0].Promises
				t.Logf("%d refused: %+v, %v", res.Classes[0].Tally.Refused, p, res.Lasted)
				switch {
				case p.Given != res.Classes[0].Tally.Refused || p.Missing != 0:
					t.Errorf("%d of %d refusals said when to come back", p.Given, res.Classes[0].Tally.Refused)
				case tt.broken && (p.Broken == 0 || p.Example == nil || p.Example.Said != tt.tell(0)):
					t.Errorf("a lie was not found: %+v", p)
				case !tt.broken && (p.Broken != 0 || p.Kept == 0):
					t.Errorf("an honest server: %+v", p)
				}
			})
		})
	}
}

// A client that follows waits exactly as long as it was told, and is sent no more often than that beside the events.
func TestWhoIsToldWaitsAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begin := time.Now()
		var at []time.Duration
		d := Drive{
			URL: "http://127.0.0.1", Events: asking(Profile{{0, 1}, {time.Second, 1}}, "a", 1), Ceiling: plenty,
			Transport: transport(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begin))
				time.Sleep(100 * time.Millisecond)
				r := answer(429)
				r.Header = http.Header{"Retry-After": {"3", "2"}} // the longer one counts
				return r, nil
			}),
		}
		res, err := d.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 3100, 6200, 9300, 12400, 15500} // and then it has had enough
		for i := range want {
			want[i] *= time.Millisecond
		}
		if fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("asked at %v, want %v", at, want)
		}
		if p := res.Classes[0].Promises; p.Broken != 5 || p.Followed() != 5 || p.Example.Waited != 3*time.Second || p.Example.ThenSaid != "3, 2" {
			t.Errorf("%+v, %+v", p, p.Example)
		}
	})
}

// Nobody is made to wait longer than Linger, neither by one answer nor after the last event.
func TestNobodyWaitsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for said, want := range map[string]Promises{
			"11":                   {Given: 5, TooLong: 5},
			"99999999999999999":    {Given: 5, TooLong: 5},
			"10":                   {Given: 5, Open: 1}, // told at 0.5 s; the last event was at 0.4 s
			"-1":                   {Missing: 5},
			"1.5":                  {Missing: 5},
			"soon":                 {Missing: 5},
			"99999999999999999999": {Missing: 5},
		} {
			d := Drive{
				URL: "http://127.0.0.1", Events: asking(Steady(10, time.Second/2), "a", 1), Ceiling: plenty, Linger: 10 * time.Second,
				Transport: transport(func(*http.Request) (*http.Response, error) {
					r := answer(429)
					r.Header = http.Header{"Retry-After": {said}}
					if said == "10" {
						time.Sleep(500 * time.Millisecond)
					}
					return r, nil
				}),
			}
			res, err := d.Run(t.Context())
			if err != nil || res.Classes[0].Promises != want || res.Lasted > 11*time.Second {
				t.Errorf("Retry-After %s: %v, %+v after %v; want %+v", said, err, res.Classes[0].Promises, res.Lasted, want)
			}
		}
	})
}
