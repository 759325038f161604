package batch

import (
	"container/heap"
	"fmt"
	"time"
)

// Plan is what a run will take at least, known before anything is sent.
type Plan struct {
	Requests int           // to send
	Units    int           // the server's quota: at most Units starts in any Window
	Window   time.Duration //
	Workers  int           //
	Latency  time.Duration // of one answer, as far as known
}

// Bound is the least time that any way of sending the requests can take:
//
//	max((⌈N/R⌉ − 1)·W + L, ⌈N/K⌉·L)
//
// for N requests, R units in a window W, K workers and latency L.
func (p Plan) Bound() time.Duration {
	if p.Requests <= 0 {
		return 0
	}
	byWorkers := time.Duration(ceil(p.Requests, max(1, p.Workers))) * p.Latency
	if p.Units <= 0 {
		return byWorkers
	}
	byQuota := time.Duration(ceil(p.Requests, p.Units)-1)*p.Window + p.Latency
	return max(byQuota, byWorkers)
}

// WorkersNeeded is how many workers suffice to use the whole quota: ⌈R·L/W⌉. More do not help.
func (p Plan) WorkersNeeded() int {
	if p.Units <= 0 || p.Window <= 0 {
		return max(1, p.Workers)
	}
	return max(1, int((time.Duration(p.Units)*p.Latency+p.Window-1)/p.Window))
}

// Simulate is how long the run takes if every answer takes Latency: the gate of weir run in virtual time, where a slot
// opens again one Window after the answer. used are slots that are taken at the start, each by how long until it
// opens.
func (p Plan) Simulate(used ...time.Duration) time.Duration {
	if p.Requests <= 0 {
		return 0
	}
	workers := make(times, max(1, min(p.Workers, p.Requests)))
	var slots times
	if p.Units > 0 {
		slots = make(times, p.Units)
		copy(slots, used)
		heap.Init(&slots)
	}
	var end time.Duration
	for range p.Requests {
		start := workers[0]
		if slots != nil {
			start = max(start, slots[0])
		}
		done := start + p.Latency
		end = max(end, done)
		workers[0] = done
		heap.Fix(&workers, 0)
		if slots != nil {
			slots[0] = done + p.Window
			heap.Fix(&slots, 0)
		}
	}
	return end
}

// String says the plan in one line.
func (p Plan) String() string {
	requests := counted(p.Requests, "request")
	if p.Units <= 0 {
		return fmt.Sprintf("%s, no rate given; %s", requests, counted(p.Workers, "worker"))
	}
	return fmt.Sprintf("%s at %d in %v: at least %v, with answers of %v; %s",
		requests, p.Units, p.Window, p.Bound().Round(time.Millisecond), p.Latency.Round(time.Millisecond), p.workersText())
}

// workersText says how many of the workers it takes.
func (p Plan) workersText() string {
	verb := "suffice"
	n := min(p.WorkersNeeded(), p.Workers)
	if n == 1 {
		verb = "suffices"
	}
	return fmt.Sprintf("%d of %s %s", n, counted(p.Workers, "worker"), verb)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// times is a heap of instants, the earliest first.
type times []time.Duration

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(x any)        { *t = append(*t, x.(time.Duration)) }
func (t *times) Pop() any          { panic("batch: not used") }
