package weir_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// clock is a time.Time that tests move.
type clock struct{ time.Time }

func newClock() *clock                      { return &clock{time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time             { return c.Time }
func (c *clock) advance(d time.Duration)    { c.Time = c.Add(d) }
func allowed(d weir.Decision, _ error) bool { return d.Allowed }

// A flood of new keys against a Memory full of live ones neither makes it grow nor forgets what anybody has spent.
func TestMemoryFloodOfNewKeys(t *testing.T) {
	const full, flood = 10_000, 200_000
	ctx := context.Background()
	for _, algorithm := range []weir.Algorithm{weir.TokenBucket, weir.FixedWindow, weir.SlidingWindow, weir.Concurrency} {
		t.Run(algorithm.String(), func(t *testing.T) {
			c := newClock()
			m := &weir.Memory{MaxCells: full, Now: c.now}
			lim := weir.Limiter{Store: m}
			client := &weir.Limit{Name: "client", Algorithm: algorithm, Rate: weir.Rate{Units: 2, Period: time.Hour}}
			for i := range full {
				if !allowed(lim.Take(ctx, client.For(strconv.Itoa(i)).Costing(2))) {
					t.Fatalf("key %d is refused its first units", i)
				}
			}
			heap := heapInUse()
			passed := 0
			for i := range flood {
				if allowed(lim.Take(ctx, client.For("flood"+strconv.Itoa(i)))) {
					passed++
				}
			}
			if passed != 2 {
				t.Errorf("%d of the flood passed, want the 2 units of the shared cell", passed)
			}
			if grown := heapInUse() - heap; grown > 1<<20 {
				t.Errorf("the heap grew by %d bytes", grown)
			}
			stats := m.Stats()
			if stats.Cells > full+1 {
				t.Errorf("%d cells, more than %d and the shared one", stats.Cells, full)
			}
			if stats.Overflowed != flood {
				t.Errorf("%d overflowed, want %d", stats.Overflowed, flood)
			}
			for i := range full {
				if allowed(lim.Take(ctx, client.For(strconv.Itoa(i)))) {
					t.Fatalf("key %d got a fresh burst", i)
				}
			}

			// An hour later all is at rest, and there is room.
			c.advance(3 * time.Hour)
			for i := range full {
				if !allowed(lim.Take(ctx, client.For("new"+strconv.Itoa(i)).Costing(2))) {
					t.Fatalf("new key %d is refused its first units, %+v", i, m.Stats())
				}
			}
			if got := m.Stats().Overflowed; got != flood {
				t.Errorf("%d more overflowed although all others are at rest", got-flood)
			}
		})
	}
}

// Each limit has a shared cell of its own: who floods one limit spends nothing of another.
func TestMemoryFloodOfOneLimit(t *testing.T) {
	ctx := context.Background()
	lim := weir.Limiter{Store: &weir.Memory{MaxCells: 10, Now: newClock().now}}
	login := &weir.Limit{Name: "login", Rate: weir.Rate{Units: 5, Period: time.Hour}}
	search := &weir.Limit{Name: "search", Rate: weir.Rate{Units: 5, Period: time.Hour}}
	for i := range 1000 {
		lim.Take(ctx, search.For(strconv.Itoa(i)))
	}
	if d, err := lim.Take(ctx, login.For("somebody").Costing(5), login.For("else").Costing(1)); err != nil || d.Allowed {
		t.Errorf("6 of the 5 units that new keys share: %+v, %v", d, err)
	}
	if !allowed(lim.Take(ctx, login.For("somebody").Costing(5))) {
		t.Error("a flood of keys of search has spent the units of login")
	}
}

// A key that was held before the memory was full stays held, and one that has spent keeps its own units.
func TestMemoryFullKeepsHolds(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	lim := weir.Limiter{Store: &weir.Memory{MaxCells: 10, Now: c.now}}
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 5, Period: time.Hour}}
	if err := lim.Hold(ctx, c.Add(time.Minute), client.For("held")); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		lim.Take(ctx, client.For(strconv.Itoa(i)))
	}
	if d, _ := lim.Take(ctx, client.For("held")); d.Allowed || d.RetryAfter != time.Minute {
		t.Errorf("a held key in a full memory: allowed %v, retry %v", d.Allowed, d.RetryAfter)
	}
	if d, _ := lim.Take(ctx, client.For("3")); !d.Allowed || d.Outcomes()[0].Remaining != 3 {
		t.Errorf("a key of its own in a full memory: %+v", d)
	}
	c.advance(time.Minute)
	if !allowed(lim.Take(ctx, client.For("held"))) {
		t.Error("the hold does not end")
	}
}

// Keys at rest are dropped as others come, without anybody asking.
func TestMemoryDropsWhatIsAtRest(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	m := &weir.Memory{Now: c.now}
	lim := weir.Limiter{Store: m}
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 10, Period: time.Second}}
	most, n := 0, 0
	for range 300 { // 300 s of 1,000 new keys each, whose cells are at rest after 100 ms
		for range 1000 {
			lim.Take(ctx, client.For(strconv.Itoa(n)))
			n++
		}
		c.advance(time.Second)
		most = max(most, m.Stats().Cells)
	}
	// Where a caller sets the clock, a cell stays a minute longer, in case the clock steps back.
	if most > 150_000 {
		t.Errorf("up to %d cells of %d keys", most, n)
	}
}

// Numbers of a limit may change between those that need one word and those that need two.
func TestMemoryKeepsWhatIsSpentWhenTheRateChanges(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	m := &weir.Memory{Now: c.now}
	lim := weir.Limiter{Store: m}
	whole := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 10, Period: time.Second}}
	odd := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 7, Period: 3 * time.Second}}
	for i := range 1000 {
		lim.Take(ctx, whole.For(strconv.Itoa(i)).Costing(10))
	}
	for i := range 1000 {
		key := strconv.Itoa(i)
		for _, l := range []*weir.Limit{odd, whole} {
			if d, _ := lim.Peek(ctx, l.For(key)); d.Outcomes()[0].Remaining > 4 {
				t.Fatalf("key %s has %d of %v", key, d.Outcomes()[0].Remaining, l.Rate)
			}
			if d, _ := lim.Take(ctx, l.For(key).Costing(l.Rate.Units)); d.Allowed {
				t.Fatalf("key %s got a fresh burst of %v", key, l.Rate)
			}
		}
	}
	if got := m.Stats().Cells; got != 1000 {
		t.Errorf("%d cells for 1000 keys", got)
	}
}

// A decision over up to three charges allocates nothing.
func TestMemoryAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	var lim weir.Limiter
	var charges []weir.Charge
	for i, algorithm := range []weir.Algorithm{weir.TokenBucket, weir.GCRA, weir.FixedWindow, weir.SlidingWindow} {
		l := &weir.Limit{Name: fmt.Sprint("l", i), Algorithm: algorithm, Rate: weir.Rate{Units: 1000, Period: time.Second}}
		charges = append(charges, l.For("k"))
	}
	if _, err := lim.Take(ctx, charges...); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ { // more than most requests have
		few := charges[:n]
		if got := testing.AllocsPerRun(100, func() { lim.Take(ctx, few...) }); got != 0 {
			t.Errorf("%d charges allocate %v times", n, got)
		}
	}
	if got := testing.AllocsPerRun(100, func() { lim.Take(ctx, charges[0].Limit.For("a"), charges[1].Limit.For("b")) }); got != 0 {
		t.Errorf("two charges made for the call allocate %v times", got)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
