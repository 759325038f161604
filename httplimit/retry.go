package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// Retry says when a request is sent again. The zero Retry is ready.
//
// A request is sent again after a refusal for the rate, when the gate opens; and after a network error, a server error
// or a body that breaks off, after a random time that grows with each failure, or what Retry-After says if that is
// longer. It is not sent again if it is not idempotent by its method and bears no Idempotency-Key, unless nothing has left this
// machine; nor if its body cannot be had again; nor if the wait would end after its context or Total. The answer to
// the last attempt is then the answer.
type Retry struct {
	// Attempts is how often a request is sent at most, refusals aside. Zero means 4.
	Attempts int

	// Refusals is how many refusals for the rate a request outlasts at most. Zero means 10.
	Refusals int

	// Base is how long to wait at most after the first failure, doubled with each. The wait is random, from 0 up to that.
	// Zero means 500 ms.
	Base time.Duration

	// Max is what Base grows to. Zero means 30 s.
	Max time.Duration

	// Total bounds the time from when the request is first sent to when it is last sent. Zero means no
	// bound but the context's.
	Total time.Duration

	// Budget is how many retries after failures the Transport may have in hand, for all requests together, so that a server in
	// trouble does not get several times its load. A tenth of it comes back each second, and a fifth of a
	// retry with each request that succeeds. Zero means 10, negative no bound. Refusals for the rate take nothing
	// from it, as the gate bounds them.
	Budget int

	// BufferBody is how many bytes of a body without GetBody are kept to be sent again. Zero means 1 MiB. A request with
	// a longer one is sent once.
	BufferBody int64

	// All makes requests of every method be sent again.
	All bool
}

const (
	defaultAttempts   = 4
	defaultRefusals   = 10
	defaultBase       = 500 * time.Millisecond
	defaultMax        = 30 * time.Second
	defaultBudget     = 10
	defaultBufferBody = 1 << 20
)

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// try sends the request as often as it takes and may.
func (t *Transport) try(c *call) *reply {
	var last *reply
	ctx := c.req.Context()
	for n := 1; ; n++ {
		waits, cancel := ctx, func() {}
		if !c.until.IsZero() {
			waits, cancel = context.WithDeadline(ctx, c.until)
		}
		rep := t.attempt(waits, c, n)
		cancel()
		if last != nil && rep.unsent && gatesFault(rep.err) && ctx.Err() == nil {
			// The attempt was not made. What is known of the request is what the one before has said.
			t.gaveUp(c, n-1, last, rep.err.Error())
			return last
		}
		last.discard()
		last = rep
		if !t.again(c, rep, n) {
			return rep
		}
	}
}

// gatesFault reports whether an error is from waiting, not from sending.
func gatesFault(err error) bool {
	var limited *weir.LimitedError
	var open *BreakerError
	return errors.As(err, &limited) || errors.As(err, &open) || errors.Is(err, context.DeadlineExceeded)
}

func (t *Transport) gaveUp(c *call, n int, rep *reply, why string) {
	t.observe(c, Event{Kind: GaveUp, Attempt: n, Err: rep.err, Why: why, Answer: &rep.answer})
}

// again decides whether there is another attempt, and waits until it is due.
func (t *Transport) again(c *call, rep *reply, n int) bool {
	if rep.err == nil && (rep.answer.Advice == GoOn || rep.answer.Advice == Change || rep.answer.Advice == Stop) {
		t.budget.succeeded(t.Retry)
		return false
	}
	wait, why := t.next(c, rep)
	if why != "" {
		if t.Retry != nil {
			t.gaveUp(c, n, rep, why)
		}
		return false
	}
	ctx := c.req.Context()
	end, bounded := ctx.Deadline()
	if !c.until.IsZero() && (!bounded || c.until.Before(end)) {
		end, bounded = c.until, true
	}
	if bounded && time.Until(end) < wait {
		t.gaveUp(c, n, rep, fmt.Sprintf("the next attempt, in %v, would be too late", wait))
		return false
	}
	rep.keep() // before waiting: an open body may hold a unit that others, or the next attempt, wait for
	t.observe(c, Event{Kind: Retrying, Attempt: n, Wait: wait, Answer: &rep.answer, Err: rep.err})
	if wait == 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		rep.discard()
		rep.resp, rep.err = nil, ctx.Err()
		return false
	}
}

// next is how long to wait for another attempt, or why there is none.
func (t *Transport) next(c *call, rep *reply) (wait time.Duration, why string) {
	p := t.Retry
	var limited *weir.LimitedError
	var open *BreakerError
	switch {
	case p == nil:
		return 0, "no retries"
	case c.req.Context().Err() != nil:
		return 0, "the context has ended"
	case rep.err != nil && (errors.As(rep.err, &limited) || errors.As(rep.err, &open)):
		return 0, "not sent"
	case errors.Is(rep.err, ErrBodyTooLarge):
		return 0, "it would be too large again"
	case !c.body.again():
		return 0, "its body cannot be sent again"
	case !rep.unsent && !p.All && !idempotent(c.req):
		return 0, "the request is not idempotent"
	}
	a := &rep.answer
	if a.Wait > c.maxHold && rep.err == nil {
		rep.discard()
		rep.resp, rep.err = nil, &HoldError{Status: a.Status, Asked: a.Wait, Max: c.maxHold, Source: a.Source}
		return 0, "the server asks for too long a wait"
	}
	if a.Advice == HoldOn && rep.err == nil {
		if int(c.refusals.Add(1)) > or(p.Refusals, defaultRefusals) {
			return 0, "refused too often"
		}
		if rep.held {
			return 0, ""
		}
		return max(a.Wait, time.Second), "" // the Store could not keep the gate closed
	}
	if c.failures++; c.failures >= or(p.Attempts, defaultAttempts) {
		return 0, "tried often enough"
	}
	if !t.budget.take(p) {
		return 0, "the retry budget is spent; it refills with time and with each success"
	}
	base := or(p.Base, defaultBase)
	most := or(p.Max, defaultMax)
	for range c.failures - 1 {
		base = min(2*base, most)
	}
	wait = rand.N(base + 1)
	if a.Wait > 0 && rep.err == nil {
		wait = a.Wait + wait/4
	}
	return wait, ""
}

// keepBytes is how much of the body of an answer is kept that may turn out to be the last.
const (
	keepBytes = 1 << 20
	keepTime  = 5 * time.Second
)

// keep reads the body of an answer into memory and lets go of its connection. What is not there in time, or is too long, is
// missing: the body then ends with an error.
func (r *reply) keep() {
	if r.resp == nil {
		return
	}
	if _, ok := r.resp.Body.(interface{ kept() }); ok {
		return
	}
	timer := time.AfterFunc(keepTime, func() { r.cancel(&TimeoutError{keepTime}) })
	b, err := io.ReadAll(io.LimitReader(r.resp.Body, keepBytes))
	timer.Stop()
	if err == nil && len(b) == keepBytes {
		err = io.ErrUnexpectedEOF
	}
	r.resp.Body.Close()
	rest := io.Reader(bytes.NewReader(b))
	if err != nil {
		rest = io.MultiReader(rest, failing{err})
	}
	r.resp.Body = keptBody{rest}
}

type keptBody struct{ io.Reader }

func (keptBody) Close() error { return nil }
func (keptBody) kept()        {}

// idempotent reports whether sending r twice does what sending it once does.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// source gives the request's body, once or as often as needed.
type source struct {
	mu    sync.Mutex
	first io.ReadCloser // the request's own, until it is used
	fresh func() (io.ReadCloser, error)
	none  bool
}

// open looks at how the body of r can be had again.
func (s *source) open(r *http.Request) {
	if s.none = r.Body == nil || r.Body == http.NoBody; !s.none {
		s.first, s.fresh = r.Body, r.GetBody
	}
}

// buffer keeps a body that cannot be had again, if it has at most so many bytes.
func (s *source) buffer(most int64) error {
	if s.none || s.fresh != nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(s.first, most+1))
	if err != nil {
		return fmt.Errorf("weir: request body: %w", err)
	}
	if int64(len(b)) > most {
		s.first = &replaced{io.MultiReader(bytes.NewReader(b), s.first), s.first}
		return nil
	}
	s.first.Close()
	s.fresh = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	s.first, _ = s.fresh()
	return nil
}

func (s *source) again() bool { return s.none || s.fresh != nil }

// get is the body for one more attempt; nil if there is none.
func (s *source) get() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.none:
		return nil, nil
	case s.first != nil:
		b := s.first
		s.first = nil
		return b, nil
	case s.fresh != nil:
		return s.fresh()
	}
	return nil, errors.New("it has been sent already")
}

// close closes a body that was never sent.
func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		s.first.Close()
		s.first = nil
	}
}

// budget counts the retries in hand, in thousandths.
type budget struct {
	mu    sync.Mutex
	spent int64
	at    time.Time
}

// take spends a retry, if there is one.
func (b *budget) take(p *Retry) bool {
	if p.Budget < 0 {
		return true
	}
	size := 1000 * int64(or(p.Budget, defaultBudget))
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if since := now.Sub(b.at); since > 0 {
		b.spent = max(0, b.spent-int64(float64(size)/10*min(since.Seconds(), 10)))
		b.at = now
	}
	if b.spent+1000 > size {
		return false
	}
	b.spent += 1000
	return true
}

func (b *budget) succeeded(p *Retry) {
	if p == nil {
		return
	}
	b.mu.Lock()
	b.spent = max(0, b.spent-200)
	b.mu.Unlock()
}
