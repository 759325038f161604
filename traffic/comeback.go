package traffic

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
)

// Returns says what those do who are refused: some wait for as long as Retry-After says, and ask again. They are load on top of what
// was expected, at the worst time; and who is served a moment later is not lost.
type Returns struct {
	Share Share         `yaml:"share"` // of the refused requests, each time
	Times int           `yaml:"times"` // how often one comes back at most; 0: 3
	Wait  time.Duration `yaml:"wait"`  // the longest Retry-After that somebody waits for; 0: 1m
}

const (
	defaultReturnTimes = 3
	defaultReturnWait  = time.Minute
	maxReturning       = 1 << 20 // who wait at once; more give up
)

// comebacks are the requests of a Simulation that were refused and will come back.
type comebacks struct {
	conf   *Returns // nil: nobody does
	random *rand.Rand
	due    returners
	n      int
}

func newComebacks(conf *Returns, seed uint64) comebacks {
	return comebacks{conf: conf, random: rand.New(rand.NewPCG(seed, 5))}
}

// add decides whether a request that was refused comes back, after it has done so some times.
func (c *comebacks) add(e *Event, d *weir.Decision, times int) bool {
	if c.conf == nil || d.Never || times >= cmp.Or(c.conf.Times, defaultReturnTimes) || len(c.due) >= maxReturning {
		return false
	}
	wait := max(time.Second, (d.RetryAfter + time.Second - 1).Truncate(time.Second)) // as the header says it
	if wait > cmp.Or(c.conf.Wait, defaultReturnWait) || c.random.Float64() >= float64(c.conf.Share) {
		return false
	}
	again := returner{Event: *e, times: times + 1, n: c.n}
	again.At = e.At.Add(wait)
	c.n++
	heap.Push(&c.due, again)
	return true
}

// next is the next one that comes back until an instant.
func (c *comebacks) next(until time.Time) (returner, bool) {
	if len(c.due) == 0 || c.due[0].At.After(until) {
		return returner{}, false
	}
	return heap.Pop(&c.due).(returner), true
}

// returner is a request that comes back at At.
type returner struct {
	Event
	times int // with this one
	n     int // of equals the first to be refused comes first
}

// returners is a heap, the earliest first.
type returners []returner

func (d returners) Len() int { return len(d) }
func (d returners) Less(i, j int) bool {
	return cmp.Or(d[i].At.Compare(d[j].At), cmp.Compare(d[i].n, d[j].n)) < 0
}
func (d returners) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *returners) Push(x any)   { *d = append(*d, x.(returner)) }
func (d *returners) Pop() any {
	old := *d
	n := len(old) - 1
	x := old[n]
	old[n] = returner{}
	*d = old[:n]
	return x
}
