package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/storetest"
)

// reference is the least that can be a Store: one lock, one map that never forgets, and Decide.
type reference struct {
	now   func() time.Time
	mu    sync.Mutex
	cells map[cellKey]weir.Cell
	every map[string]weir.Instant // holds of whole limits
}

type cellKey struct {
	algorithm weir.Algorithm // whose numbers mean nothing to another
	limit     string
	key       string
}

func newReference(_ testing.TB, now func() time.Time) weir.Store {
	return &reference{now: now, cells: make(map[cellKey]weir.Cell), every: make(map[string]weir.Instant)}
}

func (s *reference) Apply(_ context.Context, tx *weir.Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cells := make([]weir.Cell, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Every {
			cells[i] = weir.Cell{Held: s.every[c.Limit.Name]}
			continue
		}
		cells[i] = s.cells[keyOf(c)]
		if tx.Op != weir.Hold { // which is about the key's own
			cells[i].Held = max(cells[i].Held, s.every[c.Limit.Name])
		}
	}
	weir.Decide(tx, cells, weir.InstantOf(s.now()))
	if tx.Op == weir.Peek {
		return nil
	}
	for i := range tx.Charges {
		switch c := &tx.Charges[i]; {
		case c.Cell != i: // the cell of an earlier charge
		case c.Every:
			s.every[c.Limit.Name] = cells[i].Held
		case tx.Op == weir.Hold || tx.Op == weir.Reset:
			s.cells[keyOf(c)] = cells[i]
		default:
			cells[i].Held = s.cells[keyOf(c)].Held
			s.cells[keyOf(c)] = cells[i]
		}
	}
	return nil
}

func keyOf(c *weir.TxCharge) cellKey { return cellKey{c.Limit.Algorithm, c.Limit.Name, c.Key} }

func newMemory(_ testing.TB, now func() time.Time) weir.Store { return &weir.Memory{Now: now} }

func TestReference(t *testing.T) { storetest.Run(t, newReference) }

func TestMemoryAgainstReference(t *testing.T) {
	histories := 5000
	if testing.Short() {
		histories = 500
	}
	storetest.Compare(t, newMemory, newReference, 1, histories)
}

func FuzzMemoryAgainstReference(f *testing.F) {
	f.Add([]byte("a bucket, a window and a log walk into a bar, and are refused"))
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, data []byte) { storetest.CompareOps(t, newMemory, newReference, data) })
}
