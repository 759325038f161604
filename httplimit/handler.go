package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Handler serves the requests that its rules admit and refuses the others. Each request takes the units of all rules
// that are for it at once, or none. Fill in the fields, call [Handler.Validate], and do not change them
// afterwards; it is then safe for concurrent use.
type Handler struct {
	// Limiter decides. Nil means one of the Handler's own, in memory.
	Limiter *weir.Limiter

	// Rules are the limits. A request that no rule is for is served without being asked for.
	Rules []Rule

	// Next serves the requests that are admitted. Nil means http.DefaultServeMux. Middleware takes another.
	Next http.Handler

	// Form is how the limits are told in header fields, on admitted requests and refusals. They are set before
	// Next runs.
	Form Form

	// Jitter is added to Retry-After at random, between nothing and this, so that clients that were refused
	// together do not come back together. Zero is none.
	Jitter time.Duration

	// ExposeCORS lets scripts of other origins read the fields (Access-Control-Expose-Headers). For them to read a refusal, the
	// middleware that allows their origin must stand before this Handler.
	ExposeCORS bool

	// Refuse answers instead of Refusal.Write, if not nil.
	Refuse func(http.ResponseWriter, *http.Request, *Refusal)

	// Observe, if not nil, is told each decision before it is acted upon, or the error if there is none. It is for
	// metrics; it must be fast and safe for concurrent use.
	Observe func(*http.Request, weir.Decision, error)

	// Take decides instead of Limiter.Take, if not nil: by [weir.Limiter.Wait] under a deadline, say, so that requests
	// stand in line. What it charges is given back to Limiter.
	Take func(context.Context, ...weir.Charge) (weir.Decision, error)

	// Logger, if not nil, is told refusals (level Info, and Debug for those of shadow limits) and failures to decide (Error).
	// Keys are written as hashes that are the same within one process.
	Logger *slog.Logger

	own weir.Limiter
}

// Validate says what is wrong with h.
func (h *Handler) Validate() error {
	for i := range h.Rules {
		l := h.Rules[i].Limit
		if l == nil {
			return fmt.Errorf("weir: rule %d: %w", i+1, weir.ErrNoLimit)
		}
		if err := l.Validate(); err != nil {
			return err
		}
		for _, u := range h.Rules[:i] {
			if o := u.Limit; o.Name == l.Name && (o.Algorithm != l.Algorithm || o.Rate != l.Rate || o.Capacity() != l.Capacity() || o.Headroom != l.Headroom) {
				return fmt.Errorf("weir: limit %q: two limits of this name with different numbers", l.Name)
			}
		}
	}
	switch {
	case !h.Form.known():
		return fmt.Errorf("weir: %v is not a form of headers", h.Form)
	case h.Jitter < 0:
		return fmt.Errorf("weir: jitter %v; it takes 0 or more, as it only adds", h.Jitter)
	}
	return nil
}

// ServeHTTP serves r with Next, or refuses it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := h.Next
	if next == nil {
		next = http.DefaultServeMux
	}
	h.serve(w, r, next)
}

// Middleware is h in front of another next, in the form that routers take. All that are made of one Handler
// share its limits.
func (h *Handler) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, next) })
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var few [4]weir.Charge
	charges := few[:0]
	var later []*Rule // for each charge its rule, from the first on that may give something back
	for i := range h.Rules {
		rule := &h.Rules[i]
		c, ok, err := rule.Charge(r)
		if err != nil {
			h.refuse(w, r, &Refusal{Err: err})
			return
		}
		if !ok {
			continue
		}
		if rule.settles() && later == nil {
			later = make([]*Rule, len(charges), len(charges)+len(h.Rules)-i)
		}
		charges = append(charges, c)
		if later != nil {
			later = append(later, rule)
		}
	}
	if len(charges) == 0 {
		next.ServeHTTP(w, r)
		return
	}

	d, err := h.take(r.Context(), charges)
	if err != nil || !d.Allowed {
		h.refuse(w, r, &Refusal{Decision: d, Charges: slices.Clone(charges), Err: err})
		return
	}
	if h.Observe != nil {
		h.Observe(r, d, nil)
	}
	if h.Logger != nil {
		h.log(r, &d, charges, nil)
	}
	WriteHeaders(w.Header(), &d, h.Form)
	if h.ExposeCORS && h.Form.known() {
		w.Header().Add("Access-Control-Expose-Headers", exposed[h.Form])
	}
	if later == nil {
		next.ServeHTTP(w, r)
		return
	}
	h.serveAndSettle(w, r, next, &settlement{at: d.At, charges: charged(&d, charges, later), rules: later})
}

func (h *Handler) limiter() *weir.Limiter {
	if h.Limiter == nil {
		return &h.own
	}
	return h.Limiter
}

func (h *Handler) take(ctx context.Context, charges []weir.Charge) (weir.Decision, error) {
	if h.Take != nil {
		return h.Take(ctx, slices.Clone(charges)...)
	}
	return h.limiter().Take(ctx, charges...)
}

// refuse answers r with f, in the Handler's manner.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, f *Refusal) {
	if errors.Is(f.Err, context.DeadlineExceeded) && !f.Decision.Allowed && len(f.Decision.Outcomes()) > 0 {
		f.Err = nil // a Take that waits has waited long enough, and the limits refuse
	}
	f.Form, f.Jitter, f.ExposeCORS = h.Form, h.Jitter, h.ExposeCORS
	if h.Observe != nil {
		h.Observe(r, f.Decision, f.Err)
	}
	if h.Logger != nil {
		h.log(r, &f.Decision, f.Charges, f.Err)
	}
	if h.Refuse != nil {
		h.Refuse(w, r, f)
		return
	}
	f.Write(w, r)
}
