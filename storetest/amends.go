package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir"
)

// amends are checks of the operations beside Take: what is given back, charged later, held, forgotten.
var amends = []check{
	{"a refund gives back what is owed", refundGives},
	{"refunds never over-credit", refundsNeverOverCredit},
	{"a refund goes to the window that was charged", refundWindow},
	{"debit", debits},
	{"hold a key", holdKey},
	{"hold every key", holdEvery},
	{"reset", resets},
}

// refundGives takes and gives back at once: as if nothing had been.
func refundGives(r *rig) error {
	return each(300, 400, func(pick picker) error {
		l := r.limit(randomLimit(pick, weir.Algorithm(pick(int64(algorithms)))))
		for range 4 {
			r.take(l.For("k").Costing(randomCost(pick, l)))
			r.now += step(pick, l)
		}
		c := l.For("k").Costing(randomCost(pick, l))
		before := sketch(r.peek(c))
		d := r.take(c)
		if !d.Allowed {
			return nil
		}
		r.refund(weir.InstantOf(d.At), c)
		if after := sketch(r.peek(c)); after != before {
			return fmt.Errorf("%s: cost %d taken and given back: %v, before it was %v", describe(l), c.Cost, after, before)
		}
		return nil
	})
}

// refundsNeverOverCredit runs a history on two keys. One of them is charged something more, once, and given it back later:
// it may never be better off than the other.
func refundsNeverOverCredit(r *rig) error {
	return each(10_000, 401, func(pick picker) error {
		r.now = start + weir.Instant(pick.in(0, int64(day)))
		l := r.limit(randomLimit(pick, weir.Algorithm(pick(int64(algorithms)))))
		charged, plain := l.For("charged"), l.For("plain")
		extra, refund := pick.in(0, 5), pick.in(1, 6)
		var cost int64
		var made weir.Instant
		for i := range int64(8) {
			r.now += step(pick, l)
			if i == extra {
				cost = pick.in(1, l.Capacity())
				if d := r.take(charged.Costing(cost)); !d.Allowed {
					cost = 0
				}
				made = r.now
			}
			if i >= extra && i-extra == refund && cost > 0 {
				r.refund(made, charged.Costing(cost))
			}
			n := randomCost(pick, l)
			c, p := r.peek(charged.Costing(n)), r.peek(plain.Costing(n))
			if p.RetryAfter > c.RetryAfter || c.Outcomes()[0].Remaining > p.Outcomes()[0].Remaining {
				return fmt.Errorf("%s: at %d µs cost %d after a refund of %d made at %d: %v; never charged: %v",
					describe(l), r.now, n, cost, made, sketch(c), sketch(p))
			}
			if c.Allowed {
				r.take(charged.Costing(n))
				r.take(plain.Costing(n))
			}
		}
		return nil
	})
}

// refundWindow gives back a charge after its window is over: that changes nothing in the new one.
func refundWindow(r *rig) error {
	rate := weir.Rate{Units: 10, Period: time.Minute}
	fixed := r.limit(weir.Limit{Algorithm: weir.FixedWindow, Rate: rate})
	sliding := r.limit(weir.Limit{Algorithm: weir.SlidingWindow, Rate: rate})
	log := r.limit(weir.Limit{Algorithm: weir.SlidingLog, Rate: rate})
	remaining := func(l *weir.Limit) int64 { return r.peek(l.For("k")).Outcomes()[0].Remaining }
	made := r.now
	for _, l := range []*weir.Limit{fixed, sliding, log} {
		r.take(l.For("k").Costing(10))
	}
	r.now += minute + 15*second
	for _, step := range []struct {
		limit         *weir.Limit
		before, after int64
	}{
		{fixed, 4, 4},   // its window is over
		{sliding, 0, 3}, // it still counts by three quarters: 8 of 10, and 1 of 4 once 6 of them are given back
		{log, 4, 4},     // it has left the window
	} {
		spend := int64(6)
		if step.limit == sliding {
			spend = 2
		}
		r.take(step.limit.For("k").Costing(spend))
		if got := remaining(step.limit); got != step.before {
			return fmt.Errorf("%s: %d units remaining, want %d", describe(step.limit), got, step.before)
		}
		refund := int64(10)
		if step.limit == sliding {
			refund = 4
		}
		r.refund(made, step.limit.For("k").Costing(refund))
		if got := remaining(step.limit); got != step.after {
			return fmt.Errorf("%s: %d units remaining after a refund to the window before, want %d", describe(step.limit), got, step.after)
		}
	}
	return nil
}

// debits charge what does not fit, up to a debt that is gone after twice the time a full burst needs.
func debits(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 60, Period: time.Minute}})
		if l.Algorithm == weir.LeakyBucket {
			l.Burst = 60
		}
		c := l.For("k")
		r.debit(c.Costing(50))
		if d := r.peek(c.Costing(20)); d.Allowed {
			return fmt.Errorf("%s: 20 units fit after 50 of 60 were debited", describe(l))
		}
		for range 3 {
			r.debit(c.Costing(1 << 40))
		}
		if d := r.peek(c); d.Allowed || d.Never || d.Outcomes()[0].Remaining != 0 {
			return fmt.Errorf("%s: in debt: %v", describe(l), sketch(d))
		}
		if d := r.peek(c.Costing(60)); d.RetryAfter > 2*time.Minute {
			return fmt.Errorf("%s: a debt keeps a full burst away for %v, over %v", describe(l), d.RetryAfter, 2*time.Minute)
		}
		r.now += 2 * minute
		if !r.take(c.Costing(60)).Allowed {
			return fmt.Errorf("%s: the debt is not over after two minutes", describe(l))
		}
	}
	return nil
}

func holdKey(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 10, Period: time.Second}})
		c := l.For("k")
		fail := func(what string, d *weir.Decision) error {
			return fmt.Errorf("%s: %s: %v", describe(l), what, sketch(d))
		}
		r.hold(r.now+5*second, c)
		if d := r.take(c); d.Allowed || d.RetryAfter != 5*time.Second || d.Outcomes()[0].Remaining != 0 {
			return fail("held for 5 s", d)
		}
		if d := r.peek(c.Costing(11)); !d.Never {
			return fail("held for 5 s, and a cost that never fits", d)
		}
		if d := r.peek(l.For("other")); !d.Allowed {
			return fail("another key of the limit", d)
		}
		r.hold(r.now+2*second, c)
		if d := r.peek(c); d.RetryAfter != 5*time.Second {
			return fail("held for 5 s, then for 2 s", d)
		}
		r.hold(r.now+7*second, c)
		if d := r.peek(c); d.RetryAfter != 7*time.Second {
			return fail("held for 5 s, then for 7 s", d)
		}
		if d := r.peekAt(r.now+7*second-1, c); d.Allowed {
			return fail("a microsecond before the end", d)
		}
		if d := r.peekAt(r.now+7*second, c); !d.Allowed {
			return fail("at the end", d)
		}
		r.debit(c.Costing(10))
		r.hold(0, c)
		if d := r.peek(c.Costing(10)); d.Allowed {
			return fail("10 units debited under a hold that is lifted", d)
		}
		r.hold(start-minute, l.For("past"))
		if d := r.take(l.For("past")); !d.Allowed {
			return fail("a hold until an instant that is over", d)
		}
		r.hold(r.now+minute, l.For("lifted"))
		r.hold(0, l.For("lifted"))
		if d := r.take(l.For("lifted")); !d.Allowed {
			return fail("a hold that is lifted", d)
		}
		r.now += day
	}
	return nil
}

func holdEvery(r *rig) error {
	l := r.limit(weir.Limit{Rate: weir.Rate{Units: 10, Period: time.Second}})
	other := r.limit(weir.Limit{Rate: weir.Rate{Units: 10, Period: time.Second}})
	spent := l.For("spent")
	r.take(spent.Costing(10))
	r.hold(r.now+3*second, l.Every())
	for _, step := range []struct {
		what  string
		c     weir.Charge
		retry time.Duration
	}{
		{"a new key", l.For("new"), 3 * time.Second},
		{"a key that has spent", spent, 3 * time.Second},
		{"the empty key", l.For(""), 3 * time.Second},
		{"another limit", other.For("new"), 0},
	} {
		if d := r.take(step.c); d.RetryAfter != step.retry {
			return fmt.Errorf("all keys held for 3 s: %s: retry %v, want %v", step.what, d.RetryAfter, step.retry)
		}
	}
	r.hold(r.now+5*second, l.For("new"))
	r.hold(0, l.For("new"))
	r.reset(spent)
	if d := r.take(spent); d.RetryAfter != 3*time.Second {
		return fmt.Errorf("all keys held for 3 s, one of them reset: retry %v", d.RetryAfter)
	}
	r.hold(0, l.Every())
	for _, c := range []weir.Charge{l.For("new"), spent} {
		if d := r.take(c); !d.Allowed {
			return fmt.Errorf("the hold of all keys is lifted: key %q: %v", c.Key, sketch(d))
		}
	}
	r.hold(r.now+second, l.Every())
	r.now += second
	if d := r.take(l.For("later")); !d.Allowed {
		return fmt.Errorf("the hold of all keys is over: %v", sketch(d))
	}
	return nil
}

func resets(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 10, Period: time.Hour}})
		c, other := l.For("k").Costing(10), l.For("other").Costing(10)
		r.take(c)
		r.take(other)
		r.debit(c)
		r.hold(r.now+day, c)
		r.reset(c)
		if d := r.take(c); !d.Allowed {
			return fmt.Errorf("%s: after a reset: %v", describe(l), sketch(d))
		}
		if d := r.take(other); d.Allowed {
			return fmt.Errorf("%s: a reset has reached another key", describe(l))
		}
	}
	return nil
}
