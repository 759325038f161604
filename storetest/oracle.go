package storetest

import (
	"math/bits"

	"github.com/weir-go/weir"
)

// past is everything that one key of a limit was charged, and the oracle over it: it judges by the definition of each law, by
// going through the whole list, with none of the arithmetic of the package weir.
type past struct {
	limit  *weir.Limit
	events []event      // in the order of their instants
	latest weir.Instant // of all instants at which something was charged
}

type event struct {
	at   weir.Instant
	cost int64
}

// verdict is what a law says of an ask. A limit whose numbers are too fine may be kept a little slower than it says, and
// then a few asks may go either way.
type verdict int

const (
	refuse verdict = iota
	admit
	either
)

// room is how many units a charge of the priority can have at once: High all, Normal all but Headroom, Low all but
// twice that.
func room(l *weir.Limit, p weir.Priority) int64 {
	return l.Capacity() - l.Headroom*int64(weir.High-p)
}

// judge says whether cost units fit at an instant.
func (p *past) judge(at weir.Instant, cost int64, prio weir.Priority) verdict {
	room := room(p.limit, prio)
	if cost > room {
		return refuse
	}
	units, window := p.limit.Rate.Units, p.limit.Rate.Period.Microseconds()
	switch p.limit.Algorithm {
	case weir.TokenBucket:
		if p.curve(at, cost, room, units, window, 0) == refuse {
			return refuse
		}
		if p.curve(at, cost, room, units, window, 1_000_000) == refuse { // slower by one part in a million
			return either
		}
		return admit
	case weir.GCRA:
		return p.curve(at, cost, room, 1, (window+units-1)/units, 0)
	case weir.LeakyBucket:
		return p.spaced(at, (window+units-1)/units)
	case weir.FixedWindow:
		at = max(at, p.latestWindow(window))
		return verdictOf(p.within(floorTo(at, window), floorTo(at, window)+weir.Instant(window))+cost <= room)
	case weir.SlidingWindow:
		return p.estimate(at, cost, room, window)
	default:
		if p.trailing(max(at, p.latest), window)+cost > room {
			return refuse
		}
		if at < p.latest && p.trailing(at, window)+cost > room {
			return either // a late reading: what had left the window by a later one may be forgotten
		}
		return admit
	}
}

// charge adds an admission. The instant of a late reading is moved to that of the latest event where a law keeps
// a state that only moves forward; the logs keep each instant as it was read.
func (p *past) charge(at weir.Instant, cost int64) {
	if cost == 0 {
		return
	}
	p.latest = max(p.latest, at)
	i := len(p.events)
	switch p.limit.Algorithm {
	case weir.SlidingLog, weir.Concurrency:
		for i > 0 && p.events[i-1].at > at {
			i--
		}
	case weir.FixedWindow, weir.SlidingWindow:
		at = max(at, p.latestWindow(p.limit.Rate.Period.Microseconds()))
		for i > 0 && p.events[i-1].at > at {
			i--
		}
	default:
		if i > 0 {
			at = max(at, p.events[i-1].at)
		}
	}
	p.events = append(p.events, event{})
	copy(p.events[i+1:], p.events[i:])
	p.events[i] = event{at, cost}
}

// curve is the arrival curve of a bucket: from any event on, no more than room + rate·t in a time t. With slower > 0
// one part in that many, and a microsecond, is taken off t.
func (p *past) curve(at weir.Instant, cost, room, units, window, slower int64) verdict {
	sum := cost
	for i := len(p.events) - 1; i >= 0; i-- {
		e := p.events[i]
		sum += e.cost
		t := int64(at - e.at)
		if slower > 0 {
			t -= max(t, -t)/slower + 1
		}
		if !productLE(sum-room, window, t, units) {
			return refuse
		}
	}
	return admit
}

// spaced is the leaky bucket: after an event of n units, the next one leaves n intervals later.
func (p *past) spaced(at weir.Instant, interval int64) verdict {
	for i := len(p.events) - 1; i >= 0; i-- {
		if e := p.events[i]; at < e.at+weir.Instant(e.cost*interval) {
			return refuse
		}
	}
	return admit
}

// estimate is the window with two counters, prev·(W−e)/W + cur, with the elapsed part e exact; or, where the
// limit measures in coarser ticks, up to a tick less.
func (p *past) estimate(at weir.Instant, cost, room, window int64) verdict {
	at = max(at, p.latestWindow(window))
	w, from := weir.Instant(window), floorTo(at, window)
	cur, prev := p.within(from, from+w), p.within(from-w, from)
	fits := func(elapsed int64) bool {
		return productLE(prev, window-elapsed, room-cur-cost, window)
	}
	elapsed := int64(at - from)
	if !fits(elapsed) {
		return refuse
	}
	law, err := p.limit.Law()
	if err == nil && law.Tick > 1 && !fits(max(0, elapsed-law.Tick)) {
		return either
	}
	return admit
}

// trailing is what was charged in the window that ends at an instant, and since.
func (p *past) trailing(at weir.Instant, window int64) (sum int64) {
	for _, e := range p.events {
		if e.at > at-weir.Instant(window) {
			sum += e.cost
		}
	}
	return sum
}

// within is what was charged from an instant to just before another.
func (p *past) within(from, to weir.Instant) (sum int64) {
	for _, e := range p.events {
		if from <= e.at && e.at < to {
			sum += e.cost
		}
	}
	return sum
}

// latestWindow is the start of the aligned window of the latest event.
func (p *past) latestWindow(window int64) weir.Instant {
	if len(p.events) == 0 {
		return 0
	}
	return floorTo(p.events[len(p.events)-1].at, window)
}

func floorTo(at weir.Instant, window int64) weir.Instant { return at - at%weir.Instant(window) }

func verdictOf(ok bool) verdict {
	if ok {
		return admit
	}
	return refuse
}

// productLE is a·b ≤ c·d in 128 bits, for b, d ≥ 0.
func productLE(a, b, c, d int64) bool {
	switch {
	case a <= 0 && c >= 0:
		return true
	case a >= 0 && c < 0:
		return product(a, b) == (wide{}) && product(-c, d) == (wide{})
	case a < 0:
		return !product(-a, b).less(product(-c, d))
	}
	return !product(c, d).less(product(a, b))
}

type wide struct{ hi, lo uint64 }

func product(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return wide{hi, lo}
}

func (a wide) less(b wide) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }
