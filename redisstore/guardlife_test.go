package redisstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// TestMemoryIsNoSignOfLife: answers that a Refusals remembers, between those that fail, do not make the Guard go on waiting for a
// dead server.
func TestMemoryIsNoSignOfLife(t *testing.T) {
	s := startRedis(t)
	refusals := &redisstore.Refusals{Store: &redisstore.Store{Client: s.client(), Timeout: patience}, MaxAge: time.Hour}
	g := &redisstore.Guard{Shared: refusals, Retry: time.Hour}
	lim := weir.Limiter{Store: g}
	ctx := context.Background()
	hammer := (&weir.Limit{Name: "hammer", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 1, Period: 1000 * time.Hour}}).For("k")
	takeAll(t, &lim, hammer)
	s.Freeze()
	for i := range 10 {
		served := refusals.Served()
		if d, err := lim.Take(ctx, hammer); err != nil || d.Allowed {
			t.Fatalf("hammer: %+v, %v", d, err)
		}
		if refusals.Served() != served+1 {
			t.Fatalf("round %d: the refusal was not answered from memory", i)
		}
		if _, err := lim.Take(ctx, client.For("k")); err != nil {
			t.Fatal(err)
		}
		if g.Stats().Down {
			if i != 2 {
				t.Errorf("left alone after %d failures, want 3", i+1)
			}
			return
		}
	}
	t.Errorf("10 failures, and the server is still waited for")
}

// TestAnAnswerIsASignOfLife: failures between which the server has decided are not in a row.
func TestAnAnswerIsASignOfLife(t *testing.T) {
	s := startRedis(t)
	g := &redisstore.Guard{Shared: &redisstore.Refusals{Store: &redisstore.Store{Client: s.client(), Timeout: patience}}, Failures: 5, Retry: time.Hour}
	lim := weir.Limiter{Store: g}
	for range 3 {
		s.Freeze()
		for range 2 {
			if _, err := lim.Take(t.Context(), client.For("k")); err != nil {
				t.Fatal(err)
			}
		}
		s.Thaw()
		shared := g.Stats().Shared
		within(t, "a decision of the server", nil, func() bool {
			if g.Stats().Down { // a slow thaw may cost two failures more
				t.Fatal("left alone after fewer than 5 failures in a row")
			}
			lim.Peek(t.Context(), client.For("k"))
			return g.Stats().Shared > shared
		})
	}
}

// TestOutagesAreChargedOnce: what was handed over after one outage is not after the next, and of two holds the later stands.
func TestOutagesAreChargedOnce(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 2, nil)
	g, lim := guards[0], limiters[0]
	other := witness(t, s)
	took := int64(0)
	for i := range 3 {
		s.Freeze()
		within(t, "leaving Redis", lim, down(g))
		for range 10 {
			if d, err := lim.Take(t.Context(), client.For("k")); err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
		}
		took += 10
		for _, until := range []time.Duration{5 * time.Hour, time.Hour} {
			if err := lim.Hold(t.Context(), time.Now().Add(until), client.For("held")); err != nil {
				t.Fatal(err)
			}
		}
		s.Thaw()
		within(t, "asking Redis again", lim, up(g))
		within(t, "handing over", lim, func() bool {
			d, err := other.Peek(t.Context(), client.For("k"))
			return err == nil && d.Outcomes()[0].Remaining <= 120-took
		})
		d, err := other.Peek(t.Context(), client.For("k"))
		if left := d.Outcomes()[0].Remaining; err != nil || left < 120-took {
			t.Errorf("after %d outages %d units are left, want %d: %v", i+1, left, 120-took, err)
		}
		within(t, "handing over the hold", lim, func() bool {
			d, err := other.Peek(t.Context(), client.For("held"))
			return err == nil && d.RetryAfter > 4*time.Hour
		})
	}
}

// TestLocalIsAPart has three processes decide alone: together they admit what the limit admits, whatever its law.
func TestLocalIsAPart(t *testing.T) {
	s := newServer(t)
	guards, limiters := fleet(t, s, 3, nil)
	for a := weir.TokenBucket; a <= weir.Concurrency; a++ {
		l := &weir.Limit{Name: a.String(), Algorithm: a, Rate: weir.Rate{Units: 30, Period: 1000 * time.Hour}}
		want := int64(10)
		if a == weir.LeakyBucket {
			want = 1 // and the next after three times as long
		}
		for i, lim := range limiters {
			if n := takeAll(t, lim, l.For("k")); n != want {
				t.Errorf("%v: replica %d admits %d, want %d", a, i, n, want)
			}
		}
		// What only the whole limit can hold is not now, and not never.
		d, err := limiters[0].Take(t.Context(), l.For("large").Costing(min(20, l.Capacity())))
		if a != weir.LeakyBucket && (err != nil || d.Allowed || d.Never || d.RetryAfter != guards[0].Retry) {
			t.Errorf("%v: 20 at once: allowed=%t never=%t retry after %v, %v", a, d.Allowed, d.Never, d.RetryAfter, err)
		}
		if d, err := limiters[0].Take(t.Context(), l.For("large").Costing(31)); err != nil || !d.Never {
			t.Errorf("%v: 31 at once: never=%t, %v", a, d.Never, err)
		}
	}
}

// TestWhatNoStoreCanDecideIsNoFailure: a request that is too large is not the server's fault.
func TestWhatNoStoreCanDecideIsNoFailure(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) { g.Shared.(*redisstore.Store).Timeout = 20 * time.Second })
	var cs []weir.Charge
	for i := range 1001 {
		cs = append(cs, client.For(strconv.Itoa(i)))
	}
	for range 5 {
		if d, err := limiters[0].Take(t.Context(), cs...); err == nil {
			t.Fatalf("1001 charges: allowed=%t", d.Allowed)
		}
	}
	if st := guards[0].Stats(); st.Down || st.Local != 0 {
		t.Errorf("got %+v", st)
	}
}

// TestTheJournalIsBounded has more keys charged in an outage than are handed over, and counts the others.
func TestTheJournalIsBounded(t *testing.T) {
	s := newServer(t)
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) { g.Retry = time.Hour })
	for i := range 1<<16 + 10 {
		if d, err := limiters[0].Take(t.Context(), client.For(strconv.Itoa(i))); err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
	}
	if st := guards[0].Stats(); st.Unsynced != 10 {
		t.Errorf("%d keys are not handed over, want 10", st.Unsynced)
	}
}

// TestWatchedIsTriedAgain: a process without traffic reports the end of an outage, if anybody asks.
func TestWatchedIsTriedAgain(t *testing.T) {
	s := newServer(t)
	guards, limiters := fleet(t, s, 1, nil)
	takeAll(t, limiters[0], client.For("k"))
	if !guards[0].Stats().Down {
		t.Fatal("a server that does not run is asked")
	}
	s.Start()
	within(t, "asking Redis, without decisions", nil, up(guards[0]))
}
