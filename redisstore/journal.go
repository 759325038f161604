package redisstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir"
)

const (
	mostJournaled = 1 << 16 // keys charged without the shared store that are remembered
	flushed       = 64      // charges handed over in one call
)

// journal is which keys were charged or held without the shared store, how much is still owed for them being in the share, and what is to be
// given back there.
type journal struct {
	size    atomic.Int64
	dropped atomic.Int64

	mu      sync.Mutex
	entries map[journalKey]*weir.TxCharge
	holds   map[journalKey]hold
	slots   map[journalKey]slots
	owed    []givenBack
	swept   weir.Instant
	held    atomic.Int64 // how many slots there are
}

// count sets size. The journal is locked.
func (j *journal) count() { j.size.Store(int64(len(j.entries) + len(j.holds) + len(j.owed))) }

type journalKey struct {
	limit     string
	algorithm weir.Algorithm
	key       string
	every     bool
}

type hold struct {
	charge weir.TxCharge
	until  weir.Instant
}

func keyOf(c *weir.TxCharge) journalKey {
	return journalKey{limit: c.Limit.Name, algorithm: c.Law.Algorithm, key: c.Key, every: c.Every}
}

// note remembers the keys that tx has charged or held.
func (j *journal) note(tx *weir.Tx) {
	charged := tx.Op == weir.Debit || tx.Op == weir.Take && tx.OK
	if !charged && tx.Op != weir.Hold && tx.Op != weir.Reset {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries == nil {
		j.entries, j.holds = map[journalKey]*weir.TxCharge{}, map[journalKey]hold{}
	}
	for i := range tx.Charges {
		c := &tx.Charges[i]
		k := keyOf(c)
		if tx.Op == weir.Take && c.Law.Algorithm == weir.Concurrency && c.Cost > 0 && c.When <= tx.Now {
			j.hold(c, tx.Now, here)
		}
		switch {
		case tx.Op == weir.Reset:
			delete(j.entries, k)
			delete(j.holds, k)
		case tx.Op == weir.Hold:
			if tx.Until == 0 {
				delete(j.holds, k)
			} else if len(j.holds) < mostJournaled {
				j.holds[k] = hold{*c, max(tx.Until, j.holds[k].until)}
			}
		case c.Cost > 0 && j.entries[k] == nil:
			if len(j.entries) >= mostJournaled {
				j.dropped.Add(1)
				continue
			}
			kept := *c
			j.entries[k] = &kept
		}
	}
	j.count()
}

// take empties the journal: a charge for each key of what it owes, which is forgotten in the share, and the holds.
func (j *journal) take(ctx context.Context, g *Guard) (debits []weir.TxCharge, holds []hold) {
	g.mu.Lock() // no decision without the shared store meanwhile
	defer g.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.entries {
		one := []weir.TxCharge{*c}
		one[0].Cost, one[0].Priority, one[0].Cell = 0, weir.High, 0
		peek := weir.Tx{Op: weir.Peek, Charges: one}
		if g.local.Apply(ctx, &peek) != nil {
			continue
		}
		owed := g.local.of(c).law.Capacity - one[0].Left
		if owed > 0 {
			d := *c
			d.Cost, d.Priority, d.Cell = owed, weir.Normal, 0
			debits = append(debits, d)
			if d.Law.Algorithm == weir.Concurrency {
				j.move(keyOf(c))
			}
		}
		g.local.Apply(ctx, &weir.Tx{Op: weir.Reset, Charges: one})
	}
	for _, h := range j.holds {
		holds = append(holds, h)
	}
	j.entries, j.holds = nil, nil
	j.count()
	return debits, holds
}

// flush hands the journal over to the shared store. What it does not take stays in the journal and is charged to the share again.
func (j *journal) flush(ctx context.Context, g *Guard) error {
	failed := j.settle(ctx, g)
	debits, holds := j.take(ctx, g)
	for len(debits) > 0 {
		n := min(flushed, len(debits))
		var at weir.Instant
		if failed == nil {
			at, failed = together(ctx, g.Shared, debits[:n])
		}
		if failed != nil {
			at = j.giveBack(ctx, g, weir.Tx{Op: weir.Debit, Charges: debits[:n]})
			j.arrive(ctx, g, debits[:n], at, here)
		} else {
			j.arrive(ctx, g, debits[:n], at, there)
		}
		debits = debits[n:]
	}
	for _, h := range holds {
		one := []weir.TxCharge{h.charge}
		one[0].Cell = 0
		if failed == nil {
			failed = g.Shared.Apply(ctx, &weir.Tx{Op: weir.Hold, Until: h.until, Charges: one})
		}
		// It goes on in this process too: a Reset above may have lifted it.
		j.giveBackHold(ctx, g, weir.Tx{Op: weir.Hold, Until: h.until, Charges: one}, failed != nil)
	}
	return failed
}

// together debits the charges in one call, and gives its instant.
func together(ctx context.Context, store weir.Store, charges []weir.TxCharge) (weir.Instant, error) {
	for i := range charges {
		charges[i].Cell = i
	}
	tx := weir.Tx{Op: weir.Debit, Charges: charges}
	err := store.Apply(ctx, &tx)
	return tx.Now, err
}

func (j *journal) giveBack(ctx context.Context, g *Guard, tx weir.Tx) weir.Instant {
	for i := range tx.Charges {
		tx.Charges[i].Cell = i
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.local.Apply(ctx, &tx) == nil {
		j.note(&tx)
	}
	return tx.Now
}

func (j *journal) giveBackHold(ctx context.Context, g *Guard, tx weir.Tx, keep bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.local.Apply(ctx, &tx) == nil && keep {
		j.note(&tx)
	}
}
