package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir"
)

// clocks are checks of what a clock that is late or far ahead can do.
var clocks = []check{
	{"late readings admit nothing twice", late},
	{"an absurd reading locks nobody out", absurd},
}

// late is 600 asks, every other one by a clock five seconds late, as from two callers.
func late(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 10, Period: time.Hour}})
		want := 10
		if l.Algorithm == weir.LeakyBucket {
			want = 1
		}
		now, admitted := r.now, 0
		for i := range 600 {
			r.now = now + weir.Instant(i)*1000
			if i%2 == 1 {
				r.now -= 5 * second
			}
			if r.take(l.For("k")).Allowed {
				admitted++
			}
		}
		if admitted != want {
			return fmt.Errorf("%s: %d admitted, want %d", describe(l), admitted, want)
		}
		r.now = now + minute
	}
	return nil
}

// absurd reads the clock far ahead, once, and spends all by it: no key is locked for longer than a minute and the time in
// which its burst comes back.
func absurd(r *rig) error {
	return each(400, 502, func(pick picker) error {
		l := r.limit(randomLimit(pick, weir.Algorithm(pick(int64(algorithms)))))
		law, err := l.Law()
		if err != nil {
			return err
		}
		full := weir.Instant(law.Window)
		switch l.Algorithm {
		case weir.TokenBucket, weir.GCRA, weir.LeakyBucket:
			full = weir.Instant((l.Capacity()+1)*law.P/law.N + 1)
		case weir.SlidingWindow:
			full *= 2 // the window itself, and the one in which it fades
		}
		lock := full
		if l.Algorithm == weir.LeakyBucket { // where a burst keeps everybody else out until it has come back
			lock *= 2
		}
		now := r.now
		r.take(l.For("k"))
		r.now += weir.Instant(one(pick, pick.in(0, 2*int64(minute)), pick.in(0, 3*int64(full)), int64(day), 3000*int64(day), 80*365*int64(day)))
		r.take(l.For("k").Costing(pick.in(1, l.Capacity())).AtPriority(weir.High))
		r.now = now
		d := r.take(l.For("k").AtPriority(weir.High))
		if most := minute + lock; d.RetryAfter.Microseconds() > int64(most) {
			return fmt.Errorf("%s: locked for %v after an absurd reading, over %v", describe(l), d.RetryAfter, time.Duration(most)*time.Microsecond)
		}
		r.now += minute + 2*full
		if d := r.peek(l.For("k").Costing(l.Capacity()).AtPriority(weir.High)); !d.Allowed {
			return fmt.Errorf("%s: a full burst is still %v away", describe(l), d.RetryAfter)
		}
		r.now = now + weir.Instant(pick.in(0, int64(second)))
		return nil
	})
}
