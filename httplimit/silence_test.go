package httplimit

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilentRefusals: a server that refuses without a word on how long is left alone for its window, then for longer, and never for
// absurdly long; and no longer than a window where it takes requests in between.
func TestSilentRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		gates   []Gate
		maxHold time.Duration
		workers int
		refuse  func(arrival int) bool
		want    []time.Duration // the holds, without their jitter
	}{
		{
			name: "always, behind a gate", gates: []Gate{{Limit: window(5, 30*time.Second), Guard: -1}}, workers: 1,
			refuse: func(int) bool { return true },
			want: []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute,
				2 * time.Minute, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute},
		},
		{
			name: "always, without a gate", workers: 1,
			refuse: func(int) bool { return true },
			want: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
				time.Minute, time.Minute, time.Minute, time.Minute, time.Minute},
		},
		{
			name: "with a small MaxHold", gates: []Gate{{Limit: window(5, 30*time.Second), Guard: -1}}, maxHold: 40 * time.Second, workers: 1,
			refuse: func(n int) bool { return n < 3 },
			want:   []time.Duration{30 * time.Second, 40 * time.Second, 40 * time.Second},
		},
		{
			name: "every other", gates: []Gate{{Limit: window(5, 30*time.Second), Guard: -1}}, workers: 1,
			refuse: func(n int) bool { return n%2 == 0 && n < 8 },
			want:   []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second},
		},
		{
			name: "those that were under way together", gates: []Gate{{Limit: window(5, 30*time.Second), Guard: -1}}, workers: 5,
			refuse: func(n int) bool { return n < 5 },
			want:   []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrivals := 0
				s := &server{work: time.Millisecond}
				s.admit = func(time.Time) http.Header {
					if arrivals++; c.refuse(arrivals - 1) {
						return http.Header{}
					}
					return nil
				}
				var mu sync.Mutex
				var held []time.Duration
				rt := &Transport{Base: s, Gates: c.gates, MaxHold: c.maxHold, Retry: &Retry{}, Observe: func(e Event) {
					if e.Kind == Held {
						mu.Lock()
						defer mu.Unlock()
						held = append(held, e.Wait)
					}
				}}
				items := 5
				if c.refuse(1 << 20) {
					items = 1
				}
				fetchAll(t, rt, items, c.workers)
				if len(held) != len(c.want) {
					t.Fatalf("held %v, want %v", held, c.want)
				}
				for i, want := range c.want {
					if held[i] < want || held[i] > want+want/20+1 {
						t.Errorf("hold %d is %v, want %v and up to 5 %% more", i, held[i], want)
					}
				}
			})
		})
	}
}
