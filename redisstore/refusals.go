package redisstore

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

const (
	defaultMaxAge   = 100 * time.Millisecond
	defaultRefusals = 4096
	generations     = 1024
)

// Refusals is a Store that remembers what Store has refused, and answers the same question the same way for as long as it is
// certain: until the instant at which it would be admitted or any of its numbers would change, and never longer than MaxAge. A client
// that hammers a limit it has used up costs the shared store one decision in MaxAge, from each process.
//
// What else the answer says (what the other limits have left, and when) is as it was when Store was asked.
//
// What makes room earlier is seen at once if it was done through this Refusals (a Refund, a Reset, a lifted Hold), and within
// MaxAge if another process did it. A Limit with other numbers is another question. Where a Concurrency limit takes part nothing is
// remembered, since giving back is what its users do.
//
// It keeps hashes, not keys, in a table of fixed size. It is safe for concurrent use.
type Refusals struct {
	Store weir.Store

	// MaxAge is how long an answer is given again at most; zero means 100 ms.
	MaxAge time.Duration

	// Size is how many refusals are remembered; zero means 4096, some 600 KB. A newer one takes the place of an older.
	Size int

	once   sync.Once
	slots  []atomic.Pointer[refusal]
	given  [generations]atomic.Uint64 // how often something was given back, by the hash of the limit and key
	every  atomic.Uint64              // how often a hold of a whole limit was changed
	served atomic.Int64
}

// refusal is a decision of Store against a Take.
type refusal struct {
	question [2]uint64
	given    uint64       // the sum of what it depends on
	asked    time.Time    // before the decision
	answered time.Time    // after it
	now      weir.Instant // of the decision
	until    weir.Instant // when it may change
	at       weir.Instant
	results  []result
}

type result struct {
	when, next, held weir.Instant
	left             int64
}

var refusalSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Served is how many decisions were made from memory.
func (r *Refusals) Served() int64 { return r.served.Load() }

func (r *Refusals) answers() int64 { return answersOf(r.Store) }

func (r *Refusals) init() {
	r.once.Do(func() {
		n := r.Size
		if n <= 0 {
			n = defaultRefusals
		}
		r.slots = make([]atomic.Pointer[refusal], n)
	})
}

// Apply implements weir.Store.
func (r *Refusals) Apply(ctx context.Context, tx *weir.Tx) error {
	r.init()
	switch tx.Op {
	case weir.Refund, weir.Reset, weir.Hold:
		r.give(tx) // for those who have asked before it,
		err := r.Store.Apply(ctx, tx)
		r.give(tx) // and those who have meanwhile
		return err
	case weir.Debit:
		return r.Store.Apply(ctx, tx)
	}
	question, given, ok := r.question(tx)
	if !ok {
		return r.Store.Apply(ctx, tx)
	}
	asked := time.Now()
	slot := &r.slots[question[0]%uint64(len(r.slots))]
	if e := slot.Load(); e != nil && e.question == question && e.given == given && r.stands(e, asked) {
		e.read(tx, asked)
		r.served.Add(1)
		return nil
	}
	if err := r.Store.Apply(ctx, tx); err != nil {
		return err
	}
	if !tx.OK {
		slot.Store(remember(tx, question, given, asked))
	}
	return nil
}

// stands reports whether e is still certain. The store's clock is at most as far on as if the decision had been made when it was asked for.
func (r *Refusals) stands(e *refusal, now time.Time) bool {
	age := now.Sub(e.asked)
	most := r.MaxAge
	if most <= 0 {
		most = defaultMaxAge
	}
	return age < most && e.now+weir.Instant((age+time.Microsecond-1)/time.Microsecond) < e.until
}

func remember(tx *weir.Tx, question [2]uint64, given uint64, asked time.Time) *refusal {
	e := &refusal{question: question, given: given, asked: asked, answered: time.Now(), now: tx.Now, at: tx.At, until: weir.Never}
	e.results = make([]result, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		e.results[i] = result{c.When, c.Next, c.Held, c.Left}
		if c.When > tx.Now {
			e.until = min(e.until, c.When)
		}
		if c.Next > tx.Now {
			e.until = min(e.until, c.Next)
		}
	}
	return e
}

// read gives tx the results. Its Now is as early as can be, so that nobody is told to come back too early.
func (e *refusal) read(tx *weir.Tx, now time.Time) {
	tx.Now, tx.OK, tx.At = e.now+weir.Instant(max(0, now.Sub(e.answered))/time.Microsecond), false, e.at
	for i := range tx.Charges {
		c, res := &tx.Charges[i], e.results[i]
		c.When, c.Left, c.Next, c.Held = max(res.when, tx.Now), res.left, res.next, res.held
	}
}

// question is a hash of all that the answer depends on but time and what others do, and how often something was given back that
// it depends on.
func (r *Refusals) question(tx *weir.Tx) (question [2]uint64, given uint64, ok bool) {
	var room [256]byte
	buf := room[:0]
	given = r.every.Load()
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Law.Algorithm == weir.Concurrency {
			return question, 0, false
		}
		h := place(c)
		given += r.given[h[0]%generations].Load()
		buf = binary.LittleEndian.AppendUint64(buf, h[0])
		buf = binary.LittleEndian.AppendUint64(buf, h[1])
		shadow := int64(0)
		if c.Limit.Shadow {
			shadow = 1
		}
		for _, n := range [...]int64{c.Cost, int64(c.Priority), shadow, c.Law.Capacity, c.Law.Headroom, c.Law.N, c.Law.P, c.Law.Window, c.Law.Tick} {
			buf = binary.AppendVarint(buf, n)
		}
	}
	for i := range question {
		question[i] = maphash.Bytes(refusalSeeds[i], buf)
	}
	return question, given, true
}

// place is a hash of a charge's limit and key.
func place(c *weir.TxCharge) (h [2]uint64) {
	for i := range h {
		var m maphash.Hash
		m.SetSeed(refusalSeeds[i])
		m.WriteByte(byte(c.Law.Algorithm))
		m.WriteString(c.Limit.Name)
		m.WriteByte(0)
		m.WriteString(c.Key)
		h[i] = m.Sum64()
	}
	return h
}

// give makes what depends on the charges of tx uncertain.
func (r *Refusals) give(tx *weir.Tx) {
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Every {
			r.every.Add(1)
		} else {
			r.given[place(c)[0]%generations].Add(1)
		}
	}
}
