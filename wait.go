package weir

import (
	"cmp"
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Wait takes the charges as soon as every limit admits them. Calls for the same set of limits and keys stand in
// one line, first come first served; only the head of a line asks the Store, and it asks again when the Store has told it to, or
// when something is given back through this Limiter.
//
// Nothing is booked ahead, so giving up costs nothing. A context whose deadline comes before the units do ends the
// wait at once with a [*LimitedError] that says how long it would have been; so does a cost that is never admitted. A
// context that ends while waiting gives its error.
//
// A Take of the same keys does not stand in the line. Between lines that share only some of
// their keys nobody comes first, so that a large cost can starve behind many small ones of another line.
// For Concurrency, whose units are given back at no time that can be foreseen, the head also asks every
// now and then, as another process may have given some back.
func (l *Limiter) Wait(ctx context.Context, charges ...Charge) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	w, err := newWaiter(charges)
	if err != nil {
		return Decision{}, err
	}
	ahead := l.lines.join(w)
	defer l.lines.leave(w)
	if ahead != nil {
		d, err := l.Peek(ctx, charges...)
		if err != nil {
			return d, err
		}
		if err := refuse(ctx, &d, behind(&d, charges, ahead)); err != nil {
			return d, err
		}
		select {
		case <-w.turn:
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		d, err := l.Take(ctx, charges...)
		if err != nil || d.Allowed {
			return d, err
		}
		if err := refuse(ctx, &d, nil); err != nil {
			return d, err
		}
		sleep := d.RetryAfter
		if d.waitsForReturn() {
			sleep = min(sleep, poll+rand.N(poll))
		}
		timer := time.NewTimer(sleep)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			timer.Stop()
			return d, ctx.Err()
		}
		timer.Stop()
	}
}

// How often the head of a line asks for units that somebody may give back.
const (
	minPoll = 20 * time.Millisecond
	maxPoll = 500 * time.Millisecond
)

// waitsForReturn reports whether a concurrency limit is among those that refuse.
func (d *Decision) waitsForReturn() bool {
	for _, o := range d.Outcomes() {
		if o.After > 0 && !o.Limit.Shadow && o.Limit.Algorithm == Concurrency {
			return true
		}
	}
	return false
}

// refuse is the error of a wait that cannot succeed: its units never come, or only after the deadline of the
// context. after[i], if given, is how long outcome i keeps it waiting at least.
func refuse(ctx context.Context, d *Decision, after []time.Duration) error {
	e := &LimitedError{}
	for i, o := range d.Outcomes() {
		if o.Limit.Shadow {
			continue
		}
		if o.Never {
			return &LimitedError{Limit: o.Limit.Name, Never: true}
		}
		wait := o.After
		if o.Limit.Algorithm == Concurrency && o.Held == 0 {
			wait = 0 // it may be given back at any time
		}
		if after != nil {
			wait = max(wait, after[i])
		}
		if wait > e.RetryAfter {
			e.Limit, e.RetryAfter = o.Limit.Name, wait
		}
	}
	if deadline, ok := ctx.Deadline(); ok && e.RetryAfter > 0 && time.Until(deadline) < e.RetryAfter {
		return e
	}
	return nil
}

// behind is how long each limit keeps a charge waiting at least that has ahead[i] units in line before it. Buckets give
// units at a fixed rate, so theirs is exact; of the others nothing is said.
func behind(d *Decision, charges []Charge, ahead []int64) []time.Duration {
	after := make([]time.Duration, len(charges))
	for i, o := range d.Outcomes() {
		law, err := charges[i].Limit.Law()
		if err != nil || o.Held > 0 || o.Never {
			continue
		}
		missing := ahead[i] - o.Remaining
		switch law.Algorithm {
		case TokenBucket, GCRA:
			missing += charges[i].Cost
		case LeakyBucket: // a unit leaves when the ones before have left, whatever its own cost
			missing++
		default:
			continue
		}
		if missing > 0 {
			// The first missing unit comes with Next, the others at the rate.
			units := min(missing-1, maxProduct/law.P)
			after[i] = o.Next + micros(Instant(units*law.P/law.N))
		}
	}
	return after
}

// lines are the lines of waiters of a Limiter, one a set of cells.
type lines struct {
	n  atomic.Int32 // waiters, read without the lock
	mu sync.Mutex
	// The lines by the hashes of their cells, sorted and joined, and by each of their cells.
	bySet  map[string]*line
	byCell map[key128]map[*line]bool
}

type line struct {
	set     string
	waiters list.List // of *waiter, the head first
	costs   []int64   // what all of them ask, for each cell in the order of the set
}

// waiter is one call of Wait.
type waiter struct {
	set   string
	cells []key128 // of the charges
	order []int    // the charges in the order of the set
	costs []int64
	line  *line
	place *list.Element
	turn  chan struct{} // closed when it has become the head
	wake  chan struct{} // a token when something was given back
}

func newWaiter(charges []Charge) (*waiter, error) {
	n := len(charges)
	w := &waiter{
		cells: make([]key128, n), order: make([]int, n), costs: make([]int64, n),
		turn: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	for i, c := range charges {
		law, err := c.Limit.Law()
		if err != nil {
			return nil, err
		}
		w.cells[i], w.order[i], w.costs[i] = law.hashKey(c.Key), i, max(0, min(c.Cost, maxProduct))
	}
	slices.SortStableFunc(w.order, func(i, j int) int {
		return cmp.Or(cmp.Compare(w.cells[i].hi, w.cells[j].hi), cmp.Compare(w.cells[i].lo, w.cells[j].lo))
	})
	set := make([]byte, 0, 16*n)
	for _, i := range w.order {
		set = w.cells[i].append(set)
	}
	w.set = string(set)
	return w, nil
}

// join puts w at the end of its line. For the head of a line it returns nil, else how many
// units those before it ask for each of its charges.
func (l *lines) join(w *waiter) (ahead []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n.Add(1)
	ln := l.bySet[w.set]
	if ln == nil {
		ln = &line{set: w.set, costs: make([]int64, len(w.cells))}
		l.open(ln, w.cells)
	}
	w.line, w.place = ln, ln.waiters.PushBack(w)
	if ln.waiters.Len() > 1 {
		ahead = make([]int64, len(w.cells))
	}
	for at, i := range w.order {
		if ahead != nil {
			ahead[i] = ln.costs[at]
		}
		ln.costs[at] += w.costs[i]
	}
	return ahead
}

// leave takes w out of its line and gives the turn to the next if w was the head.
func (l *lines) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n.Add(-1)
	ln := w.line
	head := ln.waiters.Front() == w.place
	ln.waiters.Remove(w.place)
	for at, i := range w.order {
		ln.costs[at] -= w.costs[i]
	}
	switch next := ln.waiters.Front(); {
	case next == nil:
		l.close(ln, w.cells)
	case head:
		close(next.Value.(*waiter).turn)
	}
}

func (l *lines) open(ln *line, cells []key128) {
	if l.bySet == nil {
		l.bySet, l.byCell = make(map[string]*line), make(map[key128]map[*line]bool)
	}
	l.bySet[ln.set] = ln
	for _, c := range cells {
		if l.byCell[c] == nil {
			l.byCell[c] = make(map[*line]bool)
		}
		l.byCell[c][ln] = true
	}
}

func (l *lines) close(ln *line, cells []key128) {
	delete(l.bySet, ln.set)
	for _, c := range cells {
		if delete(l.byCell[c], ln); len(l.byCell[c]) == 0 {
			delete(l.byCell, c)
		}
	}
}

// wake lets the heads of the lines that wait for one of the charges ask again.
func (l *lines) wake(charges []TxCharge) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if c.Every {
			for _, ln := range l.bySet {
				ln.wake()
			}
			continue
		}
		for ln := range l.byCell[c.Law.hashKey(c.Key)] {
			ln.wake()
		}
	}
}

func (ln *line) wake() {
	select {
	case ln.waiters.Front().Value.(*waiter).wake <- struct{}{}:
	default: // it has been told already
	}
}
