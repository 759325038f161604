package traffic

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// Policy says what events are charged.
type Policy struct {
	Name string

	// Limits are all limits that Charge may charge, in the order of reports.
	Limits []*weir.Limit

	// Charge fills in what an event is charged. An error means that a server would refuse the request whatever its limits
	// say.
	Charge func(*Event, *Ask) error
}

// Ask is what an event asks of the limits of a Policy.
type Ask struct {
	Class   string        // what it is counted as; empty: Event.Class
	Charges []weir.Charge // each of a limit that has the name of one of Policy.Limits

	// Keeps says which charges stay after an answer of a status; nil: all do. The others are given back after Event.Took, or
	// Simulation.Took.
	Keeps func(i, status int) bool
}

// Simulation puts events through a [Policy] in virtual time: it takes their charges from a [weir.Limiter] over a [weir.Memory] whose clock
// is the events', as a server does whose clock is the world's. Beside that, each limit is held alone by every algorithm, so that
// they can be compared. Memory is bounded, whatever the number of events and keys. A Simulation is not safe for concurrent use.
type Simulation struct {
	Policy Policy

	// Algorithms are those that each limit is compared with; nil means all but Concurrency, empty none.
	Algorithms []weir.Algorithm

	// Top is how many keys are named in each list; zero or less means 10.
	Top int

	// Names is how keys are shown; nil shows them as they are. It must be safe for concurrent use.
	Names func(key string) string

	// Took is how long the answer takes to requests of which it is not known, for what is given back after it.
	Took time.Duration

	// Returns, if not nil, says that some of the refused come back, all but the runaway, chosen by Seed. A request is refused then if it
	// never is served. The other algorithms and Suggest are without them: who comes back is a consequence of these limits.
	Returns *Returns
	Seed    uint64

	// Suggest, if not nil, looks for the smallest limits that refuse no more than this.
	Suggest *Goal

	// Decided, if not nil, is told each decision. The charges and the Decision are its own only until it returns.
	Decided func(*Event, []weir.Charge, *weir.Decision)

	now     time.Time
	at      weir.Instant
	limiter weir.Limiter
	memory  *weir.Memory
	ask     Ask
	limits  []*limitRun
	byName  map[string]*limitRun
	classes map[string]*classRun
	order   []string
	returns returns
	again   comebacks
	result  Simulated
	all     classRun
	err     error
}

// Simulated is what a Simulation found.
type Simulated struct {
	Policy   string    `json:"policy"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`   // by a limit, in the end
	Returned int64     `json:"returned"`  // how often somebody came back after a refusal
	Later    int64     `json:"later"`     // of Requests: served when they came back
	Free     int64     `json:"unlimited"` // no limit was for them
	Invalid  int64     `json:"invalid"`   // refused for what they are, as a cost that is no number
	Already  int64     `json:"already_refused"`
	Worst    Minute    `json:"worst_minute"`

	Classes []ClassResult `json:"classes"`
	Limits  []LimitResult `json:"limits"`

	// Overflowed is how many decisions were made for several keys together since memory was full.
	Overflowed int64 `json:"overflowed,omitempty"`

	all timeline
}

// ClassResult is what became of a class, or a route.
type ClassResult struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"` // in the end
	Later    int64  `json:"later"`   // served when they came back
	Worst    Minute `json:"worst_minute"`

	times timeline
}

// classRun is a class while it is simulated.
type classRun struct {
	requests, refused, later int64
	worst                    worst
	times                    timeline
}

// ask counts one asking, of which a request that comes back has several.
func (c *classRun) ask(at time.Time, refused bool) {
	s := c.times.at(at)
	s.asked++
	if refused {
		s.refused++
	}
	c.worst.add(at, refused)
}

const maxClasses = 1000 // named apart

// forever is after everything that can be simulated.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// start prepares the first Add.
func (s *Simulation) start() error {
	s.byName, s.classes = make(map[string]*limitRun), make(map[string]*classRun)
	s.memory = &weir.Memory{Now: s.clock}
	s.limiter.Store = s.memory
	s.again = newComebacks(s.Returns, s.Seed)
	algorithms := s.Algorithms
	if algorithms == nil {
		algorithms = comparables
	}
	for _, l := range s.Policy.Limits {
		if err := l.Validate(); err != nil {
			return err
		}
		if s.byName[l.Name] != nil {
			return fmt.Errorf("traffic: two limits called %q", l.Name)
		}
		r := newLimitRun(l, algorithms, s.clock)
		if s.Suggest != nil && l.Algorithm != weir.Concurrency {
			r.trace = new(trace)
		}
		s.limits, s.byName[l.Name] = append(s.limits, r), r
	}
	return nil
}

// clock is the time of the event.
func (s *Simulation) clock() time.Time { return s.now }

// Add puts the next event through. Events come in the order of time.
func (s *Simulation) Add(e *Event) error {
	if s.byName == nil && s.err == nil {
		s.err = s.start()
	}
	if s.err != nil {
		return s.err
	}
	if e.At.Before(s.now) {
		return fmt.Errorf("traffic: an event at %v after one at %v", e.At, s.now)
	}
	ctx := context.Background()
	if s.err = s.comeBack(ctx, e.At); s.err == nil {
		s.err = s.add(ctx, e, 0)
	}
	return s.err
}

// comeBack puts those through who come back until an instant.
func (s *Simulation) comeBack(ctx context.Context, until time.Time) error {
	for {
		e, ok := s.again.next(until)
		if !ok {
			return nil
		}
		if err := s.add(ctx, &e.Event, e.times); err != nil {
			return err
		}
	}
}

// add puts an event through that has come back some times.
func (s *Simulation) add(ctx context.Context, e *Event, times int) error {
	if err := s.giveBack(ctx, e.At); err != nil {
		return err
	}
	s.now, s.at = e.At, weir.InstantOf(e.At)
	s.result.To = e.At
	if times == 0 {
		if s.result.Requests++; s.result.Requests == 1 {
			s.result.From = e.At
		}
		if e.Status == 429 {
			s.result.Already++
		}
	} else {
		s.result.Returned++
	}
	s.ask = Ask{Charges: s.ask.Charges[:0]}
	if err := s.Policy.Charge(e, &s.ask); err != nil {
		s.result.Invalid++
		return nil
	}
	class := e.Class
	if s.ask.Class != "" {
		class = s.ask.Class
	}
	run := s.class(class)
	if times == 0 {
		run.requests++
	}
	if len(s.ask.Charges) == 0 {
		s.result.Free++
		run.ask(e.At, false)
		s.all.ask(e.At, false)
		return nil
	}
	d, err := s.limiter.Take(ctx, s.ask.Charges...)
	if err != nil {
		return err
	}
	if s.Decided != nil {
		s.Decided(e, s.ask.Charges, &d)
	}
	switch {
	case d.Allowed && times > 0:
		s.result.Later++
		run.later++
	case !d.Allowed && (class == RunawayClass || !s.again.add(e, &d, times)):
		s.result.Refused++
		run.refused++
	}
	run.ask(e.At, !d.Allowed)
	s.all.ask(e.At, !d.Allowed)
	out := d.Outcomes()
	for i := range out {
		c := &s.ask.Charges[i]
		l := s.byName[c.Limit.Name]
		if l == nil {
			return fmt.Errorf("traffic: a charge of limit %q, which the policy does not have", c.Limit.Name)
		}
		if err := l.add(ctx, s.now, s.at, c, out[i].Refused(), times > 0); err != nil {
			return err
		}
	}
	if d.Allowed && s.ask.Keeps != nil {
		s.later(e, &d, out)
	}
	return nil
}

// class is the run of a class; those beyond a bound are one.
func (s *Simulation) class(name string) *classRun {
	c := s.classes[name]
	if c == nil {
		if len(s.classes) >= maxClasses {
			name = "others"
			if c = s.classes[name]; c != nil {
				return c
			}
		}
		name = strings.Clone(name)
		c = new(classRun)
		s.classes[name] = c
		s.order = append(s.order, name)
	}
	return c
}

// later notes what has to be given back when the answer is there.
func (s *Simulation) later(e *Event, d *weir.Decision, out []weir.Outcome) {
	status := e.Status
	if status == 0 {
		status = 200
	}
	var back []weir.Charge
	for i := range out {
		if !s.ask.Keeps(i, status) && !out[i].Refused() {
			back = append(back, s.ask.Charges[i])
		}
	}
	if back == nil {
		return
	}
	took := e.Took
	if took == 0 {
		took = s.Took
	}
	heap.Push(&s.returns, giving{at: e.At.Add(took), made: d.At, charges: back})
}

// giveBack gives back what is due until an instant.
func (s *Simulation) giveBack(ctx context.Context, until time.Time) error {
	for len(s.returns) > 0 && !s.returns[0].at.After(until) {
		g := heap.Pop(&s.returns).(giving)
		s.now = g.at
		if err := s.limiter.Refund(ctx, g.made, g.charges...); err != nil {
			return err
		}
	}
	return nil
}

// giving is charges that are given back.
type giving struct {
	at, made time.Time
	charges  []weir.Charge
}

// returns is a heap, the earliest first.
type returns []giving

func (r returns) Len() int           { return len(r) }
func (r returns) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r returns) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *returns) Push(x any)        { *r = append(*r, x.(giving)) }
func (r *returns) Pop() any {
	old := *r
	n := len(old) - 1
	x := old[n]
	old[n] = giving{}
	*r = old[:n]
	return x
}

// Close forgets what a Simulation has written to the disk, and ends it.
func (s *Simulation) Close() {
	for _, l := range s.limits {
		if l.trace != nil {
			l.trace.close()
		}
	}
}

// Result is what was found. With Suggest it takes a while, for as long as ctx lasts.
func (s *Simulation) Result(ctx context.Context) (*Simulated, error) {
	if s.byName == nil && s.err == nil {
		s.err = s.start()
	}
	if s.err != nil {
		return nil, s.err
	}
	if s.err = s.comeBack(ctx, forever); s.err != nil { // those who wait still
		return nil, s.err
	}
	r := s.result
	r.Policy, r.Worst, r.all = s.Policy.Name, s.all.worst.Most, s.all.times
	r.Overflowed = s.memory.Stats().Overflowed
	r.Classes = []ClassResult{}
	for _, name := range s.order {
		c := s.classes[name]
		r.Classes = append(r.Classes, ClassResult{Name: name, Requests: c.requests, Refused: c.refused, Later: c.later, Worst: c.worst.Most, times: c.times})
	}
	top, names := s.Top, s.Names
	if top <= 0 {
		top = 10
	}
	if names == nil {
		names = func(key string) string { return key }
	}
	r.Limits = make([]LimitResult, len(s.limits))
	errs := make([]error, len(s.limits))
	var wg sync.WaitGroup
	for i, l := range s.limits { // each is by itself, and a suggestion takes long
		wg.Go(func() { errs[i] = l.result(ctx, &r.Limits[i], top, names, s.Suggest) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &r, nil
}
