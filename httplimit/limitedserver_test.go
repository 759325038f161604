package httplimit

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// server is an http.RoundTripper that stands for a server with a limit of its own, and for the way there and back. It is for use in
// a synctest bubble.
type server struct {
	// admit decides on an arrival: nil admits, else it is the refusal's header. It is called with the lock held.
	admit func(now time.Time) http.Header

	there, back func() time.Duration // how long a request and an answer are on their way; nil is no time
	work        time.Duration        // between the arrival and the answer
	ignored     bool                 // refused requests do not count
	tell        func(now time.Time) http.Header

	mu       sync.Mutex
	arrivals []time.Time
	refused  int
	inside   int // requests that have arrived and are not answered
	most     int
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := pass(r.Context(), s.there); err != nil {
		return nil, err
	}
	s.mu.Lock()
	now := time.Now()
	header := http.Header(nil)
	if s.admit != nil {
		header = s.admit(now)
	}
	if header == nil || !s.ignored {
		s.arrivals = append(s.arrivals, now)
	}
	if header != nil {
		s.refused++
	}
	var told http.Header
	if s.tell != nil {
		told = s.tell(now)
	}
	s.inside++
	s.most = max(s.most, s.inside)
	s.mu.Unlock()
	err := pass(r.Context(), func() time.Duration { return s.work })
	s.mu.Lock()
	s.inside--
	s.mu.Unlock()
	if err == nil {
		err = pass(r.Context(), s.back)
	}
	if err != nil {
		return nil, err
	}
	if header != nil {
		return respond(r, 429, header, "slow down"), nil
	}
	return respond(r, 200, told, "ok"), nil
}

func pass(ctx context.Context, d func() time.Duration) error {
	if d == nil {
		return ctx.Err()
	}
	select {
	case <-time.After(d()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func respond(r *http.Request, status int, h http.Header, body string) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{
		Status: fmt.Sprint(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// slidingWindow admits so many in any period, to the nanosecond, and counts what it refuses too.
func slidingWindow(units int, period time.Duration) func(time.Time) http.Header {
	var log []time.Time
	return func(now time.Time) http.Header {
		log = slices.DeleteFunc(log, func(t time.Time) bool { return now.Sub(t) >= period })
		log = append(log, now)
		if len(log) > units {
			return http.Header{"Retry-After": {fmt.Sprint(math.Ceil(period.Seconds()))}}
		}
		return nil
	}
}

// fixedWindow counts in windows that begin at no instant that the client knows.
func fixedWindow(units int, period time.Duration) func(time.Time) http.Header {
	var window time.Time
	n := 0
	return func(now time.Time) http.Header {
		if w := now.Add(1234567 * time.Microsecond).Truncate(period); w != window {
			window, n = w, 0
		}
		if n++; n > units {
			return http.Header{"Retry-After": {"1"}}
		}
		return nil
	}
}

func tokenBucket(units int, period time.Duration) func(time.Time) http.Header {
	tokens, last := float64(units), time.Time{}
	return func(now time.Time) http.Header {
		if !last.IsZero() {
			tokens = min(float64(units), tokens+float64(units)*now.Sub(last).Seconds()/period.Seconds())
		}
		last = now
		if tokens < 1 {
			return http.Header{}
		}
		tokens--
		return nil
	}
}

// way is a one-way delay: 30 ms and a log-normal time with median 50 ms, at most 2 s.
func way(seed uint64) func() time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		ms := 30 + min(1000*math.Exp(-3+rng.NormFloat64()), 1970)
		return time.Duration(ms * float64(time.Millisecond))
	}
}

// fetchAll gets so many items with so many workers, and says how long it took and how many ended well.
func fetchAll(t testing.TB, rt http.RoundTripper, items, workers int) (time.Duration, int) {
	t.Helper()
	begin := time.Now()
	queue := make(chan int, items)
	for i := range items {
		queue <- i
	}
	close(queue)
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := 0
	for range workers {
		wg.Go(func() {
			for i := range queue {
				r, _ := http.NewRequest("GET", fmt.Sprintf("https://api.example/items/%d", i), nil)
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Errorf("item %d: %v", i, err)
					continue
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == 200 {
					mu.Lock()
					good++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin), good
}

func window(units int64, period time.Duration) *weir.Limit {
	return &weir.Limit{Name: "api", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: units, Period: period}}
}
