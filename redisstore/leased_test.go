package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// far is a Store that is some time away, in both directions, and whose clock is another.
type far struct {
	weir.Store
	away  func() time.Duration
	calls atomic.Int64
}

func (f *far) Apply(ctx context.Context, tx *weir.Tx) error {
	f.calls.Add(1)
	time.Sleep(f.away())
	err := f.Store.Apply(ctx, tx)
	time.Sleep(f.away())
	return err
}

// leasable are limits of the algorithms that can be leased, 100 units at once or in 500 ms.
func leasable() []*weir.Limit {
	rate := weir.Rate{Units: 100, Period: 500 * time.Millisecond}
	return []*weir.Limit{
		{Name: "token-bucket", Rate: rate},
		{Name: "gcra", Algorithm: weir.GCRA, Rate: rate},
		{Name: "fixed-window", Algorithm: weir.FixedWindow, Rate: rate},
		{Name: "sliding-log", Algorithm: weir.SlidingLog, Rate: rate},
	}
}

// admission is units admitted at an instant.
type admission struct {
	at   time.Duration
	cost int64
}

// over is by how many units a history is over its limit at the most, by the definition of the law, over all pairs of events.
func over(l *weir.Limit, h []admission) (most int64, where string) {
	slices.SortFunc(h, func(a, b admission) int { return int(a.at - b.at) })
	for i := range h {
		var sum int64
		for j := i; j < len(h); j++ {
			sum += h[j].cost
			span := h[j].at - h[i].at
			var law int64
			switch l.Algorithm {
			case weir.TokenBucket, weir.GCRA:
				law = l.Capacity() + int64(span)*l.Rate.Units/int64(l.Rate.Period)
			case weir.FixedWindow:
				if h[j].at/l.Rate.Period != h[i].at/l.Rate.Period {
					j = len(h)
					continue
				}
				law = l.Rate.Units
			case weir.SlidingLog:
				if span >= l.Rate.Period {
					j = len(h)
					continue
				}
				law = l.Rate.Units
			}
			if sum-law > most {
				most, where = sum-law, fmt.Sprintf("%d units from %v to %v; the law is %d", sum, h[i].at, h[j].at, law)
			}
		}
	}
	return most, where
}

// TestLeasedIsNeverOver has five instances lease one limit, with demand that comes and goes, costs of any size, and a Store up to
// 5 ms away: what they admit together never is more than the limit.
func TestLeasedIsNeverOver(t *testing.T) {
	const instances = 5
	for _, l := range leasable() {
		t.Run(l.Name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					memory := &weir.Memory{}
					var mu sync.Mutex
					var history []admission
					var wg sync.WaitGroup
					for i := range instances {
						r := rand.New(rand.NewPCG(seed, uint64(i)))
						var rmu sync.Mutex
						store := &far{Store: memory, away: func() time.Duration {
							rmu.Lock()
							defer rmu.Unlock()
							return time.Duration(r.IntN(2500)) * time.Microsecond
						}}
						portion := []int64{2, 1, 5, 9}[seed%4]
						leased := &redisstore.Leased{Store: store, Instances: instances, Lifetime: 100 * time.Millisecond, Portion: portion}
						lim := weir.Limiter{Store: leased}
						for g := range 2 {
							r := rand.New(rand.NewPCG(seed, uint64(100+10*i+g)))
							wg.Go(func() {
								for time.Since(start) < 4*time.Second {
									if r.IntN(30) == 0 {
										time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
									}
									cost := []int64{1, 1, 1, 2, 3, r.Int64N(12)}[r.IntN(6)]
									d, err := lim.Take(context.Background(), l.For("").Costing(cost))
									if err != nil {
										t.Error(err)
									}
									if d.Allowed {
										at := time.Since(start)
										if cost > portion { // decided by Store, and told some time later
											at = d.At.Sub(start)
										}
										mu.Lock()
										history = append(history, admission{at, cost})
										mu.Unlock()
									}
									time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
								}
							})
						}
					}
					wg.Wait()
					time.Sleep(time.Second) // what is held goes back
					if most, where := over(l, history); most > 0 {
						t.Fatalf("seed %d: %d over: %s", seed, most, where)
					}
					var sum int64
					for _, a := range history {
						sum += a.cost
					}
					// 4 s are eight Periods; windows and logs give half of each to what is held.
					if least := 8 * l.Rate.Units / 2; sum < least {
						t.Errorf("seed %d: %d units admitted, want %d", seed, sum, least)
					}
				})
			}
		})
	}
}

// TestLeasedIsSpentInFull has one of five instances ask for all there is: it gets the rate, in few calls, and holds no more than
// a portion.
func TestLeasedIsSpentInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{Store: &weir.Memory{}, away: func() time.Duration { return time.Millisecond }}
		l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 10_000, Period: time.Second}}
		leased := &redisstore.Leased{Store: store, Instances: 5}
		lim := weir.Limiter{Store: leased}
		var n, asked int
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			asked++
			d, err := lim.Take(t.Context(), l.For(""))
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				n++
			}
			time.Sleep(50 * time.Microsecond)
		}
		if n < 90_000 || n > 110_000 {
			t.Errorf("admitted %d in 10 s, want about 100,000", n)
		}
		if calls := store.calls.Load(); calls > int64(n)/30 {
			t.Errorf("%d calls for %d admissions", calls, n)
		}
		// When the demand ends, what is held goes back within a Lifetime.
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		d, err := (&weir.Limiter{Store: store.Store}).Peek(t.Context(), l.For("").Costing(l.Capacity()))
		if err != nil || !d.Allowed {
			t.Errorf("not all units are back: %+v %v", d, err)
		}
	})
}

// TestAPortionEndsWithItsWindow: what was charged in one FixedWindow is not spent in the next, which has all its units for itself.
func TestAPortionEndsWithItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &weir.Limit{Name: "l", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 100, Period: 10 * time.Second}}
		lim := weir.Limiter{Store: &redisstore.Leased{Store: &weir.Memory{}, Portion: 30, Lifetime: 5 * time.Second}}
		window := func() time.Duration { return time.Duration(time.Now().UnixNano()) % l.Rate.Period }
		time.Sleep(l.Rate.Period - window() - 100*time.Millisecond)
		for range 25 { // by then a portion is large
			if d, err := lim.Take(t.Context(), l.For("")); err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
		}
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if n := takeAll(t, &lim, l.For("")); n != 100 {
			t.Errorf("a window admits %d, want 100", n)
		}
	})
}

// TestLeasedWithOthers takes a leased limit together with one that is not: all or none.
func TestLeasedWithOthers(t *testing.T) {
	shared := &weir.Memory{}
	global := &weir.Limit{Name: "global", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 1000, Period: 400 * 24 * time.Hour}}
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 3, Period: 24 * time.Hour}}
	leased := &redisstore.Leased{Store: shared, Instances: 2, Portion: 50, Lifetime: time.Hour, Lease: func(l *weir.Limit) bool { return l.Name == "global" }}
	lim := weir.Limiter{Store: leased}
	admitted := 0
	for i := range 100 {
		for range 5 {
			d, err := lim.Take(t.Context(), global.For(""), client.For(fmt.Sprint(i)), global.For(""))
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			} else if out := d.Outcomes(); out[0].Refused() || !out[1].Refused() || d.RetryAfter < 7*time.Hour {
				t.Fatalf("%+v", d)
			}
		}
	}
	if admitted != 300 {
		t.Errorf("admitted %d, want 3 for each of 100 clients", admitted)
	}
	leased.Close(t.Context())
	d, err := (&weir.Limiter{Store: shared}).Peek(t.Context(), global.For("").Costing(0))
	if left := d.Outcomes()[0].Remaining; err != nil || left != 1000-600 {
		t.Errorf("%d units left, want 400: %v", left, err)
	}
	// The global one used up, the others are not charged.
	for range 600 {
		if _, err := lim.Take(t.Context(), global.For("")); err != nil {
			t.Fatal(err)
		}
	}
	d, err = lim.Take(t.Context(), global.For(""), client.For("new"))
	if out := d.Outcomes(); err != nil || d.Allowed || !out[0].Refused() || out[1].Refused() || out[1].Remaining != 3 {
		t.Errorf("%+v %v", d, err)
	}
	d, err = lim.Peek(t.Context(), global.For(""), client.For("new"))
	if err != nil || d.Allowed {
		t.Errorf("a peek admits what a take does not: %+v %v", d, err)
	}
}

// TestLeasedHold: a hold counts at once where it is made, and within a Lifetime elsewhere.
func TestLeasedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &weir.Memory{}
		l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1000, Period: time.Second}}
		here := weir.Limiter{Store: &redisstore.Leased{Store: shared, Instances: 2}}
		there := weir.Limiter{Store: &redisstore.Leased{Store: shared, Instances: 2}}
		here.Take(t.Context(), l.For(""))
		there.Take(t.Context(), l.For(""))
		if err := here.Hold(t.Context(), time.Now().Add(time.Hour), l.Every()); err != nil {
			t.Fatal(err)
		}
		if d, _ := here.Take(t.Context(), l.For("")); d.Allowed {
			t.Error("taken here in spite of a hold")
		}
		time.Sleep(time.Second)
		if d, _ := there.Take(t.Context(), l.For("")); d.Allowed {
			t.Error("taken there a second after a hold")
		}
	})
}

// TestLeasedOverRedis has four instances use up a stock through a real Redis, each with goroutines of its own.
func TestLeasedOverRedis(t *testing.T) {
	server := startRedis(t)
	l := &weir.Limit{Name: "stock", Rate: weir.Rate{Units: 2000, Period: 400 * 24 * time.Hour}}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	var all []*redisstore.Leased
	for range 4 {
		leased := &redisstore.Leased{Store: &redisstore.Store{Client: server.client(), Timeout: 20 * time.Second}, Instances: 4}
		all = append(all, leased)
		lim := weir.Limiter{Store: leased}
		for range 8 {
			wg.Go(func() {
				for range 100 {
					d, err := lim.Take(context.Background(), l.For(""))
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	// F is 4 portions of 50, which stay uncharged. A portion may still be on its way.
	var left int64
	within(t, "all that was held is back", nil, func() bool {
		for _, leased := range all {
			leased.Close(t.Context())
		}
		d, err := (&weir.Limiter{Store: all[0].Store}).Peek(t.Context(), l.For("").Costing(0))
		if err != nil {
			t.Fatal(err)
		}
		left = d.Outcomes()[0].Remaining
		return admitted.Load()+left == 2000
	})
	if left < 200 || left > 400 {
		t.Errorf("admitted %d, left %d; want 200 to 400 left", admitted.Load(), left)
	}
}
