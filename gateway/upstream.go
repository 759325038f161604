package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// What an Upstream, Retry or Breaker means where it says 0.
const (
	defaultTimeout     = 30 * time.Second
	defaultDialTimeout = 5 * time.Second
	defaultAttempts    = 2
	defaultBudget      = 0.1
	defaultRetryDelay  = 25 * time.Millisecond
	defaultFailures    = 5
	defaultBreakDelay  = 5 * time.Second

	// minRetries may be under way at once whatever the budget says: with few requests there is no share to speak of.
	minRetries = 3
)

// upstream is a server that requests are passed on to, with what guards it: connections and their timeouts, a
// circuit breaker, retries within a budget, and a bound on requests at once.
type upstream struct {
	name       string
	conf       Upstream
	url        *url.URL
	transports map[time.Duration]*http.Transport // by time to the answer's first byte
	latency    observer

	slots   bulkhead.Bulkhead[*http.Response]             // nil: no bound
	breaker circuitbreaker.CircuitBreaker[*http.Response] // nil: none
	retry   failsafe.Executor[*http.Response]             // nil: none
}

// observer is told how many seconds something took.
type observer interface{ Observe(seconds float64) }

// newUpstream is the upstream of a configuration. changed is told when the breaker opens or closes.
func newUpstream(name string, conf *Upstream, latency observer, changed func(upstream, from, to string)) (*upstream, error) {
	u, err := url.Parse(conf.URL)
	if err != nil {
		return nil, err
	}
	up := &upstream{name: name, conf: *conf, url: u, latency: latency, transports: make(map[time.Duration]*http.Transport)}
	if conf.Concurrency > 0 {
		up.slots = bulkhead.New[*http.Response](uint(conf.Concurrency))
	}
	if b := conf.Breaker; b != nil {
		up.breaker = circuitbreaker.NewBuilder[*http.Response]().
			WithFailureThreshold(uint(cmp.Or(b.Failures, defaultFailures))).
			WithSuccessThreshold(1).
			WithDelay(cmp.Or(b.Delay, defaultBreakDelay)).
			OnStateChanged(func(e circuitbreaker.StateChangedEvent) {
				changed(name, e.OldState.String(), e.NewState.String())
			}).
			Build()
	}
	if r := conf.Retry; r != nil {
		delay := cmp.Or(r.Delay, defaultRetryDelay)
		up.retry = failsafe.With(retrypolicy.NewBuilder[*http.Response]().
			HandleIf(worthRetry).
			ReturnLastFailure().
			WithMaxAttempts(cmp.Or(r.Attempts, defaultAttempts)).
			WithBackoff(delay, 32*delay).
			WithJitterFactor(0.5).
			WithBudget(budget.NewBuilder().
				WithMaxRate(cmp.Or(r.Budget, defaultBudget)).
				WithMinConcurrency(minRetries).
				Build()).
			Build())
	}
	return up, nil
}

// same reports whether up is what conf says, so that a reload can keep it.
func (up *upstream) same(conf *Upstream) bool { return reflect.DeepEqual(&up.conf, conf) }

// within is up with a bound on the time to the first byte of an answer; zero is the upstream's own. Connections are
// shared by all with the same bound.
func (up *upstream) within(timeout time.Duration) *guard {
	timeout = max(0, cmp.Or(timeout, up.conf.Timeout, defaultTimeout)) // negative: none, which Transport calls 0
	t := up.transports[timeout]
	if t == nil {
		dial := cmp.Or(up.conf.DialTimeout, defaultDialTimeout)
		t = &http.Transport{
			DialContext:           (&net.Dialer{Timeout: dial}).DialContext,
			TLSHandshakeTimeout:   dial,
			ResponseHeaderTimeout: timeout,
			ExpectContinueTimeout: time.Second,
			IdleConnTimeout:       90 * time.Second,
			MaxIdleConnsPerHost:   1024,
			ForceAttemptHTTP2:     true,
			DisableCompression:    true, // what the client accepts is between it and the upstream
		}
		up.transports[timeout] = t
	}
	return &guard{up: up, transport: t}
}

// closeIdle lets go of the connections that no request is using.
func (up *upstream) closeIdle() {
	for _, t := range up.transports {
		t.CloseIdleConnections()
	}
}

// acquire takes one of the upstream's places, if it has any left; release gives it back.
func (up *upstream) acquire() bool { return up.slots == nil || up.slots.TryAcquirePermit() }

func (up *upstream) release() {
	if up.slots != nil {
		up.slots.ReleasePermit()
	}
}

// The states of a breaker, as numbers for metrics.
const (
	breakerClosed = iota
	breakerHalfOpen
	breakerOpen
)

var breakerNames = [...]string{"closed", "half-open", "open"}

// state is that of the breaker. An open one whose delay is over is half open, for the next request probes.
func (up *upstream) state() int {
	switch {
	case up.breaker == nil || up.breaker.IsClosed():
		return breakerClosed
	case up.breaker.IsHalfOpen() || up.breaker.RemainingDelay() == 0:
		return breakerHalfOpen
	}
	return breakerOpen
}

// unavailableError says that an upstream was not asked.
type unavailableError struct{ retryAfter time.Duration }

func (e *unavailableError) Error() string { return "weir: upstream: circuit breaker is open" }

// guard is the RoundTripper of an upstream.
type guard struct {
	up        *upstream
	transport http.RoundTripper
}

// RoundTrip asks the upstream, again where that is safe and may help. The last answer is what the caller gets, good or bad.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if g.up.retry == nil || !repeatable(req) {
		return g.attempt(req)
	}
	var last *http.Response
	var lastErr error
	res, err := g.up.retry.WithContext(req.Context()).Get(func() (*http.Response, error) {
		if last != nil {
			discard(last)
		}
		last, lastErr = g.attempt(req)
		return last, lastErr
	})
	switch {
	case errors.Is(err, budget.ErrExceeded):
		return last, lastErr
	case err != nil && last != nil: // the client left between two attempts
		discard(last)
		return nil, err
	}
	return res, err
}

// attempt asks once, if the breaker lets it, and tells the breaker what came of it.
func (g *guard) attempt(req *http.Request) (*http.Response, error) {
	breaker := g.up.breaker
	if breaker != nil && !breaker.TryAcquirePermit() {
		return nil, &unavailableError{retryAfter: breaker.RemainingDelay()}
	}
	start := time.Now()
	res, err := g.transport.RoundTrip(req)
	g.up.latency.Observe(time.Since(start).Seconds())
	if breaker == nil {
		return res, err
	}
	switch {
	case err == nil && !unwell(res.StatusCode):
		breaker.RecordSuccess()
	case err != nil && clientGone(req):
		// That says nothing of the upstream. If it was the probe of a half-open breaker, the next request is.
		if breaker.IsHalfOpen() {
			breaker.Open()
			breaker.HalfOpen()
		}
	default:
		breaker.RecordFailure()
	}
	return res, err
}

// repeatable reports whether req may be sent twice: its method is idempotent by RFC 9110, section 9.2.2, it has no
// body that would be used up, and it does not turn its connection into something else.
func repeatable(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return (req.Body == nil || req.Body == http.NoBody) && req.Header["Upgrade"] == nil
	}
	return false
}

// worthRetry reports whether the same request may fare better.
func worthRetry(res *http.Response, err error) bool {
	if err != nil {
		var open *unavailableError
		return !errors.As(err, &open) && !errors.Is(err, context.Canceled)
	}
	return unwell(res.StatusCode)
}

// unwell reports whether a status says that the upstream, rather than this request, is in trouble. 500 is often the request's: who
// finds one that brings it about must not be able to open the breaker for everybody.
func unwell(status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// discard reads what little is left of an answer, so that its connection can be used again.
func discard(res *http.Response) {
	io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
}

// sentBody is the body of a request on its way, which remembers whether it was the client that broke it off:
// otherwise clients could open an upstream's breaker by hanging up.
type sentBody struct {
	io.ReadCloser
	closed, broken atomic.Bool
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.broken.Store(true)
	}
	return n, err
}

func (b *sentBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// clientGone reports whether it was the client that ended a request on its way upstream.
func clientGone(req *http.Request) bool {
	if req.Context().Err() != nil {
		return true
	}
	b, ok := req.Body.(*sentBody)
	return ok && b.broken.Load()
}
