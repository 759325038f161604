package httplimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// TestGateIsNeverRefused is what the gate is for: a server that counts arrivals in a strict sliding window refuses nothing,
// although every request takes another time to get there; and the run takes hardly longer than it must.
func TestGateIsNeverRefused(t *testing.T) {
	for _, test := range []struct {
		items, workers int
		units          int
		period, work   time.Duration
		bound          time.Duration // (⌈items/units⌉ − 1)·period + work, or that of the workers
		most           float64       // times the bound
	}{
		{30, 6, 5, 3 * time.Second, 20 * time.Millisecond, 15020 * time.Millisecond, 15.5 / 15.02},
		{271, 6, 5, 30 * time.Second, 20 * time.Millisecond, 1620020 * time.Millisecond, 1.01},
		{271, 6, 5, 30 * time.Second, time.Second, 1621 * time.Second, 1.045}, // the answers begin a second after arrival
		{271, 12, 50, 30 * time.Second, time.Second, 151 * time.Second, 1.06},
	} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{admit: slidingWindow(test.units, test.period), there: way(seed), back: way(seed + 100), work: test.work}
				if test.period < 10*time.Second { // the published experiment's: up to 50 ms more
					s.there = func() time.Duration { return rand.N(30 * time.Millisecond) }
					s.back = func() time.Duration { return rand.N(20 * time.Millisecond) }
				}
				rt := &Transport{Base: s, Gates: []Gate{{Limit: window(int64(test.units), test.period)}}}
				took, good := fetchAll(t, rt, test.items, test.workers)
				if s.refused != 0 || good != test.items {
					t.Errorf("seed %d: %d of %d fetched, %d refused", seed, good, test.items, s.refused)
				}
				if ratio := took.Seconds() / test.bound.Seconds(); ratio > test.most || ratio < 1 {
					t.Errorf("seed %d: %d items at %d/%v took %v, %.4f of the bound; want at most %.4f", seed, test.items, test.units, test.period, took, ratio, test.most)
				} else if seed == 0 {
					t.Logf("%d items at %d/%v, %v of work: %v, %.4f of the bound", test.items, test.units, test.period, test.work, took, ratio)
				}
			})
		}
	}
}

// TestGateWithAServerThatTells: a server that says with each answer what is left costs no more than its rounding up to
// whole seconds.
func TestGateWithAServerThatTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const units, period = 50, 30 * time.Second
		s := &server{admit: slidingWindow(units, period), there: way(1), back: way(2), work: time.Second}
		var log []time.Time
		s.tell = func(now time.Time) http.Header {
			log = append(log, now)
			for now.Sub(log[0]) >= period {
				log = log[1:]
			}
			left := math.Ceil((period - now.Sub(log[0])).Seconds())
			return http.Header{"Ratelimit": {fmt.Sprintf(`"api";r=%d;t=%.0f`, max(0, units-len(log)), left)}}
		}
		rt := &Transport{Base: s, Gates: []Gate{{Limit: window(units, period)}}}
		took, good := fetchAll(t, rt, 271, 12)
		t.Logf("%v, %d refused", took, s.refused)
		if good != 271 || s.refused != 0 || took > 170*time.Second {
			t.Errorf("%d of 271 in %v, %d refused", good, took, s.refused)
		}
	})
}

// TestFleet: three machines on one Store, whose clock is not theirs, share one quota of a strict server.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &weir.Memory{Now: func() time.Time { return time.Now().Add(-time.Hour) }}
		s := &server{admit: slidingWindow(5, 3*time.Second), there: way(5), back: way(6), work: 20 * time.Millisecond}
		begin := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			rt := &Transport{Base: s, Limiter: &weir.Limiter{Store: shared}, Gates: []Gate{{Limit: window(5, 3*time.Second)}}}
			wg.Go(func() {
				if _, good := fetchAll(t, rt, 20, 4); good != 20 {
					t.Errorf("%d of 20", good)
				}
			})
		}
		wg.Wait()
		took := time.Since(begin)
		t.Logf("60 items on three machines: %v", took)
		if s.refused != 0 || took > 40*time.Second {
			t.Errorf("%d refused, %v", s.refused, took)
		}
	})
}

// TestGateAfterStart is the other mode: faster with slow answers, refused now and then, and nothing is lost; the guard
// makes refusals rare.
func TestGateAfterStart(t *testing.T) {
	for _, guard := range []time.Duration{-1, 0, 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{admit: slidingWindow(5, 30*time.Second), there: way(1), back: way(2), work: time.Second}
			rt := &Transport{
				Base: s, Retry: &Retry{},
				Gates: []Gate{{Limit: window(5, 30*time.Second), Reopen: AfterStart, Guard: guard}},
			}
			took, good := fetchAll(t, rt, 271, 6)
			t.Logf("guard %v: %v, %.3f of the bound, %d refusals", guard, took, took.Seconds()/1621, s.refused)
			if good != 271 {
				t.Errorf("guard %v: %d of 271 fetched", guard, good)
			}
			if guard > 0 && (s.refused > 12 || took.Seconds() > 1.08*1621) {
				t.Errorf("guard %v: %d refused, %v", guard, s.refused, took)
			}
		})
	}
}

// TestGateAtOtherServers: whatever way the server counts, and whoever else spends its quota, all items are fetched.
func TestGateAtOtherServers(t *testing.T) {
	for _, test := range []struct {
		name  string
		admit func(time.Time) http.Header
		rival bool
	}{
		{"sliding", slidingWindow(5, 3*time.Second), false},
		{"fixed", fixedWindow(5, 3*time.Second), false},
		{"bucket", tokenBucket(5, 3*time.Second), false},
		{"sliding, shared", slidingWindow(5, 3*time.Second), true},
		{"fixed, shared", fixedWindow(5, 3*time.Second), true},
		{"bucket, shared", tokenBucket(5, 3*time.Second), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{admit: test.admit, there: way(3), back: way(4), work: 20 * time.Millisecond}
				rt := &Transport{Base: s, Retry: &Retry{Refusals: 50}, Gates: []Gate{{Limit: window(5, 3*time.Second)}}}
				stop := make(chan struct{})
				if test.rival {
					go func() { // spends a third of the quota
						for {
							select {
							case <-stop:
								return
							case <-time.After(1800 * time.Millisecond):
								s.mu.Lock()
								s.admit(time.Now())
								s.mu.Unlock()
							}
						}
					}()
				}
				took, good := fetchAll(t, rt, 100, 6)
				close(stop)
				t.Logf("%v, %d refused", took, s.refused)
				if good != 100 {
					t.Errorf("%d of 100 fetched, %d refused", good, s.refused)
				}
				if !test.rival && s.refused != 0 {
					t.Errorf("%d refused although nobody else spends", s.refused)
				}
				if test.rival && s.refused == 0 {
					t.Error("nothing was refused: this tests nothing")
				}
			})
		})
	}
}

// TestSlowAnswersKeepTheirUnits: answers that take three windows are renewed, so that no more than the limit are ever under way.
func TestSlowAnswersKeepTheirUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{work: 10 * time.Second}
		rt := &Transport{Base: s, Gates: []Gate{{Limit: window(3, 3*time.Second)}}}
		took, good := fetchAll(t, rt, 9, 9)
		if good != 9 || s.most != 3 {
			t.Errorf("%d fetched, %d under way at once, want 3", good, s.most)
		}
		if want := 36 * time.Second; took != want { // three times ten seconds, two windows between
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

// TestAfterACrash: a process that ends with requests under way leaves its units taken for one window at most.
func TestAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared weir.Memory
		limit := window(2, 4*time.Second)
		dead := &Transport{Base: &server{work: time.Hour}, Limiter: &weir.Limiter{Store: &shared}, Gates: []Gate{{Limit: limit}}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example/", nil)
				if _, err := dead.RoundTrip(r); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(30 * time.Second) // renewed many times
		cancel()
		wg.Wait()
		begin := time.Now()
		live := &Transport{Base: &server{}, Limiter: &weir.Limiter{Store: &shared}, Gates: []Gate{{Limit: limit}}}
		if _, good := fetchAll(t, live, 2, 2); good != 2 {
			t.Error("not fetched")
		}
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("the next process waited %v, want 4s", took)
		}
	})
}

func TestUnsentGivesTheUnitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		rt := &Transport{
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if dials++; dials <= 3 {
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				return respond(r, 200, nil, ""), nil
			}),
			Gates: []Gate{{Limit: window(1, time.Hour)}},
			Retry: &Retry{},
		}
		begin := time.Now()
		if _, good := fetchAll(t, rt, 1, 1); good != 1 || time.Since(begin) > 5*time.Second {
			t.Errorf("%d fetched in %v", good, time.Since(begin))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestConcurrency: no more requests than the limit are between their start and the end of their body.
func TestConcurrencyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{work: time.Second}
		two := &weir.Limit{Name: "at-once", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 2, Period: 300 * time.Millisecond}}
		rt := &Transport{Base: s, Gates: []Gate{{Limit: two}}}
		if took, _ := fetchAll(t, rt, 10, 10); took != 5*time.Second || s.most != 2 {
			t.Errorf("ten seconds of work, two at once: %v, %d at once", took, s.most)
		}
		// The body holds the unit.
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		var open []*http.Response
		for range 2 {
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, resp)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := rt.RoundTrip(r.WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third beside two open bodies: %v", err)
		}
		open[0].Body.Close()
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		open[1].Body.Close()
	})
}
