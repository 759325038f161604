package blackfriday

import (
	"container/heap"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Backend is a server as many are: a pool of workers behind a queue. Work costs time and not CPU, so that what it can
// serve is the pool's and not the machine's: Workers/Service a second.
//
// Above that it collapses. The queue fills; a request is given up after Patience, but the work for it has been ordered
// and is done all the same; soon every worker is busy for those who have left, and nobody is served in time.
//
// Fill in the fields before the first request. It is safe for concurrent use.
type Backend struct {
	Workers  int
	Service  time.Duration // of one request, on average; each takes from half to one and a half of it
	Queue    int           // requests that may wait for a worker; beyond it they get 503 at once
	Patience time.Duration // after which a request gets 503

	mu     sync.Mutex
	free   instants    // of each worker that has worked, when it is free again; a heap
	starts []time.Time // of each waiting request, when a worker begins with it; sorted
	random *rand.Rand
	done   int64
	wasted int64
}

// Work is how many requests the workers have worked on, and on how many of them for nobody.
func (b *Backend) Work() (done, wasted int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done, b.wasted
}

// ServeHTTP answers 200 when the work is done, or 503.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait, ok := b.order(time.Now())
	if !ok {
		answer(w, http.StatusServiceUnavailable, `{"error":"the queue is full"}`)
		return
	}
	timer := time.NewTimer(min(wait, b.Patience))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		b.left(wait)
		return
	}
	if wait > b.Patience {
		answer(w, http.StatusServiceUnavailable, `{"error":"gave up waiting for a worker"}`)
		return
	}
	answer(w, http.StatusOK, `{"status":"done"}`)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body+"\n") // an error means that the client has left
}

// left counts the work for a client who did not wait for it.
func (b *Backend) left(wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait <= b.Patience { // else it is counted
		b.wasted++
	}
}

// order gives a request to the worker who is free first, and says in what time the work will be done. It is false if the
// queue is full. Workers are a matter of arithmetic: since each request is first come first served and its work cannot
// be called off, when it begins and ends is known now, however late timers fire.
func (b *Backend) order(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.starts) > 0 && !b.starts[0].After(now) {
		b.starts = b.starts[1:]
	}
	if len(b.starts) >= b.Queue {
		return 0, false
	}
	if b.random == nil {
		b.random = rand.New(rand.NewPCG(1, 0))
	}
	start := now
	if len(b.free) == b.Workers {
		if first := heap.Pop(&b.free).(time.Time); first.After(now) {
			start = first
			b.starts = append(b.starts, start)
		}
	}
	end := start.Add(b.Service/2 + time.Duration(b.random.Int64N(int64(b.Service)+1)))
	heap.Push(&b.free, end)
	wait := end.Sub(now)
	b.done++
	if wait > b.Patience {
		b.wasted++
	}
	return wait, true
}

type instants []time.Time

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(time.Time)) }
func (h *instants) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
