package redisstore

import (
	"context"
	"sync"

	"github.com/weir-go/weir"
)

// Slots are units of Concurrency limits, which requests under way give back when they end, by the instant they were taken. What was
// taken without the shared store may have been handed over by then, and what was taken there may end while it is away: a
// slot that is not given back is lost until the limit's Period is over, so the journal knows where each is.

// slots are those of a key, by when they were taken, as the request knows.
type slots map[weir.Instant]*taken

type taken struct {
	units  int64
	at     weir.Instant // when it was charged, where it is now
	until  weir.Instant // when it is given back by itself
	place  slotPlace
	moving bool  // being handed over
	back   int64 // units given back meanwhile
}

// slotPlace is where a slot is charged.
type slotPlace int8

const (
	here    slotPlace = iota // in the share
	there                    // in the shared store
	nowhere                  // admitted by Allow
)

// givenBack is a slot that the shared store has not heard of being given back.
type givenBack struct {
	charge weir.TxCharge
	made   weir.Instant
}

// hold notes that units of c were taken without the shared store. The journal is locked.
func (j *journal) hold(c *weir.TxCharge, now weir.Instant, at slotPlace) {
	k := keyOf(c)
	s := j.slots[k][now]
	if s == nil {
		if j.held.Load() >= mostJournaled && !j.sweep(now) {
			return
		}
		if j.slots == nil {
			j.slots = map[journalKey]slots{}
		}
		if j.slots[k] == nil {
			j.slots[k] = slots{}
		}
		s = &taken{at: now, place: at, until: now + weir.Instant(c.Law.Window)}
		j.slots[k][now] = s
		j.held.Add(1)
	}
	s.units += c.Cost
}

// drop forgets a slot. The journal is locked.
func (j *journal) drop(k journalKey, made weir.Instant) {
	delete(j.slots[k], made)
	if len(j.slots[k]) == 0 {
		delete(j.slots, k)
	}
	j.held.Add(-1)
}

// allowed notes the slots of tx that were admitted by Allow: those without a place in what was decided here.
func (j *journal) allowed(tx *weir.Tx, at []int, now weir.Instant) {
	for i := range tx.Charges {
		if c := &tx.Charges[i]; at[i] < 0 && c.Law.Algorithm == weir.Concurrency && c.Cost > 0 {
			j.mu.Lock()
			j.hold(c, now, nowhere)
			j.mu.Unlock()
		}
	}
}

// sweep drops the slots that nobody has given back in their time, and reports whether there is room now.
func (j *journal) sweep(now weir.Instant) bool {
	if now < j.swept+1_000_000 {
		return false
	}
	j.swept = now
	for k, of := range j.slots {
		for made, s := range of {
			if s.until < now && !s.moving {
				j.drop(k, made)
			}
		}
	}
	return j.held.Load() < mostJournaled
}

// owe notes slots of a Refund that the shared store has not heard of.
func (j *journal) owe(tx *weir.Tx) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range tx.Charges {
		if c.Law.Algorithm == weir.Concurrency && c.Cost > 0 && !c.Every && len(j.owed) < mostJournaled {
			c.Cell = 0
			j.owed = append(j.owed, givenBack{c, tx.Made})
		}
	}
	j.count()
}

// release gives back the slots of a Refund that were taken without Shared, where they are now. It gives the Refund without them, or nil
// if there are none, and why Shared did not take its part, which is then owed.
func (g *Guard) release(ctx context.Context, tx *weir.Tx) (rest *weir.Tx, failed error) {
	if g.journal.held.Load() == 0 {
		return nil, nil
	}
	var far []weir.Tx
	g.mu.RLock() // so that no slot is handed over between the look and the refund
	for i := range tx.Charges {
		c := tx.Charges[i]
		if c.Law.Algorithm != weir.Concurrency || c.Cost == 0 || c.Every {
			continue
		}
		from, ok := g.journal.release(&c, tx.Made)
		if !ok {
			continue
		}
		if rest == nil {
			copied := *tx
			rest = &copied
			rest.Charges = append([]weir.TxCharge(nil), tx.Charges...)
		}
		rest.Charges[i].Cost = 0
		switch from.place {
		case here:
			g.local.Apply(ctx, refundOf(c, from.at))
		case there:
			far = append(far, *refundOf(c, from.at))
		}
	}
	g.mu.RUnlock()
	for i := range far {
		if failed == nil && !g.down.Load() {
			failed = g.Shared.Apply(ctx, &far[i])
		}
		if failed != nil || g.down.Load() {
			g.journal.owe(&far[i])
		}
	}
	return rest, failed
}

// release takes the units of c, whose cost becomes what is to be refunded at once, out of the slot of that instant, if there is one.
func (j *journal) release(c *weir.TxCharge, made weir.Instant) (from taken, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := keyOf(c)
	s := j.slots[k][made]
	if s == nil {
		return taken{}, false
	}
	c.Cost = min(c.Cost, s.units)
	s.units -= c.Cost
	from = *s
	if s.moving {
		s.back += c.Cost // it is refunded where it arrives
		from.place = nowhere
	} else if s.units == 0 {
		j.drop(k, made)
	}
	return from, true
}

func refundOf(c weir.TxCharge, made weir.Instant) *weir.Tx {
	c.Cell = 0
	return &weir.Tx{Op: weir.Refund, Made: made, Charges: []weir.TxCharge{c}}
}

// move marks the slots of a key that are here as being handed over. The journal is locked.
func (j *journal) move(k journalKey) {
	for _, s := range j.slots[k] {
		if s.place == here {
			s.moving = true
		}
	}
}

// arrive notes where the slots of charges that were handed over are charged now, and since when, and refunds there what was given back
// meanwhile.
func (j *journal) arrive(ctx context.Context, g *Guard, charges []weir.TxCharge, at weir.Instant, to slotPlace) {
	for _, c := range charges {
		if c.Law.Algorithm != weir.Concurrency {
			continue
		}
		var back int64
		j.mu.Lock()
		k := keyOf(&c)
		for made, s := range j.slots[k] {
			if !s.moving {
				continue
			}
			back += s.back
			s.at, s.place, s.moving, s.back = at, to, false, 0
			if s.units == 0 {
				j.drop(k, made)
			}
		}
		j.mu.Unlock()
		if back == 0 {
			continue
		}
		c.Cost = back
		refund := refundOf(c, at)
		if to == here {
			g.mu.RLock()
			g.local.Apply(ctx, refund)
			g.mu.RUnlock()
		} else if g.Shared.Apply(ctx, refund) != nil {
			j.owe(refund)
		}
	}
}

// settle gives back to Shared what it has not heard of.
func (j *journal) settle(ctx context.Context, g *Guard) error {
	j.mu.Lock()
	owed := j.owed
	j.owed = nil
	j.count()
	j.mu.Unlock()
	var mu sync.Mutex
	var failed error
	for len(owed) > 0 {
		n := min(flushed, len(owed))
		var wg sync.WaitGroup
		for _, o := range owed[:n] {
			wg.Go(func() {
				refund := refundOf(o.charge, o.made)
				if err := g.Shared.Apply(ctx, refund); err != nil {
					j.owe(refund)
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		owed = owed[n:]
		if failed != nil {
			for _, o := range owed {
				j.owe(refundOf(o.charge, o.made))
			}
			return failed
		}
	}
	return nil
}
