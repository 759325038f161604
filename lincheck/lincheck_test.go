// Package lincheck checks that weir.Memory is linearizable: whatever concurrent callers were answered, there is
// an order of their calls, each between its start and its end, in which one caller after the other gets the same answers
// from a Store without any concurrency. It is a module of its own, so that the product does not depend on the checker,
// porcupine.
package lincheck

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/weir-go/weir"
)

// cell names the cell of a charge.
type cell struct {
	limit, key string
	every      bool
}

func cellOf(c *weir.TxCharge) cell { return cell{c.Limit.Name, c.Key, c.Every} }

// state is a Store without concurrency; it is never changed.
type state map[cell]weir.Cell

// after is s after tx, with the answers in tx.
func (s state) after(tx *weir.Tx, now weir.Instant) state {
	cells := make([]weir.Cell, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		cells[i] = s[cellOf(c)]
		cells[i].Log = slices.Clone(cells[i].Log)
		if tx.Op != weir.Hold {
			cells[i].Held = max(cells[i].Held, s[cell{c.Limit.Name, "", true}].Held)
		}
	}
	weir.Decide(tx, cells, now)
	if tx.Op == weir.Peek {
		return s
	}
	next := maps.Clone(s)
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Cell != i {
			continue
		}
		if tx.Op != weir.Hold && tx.Op != weir.Reset {
			cells[i].Held = s[cellOf(c)].Held
		}
		next[cellOf(c)] = cells[i]
	}
	return next
}

func equal(a, b state) bool {
	return maps.EqualFunc(a, b, func(x, y weir.Cell) bool {
		return x.Rest == y.Rest && x.A == y.A && x.B == y.B && x.Held == y.Held && slices.Equal(x.Log, y.Log)
	})
}

// model replays a call at the instant that the Store decided it, and compares all that the Store has set.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		asked, answered := in.(weir.Tx), out.(weir.Tx)
		tx := asked
		tx.Charges = slices.Clone(asked.Charges)
		next := s.(state).after(&tx, answered.Now)
		return answer(&tx) == answer(&answered), next
	},
	Equal: func(a, b any) bool { return equal(a.(state), b.(state)) },
	DescribeOperation: func(in, out any) string {
		asked, answered := in.(weir.Tx), out.(weir.Tx)
		return fmt.Sprintf("%v %s -> %s", asked.Op, charges(&asked), answer(&answered))
	},
}

func charges(tx *weir.Tx) string {
	var s []string
	for i := range tx.Charges {
		c := &tx.Charges[i]
		s = append(s, fmt.Sprintf("%s:%s×%d", c.Limit.Name, c.Key, c.Cost))
	}
	return strings.Join(s, " + ")
}

func answer(tx *weir.Tx) string {
	s := fmt.Sprintf("at %d %v until %d", tx.Now, tx.OK, tx.At)
	for i := range tx.Charges {
		c := &tx.Charges[i]
		s += fmt.Sprintf(" | %d %d %d", c.When, c.Left, c.Next)
	}
	return s
}

// recorder is a Store that writes down when each call began and ended, and what came of it.
type recorder struct {
	weir.Store
	began time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
}

func (r *recorder) run(client int, lim *weir.Limiter, call func(*weir.Limiter)) {
	lim.Store = storeFunc(func(ctx context.Context, tx *weir.Tx) error {
		asked := *tx
		asked.Charges = slices.Clone(tx.Charges)
		op := porcupine.Operation{ClientId: client, Input: asked, Call: time.Since(r.began).Nanoseconds()}
		err := r.Store.Apply(ctx, tx)
		op.Return = time.Since(r.began).Nanoseconds()
		answered := *tx
		answered.Charges = slices.Clone(tx.Charges)
		op.Output = answered
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, op)
		return err
	})
	call(lim)
}

type storeFunc func(context.Context, *weir.Tx) error

func (f storeFunc) Apply(ctx context.Context, tx *weir.Tx) error { return f(ctx, tx) }

// limits are so small that what one caller does is seen by the others at once.
func limits() []*weir.Limit {
	return []*weir.Limit{
		{Name: "bucket", Rate: weir.Rate{Units: 7, Period: 3 * time.Second}, Burst: 9},
		{Name: "gcra", Algorithm: weir.GCRA, Rate: weir.Rate{Units: 5, Period: time.Second}, Headroom: 1},
		{Name: "window", Algorithm: weir.SlidingWindow, Rate: weir.Rate{Units: 12, Period: time.Second}},
		{Name: "out", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 3, Period: time.Second}},
	}
}

// history has clients do random things to the Store at once.
func history(store weir.Store, seed uint64, clients, each int) []porcupine.Operation {
	rec := &recorder{Store: store, began: time.Now()}
	all := limits()
	keys := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			ctx := context.Background()
			var lim weir.Limiter
			var made []weir.Charge
			var at time.Time
			for range each {
				var c []weir.Charge
				for range 1 + rng.IntN(3) {
					l := all[rng.IntN(len(all))]
					c = append(c, l.For(keys[rng.IntN(len(keys))]).Costing(1+rng.Int64N(2)).AtPriority(weir.Priority(rng.IntN(3)-1)))
				}
				rec.run(client, &lim, func(lim *weir.Limiter) {
					switch n := rng.IntN(20); {
					case n < 11:
						if d, err := lim.Take(ctx, c...); err == nil && d.Allowed {
							made, at = c, d.At
						}
					case n < 13:
						lim.Peek(ctx, c...)
					case n < 16 && made != nil:
						lim.Refund(ctx, at, made...)
						made = nil
					case n < 17:
						lim.Debit(ctx, c...)
					case n < 18:
						lim.Hold(ctx, start.Add(time.Duration(rng.Int64N(300))*time.Microsecond), c[0])
					case n < 19:
						lim.Hold(ctx, start.Add(time.Duration(rng.Int64N(300))*time.Microsecond), c[0].Limit.Every())
					default:
						lim.Reset(ctx, c[:1]...)
					}
				})
				if rng.IntN(3) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	return rec.calls
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ticking is a clock that moves on by a microsecond at each reading.
func ticking() func() time.Time {
	var n atomic.Int64
	return func() time.Time { return start.Add(time.Duration(n.Add(1)) * time.Microsecond) }
}

func TestMemoryIsLinearizable(t *testing.T) {
	deadline := time.Now().Add(10 * time.Second)
	rounds, calls, overlapping := 0, 0, 0
	for seed := uint64(1); time.Now().Before(deadline) && rounds < 4000; seed++ {
		now := ticking()
		if seed%2 == 0 { // the clock stands still
			now = func() time.Time { return start }
		}
		ops := history(&weir.Memory{Now: now}, seed, 6, 10)
		for i := range ops {
			for j := range i {
				if ops[j].Return > ops[i].Call && ops[i].Return > ops[j].Call {
					overlapping++
				}
			}
		}
		switch result, info := porcupine.CheckOperationsVerbose(model, ops, 5*time.Second); result {
		case porcupine.Illegal:
			path := t.ArtifactDir() + "/history.html"
			if err := porcupine.VisualizePath(model, info, path); err != nil {
				t.Log(err)
			}
			t.Fatalf("seed %d: no order of the calls explains the answers; see %s (go test -artifacts keeps it)", seed, path)
		case porcupine.Unknown:
			t.Logf("seed %d: too many orders to try", seed)
		}
		rounds++
		calls += len(ops)
	}
	t.Logf("%d histories, %d calls, %d pairs of them at the same time", rounds, calls, overlapping)
	if overlapping == 0 {
		t.Error("no two calls ran at the same time: nothing was checked")
	}
}

// torn is a Store that saves under another lock than it loads, which the check must find.
type torn struct {
	mu    sync.Mutex
	now   func() time.Time
	cells state
}

func (s *torn) Apply(_ context.Context, tx *weir.Tx) error {
	s.mu.Lock()
	before := s.cells
	now := s.now()
	s.mu.Unlock()
	runtime.Gosched() // others come between
	next := before.after(tx, weir.InstantOf(now))
	s.mu.Lock()
	s.cells = next
	s.mu.Unlock()
	return nil
}

func TestTornStoreIsNot(t *testing.T) {
	for seed := range uint64(200) {
		ops := history(&torn{now: ticking(), cells: state{}}, seed, 6, 10)
		if porcupine.CheckOperationsTimeout(model, ops, 5*time.Second) == porcupine.Illegal {
			return
		}
	}
	t.Error("a Store that loses what others save passes for linearizable")
}
