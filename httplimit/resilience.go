package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
)

// Breaker stops calling a host that keeps failing, by network or server errors; refusals for the rate do not count. The zero
// Breaker is ready.
type Breaker struct {
	// Failures is how many in a row open it. Zero means 5.
	Failures int

	// Delay is how long it stays open until one request may find out. Zero means 10 s. That is twice what weir serve waits by
	// default before it asks an upstream of its own, for which users are waiting: a server of somebody else's is given more time.
	Delay time.Duration
}

// Hedge sends a second request beside a slow one and takes the answer that comes first. It is for requests that are
// idempotent, and where the gate has units to spare: a second request never waits there.
type Hedge struct {
	// After is how long the answer may take before. Zero means never.
	After time.Duration

	// Most is how many there may be beside the first. Zero means 1.
	Most int
}

// breakers are the breakers of hosts.
type breakers struct {
	mu sync.Mutex
	m  map[string]circuitbreaker.CircuitBreaker[*reply]
}

const mostBreakers = 1024

func (t *Transport) breaker(host string) circuitbreaker.CircuitBreaker[*reply] {
	b := &t.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	if cb := b.m[host]; cb != nil {
		return cb
	}
	if b.m == nil {
		b.m = make(map[string]circuitbreaker.CircuitBreaker[*reply])
	}
	for old, cb := range b.m {
		if len(b.m) < mostBreakers {
			break
		}
		if cb.IsClosed() {
			delete(b.m, old)
		}
	}
	cb := circuitbreaker.NewBuilder[*reply]().
		HandleIf(func(r *reply, _ error) bool { return r != nil && r.unwell() }).
		WithFailureThreshold(uint(or(t.Breaker.Failures, 5))).
		WithSuccessThreshold(1).
		WithDelay(or(t.Breaker.Delay, 10*time.Second)).
		Build()
	b.m[host] = cb
	return cb
}

// unwell reports whether the attempt says that the server is. A caller that gave up says nothing about it.
func (r *reply) unwell() bool {
	if r.err != nil {
		return !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, ErrBodyTooLarge)
	}
	return r.answer.Advice == BackOff
}

// open is an error while the breaker of the host is open: there is no point in waiting at the gate.
func (t *Transport) open(c *call) error {
	if t.Breaker == nil {
		return nil
	}
	if cb := t.breaker(c.host); cb.IsOpen() && cb.RemainingDelay() > 0 {
		return &BreakerError{c.host, cb.RemainingDelay()}
	}
	return nil
}

// guarded sends a request that has passed the gate, through the breaker and with a hedge. The contexts are the Transport's own:
// those of failsafe end with the execution, and would cut off the body of the answer.
func (t *Transport) guarded(c *call, s *slot, n int) *reply {
	send := func(s *slot, hedge bool, started func(*reply)) *reply {
		if t.Breaker == nil {
			return t.send(c, s, n, hedge, started)
		}
		cb := t.breaker(c.host)
		rep, err := failsafe.With(cb).Get(func() (*reply, error) { return t.send(c, s, n, hedge, started), nil })
		if err != nil || rep == nil { // it has opened while the request was at the gate
			s.unsent()
			return &reply{err: &BreakerError{c.host, cb.RemainingDelay()}, unsent: true}
		}
		return rep
	}
	if t.Hedge == nil || t.Hedge.After <= 0 || !idempotent(c.req) || !c.body.again() {
		return send(s, false, func(*reply) {})
	}
	race := &race{}
	hedged := failsafe.With(hedgepolicy.NewBuilderWithDelay[*reply](t.Hedge.After).
		WithMaxHedges(or(t.Hedge.Most, 1)).
		CancelIf(func(r *reply, _ error) bool { return r != nil && r.err == nil && r.answer.Advice != BackOff }).
		Build())
	_, _ = hedged.GetWithExecution(func(e failsafe.Execution[*reply]) (*reply, error) {
		if !e.IsHedge() {
			rep := send(s, false, race.started)
			race.finished(rep)
			return rep, nil
		}
		charges := t.padded(c)
		d, err := t.limiter().Take(c.req.Context(), charges...)
		if err != nil || !d.Allowed {
			return &reply{err: errNoRoom}, nil
		}
		rep := send(t.newSlot(c, charges, &d), true, race.started)
		race.finished(rep)
		return rep, nil
	})
	return race.decide()
}

var errNoRoom = errors.New("weir: no units to spare for a hedge")

// race is requests beside each other, of which one wins.
type race struct {
	mu      sync.Mutex
	running []*reply
	done    []*reply
	over    bool
}

func (r *race) started(rep *reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, rep)
	if r.over {
		rep.cancel(nil)
	}
}

func (r *race) finished(rep *reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		rep.discard()
		return
	}
	r.done = append(r.done, rep)
}

// decide is the first good reply, or the last bad one. The others are cancelled and let go.
func (r *race) decide() *reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	var won *reply
	for _, rep := range r.done {
		if won == nil || won.unwell() {
			won.discard()
			won = rep
		} else {
			rep.discard()
		}
	}
	if won == nil { // cancelled before any was done
		return &reply{err: context.Canceled}
	}
	for _, rep := range r.running {
		if rep != won {
			rep.cancel(nil)
		}
	}
	return won
}

var _ http.RoundTripper = (*Transport)(nil)
