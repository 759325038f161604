package weir

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"time"
)

// Instant is a time in whole microseconds since the Unix epoch. Whole microseconds stay below
// 2^53 until the year 2255, so that Go and Redis's Lua, which has only doubles, compute the very same numbers.
type Instant int64

// Never is the Instant at which nothing happens: it answers for a cost that no wait makes admissible.
const Never Instant = 1<<53 - 1

// InstantOf is t in whole microseconds, rounded down. Times before 1970 are 0 and times after
// 2112 are that end, so that no clock reading, however wrong, can overflow a decision.
func InstantOf(t time.Time) Instant {
	const end = 1 << 52
	if t.Before(time.UnixMicro(0)) {
		return 0
	}
	if t.After(time.UnixMicro(end)) {
		return end
	}
	return Instant(t.UnixMicro())
}

// Time is i as a time.Time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// The bounds that keep every sum and product of a decision under 2^53. A cell may owe up to twice its
// capacity (see [Limiter.Debit]), so the largest product, with the units of one charge on top, is 3·maxProduct.
const (
	maxProduct = 1 << 50
	maxEntries = 100_000 // units of one sliding log or concurrency limit
)

// lateness is how far behind a cell a clock reading may be and still count as merely late. Within it a cell's
// time never moves backwards. Beyond it the clock was set, or was wrong when the cell was written, and the cell is cut down
// to what it could owe at most: see [Law].
const lateness = Instant(time.Minute / time.Microsecond)

// Law is a Limit compiled into the integers that its decisions are made with. Stores outside this package
// read its fields; a Law never changes.
//
// A Law decides over a [Cell] with pure functions of integers. Three things hold for all of them:
// nothing is admitted twice when the clock is late by up to a minute; a clock that is wrong by more locks no key for
// longer than that minute and the time its burst takes to refill; and the zero Cell, a key that spent nothing, can be forgotten
// and made again without anybody seeing a difference.
type Law struct {
	Algorithm Algorithm
	Capacity  int64 // the most units that a key can have; 0 admits nothing
	Headroom  int64 // units that Normal charges leave, and Low ones twice
	N, P      int64 // N units come back in P µs, in lowest terms: buckets
	Window    int64 // µs: windows, logs, and the lease of a concurrency limit
	Tick      int64 // µs in which a sliding window measures its elapsed part; divides Window

	words int8  // of a cell in a table; 0 is a log
	full  int64 // µs in which Capacity comes back
	limit Limit // the fields this was compiled from
	hash  key128
}

// of reports whether law was compiled from l as it is now. The shadow flag is not part of a law.
func (law *Law) of(l *Limit) bool {
	o := &law.limit
	return o.Name == l.Name && o.Algorithm == l.Algorithm && o.Rate == l.Rate && o.Burst == l.Burst && o.Headroom == l.Headroom
}

// cellWords is how many numbers a cell of the law has; 0 means a log.
func (law *Law) cellWords() int8 {
	switch law.Algorithm {
	case GCRA, LeakyBucket:
		return 1
	case TokenBucket:
		if law.N == 1 { // whole microseconds a unit: A stays 0
			return 1
		}
		return 2
	case FixedWindow:
		return 2
	case SlidingWindow:
		return 3
	}
	return 0
}

// floor is how many units a charge of priority p leaves.
func (law *Law) floor(p Priority) int64 {
	switch {
	case p >= High:
		return 0
	case p == Normal:
		return law.Headroom
	}
	return 2 * law.Headroom
}

func compile(l *Limit) (*Law, error) {
	law := &Law{Algorithm: l.Algorithm, Capacity: l.Capacity(), Headroom: l.Headroom, N: 1, P: 1, Tick: 1}
	fail := func(err error) (*Law, error) { return nil, fmt.Errorf("weir: limit %.70q: %w", l.Name, err) }
	if err := checkName(l.Name); err != nil {
		return fail(err)
	}
	if err := l.Rate.check(); err != nil {
		return fail(err)
	}
	law.Window = int64(l.Rate.Period / time.Microsecond)
	if l.Burst < 0 {
		return fail(fmt.Errorf("burst %d; it takes 0 or more", l.Burst))
	}
	var err error
	switch l.Algorithm {
	case TokenBucket:
		err = law.compileTokenBucket(l.Rate)
	case GCRA, LeakyBucket:
		err = law.compileInterval(l.Rate)
	case FixedWindow, SlidingWindow, SlidingLog, Concurrency:
		if l.Burst != 0 && l.Burst != l.Rate.Units {
			return fail(fmt.Errorf("burst %d with %v; its units at once are those of the rate, so leave burst out", l.Burst, l.Algorithm))
		}
		err = law.compileWindow()
	default:
		err = fmt.Errorf("%v is not an algorithm", l.Algorithm)
	}
	if err != nil {
		return fail(err)
	}
	if l.Rate.Units == 0 {
		law.Capacity = 0
	}
	switch {
	case l.Headroom < 0:
		return fail(fmt.Errorf("headroom %d; it takes 0 or more", l.Headroom))
	case l.Headroom > 0 && l.Algorithm == LeakyBucket:
		return fail(fmt.Errorf("headroom with leaky-bucket, which holds no units back"))
	case l.Headroom > 0 && l.Headroom > (law.Capacity-1)/2:
		return fail(fmt.Errorf("headroom %d of %d units; low charges leave it twice, so it takes less than half", l.Headroom, law.Capacity))
	}
	law.limit = Limit{Name: l.Name, Algorithm: l.Algorithm, Rate: l.Rate, Burst: l.Burst, Headroom: l.Headroom}
	law.words = law.cellWords()
	// Another algorithm keeps other numbers, so a limit that changes it starts anew.
	law.hash = hashString(l.Algorithm.String() + " " + l.Name).with(key128{})
	return law, nil
}

func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("no name")
	}
	if len(name) > 64 {
		return fmt.Errorf("name of %d bytes; it takes up to 64", len(name))
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return fmt.Errorf("name with the character %q; it takes printable ASCII without spaces, quotes and backslashes", name[i:i+1])
		}
	}
	return nil
}

func (law *Law) compileTokenBucket(r Rate) error {
	if r.Units == 0 {
		return nil
	}
	g := gcd(r.Units, law.Window)
	n, p := r.Units/g, law.Window/g
	most := int64(maxProduct) / max(law.Capacity, 1)
	if n > maxProduct || most == 0 {
		return fmt.Errorf("%v with burst %d: %w; units and burst take up to %d", r, law.Capacity, ErrTooFine, int64(maxProduct))
	}
	if p > most {
		n2, p2 := lowerFraction(n, p, most)
		if off := 1 - float64(n2)/float64(p2)*float64(p)/float64(n); off >= 1e-6 {
			return fmt.Errorf("%v with burst %d: %w; a burst up to %d fits", r, law.Capacity, ErrTooFine, int64(maxProduct)/p)
		}
		n, p = n2, p2
	}
	law.N, law.P = n, p
	law.full = ceilDiv(law.Capacity*p, n)
	return nil
}

// compileInterval is for the algorithms that keep whole microseconds between units.
func (law *Law) compileInterval(r Rate) error {
	if r.Units == 0 {
		return nil
	}
	interval := ceilDiv(law.Window, r.Units)
	if float64(interval)*float64(r.Units) > 1.01*float64(law.Window) {
		return fmt.Errorf("%v with %v: %w, as whole microseconds between units would lose over 1 %%; token-bucket keeps it exactly", r, law.Algorithm, ErrTooFine)
	}
	if law.Capacity > maxProduct/interval {
		return fmt.Errorf("%v with burst %d: %w; a burst up to %d fits", r, law.Capacity, ErrTooFine, maxProduct/interval)
	}
	law.P = interval
	law.full = law.Capacity * interval
	return nil
}

func (law *Law) compileWindow() error {
	units := law.Capacity
	switch law.Algorithm {
	case SlidingLog, Concurrency:
		if units > maxEntries {
			return fmt.Errorf("%d units with %v, which remembers each; it takes up to %d, or use sliding-window", units, law.Algorithm, maxEntries)
		}
	case SlidingWindow:
		for units > 0 && law.Window/law.Tick > maxProduct/units {
			if law.Window%(law.Tick*10) != 0 {
				return fmt.Errorf("%d units in %v µs with sliding-window: %w; use a period of whole seconds", units, law.Window, ErrTooFine)
			}
			law.Tick *= 10
		}
		// The estimate is off by up to one tick; a coarse one must stay a small part of the window.
		if law.Window/law.Tick < 1000 && law.Tick > 1 {
			return fmt.Errorf("%d units with sliding-window: %w; it takes up to %d", units, ErrTooFine, int64(maxProduct/1000))
		}
	}
	if units > maxProduct {
		return fmt.Errorf("%d units: %w; it takes up to %d", units, ErrTooFine, int64(maxProduct))
	}
	law.full = law.Window
	return nil
}

// lowerFraction is the largest fraction n2/p2 ≤ n/p with p2 ≤ most: the last lower convergent or semiconvergent
// of its continued fraction whose denominator fits.
func lowerFraction(n, p, most int64) (n2, p2 int64) {
	h0, k0 := int64(0), int64(1) // two convergents back
	h1, k1 := int64(1), int64(0) // one back
	n2, p2 = 0, 1
	for lower := true; p != 0; lower = !lower {
		a := n / p
		n, p = p, n%p
		if k1 > 0 && a > (most-k0)/k1 {
			if lower { // part of the way is still below n/p
				a = (most - k0) / k1
				n2, p2 = h0+a*h1, k0+a*k1
			}
			return n2, p2
		}
		h0, k0, h1, k1 = h1, k1, h0+a*h1, k0+a*k1
		if lower || p == 0 { // the last one is n/p itself
			n2, p2 = h1, k1
		}
	}
	return n2, p2
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv is ⌈a/b⌉ for b > 0 and any a.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// key128 is a keyed hash: of a limit's name, or of a limit and a key. 128 bits make an accidental
// collision irrelevant, and the seeds, new in each process, keep an attacker from making one.
type key128 struct{ hi, lo uint64 }

func (k key128) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, k.hi), k.lo)
}

var seedHi, seedLo = maphash.MakeSeed(), maphash.MakeSeed()

func hashString(s string) key128 {
	return key128{maphash.String(seedHi, s), maphash.String(seedLo, s)}
}

// with is k and o in one, and never the zero that marks an empty slot of a table.
func (k key128) with(o key128) key128 { return key128{max(k.hi^o.hi, 1), k.lo ^ o.lo} }

// hashKey places a key of the limit. The limit's own hash is as unknown to an attacker as the seeds are, so that
// adding it keeps the keys of different limits apart without hashing the name again.
func (law *Law) hashKey(key string) key128 {
	return hashString(key).with(law.hash)
}
