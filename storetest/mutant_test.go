package storetest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// faulty is a Store of a map, with one of the faults that stores have.
type faulty struct {
	now   func() time.Time
	fault string
	mu    sync.Mutex
	last  weir.Instant
	cells map[string]weir.Cell
}

// faults are what the suite must find, each with the check that is meant to.
var faults = map[string]string{
	"charges one limit after the other":          "all or none",
	"keeps what a refused ask has charged":       "all or none",
	"loads and saves under different locks":      "one key under contention",
	"asks apart for what meets in a cell":        "charges that meet are one",
	"forgets a key after a second":               "law/fixed-window",
	"rounds the clock to milliseconds":           "law/gcra",
	"saves on peek":                              "refunds never over-credit",
	"refunds in full":                            "refunds never over-credit",
	"refunds by debiting a negative cost":        "a refund goes to the window that was charged",
	"takes every priority as high":               "low gives way before normal before high",
	"charges shadows for what they would refuse": "shadow",
	"shadows refuse":                             "shadow",
	"keys run into names":                        "keys and limits are kept apart",
	"all keys of a limit are one":                "keys and limits are kept apart",
	"holds are not saved":                        "hold a key",
	"takes a hold of every key for one key's":    "hold every key",
	"starts anew when the numbers change":        "changed numbers",
	"moves the clock of a cell backwards":        "late readings admit nothing twice",
	"says that a cost that never fits may fit":   "never",
	"rounds a wait up to a millisecond":          "law/token-bucket",
	"remains what it was before":                 "law/sliding-log",
}

func (s *faulty) Apply(_ context.Context, tx *weir.Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := weir.InstantOf(s.now())
	return s.apply(tx, now)
}

func (s *faulty) is(fault string) bool { return s.fault == fault }

func (s *faulty) key(c *weir.TxCharge) string {
	key := c.Limit.Algorithm.String() + " " + c.Limit.Name + " " + c.Key
	switch {
	case s.is("keys run into names"):
		key = c.Limit.Algorithm.String() + c.Limit.Name + c.Key
	case s.is("all keys of a limit are one"):
		key = c.Limit.Algorithm.String() + " " + c.Limit.Name
	case s.is("starts anew when the numbers change"):
		key += " " + describe(c.Limit)
	case c.Every:
		key += " every" // which no check uses as a key
	}
	return key
}

func (s *faulty) apply(tx *weir.Tx, now weir.Instant) error {
	if s.is("charges one limit after the other") && tx.Op == weir.Take && len(tx.Charges) > 1 {
		ok, at := true, now
		for i := range tx.Charges {
			one := weir.Tx{Op: tx.Op, Charges: tx.Charges[i : i+1 : i+1]}
			one.Charges[0].Cell = 0
			s.fault = ""
			err := s.apply(&one, now)
			s.fault = "charges one limit after the other"
			if err != nil {
				return err
			}
			ok, at = ok && one.OK, max(at, one.At)
		}
		tx.Now, tx.OK, tx.At = now, ok, at
		return nil
	}
	if s.is("rounds the clock to milliseconds") {
		now -= now % 1000
	}
	if s.is("moves the clock of a cell backwards") && tx.Op == weir.Take {
		if now < s.last { // as a bucket that takes any reading for the time since the one before
			for k, c := range s.cells {
				if c.Rest > now {
					c.Rest -= min(s.last-now, c.Rest-now)
					s.cells[k] = c
				}
			}
		}
		s.last = now
	}
	cells := make([]weir.Cell, len(tx.Charges))
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if s.is("asks apart for what meets in a cell") {
			c.Cell = i
		}
		if s.is("takes every priority as high") {
			c.Priority = weir.High
		}
		cells[i] = s.cells[s.key(c)]
		cells[i].Log = append([]weir.Entry(nil), cells[i].Log...)
		if s.is("forgets a key after a second") && cells[i].Rest > now+second {
			cells[i] = weir.Cell{}
		}
		if tx.Op != weir.Hold && !s.is("takes a hold of every key for one key's") {
			every := weir.TxCharge{Charge: weir.Charge{Limit: c.Limit, Every: true}}
			cells[i].Held = max(cells[i].Held, s.cells[s.key(&every)].Held)
		}
	}
	if s.is("refunds in full") && tx.Op == weir.Refund {
		tx.Made = now
	}
	if s.is("loads and saves under different locks") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	weir.Decide(tx, cells, now)
	switch {
	case s.is("refunds by debiting a negative cost") && tx.Op == weir.Refund:
		for i := range cells {
			if c := &tx.Charges[i]; c.Limit.Algorithm == weir.FixedWindow {
				cells[i] = s.cells[s.key(c)]
				cells[i].A = max(0, cells[i].A-c.Cost)
			}
		}
	case s.is("charges shadows for what they would refuse") && tx.Op == weir.Take && tx.OK:
		for i := range tx.Charges {
			if c := &tx.Charges[i]; c.When > now {
				weir.Decide(&weir.Tx{Op: weir.Debit, Charges: []weir.TxCharge{{Charge: c.Charge, Law: c.Law}}}, cells[i:i+1], now)
			}
		}
	case s.is("shadows refuse") && tx.Op == weir.Take:
		for i := range tx.Charges {
			if tx.Charges[i].When > now {
				tx.OK, tx.At = false, max(tx.At, tx.Charges[i].When)
			}
		}
	case s.is("says that a cost that never fits may fit") && tx.At == weir.Never:
		tx.At = now + second
	case s.is("rounds a wait up to a millisecond") && !tx.OK && tx.At < weir.Never-1000:
		tx.At += 999 - (tx.At+999)%1000
	case s.is("remains what it was before") && tx.OK && tx.Op == weir.Take:
		for i := range tx.Charges {
			tx.Charges[i].Left += tx.Charges[i].Cost
		}
	}
	if s.is("keeps what a refused ask has charged") && tx.Op == weir.Take && !tx.OK {
		again := weir.Tx{Op: weir.Debit, Charges: append([]weir.TxCharge(nil), tx.Charges...)}
		weir.Decide(&again, cells, now)
	}
	if tx.Op == weir.Peek {
		if !s.is("saves on peek") {
			return nil
		}
		again := weir.Tx{Op: weir.Take, Charges: append([]weir.TxCharge(nil), tx.Charges...)}
		weir.Decide(&again, cells, now)
	}
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Cell != i {
			continue
		}
		if s.is("holds are not saved") {
			cells[i].Held = 0
		} else if tx.Op != weir.Hold && tx.Op != weir.Reset {
			cells[i].Held = s.cells[s.key(c)].Held
		}
		s.cells[s.key(c)] = cells[i]
	}
	return nil
}

// TestFaults holds the suite against Stores that each have a fault: the check that is meant for it must find it.
func TestFaults(t *testing.T) {
	run := func(fault, name string) error {
		for _, c := range checks() {
			if c.name == name {
				return c.run(newRig(t, func(_ testing.TB, now func() time.Time) weir.Store {
					return &faulty{now: now, fault: fault, cells: make(map[string]weir.Cell)}
				}))
			}
		}
		t.Fatalf("no check is called %q", name)
		return nil
	}
	for fault, name := range faults {
		if err := run("", name); err != nil {
			t.Errorf("%s: finds a fault where there is none: %v", name, err)
		}
		if err := run(fault, name); err == nil {
			t.Errorf("%s: does not find a Store that %s", name, fault)
		} else if testing.Verbose() {
			t.Logf("%s: %v", fault, err)
		}
	}
}
