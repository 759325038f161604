// Package quota shows ways to stay inside somebody else's limit, against servers that count by themselves.
package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// Server admits so many requests in a window, counted when they arrive, and refuses the others with 429 and Retry-After.
type Server struct {
	Units  int
	Window time.Duration
	Answer time.Duration  // how long an answer takes
	Count  weir.Algorithm // SlidingLog: in any window, FixedWindow, or TokenBucket
	Others time.Duration  // somebody else spends a unit of the same quota this often; 0: nobody does

	mu       sync.Mutex
	limiter  weir.Limiter
	limit    *weir.Limit
	began    time.Time
	others   int
	Arrived  int
	Refused  int
	answered map[string]bool
}

// ServeHTTP counts and answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	retry, admitted := s.arrive(r)
	time.Sleep(s.Answer)
	w.Header().Set("Content-Type", "application/json")
	if !admitted {
		w.Header().Set("Retry-After", strconv.Itoa(int((retry+time.Second-1)/time.Second)))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	fmt.Fprintf(w, "{\"item\": %q}\n", r.URL.Path)
}

func (s *Server) arrive(r *http.Request) (retry time.Duration, admitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == nil {
		s.limit = &weir.Limit{Name: "server", Algorithm: s.Count, Rate: weir.Rate{Units: int64(s.Units), Period: s.Window}}
		s.began, s.answered = time.Now(), make(map[string]bool)
	}
	for s.Others > 0 && time.Duration(s.others)*s.Others <= time.Since(s.began) {
		s.others++
		s.limiter.Take(r.Context(), s.limit.For(""))
	}
	s.Arrived++
	d, err := s.limiter.Take(r.Context(), s.limit.For(""))
	if err != nil || !d.Allowed {
		s.Refused++
		return d.RetryAfter, false
	}
	s.answered[r.URL.Path] = true
	return 0, true
}

// Fetched is how many different items were answered.
func (s *Server) Fetched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answered)
}
