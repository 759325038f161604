package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// Compare runs the same random histories through two Stores and compares every output: limits of all algorithms and
// rates, costs, priorities, shadows, peeks, refunds, debits, holds, resets, several charges at once, numbers that change, a
// clock that steps both ways. A history has 60 steps. A failure says the seed, the history, and its last steps.
//
// The clock steps back by less than a minute, since a Store may forget a key that far after its rest.
func Compare(t *testing.T, a, b Open, seed uint64, histories int) {
	t.Helper()
	p := newPair(t, a, b)
	for i := range histories {
		h := p.history(picks(seed, uint64(i)))
		for range 60 {
			if err := h.step(); err != nil {
				t.Fatalf("seed %d, history %d: %v", seed, i, err)
			}
		}
	}
}

// CompareOps is Compare for one history whose choices are made by data: the body of a fuzz target.
func CompareOps(t *testing.T, a, b Open, data []byte) {
	t.Helper()
	h := newPair(t, a, b).history(func(n int64) (v int64) {
		for most := n - 1; most > 0 && len(data) > 0; most >>= 8 { // as many bytes as n has
			v = v<<8 | int64(data[0])
			data = data[1:]
		}
		return int64(uint64(v) % uint64(n))
	})
	for len(data) > 0 {
		if err := h.step(); err != nil {
			t.Fatal(err)
		}
	}
}

// pair is two Stores on one clock.
type pair struct {
	now    weir.Instant
	limits int
	a, b   side
}

type side struct {
	lim   weir.Limiter
	store *tap
}

func newPair(t testing.TB, a, b Open) *pair {
	p := &pair{now: start}
	now := func() time.Time { return p.now.Time() }
	p.a.store, p.b.store = &tap{Store: a(t, now)}, &tap{Store: b(t, now)}
	p.a.lim.Store, p.b.lim.Store = p.a.store, p.b.store
	return p
}

// history is one sequence of steps, on limits that no other has.
type history struct {
	*pair
	pick   picker
	limits []*weir.Limit
	made   []made
	latest weir.Instant
	log    []string
}

// made is a Take that was admitted, and can be given back.
type made struct {
	at      weir.Instant
	charges []weir.Charge
}

func (p *pair) history(pick picker) *history {
	h := &history{pair: p, pick: pick, latest: start + weir.Instant(pick.in(0, int64(day)))}
	for range pick.in(1, 4) {
		p.limits++
		l := randomLimit(pick, weir.Algorithm(pick(int64(algorithms))))
		l.Name, l.Shadow = fmt.Sprintf("c%d", p.limits), pick.chance(15)
		h.limits = append(h.limits, &l)
		h.note("limit %s %s shadow %v", l.Name, describe(&l), l.Shadow)
	}
	return h
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

var comparedKeys = []string{"a", "b", "", "a key of some length, with \x00 and \xff in it"}

func (h *history) step() error {
	if h.latest > end {
		return nil
	}
	h.latest += step(h.pick, one(h.pick, h.limits...))
	h.now = h.latest
	if h.pick.chance(15) {
		h.now -= weir.Instant(h.pick.in(0, int64(minute)-1))
	}
	if h.pick.chance(4) {
		h.change()
	}
	var charges []weir.Charge
	for range one(h.pick, 1, 1, 1, h.pick.in(1, 3), h.pick.in(1, 6)) {
		l := one(h.pick, h.limits...)
		charges = append(charges, l.For(one(h.pick, comparedKeys...)).Costing(randomCost(h.pick, l)).AtPriority(randomPriority(h.pick)))
	}
	what := h.pick(100)
	switch {
	case what < 62:
		return h.both("take", charges, func(l *weir.Limiter) error {
			d, err := l.Take(context.Background(), charges...)
			if err == nil && d.Allowed && l == &h.a.lim {
				h.made = append(h.made, made{weir.InstantOf(d.At), charges})
			}
			return err
		})
	case what < 70:
		return h.both("peek", charges, func(l *weir.Limiter) error {
			_, err := l.Peek(context.Background(), charges...)
			return err
		})
	case what < 82:
		m := made{h.now - weir.Instant(h.pick.in(0, int64(minute))), charges} // most of which never were
		if len(h.made) > 0 && h.pick.chance(85) {
			i := h.pick(int64(len(h.made)))
			m = h.made[i]
			h.made = append(h.made[:i], h.made[i+1:]...)
		}
		return h.both(fmt.Sprintf("refund made %d", m.at), m.charges, func(l *weir.Limiter) error {
			return l.Refund(context.Background(), m.at.Time(), m.charges...)
		})
	case what < 90:
		return h.both("debit", charges, func(l *weir.Limiter) error { return l.Debit(context.Background(), charges...) })
	case what < 97:
		for i := range charges {
			if h.pick.chance(25) {
				charges[i] = charges[i].Limit.Every()
			}
		}
		var until time.Time
		if h.pick.chance(60) {
			until = (h.now + step(h.pick, charges[0].Limit)).Time()
		}
		return h.both(fmt.Sprintf("hold until %v", until), charges, func(l *weir.Limiter) error {
			return l.Hold(context.Background(), until, charges...)
		})
	default:
		return h.both("reset", charges, func(l *weir.Limiter) error { return l.Reset(context.Background(), charges...) })
	}
}

// change gives one of the limits other numbers.
func (h *history) change() {
	i := h.pick(int64(len(h.limits)))
	l := randomLimit(h.pick, h.limits[i].Algorithm)
	l.Name, l.Shadow = h.limits[i].Name, h.limits[i].Shadow
	h.limits[i] = &l
	h.note("change %s to %s", l.Name, describe(&l))
}

// both does the same to both sides and compares all that their Stores have set.
func (h *history) both(what string, charges []weir.Charge, do func(*weir.Limiter) error) error {
	h.note("%d µs %s %v", h.now, what, list(charges))
	errA, errB := do(&h.a.lim), do(&h.b.lim)
	if errA != nil || errB != nil {
		return fmt.Errorf("errors: %v and %v\n%s", errA, errB, h.last())
	}
	x, y := answer(&h.a.store.last), answer(&h.b.store.last)
	if x != y {
		return fmt.Errorf("the Stores disagree:\n a %s\n b %s\n%s", x, y, h.last())
	}
	return nil
}

// answer is all that a Store sets in a Tx.
func answer(tx *weir.Tx) string {
	var s strings.Builder
	fmt.Fprintf(&s, "now %d ok %v at %d", tx.Now, tx.OK, tx.At)
	for i := range tx.Charges {
		c := &tx.Charges[i]
		fmt.Fprintf(&s, " | when %d left %d next %d held %d", c.When, c.Left, c.Next, c.Held)
	}
	return s.String()
}

// last is the end of the log, enough to see what a step came upon.
func (h *history) last() string { return strings.Join(h.log[max(0, len(h.log)-25):], "\n") }
