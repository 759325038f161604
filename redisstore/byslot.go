package redisstore

import (
	"context"

	"github.com/weir-go/weir"
)

// bySlot applies what is no joint decision (a Peek, Refund, Debit, Hold or Reset) to each slot of a Cluster for
// itself. An error leaves what was done in the slots before it.
func (s *Store) bySlot(ctx context.Context, tx *weir.Tx) error {
	type part struct {
		slot int
		tx   weir.Tx
		from []int // where its charges are in tx
	}
	var parts []*part
	at := make([]int, len(tx.Charges)) // where charge i is in its part
	for i := range tx.Charges {
		c := &tx.Charges[i]
		var p *part
		for _, known := range parts {
			if known.slot == slot(s.tag(c.Limit)) {
				p = known
			}
		}
		if p == nil {
			p = &part{slot: slot(s.tag(c.Limit)), tx: weir.Tx{Op: tx.Op, Made: tx.Made, Until: tx.Until}}
			parts = append(parts, p)
		}
		at[i] = add(&p.tx, c, i, at)
		p.from = append(p.from, i)
	}
	for n, p := range parts {
		if err := s.apply(ctx, &p.tx); err != nil {
			return err
		}
		if n == 0 {
			tx.Now, tx.OK, tx.At = p.tx.Now, true, p.tx.Now
		}
		here := func(at weir.Instant) weir.Instant { // the nodes' clocks may differ
			if at == 0 || at == weir.Never {
				return at
			}
			return at - p.tx.Now + tx.Now
		}
		tx.OK, tx.At = tx.OK && p.tx.OK, max(tx.At, here(p.tx.At))
		for j, i := range p.from {
			c, r := &tx.Charges[i], &p.tx.Charges[j]
			c.When, c.Left, c.Next, c.Held = here(r.When), r.Left, here(r.Next), here(r.Held)
		}
	}
	return nil
}
