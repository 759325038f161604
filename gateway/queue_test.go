package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// line is a queue in front of a limit of one unit a second.
type line struct {
	*queue
	lim   weir.Limiter
	limit *weir.Limit
}

func newLine(conf Queue) *line {
	return &line{queue: newQueue(&conf), limit: &weir.Limit{Name: "out", Algorithm: weir.LeakyBucket, Rate: weir.Rate{Units: 1, Period: time.Second}}}
}

func (l *line) ask(ctx context.Context, key string) (weir.Decision, error) {
	return l.take(ctx, &l.lim, []weir.Charge{l.limit.For(key)})
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(Queue{Wait: time.Minute})
		began := time.Now()
		var mu sync.Mutex
		var served []int
		for i := range 10 {
			go func() {
				if d, err := l.ask(t.Context(), ""); err != nil || !d.Allowed {
					t.Errorf("request %d: %+v, %v", i, d, err)
				}
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				if at := time.Since(began); at < time.Duration(i)*time.Second || at > time.Duration(i)*time.Second+10*time.Millisecond {
					t.Errorf("request %d served after %v", i, at)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(served, want) {
			t.Errorf("served %v", served)
		}
		if n := l.waiting.Load(); n != 0 {
			t.Errorf("%d still waiting", n)
		}
	})
}

// A small request does not overtake a large one that waits for more than there is, which would otherwise wait for ever.
func TestQueueIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(&Queue{Wait: time.Minute})
		var lim weir.Limiter
		l := &weir.Limit{Name: "out", Rate: weir.Rate{Units: 60, Period: time.Minute}, Burst: 10}
		lim.Take(t.Context(), l.For("").Costing(10))
		began := time.Now()
		var large time.Duration
		go func() {
			q.take(t.Context(), &lim, []weir.Charge{l.For("").Costing(10)})
			large = time.Since(began)
		}()
		synctest.Wait()
		for range 20 {
			time.Sleep(700 * time.Millisecond)
			go q.take(t.Context(), &lim, []weir.Charge{l.For("")})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if large != 10*time.Second {
			t.Errorf("a request of 10 units, which are there after 10s, left after %v", large)
		}
	})
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(Queue{Wait: time.Minute, Length: 3})
		refused := func(what string, key string, wait time.Duration) {
			t.Helper()
			before := time.Now()
			d, err := l.ask(t.Context(), key)
			if err != nil || d.Allowed || d.RetryAfter < wait {
				t.Errorf("%s: %+v, %v; want a refusal of at least %v", what, d, err, wait)
			}
			if took := time.Since(before); took != 0 {
				t.Errorf("%s: took %v, want none", what, took)
			}
		}
		l.ask(t.Context(), "") // spends what there is
		var served atomic.Int64
		for range 3 {
			go func() {
				if d, err := l.ask(t.Context(), ""); err == nil && d.Allowed {
					served.Add(1)
				}
			}()
			synctest.Wait()
		}
		refused("beyond the length", "", time.Second)
		time.Sleep(1500 * time.Millisecond) // one has left the line
		go l.ask(t.Context(), "")
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if served.Load() != 3 {
			t.Errorf("%d served, want 3", served.Load())
		}

		late := newLine(Queue{Wait: 3500 * time.Millisecond})
		late.ask(t.Context(), "")
		for range 3 {
			go late.ask(t.Context(), "")
			synctest.Wait()
		}
		l = late
		refused("beyond the wait", "", 3500*time.Millisecond)
		time.Sleep(10 * time.Second)

		slow := newLine(Queue{Wait: time.Second})
		slow.limit.Rate.Period = time.Hour
		slow.ask(t.Context(), "")
		l = slow
		refused("far beyond the wait", "", 59*time.Minute)
	})
}

func TestQueueIsLeftByClientsThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(Queue{Wait: time.Minute})
		l.ask(t.Context(), "")
		ctx, leave := context.WithCancel(t.Context())
		for range 5 {
			go func() {
				if _, err := l.ask(ctx, ""); !errors.Is(err, context.Canceled) {
					t.Errorf("a client that left: %v", err)
				}
			}()
			synctest.Wait()
		}
		before := time.Now()
		leave()
		if d, err := l.ask(t.Context(), ""); err != nil || !d.Allowed {
			t.Errorf("who stayed: %+v, %v", d, err)
		}
		if waited := time.Since(before); waited > 1010*time.Millisecond {
			t.Errorf("who stayed waited %v behind those that left", waited)
		}
	})
}

// Nobody waits behind others' keys.
func TestQueueHasALineForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(Queue{Wait: time.Minute})
		l.ask(t.Context(), "a")
		go l.ask(t.Context(), "a")
		synctest.Wait()
		before := time.Now()
		if d, err := l.ask(t.Context(), "b"); err != nil || !d.Allowed || time.Since(before) != 0 {
			t.Errorf("%+v, %v after %v", d, err, time.Since(before))
		}
		time.Sleep(time.Minute)
	})
}

func TestQueueOverHTTP(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{{Name: "out", Algorithm: weir.LeakyBucket, Rate: weir.Rate{Units: 20, Period: time.Second}}},
		Charge{Limit: "out", Key: "global"})
	cfg.Routes[0].Queue = &Queue{Wait: patience, Length: 100}
	g, url := start(t, cfg)
	began := time.Now()
	for range 4 { // each 50 ms after the one before
		if res, _ := ask(t, "GET", url); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
	}
	if took := time.Since(began); took < 149*time.Millisecond {
		t.Errorf("4 requests took %v", took)
	}

	// One that nobody will answer in this test: its client leaves.
	held := g.site.Load().limits["out"].For("")
	if err := g.limiter.Hold(t.Context(), time.Now().Add(patience/2), held); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	go client.Do(req)
	waiting := func() int64 { return g.site.Load().routes["/"].queue.waiting.Load() }
	await(t, "the request to wait", func() bool { return waiting() == 1 })
	leave()
	await(t, "the queue to be left", func() bool { return waiting() == 0 && g.open.Load() == 0 })
}
