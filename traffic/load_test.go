package traffic

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// transport answers without a network, so that time can be that of a synctest bubble.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok"))}
}

func shots(t *testing.T, url string, p Profile) iter.Seq[Shot] {
	t.Helper()
	return func(yield func(Shot) bool) {
		n := 0
		for at := range p.Even() {
			req, err := http.NewRequest("GET", url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if !yield(Shot{At: at, Class: n % 4, Request: req}) {
				return
			}
			n++
		}
	}
}

func TestLoadCountsOverLoopback(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch arrived.Add(1) % 5 {
		case 0:
			w.WriteHeader(429)
		case 1:
			w.WriteHeader(503)
		case 2:
			w.WriteHeader(404)
		case 3:
			panic(http.ErrAbortHandler) // no answer
		}
	}))
	defer server.Close()
	var seen atomic.Int64
	load := Load{Inspect: func(s *Shot, r *http.Response) { seen.Add(1) }}
	tally, classes := Tally{}, [4]int{}
	err := load.Run(t.Context(), shots(t, server.URL, Steady(1000, time.Second)), func(s *Shot, r Result) {
		tally.Add(r)
		classes[s.Class]++
		if r.Latency < r.Late || r.Late < 0 {
			t.Errorf("late by %v and done after %v", r.Late, r.Latency)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if tally.Sent != 1000 || classes != [4]int{250, 250, 250, 250} {
		t.Errorf("sent %d, by class %v; want 1000", tally.Sent, classes)
	}
	if sum := tally.OK + tally.Refused + tally.Failed + tally.Other + tally.Unanswered; sum != tally.Sent {
		t.Errorf("%+v adds up to %d, want %d", tally, sum, tally.Sent)
	}
	// A transport sends a request again, on a new connection, if a kept one breaks before the first byte.
	if tally.OK == 0 || tally.Refused == 0 || tally.Failed == 0 || tally.Other == 0 {
		t.Errorf("a kind of answer was not counted: %+v", tally)
	}
	if want := tally.Sent - tally.Unanswered; seen.Load() != want {
		t.Errorf("inspected %d answers, want %d", seen.Load(), want)
	}
	if tally.Latency.Count() != tally.OK || tally.Refusal.Count() != tally.Refused {
		t.Errorf("%d latencies of %d served, %d of %d refused", tally.Latency.Count(), tally.OK, tally.Refusal.Count(), tally.Refused)
	}
}

// A server that stalls from 2 s to 5 s is sent just as much, and what it was sent meanwhile waits for the rest of the stall.
func TestLoadIsAnOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var arrivals []time.Duration
		load := Load{Transport: transport(func(r *http.Request) (*http.Response, error) {
			now := time.Since(begin)
			mu.Lock()
			arrivals = append(arrivals, now)
			mu.Unlock()
			if now >= 2*time.Second && now < 5*time.Second {
				time.Sleep(5*time.Second - now)
			}
			return answer(200), nil
		})}
		var tally Tally
		err := load.Run(t.Context(), shots(t, "http://shop", Steady(100, 10*time.Second)), func(s *Shot, r Result) {
			tally.Add(r)
			if want := max(0, 5*time.Second-s.At); s.At >= 2*time.Second && r.Latency != want {
				t.Errorf("sent at %v: latency %v, want %v", s.At, r.Latency, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(arrivals) != 1000 || tally.OK != 1000 || tally.Late != 0 {
			t.Fatalf("%d arrivals, %d served, %d late; want 1000, 1000, 0", len(arrivals), tally.OK, tally.Late)
		}
		for i, at := range arrivals {
			if want := time.Duration(i) * 10 * time.Millisecond; at != want {
				t.Fatalf("request %d arrived at %v, want %v", i, at, want)
			}
		}
		if got := tally.Latency.Quantile(1); got != 3*time.Second {
			t.Errorf("the longest latency is %v, want 3s", got)
		}
	})
}

func TestLoadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := Load{Timeout: 700 * time.Millisecond, Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		var tally Tally
		err := load.Run(t.Context(), shots(t, "http://shop", Steady(10, time.Second)), func(s *Shot, r Result) {
			tally.Add(r)
			if !errors.Is(r.Err, context.DeadlineExceeded) || r.Latency != 700*time.Millisecond {
				t.Errorf("got %v after %v, want the deadline after 700ms", r.Err, r.Latency)
			}
		})
		if err != nil || tally.Unanswered != 10 {
			t.Errorf("%v, %d unanswered; want 10", err, tally.Unanswered)
		}
	})
}

func TestLoadMaxOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := Load{MaxOpen: 3, Transport: transport(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return answer(200), nil
		})}
		var unsent, sent int
		load.Timeout = time.Hour
		err := load.Run(t.Context(), shots(t, "http://shop", Steady(10, time.Second)), func(s *Shot, r Result) {
			if errors.Is(r.Err, ErrMaxOpen) {
				unsent++
			} else {
				sent++
			}
		})
		if err != nil || sent != 3 || unsent != 7 {
			t.Errorf("%v; sent %d and held back %d, want 3 and 7", err, sent, unsent)
		}
	})
}

func TestLoadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		load := Load{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		begin, results := time.Now(), 0
		err := load.Run(ctx, shots(t, "http://shop", Steady(1, time.Hour)), func(*Shot, Result) { results++ })
		if !errors.Is(err, context.DeadlineExceeded) || results != 3 || time.Since(begin) != 2500*time.Millisecond {
			t.Errorf("%v with %d results after %v; want the deadline, 3, 2.5s", err, results, time.Since(begin))
		}
	})
}

func TestTallyCountsLateSends(t *testing.T) {
	var tally Tally
	tally.Add(Result{Status: 204, Late: LateAfter})
	tally.Add(Result{Status: 204, Late: LateAfter + 1})
	if tally.OK != 2 || tally.Late != 1 {
		t.Errorf("%d served, %d late; want 2, 1", tally.OK, tally.Late)
	}
}
