package storetest

import (
	"time"

	"github.com/weir-go/weir"
)

// odd are rates at the edges: the slowest, the fastest, and fractions that no whole number of microseconds can say.
var odd = []weir.Rate{
	{Units: 1, Period: 30 * 24 * time.Hour},
	{Units: 1_000_000, Period: time.Second},
	{Units: 7, Period: 3 * time.Second},
	{Units: 999_983, Period: 24 * time.Hour},
	{Units: 1, Period: time.Millisecond},
	{Units: 999, Period: 7 * time.Millisecond},
	{Units: 5, Period: 30 * time.Second},
	{Units: 600, Period: time.Minute},
	{Units: 13, Period: 400 * 24 * time.Hour},
}

// randomLimit is a valid limit of the algorithm, without a name.
func randomLimit(pick picker, a weir.Algorithm) weir.Limit {
	for {
		l := weir.Limit{Name: "random", Algorithm: a}
		if pick.chance(40) {
			l.Rate = one(pick, odd...)
		} else {
			l.Rate.Units = one(pick, pick.in(1, 5), pick.in(1, 40), pick.in(1, 5000))
			l.Rate.Period = one(pick, time.Millisecond, 50*time.Millisecond, time.Second, 3*time.Second, time.Minute, time.Hour,
				time.Duration(pick.in(1000, 100_000))*time.Microsecond)
		}
		switch a {
		case weir.TokenBucket, weir.GCRA, weir.LeakyBucket:
			if pick.chance(60) {
				l.Burst = one(pick, 1, pick.in(1, 20), pick.in(1, 2*l.Rate.Units))
			}
		case weir.SlidingLog, weir.Concurrency:
			l.Rate.Units = min(l.Rate.Units, 500)
		}
		if most := (l.Capacity() - 1) / 2; most > 0 && a != weir.LeakyBucket && pick.chance(40) {
			l.Headroom = pick.in(0, most)
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// interval is about the time in which one unit comes back, at least a microsecond.
func interval(l *weir.Limit) int64 {
	return max(1, l.Rate.Period.Microseconds()/l.Rate.Units)
}

// step is how far the clock moves on between two asks: often not at all, mostly about as far as a unit or a burst needs,
// now and then for so long that everything is forgotten.
func step(pick picker, l *weir.Limit) weir.Instant {
	window := l.Rate.Period.Microseconds()
	return weir.Instant(one(pick,
		0, 0, 1,
		pick.in(0, 2*interval(l)), pick.in(0, 2*interval(l)),
		pick.in(0, window),
		pick.in(0, interval(l)*l.Capacity()),
		one(pick, 0, 2*window, 3*window+7, int64(day))))
}

func randomCost(pick picker, l *weir.Limit) int64 {
	c := l.Capacity()
	return one(pick, 1, 1, 1, 1, pick.in(1, min(c, 5)), pick.in(1, c), one(pick, 0, c, c+1, 1))
}

func randomPriority(pick picker) weir.Priority {
	return one(pick, weir.Normal, weir.Normal, weir.Low, weir.High)
}
