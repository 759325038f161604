package quota

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// Demo fetches Items with Workers from servers that take Units in a Window, in several ways at the same time, each from a
// server of its own.
type Demo struct {
	Items, Workers, Units int
	Window                time.Duration
	Answer                time.Duration // how long an answer takes
	Way                   time.Duration // how long a request is on its way, on average; it is random

	Progress func(done, all int) // items that are settled, in all ways together
}

// Default is the demo that weir demo client shows.
var Default = Demo{Items: 30, Workers: 6, Units: 5, Window: 3 * time.Second, Answer: 20 * time.Millisecond, Way: 10 * time.Millisecond}

// Report is what was measured.
type Report struct {
	Items   int     `json:"items"`
	Workers int     `json:"workers"`
	Units   int     `json:"units"`
	Window  float64 `json:"window_seconds"`
	Bound   float64 `json:"bound_seconds"` // the least that any way can take
	Ways    []Way   `json:"ways"`
}

// Way is one way of fetching, and how it went.
type Way struct {
	Name     string  `json:"name"`
	Server   string  `json:"server"` // how the server counts
	Fetched  int     `json:"fetched"`
	Lost     int     `json:"not_fetched"`
	Requests int     `json:"requests"` // that arrived
	Refused  int     `json:"refused"`
	Seconds  float64 `json:"seconds"`
}

// caller fetches all items and returns when it is done with them.
type caller func(ctx context.Context, d Demo, client *http.Client, url string, settled func())

// Run runs all ways.
func (d Demo) Run(ctx context.Context) (*Report, error) {
	plan := batch.Plan{Requests: d.Items, Units: d.Units, Window: d.Window, Workers: d.Workers, Latency: d.Answer}
	r := &Report{Items: d.Items, Workers: d.Workers, Units: d.Units, Window: d.Window.Seconds(), Bound: plan.Bound().Seconds()}
	exact := func() *Server { return &Server{Count: weir.SlidingLog} }
	ways := []struct {
		name, counts string
		server       *Server
		call         caller
	}{
		{"no gate, three tries", "any window", exact(), noGate},
		{"one at a time, sleeping", "any window", exact(), serialSleeps},
		{"gate on starts, shared pause", "any window", exact(), gateOnStarts},
		{"golang.org/x/time/rate", "any window", exact(), tokenBucket},
		{"weir", "any window", exact(), withWeir},
		{"weir", "the server counts fixed windows", &Server{Count: weir.FixedWindow}, withWeir},
		{"weir", "the server has a token bucket", &Server{Count: weir.TokenBucket}, withWeir},
		{"weir", "others spend of the quota too", &Server{Count: weir.SlidingLog, Others: d.Window}, withWeir},
	}
	r.Ways = make([]Way, len(ways))
	var wg sync.WaitGroup
	var mu sync.Mutex
	settled := 0
	errs := make(chan error, len(ways))
	for i, w := range ways {
		server := w.server
		server.Units, server.Window, server.Answer = d.Units, d.Window, d.Answer
		wg.Go(func() {
			way, err := d.one(ctx, server, w.call, func() {
				mu.Lock()
				defer mu.Unlock()
				if settled++; d.Progress != nil {
					d.Progress(settled, len(ways)*d.Items)
				}
			})
			if err != nil {
				errs <- err
				return
			}
			way.Name, way.Server = w.name, w.counts
			r.Ways[i] = way
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
		return r, ctx.Err()
	}
}

func (d Demo) one(ctx context.Context, s *Server, call caller, settled func()) (Way, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Way{}, fmt.Errorf("demo: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener) // until Close
	defer server.Close()
	base := &http.Transport{MaxIdleConnsPerHost: d.Workers}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &way{base: base, mean: d.Way}, Timeout: 30 * time.Second}
	began := time.Now()
	call(ctx, d, client, "http://"+listener.Addr().String(), settled)
	took := time.Since(began)
	fetched := s.Fetched()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Way{Fetched: fetched, Lost: d.Items - fetched, Requests: s.Arrived, Refused: s.Refused, Seconds: took.Seconds()}, nil
}

// way is the network: requests are on it for a random time, and may overtake each other.
type way struct {
	base http.RoundTripper
	mean time.Duration
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(min(time.Duration(rand.ExpFloat64()*float64(w.mean)), 20*w.mean)):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return w.base.RoundTrip(r)
}

func get(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// workers hands the items out to the workers.
func (d Demo) workers(ctx context.Context, fetch func(item string)) {
	items := make(chan string)
	var wg sync.WaitGroup
	for range d.Workers {
		wg.Go(func() {
			for item := range items {
				fetch(item)
			}
		})
	}
	for i := range d.Items {
		select {
		case items <- fmt.Sprintf("/%d", i):
		case <-ctx.Done():
		}
	}
	close(items)
	wg.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// noGate asks as fast as it can, and again twice after a second.
func noGate(ctx context.Context, d Demo, client *http.Client, url string, settled func()) {
	d.workers(ctx, func(item string) {
		defer settled()
		for range 3 {
			if get(ctx, client, url+item) == http.StatusOK {
				return
			}
			pause(ctx, time.Second)
		}
	})
}

// serialSleeps is the loop that everybody writes first.
func serialSleeps(ctx context.Context, d Demo, client *http.Client, url string, settled func()) {
	for i := range d.Items {
		if i > 0 {
			pause(ctx, d.Window/time.Duration(d.Units))
		}
		get(ctx, client, fmt.Sprintf("%s/%d", url, i))
		settled()
	}
}

// gateOnStarts lets no more start in any window than the server takes, and after a refusal lets all
// workers pause for a window.
func gateOnStarts(ctx context.Context, d Demo, client *http.Client, url string, settled func()) {
	var lim weir.Limiter
	starts := &weir.Limit{Name: "starts", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: int64(d.Units), Period: d.Window}}
	d.workers(ctx, func(item string) {
		defer settled()
		if _, err := lim.Wait(ctx, starts.For("")); err != nil {
			return
		}
		if get(ctx, client, url+item) == http.StatusTooManyRequests {
			lim.Hold(ctx, time.Now().Add(d.Window), starts.For(""))
		}
	})
}

func tokenBucket(ctx context.Context, d Demo, client *http.Client, url string, settled func()) {
	lim := rate.NewLimiter(rate.Every(d.Window/time.Duration(d.Units)), d.Units)
	d.workers(ctx, func(item string) {
		defer settled()
		if lim.Wait(ctx) == nil {
			get(ctx, client, url+item)
		}
	})
}

func withWeir(ctx context.Context, d Demo, client *http.Client, url string, settled func()) {
	limit := &weir.Limit{Name: "quota", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: int64(d.Units), Period: d.Window}}
	c := *client
	c.Timeout = 0 // waiting at the gate is no part of it
	c.Transport = &httplimit.Transport{
		Base:    client.Transport,
		Gates:   []httplimit.Gate{{Limit: limit}},
		Timeout: client.Timeout,
		Retry:   &httplimit.Retry{},
	}
	d.workers(ctx, func(item string) {
		get(ctx, &c, url+item)
		settled()
	})
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%d items from a server that takes %d requests in any %v s, with %d workers. No way takes less than %.1f s.\n\n", r.Items, r.Units, r.Window, r.Workers, r.Bound)
	fmt.Fprintf(w, "  %-46s %7s %7s %7s %9s %8s\n", "", "fetched", "lost", "refused", "time", "of least")
	for _, way := range r.Ways {
		name := way.Name
		if name == "weir" && way.Server != "any window" {
			name = "weir; " + way.Server
		}
		fmt.Fprintf(w, "  %-46s %7d %7d %7d %7.1f s %7.2f×\n", name, way.Fetched, way.Lost, way.Refused, way.Seconds, way.Seconds/r.Bound)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.conclusion())
	return err
}

// conclusion says in a sentence what was measured.
func (r *Report) conclusion() string {
	best := r.Best()
	text := fmt.Sprintf("weir fetched %d of %d with %d refused, in %.2f times the least.", best.Fetched, r.Items, best.Refused, best.Seconds/r.Bound)
	lost := 0
	for _, way := range r.Ways {
		if way.Name == "weir" && way != *best {
			lost += way.Lost
		}
	}
	if lost == 0 {
		return text + " Against servers that count otherwise, or whose quota\nothers spend too, it lost nothing either."
	}
	return text + fmt.Sprintf(" Against the other servers it lost %d.", lost)
}

// Best is the row of weir against a server that counts any window.
func (r *Report) Best() *Way {
	for i := range r.Ways {
		if r.Ways[i].Name == "weir" && r.Ways[i].Server == "any window" {
			return &r.Ways[i]
		}
	}
	return nil
}
