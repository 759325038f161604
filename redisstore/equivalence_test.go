package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
	"github.com/weir-go/weir/storetest"
)

var (
	histories = flag.Int("histories", 500, "random histories of some 240 decisions to compare Redis over, and as many more with the clock set back")
	seed      = flag.Uint64("seed", 1, "seed of the first random history")
)

// model is a Store that forgets nothing: weir.Decide and a map. It decides what Redis must, under any clock.
type model struct {
	cells map[string]weir.Cell
	every map[string]weir.Instant
	now   func() weir.Instant
}

func (m *model) Apply(_ context.Context, tx *weir.Tx) error {
	now := m.now()
	name := func(c *weir.TxCharge) string { return c.Law.Algorithm.String() + " " + c.Limit.Name }
	cells := make([]weir.Cell, len(tx.Charges))
	own := make([]weir.Instant, len(tx.Charges))
	for i := range tx.Charges {
		switch c := &tx.Charges[i]; {
		case c.Every:
			cells[i].Held = m.every[name(c)]
		default:
			cells[i] = m.cells[name(c)+"/"+c.Key]
			cells[i].Log = append([]weir.Entry(nil), cells[i].Log...)
			own[i] = cells[i].Held
			if tx.Op != weir.Hold {
				cells[i].Held = max(cells[i].Held, m.every[name(c)])
			}
		}
	}
	weir.Decide(tx, cells, now)
	if tx.Op == weir.Peek {
		return nil
	}
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if c.Cell != i {
			continue
		}
		cell := cells[i]
		if tx.Op != weir.Hold && tx.Op != weir.Reset {
			cell.Held = own[i]
		}
		if c.Every {
			m.every[name(c)] = cell.Held
		} else {
			m.cells[name(c)+"/"+c.Key] = cell
		}
	}
	return nil
}

// both is two Stores that must say the same.
type both struct {
	a, b      weir.Store
	decisions int
	admitted  int
	diff      string
}

func (s *both) Apply(ctx context.Context, tx *weir.Tx) error {
	other := *tx
	other.Charges = append([]weir.TxCharge(nil), tx.Charges...)
	if err := s.a.Apply(ctx, tx); err != nil {
		return err
	}
	if err := s.b.Apply(ctx, &other); err != nil {
		return err
	}
	s.decisions++
	if tx.OK && tx.Op == weir.Take {
		s.admitted++
	}
	if got, want := results(&other), results(tx); got != want && s.diff == "" {
		s.diff = fmt.Sprintf("%v of\n%s\n got %s\nwant %s", tx.Op, asked(tx), got, want)
	}
	return nil
}

func results(tx *weir.Tx) string {
	s := fmt.Sprintf("now=%d ok=%t at=%d", tx.Now, tx.OK, tx.At)
	for _, c := range tx.Charges {
		s += fmt.Sprintf(" [when=%d left=%d next=%d held=%d]", c.When, c.Left, c.Next, c.Held)
	}
	return s
}

func asked(tx *weir.Tx) string {
	var s string
	for _, c := range tx.Charges {
		s += fmt.Sprintf("  %s %v %v burst=%d headroom=%d shadow=%t key=%.20q cost=%d %v every=%t made=%d until=%d\n", c.Limit.Name, c.Limit.Algorithm,
			c.Limit.Rate, c.Limit.Burst, c.Limit.Headroom, c.Limit.Shadow, c.Key, c.Cost, c.Priority, c.Every, tx.Made, tx.Until)
	}
	return s
}

// history is a random course of events over a few limits: takes, peeks, refunds, debits, holds, resets, changed
// limits, a clock that stands, runs, leaps and is set back.
func history(seed uint64, clock *weir.Instant, lim *weir.Limiter) error {
	r := rand.New(rand.NewPCG(seed, 2))
	in := func(lo, hi int64) int64 { return lo + r.Int64N(hi-lo+1) }
	one := func(v ...int64) int64 { return v[r.IntN(len(v))] }
	var limits []*weir.Limit
	random := func(name string, a weir.Algorithm) *weir.Limit {
		for {
			l := &weir.Limit{Name: name, Algorithm: a, Shadow: r.IntN(6) == 0}
			l.Rate = weir.Rate{
				Units:  one(0, 1, in(1, 5), in(1, 50), in(1, 50), in(1, 5000), 999_983),
				Period: time.Duration(one(1000, 7000, 1e6, 3e6, 6e7, 36e8, in(1000, 100_000_000))) * time.Microsecond,
			}
			if a <= weir.LeakyBucket && r.IntN(2) == 0 {
				l.Burst = in(1, 30)
			}
			if a >= weir.SlidingLog {
				l.Rate.Units = min(l.Rate.Units, 300)
			}
			if a != weir.LeakyBucket && r.IntN(3) == 0 {
				l.Headroom = in(0, max(0, (l.Capacity()-1)/2))
			}
			if l.Validate() == nil {
				return l
			}
		}
	}
	for i := range 1 + r.IntN(4) {
		limits = append(limits, random(fmt.Sprintf("h%d-%d", seed, i), weir.Algorithm(r.IntN(7))))
	}
	keys := []string{"", "a", "a\x00b", "日本"}[:1+r.IntN(4)]
	charges := func() []weir.Charge {
		cs := make([]weir.Charge, 1+r.IntN(len(limits)))
		for i := range cs {
			l := limits[r.IntN(len(limits))]
			c := l.For(keys[r.IntN(len(keys))])
			c.Cost = one(1, 1, 1, 1, in(0, 4), in(1, 1+l.Capacity()/2), l.Capacity(), l.Capacity()+1, one(1, 1, 1, 1<<58))
			c.Priority = weir.Priority(one(0, 0, -1, 1))
			cs[i] = c
		}
		if r.IntN(8) == 0 {
			cs = append(cs, cs[0])
		}
		return cs
	}
	type made struct {
		at      time.Time
		charges []weir.Charge
	}
	var past []made
	ctx := context.Background()
	for range 250 {
		l := limits[r.IntN(len(limits))]
		w := l.Rate.Period.Microseconds()
		*clock += weir.Instant(one(0, 0, 1, in(0, 1000), in(0, 1+w/max(1, l.Rate.Units)), in(0, w), in(0, w/10), one(0, 0, 0, 3*w+1)))
		switch back := r.IntN(40); {
		case back < 2:
			*clock -= weir.Instant(in(0, min(w, 5_000_000)))
		case back == 2:
			*clock -= weir.Instant(one(in(0, w), 2*w, 60_000_000, 60_000_001, 61_000_000+2*w, 86_400_000_000))
		}
		*clock = max(*clock, 1)
		var err error
		switch op := r.IntN(40); {
		case op < 24:
			cs := charges()
			var d weir.Decision
			if d, err = lim.Take(ctx, cs...); d.Allowed {
				past = append(past, made{d.At, cs})
			}
		case op < 28:
			_, err = lim.Peek(ctx, charges()...)
		case op < 33 && len(past) > 0:
			m := past[len(past)-1-r.IntN(min(len(past), 5))]
			err = lim.Refund(ctx, m.at, m.charges...)
		case op < 35:
			err = lim.Debit(ctx, charges()...)
		case op < 37:
			cs := charges()
			if op == 35 && r.IntN(2) == 0 {
				cs = []weir.Charge{l.Every()}
			}
			until := clock.Time().Add(time.Duration(one(in(0, w), in(0, w), 0, -5)) * time.Microsecond)
			if r.IntN(3) == 0 {
				until = time.Time{}
			}
			err = lim.Hold(ctx, until, cs...)
		case op == 37:
			err = lim.Reset(ctx, charges()...)
		case op == 38: // other numbers, the same cells
			i := r.IntN(len(limits))
			limits[i] = random(limits[i].Name, limits[i].Algorithm)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var runs atomic.Int64 // each history has keys of its own

// wild runs histories over a Redis and the model, and says where they part.
func wild(client redisstore.Client, from uint64, n int, tune func(*redisstore.Store)) (decisions, admitted int, err error) {
	for s := from; s < from+uint64(n); s++ {
		clock := weir.Instant(1_790_000_000_000_000)
		if s%7 == 0 {
			clock = 1
		}
		redis := onClock(client, func() time.Time { return clock.Time() })
		if tune != nil {
			tune(redis)
		}
		pair := &both{a: &model{cells: map[string]weir.Cell{}, every: map[string]weir.Instant{}, now: func() weir.Instant { return clock }}, b: redis}
		err := history(s, &clock, &weir.Limiter{Store: pair})
		decisions += pair.decisions
		admitted += pair.admitted
		if err != nil {
			return decisions, admitted, fmt.Errorf("history %d: %w", s, err)
		}
		if pair.diff != "" {
			return decisions, admitted, fmt.Errorf("history %d (replay with -histories=1 -seed=%d): %s", s, s, pair.diff)
		}
	}
	return decisions, admitted, nil
}

// onClock is a Store with keys of its own, on another clock than the server's. Keys outlive the test, since the
// server's clock, by which they end, stands still meanwhile.
func onClock(client redisstore.Client, now func() time.Time) *redisstore.Store {
	return &redisstore.Store{Client: client, Now: now, Prefix: fmt.Sprintf("%d:", runs.Add(1)), Grace: time.Hour, Timeout: 10 * time.Second}
}

// TestConformance holds Redis against the laws, the oracles and the transcripts of storetest.
func TestConformance(t *testing.T) {
	t.Parallel()
	client := startRedis(t).client()
	storetest.Run(t, func(t testing.TB, now func() time.Time) weir.Store { return onClock(client, now) })
}

// TestRedisDecidesAsMemory compares every output of Redis and Memory over the same random histories.
func TestRedisDecidesAsMemory(t *testing.T) {
	t.Parallel()
	client := startRedis(t).client()
	storetest.Compare(t, inMemory, func(t testing.TB, now func() time.Time) weir.Store { return onClock(client, now) }, *seed, 4**histories)
}

func inMemory(_ testing.TB, now func() time.Time) weir.Store { return &weir.Memory{Now: now} }

// TestRedisDecidesAsTheModel compares over histories whose clock is set back by up to a day, where Memory may have forgotten.
func TestRedisDecidesAsTheModel(t *testing.T) {
	t.Parallel()
	n, admitted, err := wild(startRedis(t).client(), *seed, *histories, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d decisions alike, %d of them admitted", n, admitted)
}

// FuzzRedisDecidesAsMemory is TestRedisDecidesAsMemory with the choices made by the fuzzer.
func FuzzRedisDecidesAsMemory(f *testing.F) {
	client := startRedis(f).client()
	f.Add([]byte("a history of some length, whose bytes say what happens next, and to whom"))
	f.Fuzz(func(t *testing.T, data []byte) {
		storetest.CompareOps(t, inMemory, func(t testing.TB, now func() time.Time) weir.Store { return onClock(client, now) }, data)
	})
}
