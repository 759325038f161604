package weir

import "sort"

// Cell is what a Limit remembers of one key. The zero Cell is a key that has spent nothing.
// A Store keeps Cells without looking into them, but for Rest: from that Instant on a Cell may be forgotten.
// A Cell is two or three numbers; only SlidingLog and Concurrency use Log.
type Cell struct {
	// Rest is the Instant from which this Cell equals the zero Cell.
	Rest Instant

	// A and B are the algorithm's own:
	//
	//	TokenBucket     Rest − A/N µs is the exact instant at which the bucket is full again
	//	FixedWindow     A units spent in the window that ends at Rest
	//	SlidingWindow   A units in the current window, B in the one before; Rest is two windows after the current start
	//	SlidingLog,     A units in Log[B:]; the B entries before are expired
	//	Concurrency
	A, B int64

	// Log has the admissions of the trailing window, the oldest first.
	Log []Entry

	// Held is the Instant before which nobody passes, or 0.
	Held Instant
}

// Entry is one admission that a Cell remembers.
type Entry struct {
	At   Instant
	Cost int64
}

// when is the earliest Instant, now or later, at which cost units fit while floor units stay; or Never.
// It is exact: one microsecond earlier they do not fit, unless something is given back. It reads the cell only.
func (law *Law) when(c *Cell, now Instant, cost, floor int64) Instant {
	room := law.Capacity - floor
	if cost > room {
		return Never
	}
	switch law.Algorithm {
	case TokenBucket, GCRA:
		if c.Rest <= now {
			return now
		}
		return max(now, c.Rest-Instant(law.over((room-cost)*law.P+law.part(c))))
	case LeakyBucket:
		return max(now, c.Rest)
	case FixedWindow:
		if c.Rest <= now || c.A+cost <= room {
			return now
		}
		return c.Rest
	case SlidingWindow:
		return law.slidingWhen(c, now, cost, room)
	default:
		return law.logWhen(c, now, cost, room)
	}
}

// charge spends cost units at an instant at which they fit. What is owed is cut off at twice the capacity, which
// only a Debit can reach.
func (law *Law) charge(c *Cell, at Instant, cost int64) {
	if cost == 0 || law.Capacity == 0 {
		return
	}
	switch law.Algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		law.bucketCharge(c, at, cost)
	case FixedWindow:
		if at >= c.Rest {
			c.Rest = at - at%Instant(law.Window) + Instant(law.Window)
			c.A = 0
		}
		c.A = law.capped(c.A, cost)
	case SlidingWindow:
		law.roll(c, at)
		c.A = law.capped(c.A, cost)
	default:
		law.logCharge(c, at, cost)
	}
}

// refund gives back what of cost units, charged at an instant, cannot over-credit: what has not drained or left the
// window since.
func (law *Law) refund(c *Cell, now, at Instant, cost int64) {
	if cost == 0 || c.Rest <= now {
		return
	}
	switch law.Algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		law.bucketRefund(c, now, at, cost)
	case FixedWindow:
		if at < c.Rest && at >= c.Rest-Instant(law.Window) {
			c.A = max(0, c.A-cost)
		}
	case SlidingWindow:
		law.roll(c, now)
		start := c.Rest - 2*Instant(law.Window)
		switch {
		case at >= start:
			c.A = max(0, c.A-cost)
		case at >= start-Instant(law.Window):
			c.B = max(0, c.B-cost)
		}
	default:
		law.logRefund(c, at, cost)
	}
}

// left is how many units a charge that leaves floor could still spend now: 0 to Capacity.
func (law *Law) left(c *Cell, now Instant, floor int64) int64 {
	room := law.Capacity - floor
	if c.Rest <= now {
		if law.Algorithm == LeakyBucket {
			return min(1, room)
		}
		return room
	}
	var left int64
	switch law.Algorithm {
	case TokenBucket, GCRA:
		wait := int64(c.Rest - now)
		if wait > law.full {
			return 0
		}
		left = (room*law.P - (wait*law.N - law.part(c))) / law.P
	case LeakyBucket:
		return 0
	case FixedWindow:
		left = room - c.A
	case SlidingWindow:
		cur, prev, start := law.rolled(c, now)
		ticks := law.Window / law.Tick
		gone := int64(max(now, start)-start) / law.Tick
		left = room - cur - ceilDiv(prev*(ticks-gone), ticks)
	default:
		_, used := law.live(c, now)
		left = room - used
	}
	return max(0, left)
}

// settle cuts down a cell that says it is busy for longer than it could be: either it was written by a clock far ahead, or
// the clock has been set back. It keeps what is spent, up to the capacity.
func (law *Law) settle(c *Cell, now Instant) {
	if law.Algorithm == TokenBucket {
		c.A = law.part(c)
	}
	if c.Rest <= now+lateness {
		return
	}
	switch law.Algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		if c.Rest > now+lateness+2*Instant(law.full) {
			c.Rest, c.A = now+Instant(law.full), 0
		}
	case FixedWindow:
		w := Instant(law.Window)
		if c.Rest > now+lateness+w {
			c.Rest, c.A = now-now%w+w, min(c.A, law.Capacity)
		}
	case SlidingWindow:
		w := Instant(law.Window)
		if c.Rest > now+lateness+2*w {
			c.Rest = now - now%w + 2*w
			c.A, c.B = min(c.A, law.Capacity), min(c.B, law.Capacity)
		}
	default:
		w := Instant(law.Window)
		if c.Rest > now+lateness+w {
			for i := range c.Log {
				c.Log[i].At = min(c.Log[i].At, now)
			}
			c.Rest = now + w
		}
	}
}

// capped is spent + cost, at most twice the capacity, without overflow.
func (law *Law) capped(spent, cost int64) int64 {
	most := 2 * law.Capacity
	if cost > most-spent {
		return max(most, spent)
	}
	return spent + cost
}

// Buckets. The cell holds the instant τ = Rest − A/N at which the bucket is full again, with A the part
// of a microsecond by which Rest was rounded up. A unit moves τ by P/N µs. Written this way, no
// product contains a time that has passed, so that no pause, however long, can overflow or
// give more than the burst. GCRA and LeakyBucket have N = 1 and A = 0.

// over is ⌊x/N⌋ for x ≥ 0.
func (law *Law) over(x int64) int64 {
	if law.N == 1 {
		return x
	}
	return x / law.N
}

// part is A. After a change of rate it may be the part of another fraction, which is cut down to less than 1 µs
// of this one.
func (law *Law) part(c *Cell) int64 { return min(c.A, law.N-1) }

func (law *Law) bucketCharge(c *Cell, at Instant, cost int64) {
	rest, part := at, int64(0)
	if c.Rest > at {
		rest, part = c.Rest, law.part(c)
	}
	add := min(cost, 2*law.Capacity)*law.P - part
	whole := ceilDiv(add, law.N)
	if most := at + 2*Instant(law.full); rest+Instant(whole) > most {
		c.Rest, c.A = max(rest, most), 0
		return
	}
	c.Rest, c.A = rest+Instant(whole), whole*law.N-add
}

func (law *Law) bucketRefund(c *Cell, now, at Instant, cost int64) {
	since := max(0, int64(now-at))
	cost = min(cost, 2*law.Capacity)
	if since >= ceilDiv(cost*law.P, law.N) {
		return // all of it has come back by itself
	}
	back := cost*law.P - since*law.N
	if back <= 0 {
		return
	}
	x := back + law.part(c)
	c.Rest -= Instant(law.over(x))
	c.A = x - law.over(x)*law.N
	if c.Rest <= now {
		c.Rest, c.A = 0, 0
	}
}

// Sliding windows.

// rolled is the cell as of t: units in the current window and the one before, and the start of the current one. A
// reading late by less than a minute finds the window that the cell is in.
func (law *Law) rolled(c *Cell, t Instant) (cur, prev int64, start Instant) {
	w, most := Instant(law.Window), 2*law.Capacity // most: the limit may have been larger
	switch start = c.Rest - 2*w; {
	case t < start+w:
		return min(c.A, most), min(c.B, most), start
	case t < start+2*w:
		return 0, min(c.A, most), start + w
	}
	return 0, 0, t - t%w
}

func (law *Law) roll(c *Cell, t Instant) {
	cur, prev, start := law.rolled(c, t)
	c.A, c.B, c.Rest = cur, prev, start+2*Instant(law.Window)
}

func (law *Law) slidingWhen(c *Cell, now Instant, cost, room int64) Instant {
	if c.Rest <= now {
		return now
	}
	cur, prev, start := law.rolled(c, now)
	w, ticks := Instant(law.Window), law.Window/law.Tick
	if cur+cost <= room {
		if prev == 0 {
			return now
		}
		gone := ticks - (room-cur-cost)*ticks/prev
		if gone <= 0 { // it fits from the start, even for a late reading
			return now
		}
		return max(now, start+Instant(gone*law.Tick))
	}
	gone := ticks - (room-cost)*ticks/cur // in the next window, where cur is the one before
	return max(now, start+w+Instant(gone*law.Tick))
}

// Logs.

// live is the index of the first entry that counts at now, and the units from there on. An entry made at s counts
// until, not at, s + Window.
func (law *Law) live(c *Cell, now Instant) (first int, used int64) {
	if c.Rest <= now { // the window may have been shorter then
		return len(c.Log), 0
	}
	first, used = int(c.B), c.A
	for first < len(c.Log) && c.Log[first].At+Instant(law.Window) <= now {
		used -= c.Log[first].Cost
		first++
	}
	return first, used
}

func (law *Law) logWhen(c *Cell, now Instant, cost, room int64) Instant {
	first, used := law.live(c, now)
	if used+cost <= room {
		return now
	}
	for _, e := range c.Log[first:] {
		used -= e.Cost
		if used+cost <= room {
			return e.At + Instant(law.Window)
		}
	}
	return Never // not reached: without entries nothing is used, and cost ≤ room
}

func (law *Law) logCharge(c *Cell, at Instant, cost int64) {
	first, used := law.live(c, at)
	c.B, c.A = int64(first), used
	if cost = law.capped(used, cost) - used; cost == 0 {
		return
	}
	c.A += cost
	i := len(c.Log)
	for i > first && c.Log[i-1].At > at { // a late reading: entries stay in order
		i--
	}
	if i > first && c.Log[i-1].At == at {
		c.Log[i-1].Cost += cost
		c.Rest = c.Log[len(c.Log)-1].At + Instant(law.Window)
		return
	}
	if len(c.Log) == cap(c.Log) && first > len(c.Log)/4 {
		n := copy(c.Log, c.Log[first:])
		c.Log, i, c.B = c.Log[:n], i-first, 0
	}
	c.Log = append(c.Log, Entry{})
	copy(c.Log[i+1:], c.Log[i:])
	c.Log[i] = Entry{at, cost}
	c.Rest = c.Log[len(c.Log)-1].At + Instant(law.Window)
}

func (law *Law) logRefund(c *Cell, at Instant, cost int64) {
	first := int(c.B)
	i := first + sort.Search(len(c.Log)-first, func(i int) bool { return c.Log[first+i].At >= at })
	if i == len(c.Log) || c.Log[i].At != at {
		return
	}
	e := &c.Log[i]
	back := min(cost, e.Cost)
	e.Cost -= back
	c.A -= back
	if e.Cost > 0 {
		return
	}
	c.Log = append(c.Log[:i], c.Log[i+1:]...)
	if n := len(c.Log); n > int(c.B) {
		c.Rest = c.Log[n-1].At + Instant(law.Window)
	} else {
		c.Rest, c.A, c.B, c.Log = 0, 0, 0, c.Log[:0]
	}
}
