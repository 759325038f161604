package redisstore

import (
	"context"
	"time"

	"github.com/weir-go/weir"
)

// setAside is units that a decision under way has taken out of a portion.
type setAside struct {
	lease *lease
	from  *portion // nil: taken from Store by themselves
	at    weir.Instant
	cost  int64
}

// take decides a Take of several charges: it sets aside the leased units, has Store decide the rest, and
// gives the units back if that refuses.
func (l *Leased) take(ctx context.Context, tx *weir.Tx) error {
	leases := make([]*lease, len(tx.Charges))
	rest := weir.Tx{Op: weir.Take}
	at := make([]int, len(tx.Charges)) // where charge i is in rest
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Cell != i {
			leases[i] = leases[c.Cell]
		} else {
			leases[i] = l.of(c)
		}
		if leases[i] == nil {
			at[i] = add(&rest, c, i, at)
		}
	}
	if len(rest.Charges) == len(tx.Charges) {
		return l.Store.Apply(ctx, tx)
	}
	var aside []setAside
	var refused *weir.Tx
	var by int // the charge that was refused
	for i := range tx.Charges {
		le := leases[i]
		if le == nil || tx.Charges[i].Cell != i {
			continue
		}
		cost := costTogether(tx, i)
		p, got, err := le.acquire(ctx, cost, true)
		if err != nil {
			l.settle(ctx, aside, false)
			return err
		}
		if got != nil && !got.OK {
			refused, by = got, i
			break
		}
		a := setAside{lease: le, from: p, cost: cost}
		if got != nil {
			a.at = got.Now
		}
		aside = append(aside, a)
	}
	if refused != nil {
		rest.Op = weir.Peek // the others say what they would have said
	}
	if len(rest.Charges) > 0 {
		if err := l.Store.Apply(ctx, &rest); err != nil {
			l.settle(ctx, aside, false)
			return err
		}
	} else {
		rest.OK = true
	}
	ok := refused == nil && rest.OK
	l.settle(ctx, aside, ok)
	tx.OK = ok
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if le := leases[i]; le != nil {
			one := weir.Tx{}
			le.mu.Lock()
			le.answer(&one, c, time.Now())
			le.mu.Unlock()
			tx.Now = max(tx.Now, one.Now)
		} else {
			r := &rest.Charges[at[i]]
			c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
		}
	}
	if len(rest.Charges) > 0 {
		tx.Now = rest.Now
	} else if refused != nil {
		tx.Now = refused.Now
	}
	tx.At = tx.Now
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if leases[i] != nil {
			c.When = tx.Now
			if refused != nil && c.Cell == by {
				r := &refused.Charges[0]
				c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
			}
		}
		if !c.Limit.Shadow {
			tx.At = max(tx.At, c.When)
		}
	}
	return nil
}

// settle spends what was set aside, or puts it back where it was.
func (l *Leased) settle(ctx context.Context, aside []setAside, spent bool) {
	for _, a := range aside {
		if a.from == nil {
			if !spent {
				tx := &weir.Tx{Op: weir.Refund, Made: a.at, Charges: []weir.TxCharge{a.lease.charge}}
				tx.Charges[0].Cost = a.cost
				l.Store.Apply(ctx, tx)
			}
			continue
		}
		a.lease.mu.Lock()
		a.lease.aside -= a.cost
		if room := a.lease.terms.most - a.lease.held(time.Now()); !spent && room > 0 {
			a.from.units += min(a.cost, room)
			a.from.taken -= a.cost
		}
		a.lease.mu.Unlock()
	}
}

// peek answers from the portions where they suffice, and asks Store for the rest under the terms of the leases.
func (l *Leased) peek(ctx context.Context, tx *weir.Tx) error {
	rest := weir.Tx{Op: weir.Peek}
	at := make([]int, len(tx.Charges))
	held := make([]*lease, len(tx.Charges))
	leased := make([]bool, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Cell != i && held[c.Cell] != nil {
			held[i] = held[c.Cell]
			continue
		}
		le := l.of(c)
		if le == nil || c.Cell != i && !leased[c.Cell] {
			at[i] = add(&rest, c, i, at)
			continue
		}
		leased[i] = true
		cost := costTogether(tx, i)
		le.mu.Lock()
		now := time.Now()
		for _, p := range le.portions {
			if p.units >= cost && now.Before(p.until) {
				held[i] = le
			}
		}
		le.mu.Unlock()
		if held[i] == nil {
			under := *c
			under.Limit, under.Law = le.terms.limit, le.terms.law
			at[i] = add(&rest, &under, i, at)
		}
	}
	rest.OK = true
	if len(rest.Charges) > 0 {
		if err := l.Store.Apply(ctx, &rest); err != nil {
			return err
		}
	}
	tx.OK, tx.Now, tx.At = rest.OK, rest.Now, rest.At
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if held[i] == nil {
			r := &rest.Charges[at[i]]
			c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
			continue
		}
		var one weir.Tx
		held[i].mu.Lock()
		held[i].answer(&one, c, time.Now())
		held[i].mu.Unlock()
		if len(rest.Charges) == 0 {
			tx.Now, tx.At = max(tx.Now, one.Now), max(tx.At, one.Now)
		} else {
			c.When = tx.Now
		}
	}
	return nil
}

// refund gives back to Store. A unit was charged up to Lifetime before it was spent, and is given back as of then.
func (l *Leased) refund(ctx context.Context, tx *weir.Tx) error {
	early := weir.Tx{Op: weir.Refund, Made: max(0, tx.Made-weir.Instant(l.lifetime()/time.Microsecond))}
	rest := weir.Tx{Op: weir.Refund, Made: tx.Made}
	at := make([]int, len(tx.Charges))
	from := make([]*weir.Tx, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		from[i] = &rest
		if c.Cell != i {
			from[i] = from[c.Cell]
		} else if l.termsOf(c) != nil {
			from[i] = &early
		}
		at[i] = add(from[i], c, i, at)
	}
	for _, t := range []*weir.Tx{&early, &rest} {
		if len(t.Charges) == 0 {
			continue
		}
		if err := l.Store.Apply(ctx, t); err != nil {
			return err
		}
		tx.Now, tx.OK, tx.At = t.Now, t.OK, t.At
	}
	for i := range tx.Charges {
		c, r := &tx.Charges[i], &from[i].Charges[at[i]]
		c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
	}
	return nil
}

// drop gives back the portions of keys that are held or reset.
func (l *Leased) drop(ctx context.Context, tx *weir.Tx) {
	for i := range tx.Charges {
		c := &tx.Charges[i]
		l.mu.RLock()
		var leases []*lease
		for k, le := range l.leases {
			if k.limit == c.Limit.Name && k.algorithm == c.Law.Algorithm && (c.Every || k.key == c.Key) {
				leases = append(leases, le)
			}
		}
		l.mu.RUnlock()
		for _, le := range leases {
			le.giveBack(ctx, true)
		}
	}
}

// add puts charge i of a transaction into to, and gives its place there; at has those of the charges before it.
func add(to *weir.Tx, c *weir.TxCharge, i int, at []int) int {
	n := len(to.Charges)
	to.Charges = append(to.Charges, *c)
	to.Charges[n].Cell = n
	if c.Cell != i {
		to.Charges[n].Cell = at[c.Cell]
	}
	return n
}

// costTogether is the cost of charge i and those that meet it in one cell.
func costTogether(tx *weir.Tx, i int) (cost int64) {
	for j := range tx.Charges {
		if tx.Charges[j].Cell == tx.Charges[i].Cell {
			cost += tx.Charges[j].Cost
		}
	}
	return cost
}
