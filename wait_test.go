package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var background = context.Background()

// waitFor lets goroutines run until all of them wait for something.
func settled() { synctest.Wait() }

func TestWaitComesExactlyWhenTheUnitsDo(t *testing.T) {
	for a := TokenBucket; a < Concurrency; a++ {
		synctest.Test(t, func(t *testing.T) {
			var lim Limiter
			l := &Limit{Name: "x", Algorithm: a, Rate: Rate{2, time.Second}}
			begin := time.Now()
			for range 6 {
				d, err := lim.Peek(background, l.For("k"))
				if err != nil {
					t.Fatal(err)
				}
				asked := time.Now()
				w, err := lim.Wait(background, l.For("k"))
				if err != nil || !w.Allowed {
					t.Fatalf("%v: Wait = %+v, %v", a, w, err)
				}
				if took := time.Since(asked); took != d.RetryAfter {
					t.Errorf("%v: waited %v, Peek had said %v", a, took, d.RetryAfter)
				}
			}
			most := 3 * time.Second
			if a == SlidingWindow { // whose estimate counts a burst at the start of a window for all of the next
				most = 4 * time.Second
			}
			if took := time.Since(begin); took > most {
				t.Errorf("%v: six units at 2/s took %v", a, took)
			}
		})
	}
}

func TestWaitIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		l := &Limit{Name: "queue", Algorithm: LeakyBucket, Rate: Rate{10, time.Second}}
		begin := time.Now()
		var mu sync.Mutex
		var served []int
		for i := range 20 {
			go func() {
				if _, err := lim.Wait(background, l.For("k")); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if want := time.Duration(len(served)) * 100 * time.Millisecond; time.Since(begin) != want {
					t.Errorf("served as number %d after %v, want %v", len(served), time.Since(begin), want)
				}
				served = append(served, i)
			}()
			settled()
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for i := range served {
			if served[i] != i {
				t.Fatalf("served in the order %v", served)
			}
		}
		if len(served) != 20 {
			t.Errorf("%d of 20 served", len(served))
		}
	})
}

func TestWaitFailsAtOnceIfTheContextEndsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		l := &Limit{Name: "api", Rate: Rate{1, time.Minute}}
		lim.Take(background, l.For("k"))
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		asked := time.Now()
		_, err := lim.Wait(ctx, l.For("k"))
		var limited *LimitedError
		if !errors.As(err, &limited) || limited.RetryAfter != time.Minute || limited.Limit != "api" || limited.Never {
			t.Errorf("Wait = %v; want a LimitedError of one minute", err)
		}
		if time.Since(asked) != 0 {
			t.Errorf("it took %v to say so", time.Since(asked))
		}
		time.Sleep(time.Minute)
		if d, _ := lim.Take(background, l.For("k")); !d.Allowed {
			t.Error("giving up has cost a unit")
		}
	})
}

// TestWaitKnowsTheLine: whoever joins a line hears at once whether its turn can come before the deadline.
func TestWaitKnowsTheLine(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA, LeakyBucket} {
		synctest.Test(t, func(t *testing.T) {
			var lim Limiter
			l := &Limit{Name: "queue", Algorithm: a, Rate: Rate{1, time.Second}}
			lim.Take(background, l.For("k"))
			var wg sync.WaitGroup
			for range 5 { // at 1 s to 5 s
				wg.Go(func() { lim.Wait(background, l.For("k")) })
				settled()
			}
			join := func(patience time.Duration) error {
				ctx, cancel := context.WithTimeout(background, patience)
				defer cancel()
				_, err := lim.Wait(ctx, l.For("k"))
				return err
			}
			var limited *LimitedError
			asked := time.Now()
			if err := join(5999 * time.Millisecond); !errors.As(err, &limited) || limited.RetryAfter != 6*time.Second {
				t.Errorf("%v: sixth in line with 5.999 s: %v; want a LimitedError of 6 s", a, err)
			}
			if time.Since(asked) != 0 {
				t.Errorf("%v: it took %v to say so", a, time.Since(asked))
			}
			if err := join(6 * time.Second); err != nil {
				t.Errorf("%v: sixth in line with 6 s: %v", a, err)
			}
			if time.Since(asked) != 6*time.Second {
				t.Errorf("%v: the sixth was served after %v", a, time.Since(asked))
			}
			wg.Wait()
		})
	}
}

func TestWaitNever(t *testing.T) {
	var lim Limiter
	l := &Limit{Name: "small", Rate: Rate{5, time.Hour}}
	_, err := lim.Wait(background, l.For("k").Costing(6))
	var limited *LimitedError
	if !errors.As(err, &limited) || !limited.Never || limited.Limit != "small" {
		t.Errorf("Wait for 6 of 5 units: %v; want never", err)
	}
}

func TestGivingUpPassesTheTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		l := &Limit{Name: "x", Rate: Rate{1, time.Second}}
		lim.Take(background, l.For("k"))
		ctx, cancel := context.WithCancel(background)
		var served atomic.Int32
		for range 3 { // the head and the two behind it, who all give up
			go func() {
				if _, err := lim.Wait(ctx, l.For("k")); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled Wait = %v", err)
				}
			}()
			settled()
		}
		go func() {
			if _, err := lim.Wait(background, l.For("k")); err == nil {
				served.Add(1)
			}
		}()
		settled()
		cancel()
		settled()
		time.Sleep(999 * time.Millisecond)
		if served.Load() != 0 {
			t.Error("served before the unit was there")
		}
		time.Sleep(time.Millisecond)
		settled()
		if served.Load() != 1 {
			t.Error("the one who stayed was not served when the unit was there")
		}
		if lim.lines.n.Load() != 0 || len(lim.lines.bySet) != 0 || len(lim.lines.byCell) != 0 {
			t.Errorf("lines remain: %+v", &lim.lines)
		}
	})
}

// TestNoLostWakeUp gives one unit back for each waiter; each must wake one, whatever the order of release and
// wait.
func TestNoLostWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		pool := &Limit{Name: "pool", Algorithm: Concurrency, Rate: Rate{3, time.Hour}}
		var out, most, done atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				d, err := lim.Wait(background, pool.For(""))
				if err != nil {
					t.Error(err)
					return
				}
				if n := out.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Millisecond)
				out.Add(-1)
				if err := lim.Refund(background, d.At, pool.For("")); err != nil {
					t.Error(err)
				}
				done.Add(1)
			})
		}
		begin := time.Now()
		wg.Wait()
		if done.Load() != 100 || most.Load() != 3 {
			t.Errorf("%d of 100 done, %d at once; want 100, 3", done.Load(), most.Load())
		}
		// 100 holders of 10 ms, three at a time, each woken the moment a unit is back.
		if took := time.Since(begin); took > 360*time.Millisecond {
			t.Errorf("took %v; want about 340ms: wake-ups come late", took)
		}
	})
}

// TestWaitSeesReleasesByOthers: another Limiter over the same Store gives the unit back, which nobody tells this one.
func TestWaitSeesReleasesByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		a, b := Limiter{Store: &m}, Limiter{Store: &m}
		pool := &Limit{Name: "pool", Algorithm: Concurrency, Rate: Rate{1, time.Hour}}
		d, _ := a.Take(background, pool.For(""))
		time.AfterFunc(3*time.Second, func() { a.Refund(background, d.At, pool.For("")) })
		begin := time.Now()
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		if _, err := b.Wait(ctx, pool.For("")); err != nil {
			t.Fatalf("Wait = %v; a release may come before the lease ends", err)
		}
		if took := time.Since(begin); took < 3*time.Second || took > 3*time.Second+2*maxPoll {
			t.Errorf("woke after %v", took)
		}
	})
}

func TestLiftingAHoldWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, every := range []bool{false, true} {
			var lim Limiter
			l := &Limit{Name: "x", Rate: Rate{5, time.Second}}
			hold := l.For("k")
			if every {
				hold = l.Every()
			}
			lim.Hold(background, time.Now().Add(time.Hour), hold)
			begin := time.Now()
			time.AfterFunc(time.Second, func() { lim.Hold(background, time.Time{}, hold) })
			if _, err := lim.Wait(background, l.For("k")); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took != time.Second {
				t.Errorf("every=%v: a hold lifted after a second woke the line after %v", every, took)
			}
		}
	})
}

func TestResetWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		l := &Limit{Name: "x", Rate: Rate{5, time.Hour}}
		lim.Take(background, l.For("k").Costing(5))
		begin := time.Now()
		time.AfterFunc(time.Second, func() { lim.Reset(background, l.For("k")) })
		if _, err := lim.Wait(background, l.For("k")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("a reset after a second woke the line after %v", took)
		}
	})
}

func TestWaitOfAContextThatHasEnded(t *testing.T) {
	var lim Limiter
	l := &Limit{Name: "x", Rate: Rate{5, time.Hour}}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := lim.Wait(ctx, l.For("k")); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v; want context.Canceled", err)
	}
	if d, _ := lim.Peek(background, l.For("k")); d.Outcomes()[0].Remaining != 5 {
		t.Errorf("a Wait that failed has charged: %d of 5 left", d.Outcomes()[0].Remaining)
	}
}

// TestWaitKnowsTheLineOfALeakyBucket: a request leaves when those before it have drained, however large it is itself.
func TestWaitKnowsTheLineOfALeakyBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		l := &Limit{Name: "x", Algorithm: LeakyBucket, Rate: Rate{60, time.Minute}, Burst: 5}
		lim.Take(background, l.For(""))
		go lim.Wait(background, l.For("").Costing(3)) // leaves after 1 s, and takes 3
		synctest.Wait()
		tooSoon, cancel := context.WithTimeout(background, 3900*time.Millisecond)
		defer cancel()
		var limited *LimitedError
		begin := time.Now()
		if _, err := lim.Wait(tooSoon, l.For("").Costing(2)); !errors.As(err, &limited) || limited.RetryAfter != 4*time.Second || time.Since(begin) != 0 {
			t.Errorf("3.9 s of patience for 4 s: %v after %v; want 4s at once", err, time.Since(begin))
		}
		enough, cancel := context.WithTimeout(background, 4100*time.Millisecond)
		defer cancel()
		if _, err := lim.Wait(enough, l.For("").Costing(2)); err != nil || time.Since(begin) != 4*time.Second {
			t.Errorf("4.1 s of patience for 4 s: %v after %v", err, time.Since(begin))
		}
	})
}

// TestLinesDoNotBookAhead is the choice of a line of takes: slow callers that also need a scarce limit must not idle the
// one that all share.
func TestLinesDoNotBookAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lim Limiter
		shared := &Limit{Name: "shared", Algorithm: GCRA, Rate: Rate{10, time.Second}}
		scarce := &Limit{Name: "scarce", Rate: Rate{1, 5 * time.Second}}
		ctx, cancel := context.WithTimeout(background, 10*time.Minute)
		defer cancel()
		var slow atomic.Int32
		for range 150 {
			go func() {
				if _, err := lim.Wait(ctx, shared.For(""), scarce.For("")); err == nil {
					slow.Add(1)
				}
			}()
		}
		fast := 0
		for range 5000 { // nine a second
			if d, _ := lim.Take(ctx, shared.For("")); d.Allowed {
				fast++
			}
			time.Sleep(time.Second / 9)
		}
		if fast < 4900 {
			t.Errorf("%d of 5000 fast callers were served", fast)
		}
		if slow.Load() < 100 {
			t.Errorf("%d slow callers were served in %v", slow.Load(), 5000*time.Second/9)
		}
		cancel()
		settled()
	})
}

func ExampleLimiter_Wait() {
	var lim Limiter
	api := &Limit{Name: "api", Rate: Rate{Units: 1, Period: time.Hour}}
	lim.Take(background, api.For("host"))

	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	_, err := lim.Wait(ctx, api.For("host"))
	var limited *LimitedError
	fmt.Println(errors.As(err, &limited), limited.RetryAfter.Round(time.Minute))
	// Output: true 1h0m0s
}
