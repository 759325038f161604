package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// asking is events at the instants of a profile, of clients in turn.
func asking(p Profile, class string, clients int) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		n := 0
		for at := range p.Even() {
			e := Event{At: time.Unix(0, 0).Add(at), Class: class, Client: fmt.Sprintf("198.18.0.%d", 1+n%clients), Method: "GET", Path: "/orders"}
			if !yield(e) {
				return
			}
			n++
		}
	}
}

var plenty = weir.Rate{Units: 100_000, Period: time.Second}

func due(t *testing.T, d *Driven) (due int64) {
	t.Helper()
	for _, c := range d.Classes {
		k := c.Tally
		if k.Sent != k.OK+k.Refused+k.Failed+k.Other+k.Unanswered {
			t.Errorf("%s: the parts of %+v do not add up", c.Name, k)
		}
		var m Moment
		for i := range c.Moments {
			m.add(&c.Moments[i])
		}
		if m.Sent != k.Sent || m.OK != k.OK || m.Refused != k.Refused || m.Failed != k.Failed || m.Unanswered != k.Unanswered {
			t.Errorf("%s: the moments add up to %+v, of %+v", c.Name, m, k)
		}
		if p := c.Promises; p.Given+p.Missing > k.Refused+c.Cut || p.Followed() != p.Kept+p.Taken+p.Unclear+p.Broken+p.Lost+p.Open {
			t.Errorf("%s: %+v of %d refusals", c.Name, p, k.Refused)
		}
		due += c.Due()
	}
	return due
}

func TestDriveCountsOverLoopback(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen[r.Method+" "+r.Host+r.RequestURI+" "+r.Header.Get("X-Forwarded-For")+" "+string(body)]++
		switch n := len(seen) + seen["n"]; n % 4 {
		case 0:
			w.WriteHeader(429)
		case 1:
			w.WriteHeader(503)
		case 2:
			w.WriteHeader(302)
		}
		seen["n"]++
	}))
	defer server.Close()
	events := func(yield func(Event) bool) {
		for i, at := range Merge(Steady(300, time.Second).Even(), Steady(100, time.Second).Even()) {
			e := Event{At: time.Unix(9, 0).Add(at), Class: "order", Client: "198.18.0.1", Method: "POST", Path: "/orders?page=%2F&x", Host: "shop.example"}
			if i == 1 {
				e = Event{At: e.At, Class: "search", Client: "198.18.0.2", Method: "GET", Path: "//evil.example/a%2Fb", Host: "shop.example"}
			}
			if !yield(e) {
				return
			}
		}
	}
	d := Drive{
		URL: server.URL + "/v1/", Events: events, Classes: []Class{{Name: "order", Body: "{}"}, {Name: "search"}},
		Ceiling: plenty, Samples: -1,
	}
	res, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := due(t, res); n != 400 || res.Classes[0].Tally.Sent != 300 || res.Classes[1].Tally.Sent != 100 || res.Ended != EndComplete {
		t.Errorf("%d came due, %+v; want 300 and 100", n, res)
	}
	if a, b := seen["POST shop.example/v1/orders?page=%2F&x 198.18.0.1 {}"], seen["GET shop.example/v1//evil.example/a%2Fb 198.18.0.2 "]; a != 300 || b != 100 {
		t.Errorf("the server saw %v", seen)
	}
	p := res.Classes[0].Promises
	if k := res.Classes[0].Tally; k.Refused == 0 || p.Missing != k.Refused || p.Followed() != 0 {
		t.Errorf("%d refusals without Retry-After: %+v", k.Refused, p)
	}
}

func TestDriveNamesWhyThereIsNoAnswer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	d := Drive{URL: server.URL, Events: asking(Steady(50, time.Second/5), "a", 1), Ceiling: plenty}
	res, err := d.Run(t.Context())
	if err != nil || len(res.Faults) != 1 || res.Faults[0] != (DriveFault{"connection refused", 10}) {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestDriveGoesNowhereElse(t *testing.T) {
	for _, tt := range []struct {
		url   string
		hosts []string
		ok    bool
	}{
		{"http://127.0.0.1:8080", nil, true},
		{"http://127.9.9.9/", nil, true},
		{"http://[::1]:80/a", nil, true},
		{"http://[::ffff:127.0.0.1]/", nil, true},
		{"https://LOCALHOST", nil, true},
		{"http://192.0.2.1/", nil, false},
		{"http://shop.example/", nil, false},
		{"http://shop.example/", []string{"shop.test", "Shop.Example"}, true},
		{"http://shop.example.evil.test/", []string{"shop.example"}, false},
		{"http://[2001:db8::1]:80/", []string{"[2001:db8::1]"}, true},
		{"http://0.0.0.0:80/", nil, false},
		{"http://localhost.shop.example/", nil, false},
		{"http://127.0.0.1.shop.example/", nil, false},
		{"http://127.0.0.1@shop.example/", nil, false},
		{"http://shop.example@127.0.0.1/", nil, false}, // no secrets in URLs
		{"http://127.1/", nil, false},
		{"ftp://127.0.0.1/", nil, false},
		{"127.0.0.1:8080", nil, false},
		{"", nil, false},
	} {
		d := Drive{URL: tt.url, Hosts: tt.hosts, Events: asking(nil, "", 1), Ceiling: plenty}
		if err := d.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s with %q: %v, want ok=%v", tt.url, tt.hosts, err, tt.ok)
		}
	}
	// A name of this machine that leads elsewhere does not get through either.
	d := Drive{}
	u := must(http.NewRequest("GET", "http://localhost", nil)).URL
	if _, err := d.transport(u).DialContext(t.Context(), "tcp", "192.0.2.1:80"); !errors.Is(err, ErrHost) {
		t.Errorf("dialed: %v, want ErrHost", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestDriveNeedsACeiling(t *testing.T) {
	for _, ceiling := range []weir.Rate{{}, {Units: 0, Period: time.Second}, {Units: 10}, {Units: 1 << 40, Period: time.Second}} {
		d := Drive{URL: "http://127.0.0.1", Events: asking(nil, "", 1), Ceiling: ceiling}
		if _, err := d.Run(t.Context()); err == nil {
			t.Errorf("ceiling %v: no error", ceiling)
		}
	}
}

// The ceiling holds in every second, for events and for those who come back, when asked for ten times as much and
// after a pause of the sender.
func TestDriveKeepsItsCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var mu sync.Mutex
		d := Drive{
			URL: "http://127.0.0.1", Ceiling: weir.Rate{Units: 100, Period: time.Second},
			Transport: transport(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				r := answer(429)
				r.Header = http.Header{"Retry-After": {"0"}}
				return r, nil
			}),
		}
		d.Events = func(yield func(Event) bool) {
			n := 0
			for e := range asking(Steady(1000, 5*time.Second), "a", 7) {
				if n++; n == 2000 {
					time.Sleep(700 * time.Millisecond) // what a machine does that has other work
				}
				if !yield(e) {
					return
				}
			}
		}
		res, err := d.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(at, time.Time.Compare)
		for i := range at {
			if i >= 100 && at[i].Sub(at[i-100]) < time.Second {
				t.Fatalf("101 requests within %v", at[i].Sub(at[i-100]))
			}
		}
		c := res.Classes[0]
		if due(t, res) != 5000 || c.OverCeiling == 0 || c.Promises.Followed() == 0 || len(at) < 450 {
			t.Errorf("%d due, %d over the ceiling, %d came back, %d arrived", c.Due(), c.OverCeiling, c.Promises.Followed(), len(at))
		}
	})
}

// A rate that is the ceiling itself loses nothing to jitter.
func TestDriveAtItsCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Drive{
			URL: "http://127.0.0.1", Events: asking(Steady(500, 3*time.Second), "a", 1), Ceiling: weir.Rate{Units: 500, Period: time.Second},
			Transport: transport(func(*http.Request) (*http.Response, error) { return answer(200), nil }),
		}
		res, err := d.Run(t.Context())
		if err != nil || res.Classes[0].Tally.OK != 1500 {
			t.Errorf("%v, %+v; want 1500 served", err, res)
		}
	})
}

func TestDriveIsNotSlowedByAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var arrived []time.Duration
		d := Drive{
			URL: "http://127.0.0.1", Events: asking(Steady(200, 4*time.Second), "a", 10), Ceiling: plenty,
			Transport: transport(func(*http.Request) (*http.Response, error) {
				now := time.Since(begin)
				mu.Lock()
				arrived = append(arrived, now)
				mu.Unlock()
				if now >= time.Second && now < 3*time.Second {
					time.Sleep(3*time.Second - now)
				}
				return answer(200), nil
			}),
		}
		res, err := d.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range arrived {
			if want := time.Duration(i) * 5 * time.Millisecond; at != want {
				t.Fatalf("request %d arrived at %v, want %v", i, at, want)
			}
		}
		k := res.Classes[0].Tally
		if len(arrived) != 800 || k.OK != 800 || k.Late != 0 || k.Latency.Max() != 2*time.Second {
			t.Errorf("%d arrived, %d served, %d late, slowest %v; want 800, 800, 0, 2s", len(arrived), k.OK, k.Late, k.Latency.Max())
		}
		if m := res.Classes[0].Moments; len(m) != 4 || m[1].Slowest != 2*time.Second || m[1].Sent != 200 || m[3].Slowest != 0 {
			t.Errorf("moments %+v", m)
		}
	})
}

func TestDriveBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ok := transport(func(*http.Request) (*http.Response, error) { return answer(200), nil })
		for _, tt := range []struct {
			name         string
			maxRequests  int64
			maxTime      time.Duration
			sent         int64
			ended        string
			lastsAtMost  time.Duration
			lastsAtLeast time.Duration
		}{
			{"none reached", 1000, time.Hour, 100, EndComplete, 10 * time.Second, 9 * time.Second},
			{"requests", 30, time.Hour, 30, EndMaxRequests, 3 * time.Second, 2 * time.Second},
			{"time", 0, 5 * time.Second, 50, EndMaxTime, 5 * time.Second, 4 * time.Second},
		} {
			d := Drive{
				URL: "http://127.0.0.1", Events: asking(Steady(10, 10*time.Second), "a", 1), Ceiling: plenty, Transport: ok,
				MaxRequests: tt.maxRequests, MaxTime: tt.maxTime,
			}
			res, err := d.Run(t.Context())
			if err != nil || res.Classes[0].Tally.OK != tt.sent || res.Ended != tt.ended || res.Lasted > tt.lastsAtMost || res.Lasted < tt.lastsAtLeast {
				t.Errorf("%s: %v, %+v; want %d sent, %s", tt.name, err, res, tt.sent, tt.ended)
			}
		}
	})
}

// A sender that cannot keep up ends as early, and does not blame the server.
func TestDriveThatFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Drive{
			URL: "http://127.0.0.1", Ceiling: plenty, Timeout: 2 * time.Second, MaxTime: 10 * time.Second,
			Transport: transport(func(*http.Request) (*http.Response, error) { return answer(200), nil }),
		}
		d.Events = func(yield func(Event) bool) {
			for e := range asking(Steady(10, 9*time.Second), "a", 1) {
				time.Sleep(200 * time.Millisecond) // twice as long as it has
				if !yield(e) {
					return
				}
			}
		}
		res, err := d.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := res.Classes[0]
		// The k-th comes at k·200 ms instead of (k−1)·100 ms: from the 19th on 2 s or more too late.
		if due(t, res) != 49 || c.Tally.OK != 18 || c.TooLate != 31 || c.Tally.Unanswered != 0 || res.Lasted != 10*time.Second || res.Ended != EndMaxTime {
			t.Errorf("%d served, %d too late, %v, %s", c.Tally.OK, c.TooLate, res.Lasted, res.Ended)
		}
	})
}

func TestDriveStopsWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		n := 0
		d := Drive{
			URL: "http://127.0.0.1", Events: asking(Steady(1, time.Hour), "a", 1), MaxTime: time.Hour, Ceiling: plenty,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if n++; n < 3 {
					return answer(200), nil
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		}
		res, err := d.Run(ctx)
		if err != nil || res.Ended != EndInterrupted || res.Lasted != 2500*time.Millisecond || res.Classes[0].Tally.OK != 2 || res.Classes[0].Cut != 1 {
			t.Errorf("%v, %+v; want 2 served and 1 cut off after 2.5s", err, res)
		}
		due(t, res)
	})
}

// A day of 20 minutes a moment.
func TestDriveMomentsStayFew(t *testing.T) {
	r := driving{result: Driven{Step: time.Second, Classes: make([]ClassDriven, 2)}}
	for at := time.Duration(0); at < 24*time.Hour; at += 30 * time.Second {
		r.moment(&r.result.Classes[at/(30*time.Second)%2], at).Sent++
	}
	for _, c := range r.result.Classes {
		var all Moment
		for i := range c.Moments {
			all.add(&c.Moments[i])
			if i < len(c.Moments)-1 && c.Moments[i].Sent == 0 {
				t.Errorf("moment %d is empty", i)
			}
		}
		if len(c.Moments) > moments || all.Sent != 24*60 {
			t.Errorf("%d moments, %d sent", len(c.Moments), all.Sent)
		}
	}
}

func TestDriveRefusesWhatIsNoPath(t *testing.T) {
	for _, path := range []string{"*", "http://evil.example/", "orders", "/%zz"} {
		events := func(yield func(Event) bool) { yield(Event{Path: path}) }
		d := Drive{URL: "http://127.0.0.1:1", Events: events, Ceiling: plenty, Transport: transport(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("sent to %s", r.URL)
		})}
		if _, err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is no path") {
			t.Errorf("%q: %v", path, err)
		}
	}
}
