package httplimit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// Gate is one limit that a [Transport] keeps towards the servers it calls.
type Gate struct {
	// Limit is what may be spent. It is required. A SlidingLog keeps a server's "5 in any 30 s" exactly; Concurrency
	// caps how many requests are under way, from the start until the answer's body is closed.
	Limit *weir.Limit

	// Key says which requests share the units: [Host], [Global], [Header] for one quota a token … Nil is Host.
	Key KeyFunc

	// Cost is how many units a request takes. Nil is 1. An error fails the request.
	Cost func(*http.Request) (int64, error)

	// Priority says who gives way first, see [weir.Limit.Headroom]. Nil is weir.Normal.
	Priority func(*http.Request) weir.Priority

	// When says which requests the gate is for. Nil is all.
	When func(*http.Request) bool

	// Reopen says from when on a window counts a request. It is for SlidingLog, SlidingWindow and FixedWindow; a bucket
	// is always charged at the start, and Concurrency until the end.
	Reopen Reopen

	// Guard is how much longer than the limit's period a SlidingLog waits: a margin for clocks that differ and
	// for requests that overtake each other on the way. Zero is none to begin with. Whatever it begins with, it grows
	// where a server refuses what the gate had found to be within the limit, by 1 % of the period and then twofold, up
	// to 12.5 %, and shrinks back by a tenth with each period without a refusal. Negative is none, ever.
	Guard time.Duration

	// NoHold keeps the refusals of servers from closing this gate.
	NoHold bool
}

// Reopen says from when on a window of a Gate counts a request.
type Reopen int8

const (
	// AfterAnswer counts from when the answer begins: its header has come, or an error. As a request reaches the server
	// before its answer begins, a server that counts the same window never sees more than the limit, however long
	// requests are on their way. The price is a cycle longer by the time to the answer. A request without an
	// answer keeps its unit, which is renewed while it lasts; if this process dies, for one more period at most.
	AfterAnswer Reopen = iota

	// AfterStart counts from when the request is sent. It is faster where answers are slow, and it is refused now and
	// then: a request that is held up on its way reaches the server closer to its successors than
	// they were sent. A Guard as long as the way differs in length makes that rare.
	AfterStart
)

// Host is the key of the host that a request goes to, "host:api.example.com", with the port if it is not the scheme's own.
func Host(r *http.Request) string {
	u := r.URL
	host := u.Host
	if host == "" {
		host = r.Host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if port == "" || port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		return keyed("host", name)
	}
	return keyed("host", net.JoinHostPort(name, port))
}

// Validate says what is wrong with the gate.
func (g *Gate) Validate() error {
	if err := g.Limit.Validate(); err != nil {
		return err
	}
	switch {
	case g.Reopen != AfterAnswer && g.Reopen != AfterStart:
		return fmt.Errorf("weir: gate %q: reopen %d is neither AfterAnswer nor AfterStart", g.Limit.Name, g.Reopen)
	case g.Guard > 0 && g.Limit.Algorithm != weir.SlidingLog:
		return fmt.Errorf("weir: gate %q: guard with %v; it is for sliding-log", g.Limit.Name, g.Limit.Algorithm)
	case g.Guard > g.Limit.Rate.Period:
		return fmt.Errorf("weir: gate %q: guard %v is longer than the period of %v", g.Limit.Name, g.Guard, g.Limit.Rate)
	}
	return nil
}

// charge is what the gate takes for r; ok is false if it is not for it.
func (g *Gate) charge(r *http.Request) (c weir.Charge, ok bool, err error) {
	if g.When != nil && !g.When(r) {
		return c, false, nil
	}
	c = weir.Charge{Limit: g.Limit, Cost: 1}
	if g.Key != nil {
		c.Key = g.Key(r)
	} else {
		c.Key = Host(r)
	}
	if g.Priority != nil {
		c.Priority = g.Priority(r)
	}
	if g.Cost != nil {
		if c.Cost, err = g.Cost(r); err == nil && c.Cost < 0 {
			err = errNegativeCost
		}
		if err != nil {
			return c, false, &CostError{Limit: g.Limit.Name, Err: err}
		}
	}
	return c, true, nil
}

// moves reports whether the gate's charges are moved from the start to the answer.
func (g *Gate) moves() bool {
	switch g.Limit.Algorithm {
	case weir.SlidingLog, weir.SlidingWindow, weir.FixedWindow:
		return g.Reopen == AfterAnswer
	}
	return false
}

// slot is what one attempt has taken from the gates. Its charges in windows are moved to the answer when that comes,
// those of concurrency limits given back at the end; until then both are renewed before they would lapse.
type slot struct {
	t     *Transport
	taken weir.Instant
	began time.Time // when that was, by this process's clock
	every time.Duration

	mu     sync.Mutex
	fixed  *taken // stays as it is
	moving *taken // nil once moved
	out    *taken // nil once given back
	timer  *time.Timer
}

// taken are charges and the instant at which their Store has them.
type taken struct {
	charges []weir.Charge
	at      weir.Instant
}

func (s *slot) add(to **taken, c weir.Charge) {
	if *to == nil {
		*to = &taken{at: s.taken}
	}
	(*to).charges = append((*to).charges, c)
}

// newSlot is the slot of charges that the Limiter has just taken for c.
func (t *Transport) newSlot(c *call, charges []weir.Charge, d *weir.Decision) *slot {
	s := &slot{t: t, taken: weir.InstantOf(d.At), began: time.Now()}
	for i, charge := range charges {
		if o := &d.Outcomes()[i]; o.Refused() || charge.Cost == 0 { // by a shadow limit
			continue
		}
		switch {
		case charge.Limit.Algorithm == weir.Concurrency:
			s.add(&s.out, charge)
		case c.gates[i] != nil && c.gates[i].moves():
			s.add(&s.moving, charge)
		default:
			s.add(&s.fixed, charge)
			continue
		}
		if half := charge.Limit.Rate.Period / 2; s.every == 0 || half < s.every {
			s.every = half
		}
	}
	if s.every > 0 {
		s.mu.Lock()
		s.timer = time.AfterFunc(s.every, s.renew)
		s.mu.Unlock()
	}
	return s
}

// now is the Store's time.
func (s *slot) now() time.Time { return s.taken.Time().Add(time.Since(s.began)) }

func (s *slot) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving == nil && s.out == nil {
		return
	}
	s.t.move(s.moving)
	s.t.move(s.out)
	s.timer.Reset(s.every)
}

// answered moves the charges in windows to now: the request has reached the server no later.
func (s *slot) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.move(s.moving)
	s.moving = nil
	s.rest()
}

// release gives back what counts requests under way.
func (s *slot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		s.t.refund(s.out.charges, s.out.at)
		s.out = nil
	}
	s.rest()
}

// unsent gives back everything: nothing has left this machine.
func (s *slot) unsent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range []*taken{s.fixed, s.moving, s.out} {
		if part != nil {
			s.t.refund(part.charges, part.at)
		}
	}
	s.fixed, s.moving, s.out = nil, nil, nil
	s.rest()
}

// rest stops the timer if nothing is left to renew.
func (s *slot) rest() {
	if s.timer != nil && s.moving == nil && s.out == nil {
		s.timer.Stop()
	}
}

// storeTimeout bounds what is told to the Store after the decision, when the request's own context may have ended.
const storeTimeout = 5 * time.Second

// move makes charges count from now on: they are charged anew, and only then given back, so that at no time
// they are not counted.
func (t *Transport) move(c *taken) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	tx := weir.Tx{Op: weir.Debit, Charges: make([]weir.TxCharge, len(c.charges))}
	for i, charge := range c.charges {
		law, err := charge.Limit.Law()
		if err != nil { // it has been taken before
			t.log("renew", err)
			return
		}
		tx.Charges[i] = weir.TxCharge{Charge: charge, Law: law, Cell: i}
		for j := range i {
			if o := c.charges[j]; o.Key == charge.Key && o.Limit.Name == charge.Limit.Name && o.Limit.Algorithm == charge.Limit.Algorithm {
				tx.Charges[i].Cell = tx.Charges[j].Cell
				break
			}
		}
	}
	if err := t.limiter().Apply(ctx, &tx); err != nil {
		t.log("renew", err) // it stays where it was
		return
	}
	old := c.at
	c.at = tx.Now
	if err := t.limiter().Refund(ctx, old.Time(), c.charges...); err != nil {
		t.log("refund", err)
	}
}

func (t *Transport) refund(charges []weir.Charge, at weir.Instant) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := t.limiter().Refund(ctx, at.Time(), charges...); err != nil {
		t.log("refund", err)
	}
}
