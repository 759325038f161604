package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// Transport is an http.RoundTripper that keeps a caller inside the limits of what it calls. It lets requests start
// as its Gates allow, in the order in which they came, and reads the answers: when a server refuses for the rate,
// the gate stays closed for everybody who shares it until the server will have them again, on every machine whose
// Limiter has the same Store. Before a gate closes of its own, the answers' remaining units tell.
//
// The order around one request is fallback, retry, breaker, gate, hedge, timeout: every attempt passes the gate, and waiting there
// counts neither against a timeout nor as a failure.
//
// The zero Transport has no limits but what servers say. A Transport is safe for concurrent use, and must not be copied or
// changed after its first use. As with any RoundTripper, the body of an answer must be closed; the unit of
// a Concurrency limit comes back then.
//
// Following redirects is the http.Client's part: each hop is a request here, which passes the gate of its own
// host. The client drops Authorization and Cookie on the way to another host, and only these; see [StripOnRedirect].
type Transport struct {
	// Base sends the requests. Nil is http.DefaultTransport.
	Base http.RoundTripper

	// Limiter decides, on its Store. Nil is one of the Transport's own, in memory.
	Limiter *weir.Limiter

	// Gates are the limits to keep. A request that none is for is only subject to what its host says.
	Gates []Gate

	// Profile is what is known of the answers. Nil finds one of [Profiles] by host, or else by header.
	Profile *Profile

	// MaxHold is how long a server may make everybody wait. Zero means 10 minutes. The gate is closed for so long
	// at most; a request whose server asks for more is not tried again and fails with a *HoldError.
	MaxHold time.Duration

	// Reactive makes only refusals close the gate, not answers that say that no units are left.
	Reactive bool

	// Pace spreads requests over the time until there are more units, as soon as answers say how many are left. It is slow
	// where a quota is for a day.
	Pace bool

	// Timeout bounds one attempt, from leaving the gate to the header of the answer, and to the end of its body where
	// ReadBody is set. Zero means no bound but the request's context.
	Timeout time.Duration

	// ReadBody, if not 0, makes the reading of the body part of the attempt: it is read whole, up to so many bytes after
	// decompression, and an answer that breaks off is tried again. A longer body fails with ErrBodyTooLarge.
	ReadBody int64

	// Check, if not nil, is asked whether an answer with a status below 300 is what it should be, given the body if
	// ReadBody is set. An error makes the attempt a failed one.
	Check func(resp *http.Response, body []byte) error

	// Retry says when and how often a failed request is sent again. Nil is never.
	Retry *Retry

	// Breaker stops calling a host that keeps failing. Nil is none.
	Breaker *Breaker

	// Hedge sends a second request beside a slow one. Nil is never.
	Hedge *Hedge

	// Fallback, if not nil, is asked for an answer when a request has failed for good: resp is the last answer, to be
	// returned or closed, or nil with an error.
	Fallback func(r *http.Request, resp *http.Response, err error) (*http.Response, error)

	// Observe, if not nil, is told what happens, as it happens. It must not block.
	Observe func(Event)

	// Log gets what goes wrong with the Store, and holds. Nil is silent.
	Log *slog.Logger

	once     sync.Once
	invalid  error
	own      weir.Limiter
	guards   guards
	silences silences
	budget   budget
	breakers breakers
	mu       sync.Mutex
	flying   map[string]int64 // requests sent and not answered, by what holds them
}

const defaultMaxHold = 10 * time.Minute

// ErrBodyTooLarge means that a body has more bytes than Transport.ReadBody.
var ErrBodyTooLarge = errors.New("body too large")

// hosts is what a request is charged, with cost 0, that no gate hears refusals for: it keeps the holds of its host.
var hosts = &weir.Limit{Name: "httplimit.host", Algorithm: weir.FixedWindow, Rate: weir.Rate{Units: 1, Period: time.Second}}

// Validate says what is wrong with the Transport.
func (t *Transport) Validate() error {
	for i := range t.Gates {
		if err := t.Gates[i].Validate(); err != nil {
			return err
		}
	}
	if t.MaxHold < 0 || t.Timeout < 0 || t.ReadBody < 0 {
		return fmt.Errorf("weir: transport: negative MaxHold, Timeout or ReadBody")
	}
	return nil
}

// RoundTrip implements http.RoundTripper. A request whose units come only after its context's deadline fails at once
// with a *weir.LimitedError. The answer may be a refusal, where trying again was no use or not allowed: it is then the
// last one that came.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(func() { t.invalid = t.Validate() })
	c, err := t.call(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	defer c.body.close()
	rep := t.try(c)
	if t.Fallback != nil && (rep.err != nil || rep.answer.Advice == HoldOn || rep.answer.Advice == BackOff) {
		return t.Fallback(r, rep.resp, rep.err)
	}
	return rep.resp, rep.err
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) limiter() *weir.Limiter {
	if t.Limiter == nil {
		return &t.own
	}
	return t.Limiter
}

func (t *Transport) log(what string, err error) {
	if t.Log != nil {
		t.Log.Error("store", "op", what, "err", err.Error())
	}
}

func (t *Transport) observe(c *call, e Event) {
	if t.Observe != nil {
		e.Request = c.req
		t.Observe(e)
	}
}

// call is one request, over all its attempts.
type call struct {
	req     *http.Request
	host    string
	profile *Profile
	charges []weir.Charge // what each attempt takes
	gates   []*Gate       // of the charges; nil for that of the host
	holds   []weir.Charge // what a refusal closes
	flying  string        // what holds it, as text
	window  time.Duration // the longest window of its gates
	spacing time.Duration // the widest spacing that its gates come to
	maxHold time.Duration
	body    source

	refusals atomic.Int32 // a hedge that comes late may still look
	failures int
	until    time.Time // when its time is over, by Retry.Total; zero is never
}

// call works out what r takes.
func (t *Transport) call(r *http.Request) (*call, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	if r.URL == nil {
		return nil, errors.New("weir: transport: request without a URL")
	}
	c := &call{req: r, host: Host(r), profile: t.Profile}
	if c.profile == nil {
		c.profile = ProfileFor(r.URL)
	}
	c.maxHold = t.MaxHold
	if c.maxHold == 0 {
		c.maxHold = defaultMaxHold
		if c.profile != nil {
			c.maxHold = max(c.maxHold, c.profile.MaxHold)
		}
	}
	for i := range t.Gates {
		g := &t.Gates[i]
		charge, ok, err := g.charge(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		c.charges, c.gates = append(c.charges, charge), append(c.gates, g)
		if g.Limit.Algorithm == weir.Concurrency {
			continue
		}
		rate := g.Limit.Rate
		spacing := rate.Period / time.Duration(max(rate.Units, 1))
		c.spacing = max(c.spacing, spacing)
		if g.moves() || g.Reopen == AfterStart {
			c.window = max(c.window, rate.Period)
		} else {
			c.window = max(c.window, spacing)
		}
		if !g.NoHold {
			c.holds = append(c.holds, charge)
		}
	}
	if len(c.holds) == 0 {
		c.charges, c.gates = append(c.charges, hosts.For(c.host).Costing(0)), append(c.gates, nil)
		c.holds = c.charges[len(c.charges)-1:]
	}
	c.flying = c.holds[0].Limit.Name + " " + c.holds[0].Key
	c.body.open(r)
	if t.Retry != nil && (t.Retry.All || idempotent(r)) {
		return c, c.body.buffer(or(t.Retry.BufferBody, defaultBufferBody))
	}
	return c, nil
}

// reply is how an attempt has ended.
type reply struct {
	resp   *http.Response
	answer Answer
	err    error
	held   bool // the wait that the answer asks for is kept by the gate
	unsent bool // nothing has left this machine
	cancel context.CancelCauseFunc
}

// discard lets go of an answer that nobody will read.
func (r *reply) discard() {
	if r != nil && r.resp != nil {
		r.resp.Body.Close()
	}
}

// attempt passes the gate and sends the request once, or more than once where it hedges.
func (t *Transport) attempt(ctx context.Context, c *call, n int) *reply {
	if err := t.open(c); err != nil {
		return &reply{err: err, unsent: true}
	}
	s, err := t.enter(ctx, c, n)
	if err != nil {
		return &reply{err: err, unsent: true}
	}
	if n == 1 && t.Retry != nil && t.Retry.Total > 0 {
		c.until = time.Now().Add(t.Retry.Total)
	}
	return t.guarded(c, s, n)
}

// enter waits at the gate.
func (t *Transport) enter(ctx context.Context, c *call, n int) (*slot, error) {
	charges := t.padded(c)
	if t.Observe != nil {
		if d, err := t.limiter().Peek(ctx, charges...); err == nil && !d.Allowed {
			e := Event{Kind: Waiting, Attempt: n, Wait: d.RetryAfter}
			for _, o := range d.Outcomes() {
				if o.Limit != nil && !o.Limit.Shadow && o.After >= d.RetryAfter {
					e.Limit, e.Closed = o.Limit.Name, o.Held > 0 && o.Held >= o.After
				}
			}
			t.observe(c, e)
		}
	}
	d, err := t.limiter().Wait(ctx, charges...)
	if err != nil {
		return nil, err
	}
	return t.newSlot(c, charges, &d), nil
}

// padded is the charges of c with the margins of their limits.
func (t *Transport) padded(c *call) []weir.Charge {
	charges, now := c.charges, time.Now()
	for i, g := range c.gates {
		if g == nil {
			continue
		}
		if l := t.guards.limit(g, c.charges[i].Key, now); l != charges[i].Limit {
			if &charges[0] == &c.charges[0] {
				charges = append([]weir.Charge(nil), c.charges...)
			}
			charges[i].Limit = l
		}
	}
	return charges
}

// send sends the request once and reads its answer, as far as that is part of the attempt.
func (t *Transport) send(c *call, s *slot, n int, hedge bool, started func(*reply)) *reply {
	ctx, cancel := context.WithCancelCause(c.req.Context())
	rep := &reply{cancel: cancel}
	started(rep)
	var timer *time.Timer
	if t.Timeout > 0 {
		timer = time.AfterFunc(t.Timeout, func() { cancel(&TimeoutError{t.Timeout}) })
		defer timer.Stop()
	}
	fail := func(err error) *reply {
		var late *TimeoutError
		if errors.As(context.Cause(ctx), &late) {
			err = late
		}
		cancel(nil)
		rep.err = err
		t.observe(c, Event{Kind: Failed, Attempt: n, Hedge: hedge, Err: err})
		return rep
	}
	r := c.req.WithContext(ctx)
	body, err := c.body.get()
	if err != nil {
		s.unsent()
		rep.unsent = true
		return fail(fmt.Errorf("weir: request body: %w", err))
	}
	r.Body = body
	if body == nil || body == http.NoBody {
		r.Body = c.req.Body
	}
	sent := time.Now()
	t.fly(c, 1)
	t.observe(c, Event{Kind: Sent, Attempt: n, Hedge: hedge})
	resp, err := t.base().RoundTrip(r)
	flying := t.fly(c, -1)
	if err == nil && resp == nil {
		err = errors.New("weir: transport: Base gave neither an answer nor an error")
	}
	if err != nil {
		if rep.unsent = neverSent(err); rep.unsent {
			s.unsent()
		} else {
			s.answered()
			s.release()
		}
		return fail(err)
	}
	s.answered()
	came := time.Now()
	t.watch(c, resp, s, cancel)
	var start []byte
	profile := c.profile
	if profile == nil {
		profile = profileOf(resp.Header)
	}
	if profile.needsBody(resp.StatusCode) {
		start = peekBody(resp)
	}
	rep.answer = ReadAnswer(resp.StatusCode, resp.Header, start, came, c.profile)
	t.hear(c, s, rep, sent, flying)
	t.observe(c, Event{Kind: Answered, Attempt: n, Hedge: hedge, Answer: &rep.answer})
	if err := t.readBody(resp); err != nil {
		resp.Body.Close()
		return fail(err)
	}
	rep.resp = resp
	return rep
}

// neverSent reports whether an error says that there was not even a connection.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// fly counts the requests that are sent and not answered, and says how many there are for the same quota.
func (t *Transport) fly(c *call, n int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flying == nil {
		t.flying = make(map[string]int64)
	}
	left := t.flying[c.flying] + n
	if t.flying[c.flying] = left; left <= 0 {
		delete(t.flying, c.flying)
	}
	return left
}

// hear closes the gate as the answer asks.
func (t *Transport) hear(c *call, s *slot, rep *reply, sent time.Time, flying int64) {
	a := &rep.answer
	if a.Advice == GoOn {
		t.silences.over(c.flying, sent)
	}
	if a.Advice != HoldOn {
		if a.Advice != GoOn || t.Reactive {
			return
		}
		if c.window > 0 {
			flying = 0 // the gate has counted them; to count them twice would leave their units unused
		}
		pause := a.Pause(flying)
		if pace := a.Pace(); t.Pace && pace > c.spacing {
			pause = max(pause, pace)
		}
		if pause > 0 {
			t.hold(c, s, rep, min(pause, c.maxHold), "few units are left")
		}
		return
	}
	for i, g := range c.gates {
		if g != nil && !g.NoHold {
			t.guards.refused(g, c.charges[i].Key, sent, time.Now())
		}
	}
	wait, why := a.Wait, a.Source
	if wait <= 0 {
		wait, why = c.silentHold(a, t.silences.refused(c.flying, sent, time.Now())), "the server does not say how long"
	}
	wait = min(wait, c.maxHold)
	// What many callers wait for together must not end for all at one instant, and never early.
	wait += rand.N(min(wait/20, time.Second) + 1)
	rep.held = t.hold(c, s, rep, wait, why)
}

// silentHold is how long to hold after the nth refusal in a row that does not say: until the window must be empty, and twice
// as long each time, up to a minute or four windows. What a server still refuses then has a reason that no waiting shows.
func (c *call) silentHold(a *Answer, n int) time.Duration {
	wait := time.Second
	if !a.Concurrent {
		wait = max(wait, c.window)
	}
	if c.profile != nil {
		wait = max(wait, c.profile.Floor)
	}
	most := min(max(time.Minute, 4*wait), c.maxHold)
	for ; n > 1 && wait < most; n-- {
		wait *= 2
	}
	return min(wait, most)
}

func (t *Transport) hold(c *call, s *slot, rep *reply, wait time.Duration, why string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := t.limiter().Hold(ctx, s.now().Add(wait), c.holds...); err != nil {
		t.log("hold", err)
		return false
	}
	t.observe(c, Event{Kind: Held, Wait: wait, Answer: &rep.answer, Why: why})
	if t.Log != nil {
		t.Log.Info("hold", "host", c.host, "status", rep.answer.Status, "retry_after", wait.String(), "why", why)
	}
	return true
}
