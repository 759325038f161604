package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// share is a Store that holds each limit at a part of itself: what one of several replicas may admit while they cannot
// agree. All parts together are the limit, but for bursts of less than one unit a replica, which are one.
type share struct {
	store weir.Memory
	parts int64
	retry weir.Instant // when to ask again for what only the whole limit can hold

	mu  sync.RWMutex
	has map[*weir.Law]*part
}

// part is the limit at 1/parts.
type part struct {
	limit *weir.Limit
	law   *weir.Law
}

func (s *share) of(c *weir.TxCharge) *part {
	s.mu.RLock()
	p := s.has[c.Law]
	s.mu.RUnlock()
	if p != nil && p.limit.Shadow == c.Limit.Shadow {
		return p
	}
	p = &part{limit: divide(c.Limit, s.parts)}
	law, err := p.limit.Law()
	if err != nil { // a limit that is too fine once divided is not divided
		p.limit, law = c.Limit, c.Law
	}
	p.law = law
	s.mu.Lock()
	if len(s.has) >= mostRules || s.has == nil {
		s.has = map[*weir.Law]*part{}
	}
	s.has[c.Law] = p
	s.mu.Unlock()
	return p
}

// divide is l at 1/parts. A bucket's rate is divided exactly, by its period. Whole units of windows are divided; where they are
// fewer than the parts, one comes back in as many periods as parts share it.
func divide(l *weir.Limit, parts int64) *weir.Limit {
	d := fields(l)
	if parts <= 1 || l.Rate.Units == 0 {
		return &d
	}
	const longest = 400 * 24 * time.Hour
	switch l.Algorithm {
	case weir.TokenBucket, weir.GCRA, weir.LeakyBucket:
		d.Burst = max(1, l.Capacity()/parts)
		if l.Rate.Period <= longest/time.Duration(parts) {
			d.Rate.Period *= time.Duration(parts)
		} else {
			d.Rate.Units = max(1, l.Rate.Units/parts)
		}
	default:
		d.Burst = 0
		if d.Rate.Units = l.Rate.Units / parts; d.Rate.Units == 0 {
			d.Rate.Units = 1
			if l.Algorithm != weir.Concurrency {
				each := time.Duration((parts + l.Rate.Units - 1) / l.Rate.Units)
				d.Rate.Period = min(longest, l.Rate.Period*min(each, longest/l.Rate.Period))
			}
		}
	}
	d.Headroom = min(l.Headroom/parts, max(0, d.Capacity()-1)/2)
	return &d
}

// Apply decides tx over the parts of its limits.
func (s *share) Apply(ctx context.Context, tx *weir.Tx) error {
	own := *tx
	own.Charges = make([]weir.TxCharge, len(tx.Charges))
	for i := range tx.Charges {
		c := &own.Charges[i]
		*c = tx.Charges[i]
		p := s.of(&tx.Charges[i])
		c.Limit, c.Law = p.limit, p.law
	}
	if err := s.store.Apply(ctx, &own); err != nil {
		return err
	}
	tx.Now, tx.OK, tx.At = own.Now, own.OK, own.At
	if own.At == weir.Never {
		tx.At = own.Now
	}
	for i := range tx.Charges {
		c, o := &tx.Charges[i], &own.Charges[i]
		c.When, c.Left, c.Next, c.Held = o.When, o.Left, o.Next, o.Held
		// What is too much for the part may not be for the whole: not never, but not now.
		if o.When == weir.Never && fits(tx, i) {
			c.When = own.Now + s.retry
		}
		if c.When > own.Now && !c.Limit.Shadow {
			tx.At = max(tx.At, c.When)
		}
	}
	return nil
}

// fits reports whether charge i, with those that meet it in one cell, is within the limit undivided.
func fits(tx *weir.Tx, i int) bool {
	var cost, floor int64
	for j := range tx.Charges {
		if c := &tx.Charges[j]; c.Cell == tx.Charges[i].Cell {
			cost += c.Cost
			floor = max(floor, int64(weir.High-c.Priority)*c.Law.Headroom)
		}
	}
	return cost <= tx.Charges[i].Law.Capacity-floor
}

// fields is a copy of l without what it has compiled, which may be stored at this moment.
func fields(l *weir.Limit) weir.Limit {
	return weir.Limit{Name: l.Name, Algorithm: l.Algorithm, Rate: l.Rate, Burst: l.Burst, Headroom: l.Headroom, Shadow: l.Shadow}
}
