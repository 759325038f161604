package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir"
)

// settleTimeout bounds how long giving back may hold up the end of an answer.
const settleTimeout = time.Second

// settlement is what may have to be given back after an answer.
type settlement struct {
	at      time.Time
	charges []weir.Charge
	rules   []*Rule // of the charges; nil for one that stays
}

// charged copies the charges that were really made: a shadow limit that would have refused has charged nothing.
func charged(d *weir.Decision, charges []weir.Charge, rules []*Rule) []weir.Charge {
	c := make([]weir.Charge, len(charges))
	copy(c, charges)
	for i, o := range d.Outcomes() {
		if i < len(rules) && o.Refused() {
			rules[i] = nil
		}
	}
	return c
}

// serveAndSettle serves r and gives back the concurrency units, and the units of rules whose Only does not count the
// answer; whether next returns or panics.
func (h *Handler) serveAndSettle(w http.ResponseWriter, r *http.Request, next http.Handler, s *settlement) {
	rec := &recorder{inner: w}
	for _, rule := range s.rules {
		if rule != nil && rule.Only != nil {
			w = rec.writer()
			break
		}
	}
	returned := false
	defer func() {
		status := rec.status
		switch {
		case status != 0:
		case returned:
			status = http.StatusOK
		default:
			status = http.StatusInternalServerError
		}
		h.settle(r, s, status)
	}()
	next.ServeHTTP(w, r)
	returned = true
}

func (h *Handler) settle(r *http.Request, s *settlement, status int) {
	back := s.charges[:0]
	for i, rule := range s.rules {
		if rule == nil {
			continue
		}
		if concurrent(rule.Limit) || rule.Only != nil && !rule.Only(status) {
			back = append(back, s.charges[i])
		}
	}
	if len(back) == 0 {
		return
	}
	// The client may have gone, which must not keep its units.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), settleTimeout)
	defer cancel()
	if err := h.limiter().Refund(ctx, s.at, back...); err != nil && h.Logger != nil {
		h.Logger.LogAttrs(ctx, levelFailure, "units not given back", errAttr(err))
	}
}
