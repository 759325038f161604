package blackfriday

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/traffic"
)

func shop() *Backend {
	return &Backend{Workers: 30, Service: 20 * time.Millisecond, Queue: 2250, Patience: time.Second}
}

// offer sends the backend the arrivals of a profile, in the time of a bubble, and gives each answer with when it was asked for.
func offer(b *Backend, p traffic.Profile, seen func(at time.Duration, status int, latency time.Duration)) {
	var mu sync.Mutex
	var open sync.WaitGroup
	begin := time.Now()
	for at := range p.Poisson(1) {
		time.Sleep(time.Until(begin.Add(at)))
		open.Go(func() {
			w := httptest.NewRecorder()
			b.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
			mu.Lock()
			defer mu.Unlock()
			seen(at, w.Code, time.Since(begin.Add(at)))
		})
	}
	open.Wait()
}

func TestBackendBelowItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shop()
		n := int64(0)
		offer(b, traffic.Steady(1350, 10*time.Second), func(at time.Duration, status int, latency time.Duration) {
			n++
			if status != 200 || latency < 10*time.Millisecond || latency > 80*time.Millisecond {
				t.Errorf("asked at %v: %d after %v, want 200 within 80ms", at, status, latency)
			}
		})
		if done, wasted := b.Work(); done != n || wasted != 0 {
			t.Errorf("worked on %d of %d, %d in vain; want all and none", done, n, wasted)
		}
	})
}

func TestBackendCollapsesAboveItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shop()
		var early, late struct{ ok, full, gaveUp int }
		offer(b, traffic.Steady(5250, 10*time.Second), func(at time.Duration, status int, latency time.Duration) {
			when := &early
			if at > 3*time.Second {
				when = &late
			}
			switch {
			case status == 200:
				when.ok++
				if latency > time.Second {
					t.Errorf("served after %v", latency)
				}
			case latency == 0:
				when.full++
			case latency == time.Second:
				when.gaveUp++
			default:
				t.Errorf("%d after %v", status, latency)
			}
		})
		// The queue holds 1.5 s of work, more than anybody waits: once it is full the pool works for those who have left.
		if early.ok == 0 || late.ok != 0 || late.full == 0 || late.gaveUp == 0 {
			t.Errorf("at first %+v, then %+v; want some served and then none", early, late)
		}
		done, wasted := b.Work()
		if perSecond := float64(done) / 11.5; perSecond < 1450 || perSecond > 1550 || wasted < done*3/4 {
			t.Errorf("%.0f worked on a second, %d of %d in vain; want 1500 a second, most in vain", perSecond, wasted, done)
		}
	})
}

func TestBackendRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wave := traffic.Profile{{At: 0, Rate: 5250}, {At: 3 * time.Second, Rate: 5250}, {At: 3 * time.Second, Rate: 750}, {At: 10 * time.Second, Rate: 750}}
		offer(shop(), wave, func(at time.Duration, status int, latency time.Duration) {
			if at > 6*time.Second && (status != 200 || latency > 80*time.Millisecond) {
				t.Errorf("asked at %v, three seconds after the wave: %d after %v", at, status, latency)
			}
		})
	})
}

func TestBackendWhoseClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{Workers: 1, Service: time.Second, Queue: 1, Patience: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/orders", nil))
		if waited := time.Since(begin); waited != 100*time.Millisecond {
			t.Errorf("let go after %v, want 100ms", waited)
		}
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest("POST", "/orders", nil))
		if waited := time.Since(begin); w.Code != http.StatusOK || waited < time.Second {
			t.Errorf("the next one: %d after %v, want 200 after the work for the first", w.Code, waited)
		}
	})
}
