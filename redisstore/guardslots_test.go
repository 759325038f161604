package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// slots are given back at the end of an hour, if nobody does before.
var slots = &weir.Limit{Name: "slots", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 10, Period: time.Hour}}

// hold takes n slots and gives the function that gives them back.
func hold(t *testing.T, lim *weir.Limiter, n int) (release func()) {
	t.Helper()
	var taken []time.Time
	for range n {
		d, err := lim.Take(t.Context(), slots.For("k"))
		if err != nil || !d.Allowed {
			t.Fatalf("a slot of %d: %t, %v", n, d.Allowed, err)
		}
		taken = append(taken, d.At)
	}
	return func() {
		t.Helper()
		for _, at := range taken {
			if err := lim.Refund(t.Context(), at, slots.For("k")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// free waits until Redis has n free slots.
func free(t *testing.T, s *server, lim *weir.Limiter, n int64) {
	t.Helper()
	other := witness(t, s)
	within(t, "all slots that are not held are free", lim, func() bool {
		d, err := other.Peek(t.Context(), slots.For("k"))
		return err == nil && d.Outcomes()[0].Remaining == n
	})
}

// TestSlotsOutliveAnOutage: what is under way when Redis goes or comes back gives its slots back when it ends, wherever they are then.
func TestSlotsOutliveAnOutage(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 2, nil)
	g, lim := guards[0], limiters[0]
	before, through := hold(t, lim, 4), hold(t, lim, 1)
	s.Freeze()
	within(t, "leaving Redis", lim, down(g))
	before()
	short, long := hold(t, lim, 2), hold(t, lim, 3) // all 5 of a half
	short()
	s.Thaw()
	within(t, "asking Redis again", lim, up(g))
	free(t, s, lim, 6)
	long()
	free(t, s, lim, 9)
	through()
	free(t, s, lim, 10)
}

// TestSlotsOfAFullRedis: slots that are taken here for want of room there are given back here.
func TestSlotsOfAFullRedis(t *testing.T) {
	s := startRedis(t, "--maxmemory-policy", "noeviction")
	admin := s.client()
	g := &redisstore.Guard{Shared: &redisstore.Store{Client: s.client(), Timeout: 20 * time.Second}, Retry: 50 * time.Millisecond}
	lim := &weir.Limiter{Store: g}
	there := hold(t, lim, 1)
	do(t, admin, "CONFIG", "SET", "maxmemory", "1")
	for range 20 {
		hold(t, lim, 1)()
	}
	here := hold(t, lim, 10)
	do(t, admin, "CONFIG", "SET", "maxmemory", "0")
	there()
	free(t, s, lim, 0)
	here()
	free(t, s, lim, 10)
}

// TestSlotsOfARedisThatIsGoneAgain: a slot that was handed over to a Redis that then freezes is given back to it when it can be, and whoever
// gives it back waits for one answer.
func TestSlotsOfARedisThatIsGoneAgain(t *testing.T) {
	s := startRedis(t, "--maxmemory-policy", "noeviction")
	admin := s.client()
	guards, limiters := fleet(t, s, 1, nil)
	g, lim := guards[0], limiters[0]
	store := g.Shared.(*redisstore.Store)
	within(t, "Redis answers", nil, func() bool { return store.Apply(t.Context(), &weir.Tx{Op: weir.Peek}) == nil })
	do(t, admin, "CONFIG", "SET", "maxmemory", "1")
	first, second := hold(t, lim, 1), hold(t, lim, 1)
	do(t, admin, "CONFIG", "SET", "maxmemory", "0")
	free(t, s, lim, 8)
	s.Freeze()
	before := store.Stats().Calls
	first()
	if n := store.Stats().Calls - before; n != 1 {
		t.Errorf("giving back asked a frozen Redis %d times, want once", n)
	}
	within(t, "leaving Redis", lim, down(g))
	second()
	s.Thaw()
	within(t, "asking Redis again", lim, up(g))
	free(t, s, lim, 10)
}

// TestSlotsGivenBackOnTheWay: a slot that is given back while it is handed over is free once it has arrived.
func TestSlotsGivenBackOnTheWay(t *testing.T) {
	s := startRedis(t)
	var release func()
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) {
		g.Shared = &during{Store: g.Shared, do: func(tx *weir.Tx) {
			if tx.Op == weir.Debit && tx.Charges[0].Limit == slots && release != nil {
				release()
				release = nil
			}
		}}
	})
	g, lim := guards[0], limiters[0]
	s.Freeze()
	within(t, "leaving Redis", lim, down(g))
	release = hold(t, lim, 4)
	long := hold(t, lim, 3)
	s.Thaw()
	within(t, "asking Redis again", lim, up(g))
	free(t, s, lim, 7)
	long()
	free(t, s, lim, 10)
}
