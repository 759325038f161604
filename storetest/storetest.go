// Package storetest checks that a [weir.Store] keeps the laws of weir: what its limits admit, that a decision is all or
// nothing, that nothing is given back twice, that a wrong clock does no harm. It is for those who write a Store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB, now func() time.Time) weir.Store {
//			return mystore.Open(t.TempDir(), now)
//		})
//	}
//
// The suite holds a Store against three things: oracles, which keep the whole list of what was admitted and check each
// law by its definition; transcripts, which people can read (testdata); and, with [Compare], another Store, output for output.
// It only uses what the package weir exports. A failure says how to replay it: all histories come from seeds.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// Open gives an empty Store whose clock is now. The suite sets that clock; it is the same at every call within one
// decision, and may be called concurrently. A Store whose clock is elsewhere needs a way to be given these readings in
// tests. Where it forgets cells by yet another clock (an expiry on a server), it must keep each a second longer than
// asked, since the suite's clock stands still meanwhile.
//
// Open is called about forty times by Run. It should use t.Cleanup to close what it opened.
type Open func(t testing.TB, now func() time.Time) weir.Store

// Run runs the whole suite, some 500,000 decisions, a tenth of it with -short.
func Run(t *testing.T, open Open) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(newRig(t, open)); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is one thing that must hold. It returns an error rather than failing a test, so that the suite itself can be
// tested on Stores with a fault.
type check struct {
	name string
	run  func(*rig) error
}

func checks() []check {
	var all []check
	for a := range algorithms {
		all = append(all, check{"law/" + weir.Algorithm(a).String(), func(r *rig) error { return keepsLaw(r, weir.Algorithm(a)) }})
	}
	all = append(all, amounts...)
	all = append(all, together...)
	all = append(all, amends...)
	all = append(all, clocks...)
	return append(all, transcripts()...)
}

const algorithms = int(weir.Concurrency) + 1

// start is where the clock of a rig begins: an instant at which windows of all usual lengths begin.
const start = weir.Instant(1_767_225_600_000_000) // 2026-01-01T00:00:00Z

const (
	second = weir.Instant(1_000_000)
	minute = 60 * second
	day    = 24 * 60 * minute

	end = start + 80*365*day // before the last instant that weir counts to
)

// rig is a Store under test, with the clock that it reads.
type rig struct {
	t      testing.TB
	now    weir.Instant
	lim    weir.Limiter
	store  *tap
	serial int
}

func newRig(t testing.TB, open Open) *rig {
	r := &rig{t: t, now: start}
	r.store = &tap{Store: open(t, func() time.Time { return r.now.Time() })}
	r.lim.Store = r.store
	return r
}

// limit gives l a name that nothing else in the rig has.
func (r *rig) limit(l weir.Limit) *weir.Limit {
	r.serial++
	l.Name = fmt.Sprintf("l%d", r.serial)
	return &l
}

// take, peek and the like fail the test for good if the Store cannot decide: nothing it is given here is a reason not to.
func (r *rig) take(c ...weir.Charge) *weir.Decision {
	d, err := r.lim.Take(context.Background(), c...)
	r.must(err)
	return &d
}

func (r *rig) peek(c ...weir.Charge) *weir.Decision {
	d, err := r.lim.Peek(context.Background(), c...)
	r.must(err)
	return &d
}

// peekAt is peek at another instant.
func (r *rig) peekAt(at weir.Instant, c ...weir.Charge) *weir.Decision {
	defer func(now weir.Instant) { r.now = now }(r.now)
	r.now = at
	return r.peek(c...)
}

func (r *rig) refund(at weir.Instant, c ...weir.Charge) {
	r.must(r.lim.Refund(context.Background(), at.Time(), c...))
}

func (r *rig) debit(c ...weir.Charge) {
	r.must(r.lim.Debit(context.Background(), c...))
}

// hold holds until an instant; 0 lifts.
func (r *rig) hold(until weir.Instant, c ...weir.Charge) {
	var t time.Time
	if until != 0 {
		t = until.Time()
	}
	r.must(r.lim.Hold(context.Background(), t, c...))
}

func (r *rig) reset(c ...weir.Charge) {
	r.must(r.lim.Reset(context.Background(), c...))
}

func (r *rig) must(err error) {
	if err != nil {
		r.t.Fatalf("the Store could not decide: %v", err)
	}
}

// tap is a Store that remembers what the one behind it answered last. Not for concurrent use, unless quiet.
type tap struct {
	weir.Store
	quiet bool
	last  weir.Tx
}

func (s *tap) Apply(ctx context.Context, tx *weir.Tx) error {
	err := s.Store.Apply(ctx, tx)
	if !s.quiet {
		s.last = *tx
	}
	return err
}

// each runs a history n times (a tenth of it with -short), each with random choices of its own, and says which one failed.
func each(n int, seed uint64, history func(pick picker) error) error {
	if testing.Short() {
		n = (n + 9) / 10
	}
	for i := range n {
		if err := history(picks(seed, uint64(i))); err != nil {
			return fmt.Errorf("seed %d, history %d: %w", seed, i, err)
		}
	}
	return nil
}

// picker chooses a number from 0 to n−1, n ≥ 1.
type picker func(n int64) int64

func picks(seed, stream uint64) picker {
	return rand.New(rand.NewPCG(seed, stream)).Int64N
}

// chance is true in percent of cases.
func (pick picker) chance(percent int64) bool { return pick(100) < percent }

// in is from least to most.
func (pick picker) in(least, most int64) int64 { return least + pick(most-least+1) }

func one[T any](pick picker, of ...T) T { return of[pick(int64(len(of)))] }
