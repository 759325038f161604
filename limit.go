package weir

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Limit is one rule: how many units a key may spend, and by which [Algorithm] they are
// counted. Fill in the fields and call [Limit.Validate] once; a Limit is then safe for concurrent
// use, and may then be copied. To change its numbers while it runs, use a second Limit of the same Name from then on:
// the keys keep what they have spent. A window whose Period changes keeps it no longer than its old windows would have run,
// and a SlidingWindow with a longer Period counts but a part of it until then.
type Limit struct {
	// Name identifies the Limit in its Store, and is seen in headers, metrics and
	// logs: 1 to 64 printable ASCII characters without quotes, backslashes or spaces.
	Name string

	// Algorithm is how units are counted; zero means TokenBucket.
	Algorithm Algorithm

	// Rate is how fast units come back. For FixedWindow, SlidingWindow and SlidingLog,
	// at most Rate.Units are admitted in Rate.Period. For Concurrency, Rate.Units may
	// be out at once, and each is taken back after Rate.Period if nobody returns it.
	Rate Rate

	// Burst is how many units may be spent at once; zero means Rate.Units.
	// It is for TokenBucket and GCRA. For LeakyBucket, where units leave one at a time, it is the
	// largest cost of one request. Windows, logs and concurrency take zero.
	Burst int64

	// Headroom is how many units Normal charges leave untouched. Low ones leave
	// twice that, High ones may spend all. Zero means that priority does not matter.
	Headroom int64

	// Shadow makes the Limit report without refusing anything: it is charged
	// where it would have admitted.
	Shadow bool

	law unsafe.Pointer // *Law of the fields above, once they have been compiled
}

// Algorithm is a way of counting units. The zero Algorithm is TokenBucket.
type Algorithm int8

const (
	// TokenBucket holds Burst units, refilled evenly at Rate. It admits at most Burst + Rate·t in any
	// time t and is exact at every rate it accepts. The default.
	TokenBucket Algorithm = iota

	// GCRA is the generic cell rate algorithm (ITU-T I.371): the token bucket kept as one instant. The
	// interval between units is rounded up to a microsecond, so it never admits more than Rate
	// and may admit up to 1 % less; where it would be more, Validate refuses and names TokenBucket.
	GCRA

	// LeakyBucket lets units out evenly spaced, one each Period/Units, without any burst. With a
	// line of waiters in front ([Limiter.Wait]) it is a queue that shapes traffic.
	LeakyBucket

	// FixedWindow counts units in windows aligned to the Unix epoch. Two windows' worth
	// may pass in an instant around a boundary.
	FixedWindow

	// SlidingWindow estimates the trailing window from two counters,
	// prev·(W−elapsed)/W + curr. It remembers three numbers a key. Its bound in a true sliding window is 2·Units−1, not
	// Units; a small share of wrong decisions, as reported for it, is an average over one company's traffic.
	SlidingWindow

	// SlidingLog remembers every admission of the trailing window: never more than Units in any Period,
	// and never a refusal that this would have allowed. It keeps up to Units entries a key.
	SlidingLog

	// Concurrency counts units that are out now and are given back with Refund. Rate.Period is the lease: a unit
	// not returned by then, say because its holder crashed, is taken back.
	Concurrency

	algorithms = iota
)

var algorithmNames = [algorithms]string{
	"token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log", "concurrency",
}

// String is the text form, as "token-bucket".
func (a Algorithm) String() string {
	if a < 0 || a >= algorithms {
		return fmt.Sprintf("Algorithm(%d)", int8(a))
	}
	return algorithmNames[a]
}

// MarshalText writes the text form.
func (a Algorithm) MarshalText() ([]byte, error) {
	if a < 0 || a >= algorithms {
		return nil, fmt.Errorf("weir: %v is not an algorithm", a)
	}
	return []byte(a.String()), nil
}

// UnmarshalText reads the text form; empty text is TokenBucket.
func (a *Algorithm) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = TokenBucket
		return nil
	}
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("weir: algorithm %.40q is none of token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-log, concurrency", text)
}

// Priority orders charges on one Limit by who gives way first when units run short; see
// [Limit.Headroom]. The zero Priority is Normal.
type Priority int8

const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// String is the text form: low, normal or high.
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("Priority(%d)", int8(p))
}

// MarshalText writes the text form.
func (p Priority) MarshalText() ([]byte, error) {
	if p < Low || p > High {
		return nil, fmt.Errorf("weir: %v is not a priority", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads the text form; empty text is Normal.
func (p *Priority) UnmarshalText(text []byte) error {
	switch string(text) {
	case "low":
		*p = Low
	case "normal", "":
		*p = Normal
	case "high":
		*p = High
	default:
		return fmt.Errorf("weir: priority %.40q is none of low, normal, high", text)
	}
	return nil
}

// Charge is what a request asks of one Limit: some units for one key.
type Charge struct {
	Limit *Limit

	// Key says whose units these are, in any bytes and any length. All charges with one
	// key share; the empty key is a key like any other, used where a Limit has only one.
	Key string

	// Cost is how many units. Zero asks without charging; a negative Cost is an error; more than the
	// Limit can ever hold is a refusal that no wait will cure.
	Cost int64

	// Priority is who gives way first; zero is Normal.
	Priority Priority

	// Every makes a Hold stop all keys of the Limit. No other operation takes it.
	Every bool
}

// For is a charge of one unit of l, at Normal priority, for a key.
func (l *Limit) For(key string) Charge { return Charge{Limit: l, Key: key, Cost: 1} }

// Every is a charge that stands for all keys of l. It is for [Limiter.Hold].
func (l *Limit) Every() Charge { return Charge{Limit: l, Every: true} }

// Costing is c with another cost.
func (c Charge) Costing(units int64) Charge { c.Cost = units; return c }

// AtPriority is c with another priority.
func (c Charge) AtPriority(p Priority) Charge { c.Priority = p; return c }

// Validate says what is wrong with l: a sentence with the field and the form wanted. A Limit that
// passes can be kept exactly by every Store, or within one part in a million where its rate is finer than
// their arithmetic, never faster.
func (l *Limit) Validate() error {
	_, err := l.Law()
	return err
}

// Law compiles l into the numbers that decisions are made with, once; later calls return the
// same Law for as long as the fields of l are the same. It fails as Validate does.
func (l *Limit) Law() (*Law, error) {
	if l == nil {
		return nil, ErrNoLimit
	}
	if law := (*Law)(atomic.LoadPointer(&l.law)); law != nil && law.of(l) {
		return law, nil
	}
	law, err := compile(l)
	if err != nil {
		return nil, err
	}
	atomic.StorePointer(&l.law, unsafe.Pointer(law))
	return law, nil
}

// Capacity is how many units a key has when nothing is spent: Burst, or Rate.Units if Burst is zero.
func (l *Limit) Capacity() int64 {
	if l.Burst != 0 {
		return l.Burst
	}
	return l.Rate.Units
}
