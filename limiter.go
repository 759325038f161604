package weir

import (
	"context"
	"math"
	"time"
)

// Limiter decides whether requests may pass: at once with Take, after a wait with Wait. Its methods are safe for concurrent use; a Limiter must not be copied after
// its first use.
type Limiter struct {
	// Store keeps what was spent; nil means a Memory of the Limiter's own.
	Store Store

	own   Memory
	lines lines
}

// Decision is the answer to a Take, Peek or Wait.
type Decision struct {
	// Allowed says whether every limit that enforces admits the charges.
	Allowed bool

	// Never says that no wait will help: a cost is more than its limit ever has.
	Never bool

	// At is the Store's time of the decision, to the microsecond: what Refund wants.
	At time.Time

	// RetryAfter is how long until the same charges are admitted if nobody else spends: no earlier
	// ask can succeed unless something is given back. Zero if Allowed or Never.
	RetryAfter time.Duration

	few  [few]Outcome
	n    int
	more []Outcome
}

// few is how many charges are decided without allocating.
const few = 3

// Outcome is what one limit says to its charge.
type Outcome struct {
	Limit     *Limit
	Remaining int64         // units left for this priority after the decision, 0 to the capacity
	After     time.Duration // how long until this limit admits the charge; 0 if it does
	Next      time.Duration // how long until Remaining grows if nobody spends; 0 if it is all there
	Held      time.Duration // how much longer a Hold stops the key; 0 if none does
	Never     bool          // the cost is more than the limit ever has for this priority
}

// Refused reports whether the limit would not admit the charge, shadow or not.
func (o *Outcome) Refused() bool { return o.Never || o.After > 0 }

// Outcomes has one Outcome for each charge, in the order they were given.
func (d *Decision) Outcomes() []Outcome {
	if d.more != nil {
		return d.more
	}
	return d.few[:d.n]
}

// Take charges all the charges if every limit admits its own, and none of them otherwise. Shadow
// limits are asked, and charged where they admit, but never refuse. The error says that no decision could be made: a
// charge is wrong, or the Store failed.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	err = l.decide(ctx, Take, charges, &d)
	return d, err
}

// Peek answers as Take would and charges nothing.
func (l *Limiter) Peek(ctx context.Context, charges ...Charge) (d Decision, err error) {
	err = l.decide(ctx, Peek, charges, &d)
	return d, err
}

// Refund gives back charges that a Take made; at is the At of its Decision. It never gives back more than is still owed for them:
// what has refilled or left its window since is not given twice. For Concurrency it is
// the release.
func (l *Limiter) Refund(ctx context.Context, at time.Time, charges ...Charge) error {
	return l.change(ctx, Tx{Op: Refund, Made: InstantOf(at)}, charges)
}

// Debit charges whether or not it fits: the shortfall of an estimate, once the true cost is known. A key's
// debt is cut off at twice the capacity, so that a Debit blocks it for no longer than a full burst needs to come back twice.
func (l *Limiter) Debit(ctx context.Context, charges ...Charge) error {
	return l.change(ctx, Tx{Op: Debit}, charges)
}

// Hold refuses every charge on these keys until an instant, whatever they have left. Of several holds the one that ends last
// counts; the zero time lifts them. With [Limit.Every] it stops all keys of a Limit. Cost and
// priority do not matter.
func (l *Limiter) Hold(ctx context.Context, until time.Time, charges ...Charge) error {
	var instant Instant
	if !until.IsZero() {
		instant = max(1, InstantOf(until))
	}
	return l.change(ctx, Tx{Op: Hold, Until: instant}, charges)
}

// Reset forgets what the keys of the charges have spent, and their holds.
func (l *Limiter) Reset(ctx context.Context, charges ...Charge) error {
	return l.change(ctx, Tx{Op: Reset}, charges)
}

// memory is the Memory that this Limiter runs on, or nil if it is another Store. Calling it directly keeps a Tx on the stack.
func (l *Limiter) memory() *Memory {
	if l.Store == nil {
		return &l.own
	}
	m, _ := l.Store.(*Memory)
	return m
}

// decide sets d, rather than returning one, so that Take and Peek are inlined and nobody copies it.
func (l *Limiter) decide(ctx context.Context, op Op, charges []Charge, d *Decision) error {
	if m := l.memory(); m != nil && len(charges) <= few {
		if len(charges) == 1 {
			if law, err := check(op, &charges[0]); err != nil || m.use().one(op, &charges[0], law, d) {
				return err
			}
			var one [1]TxCharge
			return d.inMemory(m, &Tx{Op: op, Charges: one[:]}, charges)
		}
		var some [few]TxCharge
		return d.inMemory(m, &Tx{Op: op, Charges: some[:len(charges)]}, charges)
	}
	tx := Tx{Op: op, Charges: make([]TxCharge, len(charges))}
	if err := prepare(tx.Charges, op, charges); err != nil {
		return err
	}
	if err := l.store().Apply(ctx, &tx); err != nil {
		return err
	}
	d.read(&tx)
	return nil
}

func (d *Decision) inMemory(m *Memory, tx *Tx, charges []Charge) error {
	if err := prepare(tx.Charges, tx.Op, charges); err != nil {
		return err
	}
	m.apply(tx)
	d.read(tx)
	return nil
}

func (l *Limiter) change(ctx context.Context, tx Tx, charges []Charge) error {
	tx.Charges = make([]TxCharge, len(charges))
	if err := prepare(tx.Charges, tx.Op, charges); err != nil {
		return err
	}
	return l.Apply(ctx, &tx)
}

// Apply carries out tx on the Limiter's Store, and lets those who Wait here know of it: a Limiter is a Store
// itself, for those who need what the other methods do not say, as the instant of a Debit.
func (l *Limiter) Apply(ctx context.Context, tx *Tx) error {
	if err := l.store().Apply(ctx, tx); err != nil {
		return err
	}
	switch tx.Op {
	case Refund, Hold, Reset:
		l.lines.wake(tx.Charges)
	}
	return nil
}

func (l *Limiter) store() Store {
	if l.Store == nil {
		return &l.own
	}
	return l.Store
}

// prepare checks the charges and compiles their limits.
func prepare(tc []TxCharge, op Op, charges []Charge) error {
	var sum int64
	for i := range charges {
		c := &charges[i]
		law, err := check(op, c)
		if err != nil {
			return err
		}
		if sum += c.Cost; sum > maxCost {
			return &ChargeError{Limit: c.Limit.Name, Err: ErrCost}
		}
		tc[i].Charge, tc[i].Law, tc[i].Cell = *c, law, i
		for j := range i {
			if o := &tc[j]; o.Law.hash == law.hash && o.Key == c.Key && o.Every == c.Every {
				tc[i].Cell = o.Cell
				break
			}
		}
	}
	return nil
}

// maxCost keeps sums of costs from overflowing.
const maxCost = math.MaxInt64 / 4

// check says what is wrong with a charge, and compiles its limit.
func check(op Op, c *Charge) (*Law, error) {
	law, err := c.Limit.Law()
	switch {
	case err != nil:
		return nil, err
	case c.Cost < 0 || c.Cost > maxCost:
		err = ErrCost
	case c.Priority < Low || c.Priority > High:
		err = ErrPriority
	case c.Every && op != Hold:
		err = ErrEvery
	default:
		return law, nil
	}
	return nil, &ChargeError{Limit: c.Limit.Name, Err: err}
}

// one is the answer to a single charge.
func (d *Decision) one(l *Limit, now, when Instant, left int64, next Instant) {
	d.At = time.UnixMicro(int64(now))
	o := &d.few[0]
	o.Limit, o.Remaining = l, left
	switch {
	case when == Never:
		o.Never = true
	case when > now:
		o.After = micros(when - now)
	}
	if next > now {
		o.Next = micros(next - now)
	}
	d.n = 1
	d.Allowed = when <= now || l.Shadow
	if !d.Allowed {
		d.Never, d.RetryAfter = o.Never, o.After
	}
}

func (d *Decision) read(tx *Tx) {
	d.Allowed, d.Never = tx.OK, tx.At == Never
	d.At = time.UnixMicro(int64(tx.Now))
	if !tx.OK && !d.Never {
		d.RetryAfter = micros(tx.At - tx.Now)
	}
	d.n = len(tx.Charges)
	out := d.few[:]
	if d.n > len(out) {
		d.more = make([]Outcome, d.n)
		out = d.more
	}
	for i := range tx.Charges {
		c, o := &tx.Charges[i], &out[i]
		o.Limit, o.Remaining, o.Never = c.Limit, c.Left, c.When == Never
		if c.When > tx.Now && !o.Never {
			o.After = micros(c.When - tx.Now)
		}
		if c.Held > tx.Now {
			o.Held = micros(c.Held - tx.Now)
		}
		if c.Next > tx.Now {
			o.Next = micros(c.Next - tx.Now)
		}
	}
}

// micros is i µs, at most what a Duration holds.
func micros(i Instant) time.Duration {
	return time.Duration(min(i, math.MaxInt64/1000)) * time.Microsecond
}
