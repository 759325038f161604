package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir"
)

// amounts are checks of how many units come through: over long times, of each priority, for odd costs.
var amounts = []check{
	{"exact over a period", exactOverPeriod},
	{"steady at 99 %", steady},
	{"any idle time gives one burst", idle},
	{"low gives way before normal before high", priorities},
	{"never", never},
	{"odd costs are refused", oddCosts},
	{"shadow", shadow},
	{"changed numbers", changed},
}

// exactOverPeriod takes all that a bucket has at random instants, so that it is never full: what it has given by
// an instant is the burst and Units·t/Period, to the unit.
func exactOverPeriod(r *rig) error {
	rates := append([]weir.Rate{{Units: 1_000_000, Period: time.Second}, {Units: 1, Period: 7 * 24 * time.Hour}}, odd...)
	return each(4*len(rates), 201, func(pick picker) error {
		l := r.limit(weir.Limit{Rate: one(pick, rates...), Burst: one[int64](pick, 2, 50)})
		if l.Validate() != nil {
			return nil
		}
		units, period := l.Rate.Units, l.Rate.Period.Microseconds()
		r.now = start
		got := int64(0)
		for range 200 {
			if r.now > end {
				return nil
			}
			left := r.peek(l.For("k").Costing(0)).Outcomes()[0].Remaining
			if !r.take(l.For("k").Costing(left)).Allowed {
				return fmt.Errorf("%s: %d remaining units refused", describe(l), left)
			}
			got += left
			t := int64(r.now - start)
			want := l.Burst + t/period*units + t%period*units/period
			if law, _ := l.Law(); got != want && (law.N*period == law.P*units || got > want || float64(got) < float64(want)*(1-2e-6)-1) {
				return fmt.Errorf("%s: %d units in %v, want %d", describe(l), got, time.Duration(t)*time.Microsecond, want)
			}
			// At most to the moment at which the bucket is full.
			r.now += weir.Instant(pick.in(0, (l.Burst-1)*period/units))
		}
		return nil
	})
}

// steady asks evenly, at 99 % of the rate, for long: nobody who keeps to a rate is refused.
func steady(r *rig) error {
	for _, a := range []weir.Algorithm{weir.TokenBucket, weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog} {
		for _, rate := range []weir.Rate{{Units: 1, Period: 30 * 24 * time.Hour}, {Units: 7, Period: 3 * time.Second},
			{Units: 300, Period: time.Minute}, {Units: 1000, Period: time.Second}, {Units: 1_000_000, Period: time.Second}} {
			l := r.limit(weir.Limit{Algorithm: a, Rate: rate})
			if a == weir.TokenBucket || a == weir.GCRA {
				l.Burst = 1
			}
			if l.Validate() != nil || a == weir.SlidingWindow && rate.Units < 300 { // whose estimate is too coarse for it
				continue
			}
			from := start
			for i := range int64(1000) {
				// ⌈i·period·100/(99·units)⌉
				n, d := i*100, 99*rate.Units
				period := rate.Period.Microseconds()
				r.now = from + weir.Instant(n/d*period+(n%d*period+d-1)/d)
				if dec := r.take(l.For("k")); !dec.Allowed {
					return fmt.Errorf("%s: ask %d at 99 %% of the rate is refused, retry %v", describe(l), i, dec.RetryAfter)
				}
			}
			r.now = start
		}
	}
	return nil
}

// idle spends everything, waits, and finds exactly the burst, however long the wait was.
func idle(r *rig) error {
	return each(200, 203, func(pick picker) error {
		l := r.limit(randomLimit(pick, weir.Algorithm(pick(int64(algorithms)))))
		r.take(l.For("k").Costing(l.Capacity()).AtPriority(weir.High))
		r.now += 2*weir.Instant(l.Rate.Period.Microseconds()) + weir.Instant(l.Capacity()*(interval(l)+1)) +
			weir.Instant(one(pick, 1, int64(second), int64(day), 400*int64(day), 20*365*int64(day)))
		defer func() { r.now = start }()
		full := l.Capacity()
		if !r.take(l.For("k").Costing(full).AtPriority(weir.High)).Allowed {
			return fmt.Errorf("%s: %d units do not fit after a long pause", describe(l), full)
		}
		if d := r.peek(l.For("k").AtPriority(weir.High)); d.Allowed {
			return fmt.Errorf("%s: a long pause gave more than %d units", describe(l), full)
		}
		return nil
	})
}

// priorities drains one bucket: Low stops first, then Normal, and High gets all.
func priorities(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 20, Period: time.Hour}, Headroom: 3})
		if l.Algorithm == weir.LeakyBucket {
			continue
		}
		spent := int64(0)
		for _, step := range []struct {
			prio  weir.Priority
			until int64
		}{{weir.Low, 14}, {weir.Normal, 17}, {weir.High, 20}} {
			for r.take(l.For("k").AtPriority(step.prio)).Allowed {
				spent++
			}
			if spent != step.until {
				return fmt.Errorf("%s: %v stops after %d units in all, want %d", describe(l), step.prio, spent, step.until)
			}
			// The room of one priority is not that of the one above: more than it ever has is never.
			if d := r.peek(l.For("k").AtPriority(step.prio).Costing(step.until + 1)); !d.Never {
				return fmt.Errorf("%s: %v asks for %d of %d units, and is told to come back in %v", describe(l), step.prio, step.until+1, step.until, d.RetryAfter)
			}
		}
	}
	return nil
}

// never asks for more than a limit ever has, alone and with others that would admit.
func never(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 10, Period: time.Second}})
		closed := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Period: time.Second}})
		other := r.limit(weir.Limit{Rate: weir.Rate{Units: 10, Period: time.Second}})
		for _, c := range []weir.Charge{l.For("k").Costing(11), l.For("k").Costing(1 << 60), closed.For("k")} {
			d := r.take(other.For("k"), c)
			if d.Allowed || !d.Never || d.RetryAfter != 0 || !d.Outcomes()[1].Never || d.Outcomes()[0].Refused() {
				return fmt.Errorf("%s: cost %d: %+v", describe(c.Limit), c.Cost, d.Outcomes())
			}
		}
		if got := r.peek(other.For("k")).Outcomes()[0].Remaining; got != 10 {
			return fmt.Errorf("%s: what never passes has spent %d units of another limit", describe(l), 10-got)
		}
		if d := r.take(closed.For("k").Costing(0)); !d.Allowed {
			return fmt.Errorf("%s: cost 0 of no units is refused", describe(closed))
		}
	}
	return nil
}

// oddCosts are errors, and spend nothing.
func oddCosts(r *rig) error {
	l := r.limit(weir.Limit{Rate: weir.Rate{Units: 10, Period: time.Second}})
	for _, costs := range [][]int64{{-1}, {math.MinInt64}, {math.MaxInt64}, {1, -1}, {math.MaxInt64, math.MaxInt64}, {math.MaxInt64/4 - 1, math.MaxInt64/4 - 1}} {
		var charges []weir.Charge
		for _, cost := range costs {
			charges = append(charges, l.For("k").Costing(cost))
		}
		if _, err := r.lim.Take(context.Background(), charges...); !errors.Is(err, weir.ErrCost) {
			return fmt.Errorf("costs %d: error %v, want %v", costs, err, weir.ErrCost)
		}
	}
	if got := r.peek(l.For("k")).Outcomes()[0].Remaining; got != 10 {
		return fmt.Errorf("costs that are errors left %d units of 10", got)
	}
	return nil
}

// shadow limits report what they would do, are charged where they admit, and never refuse.
func shadow(r *rig) error {
	for a := range algorithms {
		s := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 3, Period: time.Hour}, Shadow: true})
		twin := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 3, Period: time.Hour}})
		l := r.limit(weir.Limit{Rate: weir.Rate{Units: 5, Period: time.Hour}})
		admits := 3
		if s.Algorithm == weir.LeakyBucket {
			admits = 1
		}
		for i := range 7 {
			d := r.take(s.For("k"), l.For("k"))
			if d.Allowed != (i < 5) {
				return fmt.Errorf("%s: ask %d of 5 is allowed: %v", describe(s), i+1, d.Allowed)
			}
			if got := d.Outcomes()[0].Refused(); got != (i >= admits) {
				return fmt.Errorf("%s in shadow: ask %d of %d would be refused: %v", describe(s), i+1, admits, got)
			}
			if i < 5 {
				r.take(twin.For("k"))
			}
		}
		// What the shadow would refuse is not charged to it: it stands where one that refuses stands.
		for _, later := range []weir.Instant{0, 20 * minute, 60 * minute, 90 * minute} {
			got, want := sketch(r.peekAt(r.now+later, s.For("k"))), sketch(r.peekAt(r.now+later, twin.For("k")))
			if got.Remaining != want.Remaining || got.Next != want.Next {
				return fmt.Errorf("%s in shadow: %v later %+v, one that refuses has %+v", describe(s), time.Duration(later)*time.Microsecond, got, want)
			}
		}
		// What the enforcing limit refuses is not charged to the shadow.
		closed := r.limit(weir.Limit{Rate: weir.Rate{Period: time.Hour}})
		r.take(s.For("other"), closed.For("k"))
		if r.peek(s.For("other")).Outcomes()[0].Refused() {
			return fmt.Errorf("%s in shadow: charged for what another limit refused", describe(s))
		}
		// The same limit and key both ways, as while a policy is moved out of shadow: what the shadow asks refuses nobody, and it is
		// charged where both fit.
		both := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 3, Period: time.Hour}})
		asShadow := &weir.Limit{Name: both.Name, Algorithm: both.Algorithm, Rate: both.Rate, Shadow: true}
		for i, want := range []struct{ allowed, shadowRefused bool }{{true, false}, {admits > 1, true}, {false, true}} {
			d := r.take(both.For("k"), asShadow.For("k"))
			if d.Allowed != want.allowed || d.Outcomes()[1].Refused() != want.shadowRefused {
				return fmt.Errorf("%s enforced and in shadow at once: ask %d is allowed: %v, and would be refused by the shadow: %v", describe(both), i+1, d.Allowed, d.Outcomes()[1].Refused())
			}
		}
	}
	return nil
}

// changed gives a limit other numbers while it runs.
func changed(r *rig) error {
	return each(400, 208, func(pick picker) error {
		a := weir.Algorithm(pick(int64(algorithms)))
		l := r.limit(randomLimit(pick, a))
		first := l
		for range 12 {
			r.now += step(pick, l)
			r.take(l.For("k").Costing(randomCost(pick, l)).AtPriority(weir.High))
			next := randomLimit(pick, a)
			if pick.chance(50) { // another burst only
				next = weir.Limit{Algorithm: a, Rate: l.Rate, Burst: l.Burst}
				if a == weir.TokenBucket || a == weir.GCRA {
					next.Burst = pick.in(1, 2*l.Capacity())
				}
			}
			next.Name = first.Name
			if next.Validate() != nil {
				continue
			}
			was := r.peek(l.For("k").AtPriority(weir.High)).Outcomes()[0].Remaining
			got := r.peek(next.For("k").AtPriority(weir.High)).Outcomes()[0].Remaining
			if got < 0 || got > next.Capacity() {
				return fmt.Errorf("from %s to %s: %d units remaining", describe(l), describe(&next), got)
			}
			if (a == weir.TokenBucket || a == weir.GCRA) && next.Rate == l.Rate {
				debt := l.Capacity() - was
				if most := max(0, next.Capacity()-debt+1); got > most {
					return fmt.Errorf("from %s to %s: %d units of debt are gone: %d remaining", describe(l), describe(&next), debt, got)
				}
			}
			l = &next
		}
		return nil
	})
}
