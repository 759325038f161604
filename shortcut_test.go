package weir_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// slow is a Store that Limiter does not know, so that it takes no shortcut.
type slow struct{ weir.Store }

// A Limiter asks its Memory about a single charge by a shorter way than Apply: the answers are the same.
func TestLimiterShortcut(t *testing.T) {
	limits := []*weir.Limit{
		{Name: "whole", Rate: weir.Rate{Units: 10, Period: time.Second}, Headroom: 2},
		{Name: "odd", Rate: weir.Rate{Units: 7, Period: 3 * time.Second}, Burst: 20},
		{Name: "gcra", Algorithm: weir.GCRA, Rate: weir.Rate{Units: 10, Period: time.Second}, Shadow: true},
		{Name: "paced", Algorithm: weir.LeakyBucket, Rate: weir.Rate{Units: 4, Period: time.Second}},
		{Name: "fixed", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 10, Period: time.Second}},
		{Name: "sliding", Algorithm: weir.SlidingWindow, Rate: weir.Rate{Units: 10, Period: time.Second}, Headroom: 3},
		{Name: "log", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 10, Period: time.Second}},
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		c := newClock()
		short := weir.Limiter{Store: &weir.Memory{Now: c.now}}
		long := weir.Limiter{Store: slow{&weir.Memory{Now: c.now}}}
		ctx := context.Background()
		for step := range 500 {
			charge := limits[rng.IntN(len(limits))].For("k").Costing(one(rng, 1, 1, 0, rng.Int64N(12))).AtPriority(weir.Priority(rng.IntN(3) - 1))
			ask := func(l *weir.Limiter) (d weir.Decision) {
				var err error
				switch what := step % 10; {
				case what < 6:
					d, err = l.Take(ctx, charge)
				case what < 8:
					d, err = l.Peek(ctx, charge)
				case what < 9 || seed%2 == 0: // no hold, as holds lead the long way
					err = l.Debit(ctx, charge)
				default:
					err = l.Hold(ctx, c.Add(time.Millisecond), charge)
				}
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			if s, l := ask(&short), ask(&long); !reflect.DeepEqual(s, l) {
				t.Fatalf("seed %d, step %d, %v cost %d: short %+v, long %+v", seed, step, charge.Limit.Name, charge.Cost, s, l)
			}
			switch rng.IntN(10) {
			case 0:
				c.advance(-time.Duration(rng.Int64N(int64(50 * time.Second))))
			case 1:
				c.advance(time.Duration(rng.Int64N(int64(100 * time.Second))))
			default:
				c.advance(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			}
		}
	}
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
