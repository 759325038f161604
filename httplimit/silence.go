package httplimit

import (
	"sync"
	"time"
)

// silences counts refusals that do not say how long, in a row: without an answer in between that was none.
type silences struct {
	mu sync.Mutex
	of map[string]silence // by what holds them
}

type silence struct {
	n    int
	last time.Time
}

const mostSilences = 1024

// refused counts a refusal of what was sent at a time, and says the how manieth it is. Those of requests that were
// under way together are one.
func (s *silences) refused(key string, sent, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.of[key]
	if v.n == 0 || sent.After(v.last) {
		v = silence{v.n + 1, now}
	}
	if s.of == nil {
		s.of = make(map[string]silence)
	}
	for old := range s.of {
		if len(s.of) < mostSilences {
			break
		}
		delete(s.of, old)
	}
	s.of[key] = v
	return v.n
}

// over ends the row with an answer to what was sent at a time. One that was under way with the refusal says nothing.
func (s *silences) over(key string, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.of[key]; ok && sent.After(v.last) {
		delete(s.of, key)
	}
}
