package batch

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Tally is what one item took.
type Tally struct {
	Requests int           `json:"requests,omitempty"`
	Refusals int           `json:"refusals,omitempty"`
	Waited   time.Duration `json:"waited_ns,omitempty"`
}

// Counter counts for a Tally. Its methods may be called concurrently; on a nil Counter they do nothing.
type Counter struct {
	requests, refusals, waited atomic.Int64
}

type counterKey struct{}

// WithTally is a context whose requests a [Meter] counts.
func WithTally(ctx context.Context) (context.Context, *Counter) {
	c := new(Counter)
	return context.WithValue(ctx, counterKey{}, c), c
}

// CounterOf is the Counter of a context, or nil.
func CounterOf(ctx context.Context) *Counter {
	c, _ := ctx.Value(counterKey{}).(*Counter)
	return c
}

// Request counts an attempt, and whether it was refused.
func (c *Counter) Request(refused bool) {
	if c == nil {
		return
	}
	c.requests.Add(1)
	if refused {
		c.refusals.Add(1)
	}
}

// Wait counts time spent waiting for a limit or between attempts.
func (c *Counter) Wait(d time.Duration) {
	if c != nil {
		c.waited.Add(int64(d))
	}
}

func (c *Counter) read() Tally {
	return Tally{int(c.requests.Load()), int(c.refusals.Load()), time.Duration(c.waited.Load())}
}

// Meter is an http.RoundTripper that counts attempts and refusals. It stands below whatever repeats requests, so
// that it sees every attempt.
type Meter struct {
	Base http.RoundTripper // nil: http.DefaultTransport

	// Refused says whether an answer is a refusal by a limit; nil: status 429.
	Refused func(*http.Response) bool
}

// RoundTrip implements http.RoundTripper.
func (m *Meter) RoundTrip(req *http.Request) (*http.Response, error) {
	base := m.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(req)
	refused := err == nil && resp.StatusCode == http.StatusTooManyRequests
	if err == nil && m.Refused != nil {
		refused = m.Refused(resp)
	}
	CounterOf(req.Context()).Request(refused)
	return resp, err
}

// Settle adds what was counted to a ledger.
func (c *Counter) Settle(l *Ledger) {
	t := c.read()
	l.Requests += t.Requests
	l.Refusals += t.Refusals
	l.Waited += t.Waited
}
