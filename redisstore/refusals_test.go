package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// counted counts what reaches a Store.
type counted struct {
	weir.Store
	n atomic.Int64
}

func (c *counted) Apply(ctx context.Context, tx *weir.Tx) error {
	c.n.Add(1)
	return c.Store.Apply(ctx, tx)
}

// TestRefusalsAreAnsweredFromMemory hammers a limit that is used up for ten seconds, a thousand times a second.
func TestRefusalsAreAnsweredFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &counted{Store: &weir.Memory{}}
		refusals := &redisstore.Refusals{Store: shared}
		lim := weir.Limiter{Store: refusals}
		l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1, Period: 5 * time.Second}}
		var admitted []time.Duration
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			d, err := lim.Take(t.Context(), l.For("k"))
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted = append(admitted, time.Since(start))
			} else if left := 5*time.Second - time.Since(start)%(5*time.Second); d.RetryAfter != left {
				t.Fatalf("at %v: retry after %v, want %v", time.Since(start), d.RetryAfter, left)
			}
			time.Sleep(time.Millisecond)
		}
		if fmt.Sprint(admitted) != "[0s 5s]" {
			t.Errorf("admitted at %v, want 0s and 5s, not a millisecond later", admitted)
		}
		if n := shared.n.Load(); n > 105 {
			t.Errorf("%d of 10,000 decisions reached the shared store; want one in 100 ms", n)
		}
	})
}

// certain compares the answers of a Refusals with those of a Store that is asked each time.
type certain struct {
	asked weir.Store
	memo  *redisstore.Refusals
	diff  string
}

func (s *certain) Apply(ctx context.Context, tx *weir.Tx) error {
	other := *tx
	other.Charges = append([]weir.TxCharge(nil), tx.Charges...)
	s.asked.Apply(ctx, tx)
	served := s.memo.Served()
	s.memo.Apply(ctx, &other)
	bad := other.OK != tx.OK || other.At > tx.At
	if s.memo.Served() == served {
		bad = results(&other) != results(tx)
	}
	if bad && s.diff == "" {
		s.diff = fmt.Sprintf("%v of\n%s\n got %s\nwant %s", tx.Op, asked(tx), results(&other), results(tx))
	}
	return nil
}

// TestRefusalsAreCertain compares every answer with that of a Store that is asked each time, over random histories in which one
// process does everything: a refusal stands, and never says to come back later than it must.
func TestRefusalsAreCertain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			var limits []*weir.Limit
			for a := weir.TokenBucket; a <= weir.SlidingLog; a++ {
				limits = append(limits, &weir.Limit{Name: a.String(), Algorithm: a, Shadow: r.IntN(5) == 0,
					Rate: weir.Rate{Units: 1 + r.Int64N(4), Period: time.Duration(1+r.IntN(300)) * time.Millisecond}})
			}
			refusals := &redisstore.Refusals{Store: &weir.Memory{}, Size: 8}
			pair := &certain{asked: &weir.Memory{}, memo: refusals}
			lim := weir.Limiter{Store: pair}
			var last time.Time
			for range 300 {
				var cs []weir.Charge
				for range 1 + r.IntN(3) {
					cs = append(cs, limits[r.IntN(len(limits))].For(fmt.Sprint(r.IntN(2))).Costing(r.Int64N(4)))
				}
				switch r.IntN(12) {
				case 0:
					lim.Refund(t.Context(), last, cs...)
				case 1:
					lim.Debit(t.Context(), cs...)
				case 2:
					lim.Hold(t.Context(), time.Now().Add(time.Duration(r.IntN(50))*time.Millisecond), cs...)
				case 3:
					lim.Reset(t.Context(), cs...)
				case 4:
					lim.Hold(t.Context(), time.Time{}, limits[r.IntN(len(limits))].Every())
				default:
					for range 1 + r.IntN(6) {
						d, _ := lim.Take(t.Context(), cs...)
						last = d.At
						time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
					}
				}
				time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
			}
			if pair.diff != "" {
				t.Fatalf("seed %d: %s", seed, pair.diff)
			}
			if refusals.Served() == 0 {
				t.Errorf("seed %d: nothing was answered from memory", seed)
			}
		})
	}
}

// during is a Store that does something else before it decides.
type during struct {
	weir.Store
	do func(*weir.Tx)
}

func (s *during) Apply(ctx context.Context, tx *weir.Tx) error {
	if s.do != nil {
		s.do(tx)
	}
	return s.Store.Apply(ctx, tx)
}

// TestRoomMadeMeanwhileIsSeen has somebody be refused between the moment a refund is asked for and that it is made.
func TestRoomMadeMeanwhileIsSeen(t *testing.T) {
	shared := &during{Store: &weir.Memory{}}
	lim := weir.Limiter{Store: &redisstore.Refusals{Store: shared, MaxAge: time.Hour}}
	l := &weir.Limit{Name: "l", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 1, Period: 1000 * time.Hour}}
	took, _ := lim.Take(t.Context(), l.For("k"))
	shared.do = func(tx *weir.Tx) {
		if tx.Op != weir.Refund {
			return
		}
		if d, _ := lim.Take(t.Context(), l.For("k")); d.Allowed {
			t.Error("two of one")
		}
	}
	if err := lim.Refund(t.Context(), took.At, l.For("k")); err != nil {
		t.Fatal(err)
	}
	if d, _ := lim.Take(t.Context(), l.For("k")); !d.Allowed {
		t.Error("a refusal stands after what made room")
	}
}

// TestRefusalsSayWhatIsLeft: a refusal is not given again once a unit more is left, though it is still one.
func TestRefusalsSayWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := weir.Limiter{Store: &redisstore.Refusals{Store: &weir.Memory{}, MaxAge: time.Hour}}
		l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 5, Period: 5 * time.Second}}
		lim.Take(t.Context(), l.For("k").Costing(5))
		for want := range int64(5) {
			for range 2 {
				d, err := lim.Take(t.Context(), l.For("k").Costing(5))
				if got := d.Outcomes()[0].Remaining; err != nil || d.Allowed || got != want {
					t.Fatalf("after %d s: allowed=%t with %d left, %v", want, d.Allowed, got, err)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// TestRoomMadeElsewhereIsSeenInTime has another process give back.
func TestRoomMadeElsewhereIsSeenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &weir.Memory{}
		here := weir.Limiter{Store: &redisstore.Refusals{Store: shared, MaxAge: 200 * time.Millisecond}}
		there := weir.Limiter{Store: &redisstore.Refusals{Store: shared}}
		l := &weir.Limit{Name: "l", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 1, Period: time.Hour}}
		took, _ := there.Take(t.Context(), l.For("k"))
		if d, _ := here.Take(t.Context(), l.For("k")); d.Allowed {
			t.Fatal("two of one")
		}
		if err := there.Refund(t.Context(), took.At, l.For("k")); err != nil {
			t.Fatal(err)
		}
		refunded := time.Now()
		for {
			if d, _ := here.Take(t.Context(), l.For("k")); d.Allowed {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if after := time.Since(refunded); after > 200*time.Millisecond {
			t.Errorf("seen after %v, want within 200ms", after)
		}
		// The same limit with more units is another question.
		more := &weir.Limit{Name: "l", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 100, Period: time.Hour}}
		if d, _ := here.Take(t.Context(), l.For("k")); d.Allowed {
			t.Fatal("two of one")
		}
		if d, _ := here.Take(t.Context(), more.For("k")); !d.Allowed {
			t.Error("a raised limit still refuses")
		}
	})
}
