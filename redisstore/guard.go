package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

const (
	defaultRetry    = time.Second
	defaultFailures = 3
)

// Guard is a Store that decides whatever becomes of another: Shared while that answers, else each limit by its
// [Policy]. It stops asking a Store that has failed and finds out by itself when it is back. Set its fields before first use; it is safe for
// concurrent use and needs no closing: trying Shared again takes a goroutine for as long as one call lasts, when there are decisions to make
// or Stats is asked.
//
// What was admitted by Local during a failure is charged to Shared on return, before anybody else asks it, as far as it has not come
// back by itself. So the return is no burst: what a replica has admitted counts from then on for all. In the second
// or so in which some replicas have returned and others have not, the fleet may admit up to the parts of those others more.
// A unit of a Concurrency limit that was taken before, during or after a failure is given back where it is counted then, if need be once
// Shared is back.
// Of what Shared knew when it went, this process knows nothing: the time without it may begin with up to one limit more. What Shared itself has forgotten in the meantime, as a Redis without persistence that was restarted, nobody knows: up to one burst.
type Guard struct {
	Shared weir.Store

	// Policy is the policy of a limit; nil means Local for all. Of a decision over several limits, one Deny denies.
	Policy func(*weir.Limit) Policy

	// Replicas is how many processes share the limits; zero means 1.
	Replicas int

	// Failures is after how many failures in a row Shared is left alone; zero means 3. Until then each decision waits for
	// its answer. What a Refusals or a Leased answers from memory is no sign of life.
	Failures int

	// Retry is how often a Shared that was left alone is tried again; zero means 1 s. Trying is done aside: no
	// decision waits for it.
	Retry time.Duration

	// Log is told when Shared goes, why it stays away, when it comes back, and how many decisions were made without it; and of one that
	// is full each minute. Nil is silent.
	Log *slog.Logger

	once  sync.Once
	local share

	mu       sync.RWMutex // held to read while a decision is made by policy, so that none is made while its charges are handed over
	down     atomic.Bool
	failures atomic.Int64
	answers  atomic.Int64 // of Shared at the last failure: see answersOf
	journal  journal
	outage   outage
	last     outage
	probing  atomic.Bool
	due      atomic.Int64 // when to try Shared again, in ns since start
	saidFull atomic.Int64 // when Log was told last that Shared is full, in ns since start; 0 is never
	start    time.Time
	ahead    atomic.Int64 // how far Shared's clock is ahead of this process's, as far as is known, in ns

	shared, byLocal, byAllow, byDeny, full, outages atomic.Int64
}

// outage is a time without the shared store.
type outage struct {
	since                  time.Time
	from, to               weir.Instant // on the clock by which decisions are made here
	cause                  error
	local, allowed, denied int64    // the counts at its start
	said                   []string // the causes that Log was told
}

// GuardStats says which way decisions were made. The counts only grow.
type GuardStats struct {
	Shared  int64 // by the shared store
	Local   int64 // in this process, at the limit divided by the replicas
	Allowed int64 // by nobody
	Denied  int64 // refused to decide
	Full    int64 // of Local: because the shared store was full

	Down     bool      // the shared store is not asked
	Since    time.Time // since when; zero if not Down
	Err      error     // why; nil if not Down
	Outages  int64     // how many times
	Unsynced int64     // charges made in this process that were too many to hand over on return
}

// Stats is how decisions were made so far, and whether Shared is asked now. If it is not, Stats has it tried again when that is due,
// so that a process without traffic that is watched does not report an old outage.
func (g *Guard) Stats() GuardStats {
	g.init()
	s := GuardStats{
		Shared: g.shared.Load(), Local: g.byLocal.Load(), Allowed: g.byAllow.Load(), Denied: g.byDeny.Load(), Full: g.full.Load(),
		Down: g.down.Load(), Outages: g.outages.Load(), Unsynced: g.journal.dropped.Load(),
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if s.Down {
		g.probe()
		s.Since, s.Err = g.outage.since, g.outage.cause
	}
	return s
}

func (g *Guard) init() {
	g.once.Do(func() {
		g.start = time.Now()
		g.local.store.Now = g.now
		g.local.parts = int64(max(1, g.Replicas))
		g.local.retry = weir.Instant(g.retry() / time.Microsecond)
	})
}

// now is the clock of decisions that are made here: Shared's, as far as is known, so that the instants of both are on one line.
func (g *Guard) now() time.Time { return time.Now().Add(time.Duration(g.ahead.Load())) }

// compare looks at the clock of Shared, which has decided tx since asked.
func (g *Guard) compare(tx *weir.Tx, asked time.Time) {
	if tx.Now > 0 {
		g.ahead.Store(int64(tx.Now.Time().Sub(asked)))
	}
}

func (g *Guard) retry() time.Duration {
	if g.Retry > 0 {
		return g.Retry
	}
	return defaultRetry
}

// Apply implements weir.Store. Its errors are [UnavailableError], what ctx says once it has ended, and what no Store could decide, as
// ErrCrossSlot.
func (g *Guard) Apply(ctx context.Context, tx *weir.Tx) error {
	g.init()
	if tx.Op == weir.Refund {
		if rest, err := g.release(ctx, tx); rest != nil {
			if err == nil {
				err = g.apply(ctx, rest)
			} else {
				err = g.alone(ctx, rest, err) // Shared has had its time
			}
			tx.Now, tx.OK, tx.At = rest.Now, rest.OK, rest.At
			for i := range tx.Charges {
				c, r := &tx.Charges[i], &rest.Charges[i]
				c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
			}
			return err
		}
	}
	return g.apply(ctx, tx)
}

func (g *Guard) apply(ctx context.Context, tx *weir.Tx) error {
	if tx.Op == weir.Hold || tx.Op == weir.Reset {
		// Both hold in this process too, should Shared go before they end.
		kept := *tx
		kept.Charges = append([]weir.TxCharge(nil), tx.Charges...)
		g.local.Apply(ctx, &kept)
	}
	if tx.Op == weir.Refund && g.madeAlone(tx.Made) {
		return g.alone(ctx, tx, errMadeAlone)
	}
	if g.down.Load() {
		g.mu.RLock()
		cause := g.outage.cause
		g.mu.RUnlock()
		if g.down.Load() {
			g.probe()
			return g.alone(ctx, tx, cause)
		}
	}
	const often = 64 // decisions between looks at the clock of Shared
	var asked time.Time
	if g.shared.Load()%often == 0 {
		asked = time.Now()
	}
	err := g.Shared.Apply(ctx, tx)
	switch {
	case err == nil:
		g.shared.Add(1)
		if !asked.IsZero() {
			g.compare(tx, asked)
		}
		if g.failures.Load() != 0 {
			if n := answersOf(g.Shared); n < 0 || n != g.answers.Load() {
				g.failures.Store(0)
			}
		}
		if g.journal.size.Load() > 0 {
			g.probe() // to hand over what was charged here for want of room there
		}
		return nil
	case ctx.Err() != nil:
		return err // the caller has gone, which says nothing about Shared
	case errors.Is(err, ErrCrossSlot) || errors.Is(err, errTooMany):
		return err
	case errors.Is(err, ErrFull):
		g.full.Add(1)
		g.sayFull()
		return g.alone(ctx, tx, err)
	}
	most := int64(g.Failures)
	if most <= 0 {
		most = defaultFailures
	}
	g.answers.Store(answersOf(g.Shared))
	if g.failures.Add(1) >= most {
		g.leave(err)
	}
	return g.alone(ctx, tx, err)
}

var errMadeAlone = errors.New("charged while the shared store was away")

// madeAlone reports whether a charge of that instant was made without Shared. Such a charge is not given back to
// Shared, which may have been charged less.
func (g *Guard) madeAlone(at weir.Instant) bool {
	if g.outages.Load() == 0 {
		return false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.down.Load() {
		return at >= g.outage.from
	}
	return at >= g.last.from && at <= g.last.to
}

// alone decides tx by the policies of its limits.
func (g *Guard) alone(ctx context.Context, tx *weir.Tx, cause error) error {
	policy := func(l *weir.Limit) Policy {
		p := Local
		if g.Policy != nil {
			p = g.Policy(l)
		}
		if p == Allow && errors.Is(cause, ErrFull) {
			p = Local
		}
		return p
	}
	own := weir.Tx{Op: tx.Op, Made: tx.Made, Until: tx.Until, Charges: make([]weir.TxCharge, 0, len(tx.Charges))}
	at := make([]int, len(tx.Charges)) // where charge i is in own, or -1
	for i := range tx.Charges {
		c := &tx.Charges[i]
		at[i] = -1
		switch policy(c.Limit) {
		case Deny:
			if tx.Op != weir.Refund && !c.Limit.Shadow {
				g.byDeny.Add(1)
				return &UnavailableError{Limit: c.Limit.Name, RetryAfter: g.retry(), Err: cause}
			}
		case Local:
			at[i] = len(own.Charges)
			copied := *c
			copied.Cell = at[i]
			if c.Cell != i {
				copied.Cell = at[c.Cell] // the same limit, so the same policy
			}
			own.Charges = append(own.Charges, copied)
		}
	}
	if tx.Op == weir.Refund {
		g.journal.owe(tx)
		if !g.madeAlone(tx.Made) {
			own.Op = weir.Peek // it was charged there, not here
		}
	}
	g.mu.RLock()
	err := g.local.Apply(ctx, &own)
	if err == nil {
		g.journal.note(&own)
		if tx.Op == weir.Take && own.OK {
			g.journal.allowed(tx, at, own.Now)
		}
	}
	g.mu.RUnlock()
	if err != nil {
		return err
	}
	if len(own.Charges) > 0 {
		g.byLocal.Add(1)
	} else {
		g.byAllow.Add(1)
	}
	tx.Now, tx.OK, tx.At = own.Now, own.OK, own.At
	for i := range tx.Charges {
		c := &tx.Charges[i]
		if at[i] >= 0 {
			o := &own.Charges[at[i]]
			c.When, c.Left, c.Next, c.Held = o.When, o.Left, o.Next, o.Held
			continue
		}
		c.When, c.Next, c.Held = own.Now, 0, 0
		c.Left = max(0, c.Law.Capacity-int64(weir.High-c.Priority)*c.Law.Headroom)
	}
	return nil
}

// leave stops asking Shared, until it is found well.
func (g *Guard) leave(cause error) {
	g.mu.Lock()
	if g.down.Load() {
		g.mu.Unlock()
		return
	}
	g.outage = outage{since: time.Now(), from: weir.InstantOf(g.now()), cause: cause, said: []string{cause.Error()}, local: g.byLocal.Load(), allowed: g.byAllow.Load(), denied: g.byDeny.Load()}
	g.outages.Add(1)
	g.due.Store(int64(time.Since(g.start) + g.retry()))
	g.down.Store(true)
	g.mu.Unlock()
	if g.Log != nil {
		g.Log.Warn("shared store is not asked; limits are decided by policy", "err", cause, "retry", g.retry(), "replicas", g.local.parts)
	}
}

// probe tries Shared aside, if it is time to and nobody does.
func (g *Guard) probe() {
	if now := int64(time.Since(g.start)); now < g.due.Load() || !g.probing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer g.probing.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		g.try(ctx)
		g.due.Store(int64(time.Since(g.start) + g.retry()))
	}()
}

// probeLimit is charged to find out whether Shared decides and writes.
var probeLimit = &weir.Limit{Name: "weir.probe", Algorithm: weir.GCRA, Rate: weir.Rate{Units: 10, Period: time.Second}}

// try asks Shared for a decision and, if it has one, charges to it what was charged without it.
func (g *Guard) try(ctx context.Context) {
	law, _ := probeLimit.Law()
	tx := weir.Tx{Op: weir.Debit, Charges: []weir.TxCharge{{Charge: probeLimit.For(""), Law: law}}}
	asked := time.Now()
	err := g.Shared.Apply(ctx, &tx)
	if err == nil {
		err = g.handOver(ctx)
	}
	if !g.down.Load() {
		return
	}
	if err != nil && !errors.Is(err, ErrFull) { // a full one decides what needs no room, and says itself what does
		g.still(err)
		return
	}
	g.back()
	g.compare(&tx, asked)
	if err == nil {
		g.journal.flush(ctx, g) // what was charged while handing over
	}
}

// still notes why Shared does not decide yet: another Redis in its place may want a password, and that is not the
// refused connection that was logged.
func (g *Guard) still(cause error) {
	const most = 8 // causes told of one outage
	text := cause.Error()
	g.mu.Lock()
	g.outage.cause = cause
	say := len(g.outage.said) < most && !slices.Contains(g.outage.said, text)
	if say {
		g.outage.said = append(g.outage.said, text)
	}
	since := g.outage.since
	g.mu.Unlock()
	if say && g.Log != nil {
		g.Log.Warn("shared store is still not asked", "err", cause, "since", since)
	}
}

// sayFull tells Log that Shared is full, now and then.
func (g *Guard) sayFull() {
	if g.Log == nil {
		return
	}
	now := max(1, int64(time.Since(g.start)))
	if last := g.saidFull.Load(); last == 0 || now-last >= int64(time.Minute) {
		if g.saidFull.CompareAndSwap(last, now) {
			g.Log.Warn("shared store is full; what needs room there is decided in this process", "full", g.full.Load(), "replicas", g.local.parts)
		}
	}
}

// back asks Shared again from now on.
func (g *Guard) back() {
	g.mu.Lock()
	o := g.outage
	o.to = weir.InstantOf(g.now())
	g.last = o
	g.failures.Store(0)
	g.down.Store(false)
	g.mu.Unlock()
	if g.Log != nil {
		g.Log.Info("shared store is asked again", "since", o.since, "after", time.Since(o.since).Round(time.Millisecond),
			"local", g.byLocal.Load()-o.local, "allowed", g.byAllow.Load()-o.allowed, "denied", g.byDeny.Load()-o.denied,
			"unsynced", g.journal.dropped.Load())
	}
}

// handOver charges Shared with what this process has admitted without it.
func (g *Guard) handOver(ctx context.Context) error {
	for range 4 { // decisions go on meanwhile; what they add is less each time
		if g.journal.size.Load() == 0 {
			return nil
		}
		if err := g.journal.flush(ctx, g); err != nil {
			return err
		}
	}
	return nil
}
