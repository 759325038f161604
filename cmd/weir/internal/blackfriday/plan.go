package blackfriday

import (
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// The backend that is wanted; a slow machine gets fewer workers of the same speed.
const (
	wantCapacity = 1500 // requests a second
	service      = 20 * time.Millisecond
	within       = 80 * time.Millisecond // what the backend keeps as long as it is not overrun
	patience     = time.Second
	queueTime    = 1500 * time.Millisecond // of work that fits into its queue: more than anybody waits, as is usual

	// connectionsPer is how many connections the clients may have for each request a second of the capacity. As many
	// requests are open as wait for their second to pass; the rest is for when this machine falls behind.
	connectionsPer = 2
)

// class is one kind of client.
type class struct {
	name   string
	share  float64 // of the wave
	method string
	path   string
	bucket func(random *rand.Rand, peak float64) string // the address of a client
}

// The wave is 3.5 times the capacity by default; customers' orders alone are then 0.8 of it. The runaway client asks
// for what customers ask for, so that no priority tells them apart.
var classes = []class{
	{"orders", 0.8 / 3.5, "POST", "/orders", func(r *rand.Rand, _ float64) string {
		return fmt.Sprintf("198.18.%d.%d", r.IntN(100), 1+r.IntN(250)) // 25,000 customers
	}},
	{"back office", 1.2 / 3.5, "GET", "/reports/stock", func(r *rand.Rand, peak float64) string {
		desk := r.IntN(1 + int(peak/4)) // each reads about 4 times a second at the peak
		return fmt.Sprintf("10.20.%d.%d", desk/250, 1+desk%250)
	}},
	{"runaway client", 1.5 / 3.5, "POST", "/orders", func(*rand.Rand, float64) string { return runaway }},
}

const (
	orders = iota
	backOffice
	runawayClient
)

const runaway = "203.0.113.66"

// plan is everything that follows from the capacity, the factor and the length of an act.
type plan struct {
	capacity float64 // requests a second
	factor   float64
	length   time.Duration
}

// backend is a pool of at least one worker that serves the capacity.
func (p plan) backend() *Backend {
	workers := max(1, int(math.Round(p.capacity*service.Seconds())))
	return &Backend{
		Workers:  workers,
		Service:  time.Duration(float64(workers) / p.capacity * float64(time.Second)),
		Queue:    int(math.Ceil(p.capacity * queueTime.Seconds())),
		Patience: patience,
	}
}

func (p plan) connections() int {
	return min(20_000, max(64, int(connectionsPer*p.capacity)))
}

// wave is calm, rises, stays and falls; the rates are of all classes together.
func (p plan) wave() traffic.Profile {
	at := func(share float64) time.Duration { return time.Duration(share * float64(p.length)) }
	peak := p.factor * p.capacity
	calm := min(peak, 0.5*p.capacity)
	return traffic.Profile{{At: 0, Rate: calm}, {At: at(0.15), Rate: calm}, {At: at(0.2), Rate: peak},
		{At: at(0.75), Rate: peak}, {At: at(0.8), Rate: calm}, {At: at(1), Rate: calm}}
}

// limits are the policy: the backend gets what it can serve, with orders in front; a client gets what a person could
// want. The bucket of the backend is small, since what it lets through at once waits for a worker, and its rate is a
// little below the capacity, so that such a queue empties. Most of it is kept for orders that come in a bunch.
func (p plan) limits() (backend, client *weir.Limit) {
	burst := max(10, int64(p.capacity*0.04))
	backend = &weir.Limit{
		Name:     "backend",
		Rate:     weir.Rate{Units: max(1, int64(p.capacity*0.95)), Period: time.Second},
		Burst:    burst,
		Headroom: burst * 2 / 5,
	}
	client = &weir.Limit{Name: "client", Rate: weir.Rate{Units: 10, Period: time.Second}, Burst: 20}
	return backend, client
}

// shots are the requests of a wave, in order: the same each time.
func shots(wave traffic.Profile, target string) iter.Seq[traffic.Shot] {
	arrivals := make([]iter.Seq[time.Duration], len(classes))
	for i, c := range classes {
		arrivals[i] = wave.Scale(c.share).Poisson(uint64(i))
	}
	return func(yield func(traffic.Shot) bool) {
		random := rand.New(rand.NewPCG(1, 1))
		for i, at := range traffic.Merge(arrivals...) {
			c := &classes[i]
			address := c.bucket(random, wave.Peak()*c.share)
			if !yield(traffic.Shot{At: at, Class: i, Request: request(c, target, address)}) {
				return
			}
		}
	}
}

func request(c *class, target, address string) *http.Request {
	r := &http.Request{
		Method: c.method,
		URL:    &url.URL{Scheme: "http", Host: target, Path: c.path},
		Header: http.Header{"X-Forwarded-For": {address}},
	}
	if c.method == "POST" {
		const order = `{"item":"umbrella","quantity":1}`
		r.ContentLength = int64(len(order))
		r.Header.Set("Content-Type", "application/json")
		r.Body = io.NopCloser(strings.NewReader(order))
	}
	return r
}
