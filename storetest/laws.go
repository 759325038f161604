package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir"
)

// keepsLaw holds random histories of one key against the oracle, and every answer against what it promises.
func keepsLaw(r *rig, a weir.Algorithm) error {
	return each(60, 100+uint64(a), func(pick picker) error {
		r.now = start + weir.Instant(pick.in(0, int64(day)))
		l := r.limit(randomLimit(pick, a))
		p := &past{limit: l}
		latest := r.now
		var out []event // a concurrency limit's units that can be given back
		for ask := range 60 {
			if latest += step(pick, l); latest > end {
				break
			}
			r.now = latest
			if pick.chance(15) { // a late reading
				r.now -= weir.Instant(pick.in(0, int64(minute)-1))
			}
			if a == weir.Concurrency && len(out) > 0 && pick.chance(25) {
				i := pick(int64(len(out)))
				r.refund(out[i].at, l.For("k").Costing(out[i].cost))
				p.release(out[i])
				out = append(out[:i], out[i+1:]...)
			}
			c := l.For("k").Costing(randomCost(pick, l)).AtPriority(randomPriority(pick))
			allowed, err := asks(r, p, c)
			if err != nil {
				return fmt.Errorf("%v, ask %d at %d µs, cost %d, %v: %w", describe(l), ask, r.now, c.Cost, c.Priority, err)
			}
			if allowed {
				p.charge(r.now, c.Cost)
				out = append(out, event{r.now, c.Cost})
				if err := p.bounded(r.now); err != nil {
					return fmt.Errorf("%v, ask %d at %d µs: %w", describe(l), ask, r.now, err)
				}
			}
		}
		return nil
	})
}

// asks takes a charge, and checks all that the answers before and after say.
func asks(r *rig, p *past, c weir.Charge) (allowed bool, err error) {
	before := r.peek(c)
	if err := truthful(r, before, c); err != nil {
		return false, fmt.Errorf("peek: %w", err)
	}
	switch v := p.judge(r.now, c.Cost, c.Priority); {
	case v == admit && !before.Allowed:
		return false, fmt.Errorf("refused (retry %v) what the law admits", before.RetryAfter)
	case v == refuse && before.Allowed:
		return false, fmt.Errorf("admitted over the law")
	}
	d := r.take(c)
	if d.Allowed != before.Allowed || d.Never != before.Never || d.RetryAfter != before.RetryAfter {
		return false, fmt.Errorf("take answers %v where peek answered %v", sketch(d), sketch(before))
	}
	if !d.Allowed {
		if after := r.peek(c); sketch(after) != sketch(before) {
			return false, fmt.Errorf("the refusal changed the answer from %v to %v", sketch(before), sketch(after))
		}
		return false, nil
	}
	if err := left(r, d, c); err != nil {
		return false, fmt.Errorf("after the take: %w", err)
	}
	return true, nil
}

// truthful checks the answer to a peek at r.now by asking at other instants and for other costs.
func truthful(r *rig, d *weir.Decision, c weir.Charge) error {
	room := room(c.Limit, c.Priority)
	if got := weir.InstantOf(d.At); got != r.now {
		return fmt.Errorf("decided at %d µs, the clock says %d", got, r.now)
	}
	if d.Never != (c.Cost > room) {
		return fmt.Errorf("never is %v for %d of at most %d units", d.Never, c.Cost, room)
	}
	switch {
	case d.Allowed && (d.RetryAfter != 0 || d.Never):
		return fmt.Errorf("allowed with retry %v, never %v", d.RetryAfter, d.Never)
	case d.Never && d.RetryAfter != 0:
		return fmt.Errorf("never, with retry %v", d.RetryAfter)
	case !d.Allowed && !d.Never:
		if d.RetryAfter <= 0 {
			return fmt.Errorf("refused with retry %v", d.RetryAfter)
		}
		at := r.now + weir.Instant(d.RetryAfter.Microseconds())
		if !r.peekAt(at, c).Allowed {
			return fmt.Errorf("refused at %d µs, after the wait of %v that was asked for", at, d.RetryAfter)
		}
		if r.peekAt(at-1, c).Allowed {
			return fmt.Errorf("admitted a microsecond before the wait of %v is over", d.RetryAfter)
		}
	}
	return left(r, d, c)
}

// left checks Remaining and Next.
func left(r *rig, d *weir.Decision, c weir.Charge) error {
	o := d.Outcomes()[0]
	room := room(c.Limit, c.Priority)
	if o.Remaining < 0 || o.Remaining > room {
		return fmt.Errorf("%d units remaining of %d", o.Remaining, room)
	}
	if o.Remaining > 0 && !r.peek(c.Costing(o.Remaining)).Allowed {
		return fmt.Errorf("%d units remaining, which do not fit", o.Remaining)
	}
	// A leaky bucket lets one unit out at a time, of a cost that is let out together.
	if c.Limit.Algorithm != weir.LeakyBucket || o.Remaining == 0 {
		if r.peek(c.Costing(o.Remaining + 1)).Allowed {
			return fmt.Errorf("%d units remaining, and one more fits", o.Remaining)
		}
	}
	if o.Next == 0 {
		if full := min(room, paced(c.Limit)); o.Remaining < full {
			return fmt.Errorf("%d of %d units remaining, and none to come", o.Remaining, full)
		}
		return nil
	}
	at := r.now + weir.Instant(o.Next.Microseconds())
	if got := r.peekAt(at, c).Outcomes()[0].Remaining; got <= o.Remaining {
		return fmt.Errorf("%d units remaining, and %d when there should be more, after %v", o.Remaining, got, o.Next)
	}
	if got := r.peekAt(at-1, c).Outcomes()[0].Remaining; got > o.Remaining {
		return fmt.Errorf("%d units remaining, and %d a microsecond before there should be more, after %v", o.Remaining, got, o.Next)
	}
	return nil
}

// paced is the most that Remaining can say.
func paced(l *weir.Limit) int64 {
	if l.Algorithm == weir.LeakyBucket {
		return 1
	}
	return l.Capacity()
}

// release gives units back.
func (p *past) release(e event) {
	for i := range p.events {
		if o := &p.events[i]; o.at == e.at {
			back := min(e.cost, o.cost)
			o.cost -= back
			e.cost -= back
		}
	}
}

// bounded checks what the documentation promises of any stretch of time.
func (p *past) bounded(at weir.Instant) error {
	window := p.limit.Rate.Period.Microseconds()
	if p.limit.Algorithm != weir.SlidingWindow {
		return nil // judge has looked at every stretch of time
	}
	if got, most := p.within(at-weir.Instant(window)+1, at+1), 2*p.limit.Capacity()-1; got > most {
		return fmt.Errorf("%d units in a sliding window, over the bound of %d", got, most)
	}
	return nil
}

// short is a decision on one charge, to compare and to read.
type short struct {
	Allowed, Never bool
	Retry          time.Duration
	Remaining      int64
	Next           time.Duration
}

func sketch(d *weir.Decision) short {
	o := d.Outcomes()[0]
	return short{d.Allowed, d.Never, d.RetryAfter, o.Remaining, o.Next}
}

func describe(l *weir.Limit) string {
	s := fmt.Sprintf("%v %v", l.Algorithm, l.Rate)
	if l.Burst != 0 {
		s += fmt.Sprintf(" burst %d", l.Burst)
	}
	if l.Headroom != 0 {
		s += fmt.Sprintf(" headroom %d", l.Headroom)
	}
	return s
}
