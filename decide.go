package weir

import "context"

// Store keeps cells and decides over them: [Memory] in this process, redisstore in a server that many share.
type Store interface {
	// Apply carries out tx as [Decide] would, at one Instant of the Store's own clock, all or
	// nothing and at once as seen by every other Apply. It sets tx.Now, tx.OK, tx.At and the results in
	// tx.Charges. It returns an error only when it could not decide, and has then charged nothing, as far as it knows. Concurrent
	// calls are allowed; tx is not kept.
	Apply(ctx context.Context, tx *Tx) error
}

// Op is what a Tx does.
type Op int8

const (
	Take   Op = iota // charge all if all fit, else nothing
	Peek             // answer as Take would, and change nothing
	Refund           // give back charges made at Tx.Made
	Debit            // charge whether or not it fits
	Hold             // let nobody pass the keys before Tx.Until; Until 0 lifts it
	Reset            // forget what the keys have spent, and their holds
	ops    = iota
)

var opNames = [ops]string{"take", "peek", "refund", "debit", "hold", "reset"}

// String is the name in lower case.
func (op Op) String() string {
	if op < 0 || op >= ops {
		return "op?"
	}
	return opNames[op]
}

// Tx is one decision: what to do with which charges, and what came of it.
type Tx struct {
	Op      Op
	Made    Instant // Refund: when the charges were made
	Until   Instant // Hold: when it ends
	Charges []TxCharge

	Now Instant // the Store's Instant of this decision
	OK  bool    // Take, Peek: every limit that enforces admits
	At  Instant // Take, Peek: Now if OK, else the earliest Instant at which asking again can succeed, or Never
}

// TxCharge is one charge of a Tx, with its results.
type TxCharge struct {
	Charge
	Law  *Law // the compiled Charge.Limit
	Cell int  // which cell is this charge's: its own index, or that of the first charge of the same limit and key

	When Instant // the earliest Instant, Now or later, at which this limit admits the charge; or Never
	Left int64   // units that a charge of this priority can spend after the decision, 0 to the capacity
	Next Instant // when Left grows, if nobody spends; 0 if it is all there
	Held Instant // until when a Hold stops the key; 0 if none does
}

// Decide is the whole decision of a Store: it carries out tx on its cells at the instant now. The cell of a charge is
// cells[charge.Cell]; charges that meet in one cell are asked for together. A Store adds the cells, the instant and
// atomicity:
//
//	load the cells of tx.Charges, zero Cells for those it does not have;
//	Decide;
//	save the cells, each until its Rest or its Held, whichever is later.
//
// Holding every key of a limit is up to the Store: it keeps that instant beside the cells, and gives the later of
// it and the key's own as Held.
//
// Decide allocates nothing but room in the logs of SlidingLog and Concurrency.
func Decide(tx *Tx, cells []Cell, now Instant) {
	tx.Now, tx.OK, tx.At = now, true, now
	for i := range tx.Charges {
		c := &tx.Charges[i]
		cell := &cells[c.Cell]
		c.Law.settle(cell, now)
		c.When = now
		switch tx.Op {
		case Take, Peek:
			c.When = ask(tx.Charges, cells, i, now)
			if c.When > now && !c.Limit.Shadow {
				tx.OK, tx.At = false, max(tx.At, c.When)
			}
		case Refund:
			c.Law.refund(cell, now, tx.Made, c.Cost)
		case Debit:
			c.Law.charge(cell, now, c.Cost)
		case Hold:
			if tx.Until == 0 {
				cell.Held = 0
			} else {
				cell.Held = max(cell.Held, tx.Until)
			}
		case Reset:
			*cell = Cell{}
		}
	}
	if tx.Op == Take && tx.OK {
		for i := range tx.Charges {
			if c := &tx.Charges[i]; c.When <= now { // a shadow limit may not admit
				c.Law.charge(&cells[c.Cell], now, c.Cost)
			}
		}
	}
	for i := range tx.Charges {
		c := &tx.Charges[i]
		c.Left, c.Next, c.Held = c.Law.standing(&cells[c.Cell], now, c.Priority)
	}
}

// ask is when charge i fits, together with the others that meet in its cell: asked apart, both could
// fit where their sum does not. What a shadow asks is no reason to refuse a charge that is enforced.
func ask(charges []TxCharge, cells []Cell, i int, now Instant) Instant {
	c := &charges[i]
	cell := &cells[c.Cell]
	cost, floor := c.Cost, c.Law.floor(c.Priority)
	for j := range charges {
		if j != i && charges[j].Cell == c.Cell && (c.Limit.Shadow || !charges[j].Limit.Shadow) {
			cost += charges[j].Cost
			floor = max(floor, c.Law.floor(charges[j].Priority))
		}
	}
	return c.Law.admits(cell, now, cost, floor)
}

// admits is when, no earlier than the hold on the cell ends.
func (law *Law) admits(cell *Cell, now Instant, cost, floor int64) Instant {
	at := law.when(cell, now, cost, floor)
	if at != Never {
		at = max(at, cell.Held)
	}
	return at
}

// standing is what a charge of priority p finds now: see [TxCharge].
func (law *Law) standing(cell *Cell, now Instant, p Priority) (left int64, next, held Instant) {
	if cell.Held > now {
		return 0, cell.Held, cell.Held
	}
	floor := law.floor(p)
	left = law.left(cell, now, floor)
	if left < law.Capacity-floor && cell.Rest > now {
		next = law.when(cell, now, left+1, floor)
	}
	return left, next, 0
}
