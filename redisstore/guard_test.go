package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

var client = &weir.Limit{Name: "client", Rate: weir.Rate{Units: 120, Period: time.Hour}}

// patience is how long the tests wait for a Redis that is well, on a machine that may be busy.
const patience = 300 * time.Millisecond

// witness asks Redis itself, without a Guard.
func witness(t testing.TB, s *server) *weir.Limiter {
	t.Helper()
	return &weir.Limiter{Store: &redisstore.Store{Client: s.client(), Timeout: 20 * time.Second}}
}

// fleet is a few processes' worth of limiters on one Redis.
func fleet(t testing.TB, s *server, n int, tune func(*redisstore.Guard)) (guards []*redisstore.Guard, limiters []*weir.Limiter) {
	t.Helper()
	for range n {
		g := &redisstore.Guard{Shared: &redisstore.Store{Client: s.client(), Timeout: patience}, Replicas: n, Retry: 50 * time.Millisecond}
		if tune != nil {
			tune(g)
		}
		guards = append(guards, g)
		limiters = append(limiters, &weir.Limiter{Store: g})
	}
	return guards, limiters
}

// takeAll takes until refused, and counts.
func takeAll(t testing.TB, lim *weir.Limiter, c weir.Charge) (n int64) {
	t.Helper()
	for n < 10_000 {
		d, err := lim.Take(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			break
		}
		n++
	}
	return n
}

// within fails the test if something does not become true soon. It asks a limiter meanwhile, as trying again is done on demand.
func within(t testing.TB, what string, lim *weir.Limiter, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if lim != nil {
			lim.Peek(context.Background(), client.For("nobody"))
		}
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func up(g *redisstore.Guard) func() bool   { return func() bool { return !g.Stats().Down } }
func down(g *redisstore.Guard) func() bool { return func() bool { return g.Stats().Down } }

// failures are ways in which a Redis stops deciding, and comes back.
var failures = []struct {
	name    string
	args    []string
	fail    func(*server, redisstore.Client)
	recover func(*server, redisstore.Client)
}{
	{name: "killed",
		fail:    func(s *server, _ redisstore.Client) { s.Kill() },
		recover: func(s *server, _ redisstore.Client) { s.Start() }},
	{name: "frozen",
		fail:    func(s *server, _ redisstore.Client) { s.Freeze() },
		recover: func(s *server, _ redisstore.Client) { s.Thaw() }},
	{name: "read-only replica",
		fail: func(s *server, c redisstore.Client) {
			do(s.t, c, "CONFIG", "SET", "replica-serve-stale-data", "yes")
			do(s.t, c, "REPLICAOF", "127.0.0.1", "1")
		},
		recover: func(s *server, c redisstore.Client) { do(s.t, c, "REPLICAOF", "NO", "ONE") }},
	{name: "slow: reads but does not write",
		fail:    func(s *server, c redisstore.Client) { do(s.t, c, "CLIENT", "PAUSE", "600000", "WRITE") },
		recover: func(s *server, c redisstore.Client) { do(s.t, c, "CLIENT", "UNPAUSE") }},
	{name: "wants a password",
		fail: func(s *server, c redisstore.Client) {
			do(s.t, c, "CONFIG", "SET", "requirepass", "secret")
			do(s.t, c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		},
		recover: func(s *server, c redisstore.Client) { do(s.t, c, "CONFIG", "SET", "requirepass", "") }},
	{name: "refuses the script",
		fail: func(s *server, c redisstore.Client) { do(s.t, c, "ACL", "SETUSER", "default", "-evalsha", "-eval") },
		recover: func(s *server, c redisstore.Client) {
			do(s.t, c, "ACL", "SETUSER", "default", "+evalsha", "+eval")
		}},
	{name: "no such script command",
		args: []string{"--rename-command", "EVAL", ""},
		fail: func(s *server, c redisstore.Client) {}},
}

// TestEachFailureIsDecidedByPolicy has a Redis fail in each way: every call answers in time, by the policy of its
// limit, with no more than the limit admitted; and the shared store is back in charge once it is well.
func TestEachFailureIsDecidedByPolicy(t *testing.T) {
	fair := &weir.Limit{Name: "fair", Rate: weir.Rate{Units: 6, Period: time.Hour}}
	login := &weir.Limit{Name: "login", Rate: weir.Rate{Units: 6, Period: time.Hour}}
	policy := func(l *weir.Limit) redisstore.Policy {
		switch l.Name {
		case "fair":
			return redisstore.Allow
		case "login":
			return redisstore.Deny
		}
		return redisstore.Local
	}
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			s := startRedis(t, f.args...)
			admin := s.client()
			var log bytes.Buffer
			guards, limiters := fleet(t, s, 3, func(g *redisstore.Guard) {
				g.Policy, g.Log = policy, slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))
			})
			g, lim := guards[0], limiters[0]
			if f.recover != nil {
				if _, err := lim.Take(t.Context(), client.For("before")); err != nil || g.Stats().Shared != 1 {
					t.Fatalf("%+v, %v", g.Stats(), err)
				}
			}
			f.fail(s, admin)

			var late atomic.Int64
			take := func(c ...weir.Charge) (weir.Decision, error) {
				start := time.Now()
				d, err := lim.Take(context.Background(), c...)
				late.Store(max(late.Load(), int64(time.Since(start))))
				return d, err
			}
			var admitted int
			for range 100 { // of which a third of 120 fits
				d, err := take(client.For("k"))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					admitted++
				}
			}
			if admitted != 40 {
				t.Errorf("local: admitted %d, want 40, a third of the limit", admitted)
			}
			for range 20 {
				if d, err := take(fair.For("k")); err != nil || !d.Allowed {
					t.Fatalf("allow: %t, %v", d.Allowed, err)
				}
			}
			_, err := take(client.For("k2"), login.For("k"))
			var unavailable *redisstore.UnavailableError
			if !errors.As(err, &unavailable) || unavailable.Limit != "login" || unavailable.RetryAfter <= 0 || !errors.Is(err, redisstore.ErrUnavailable) {
				t.Errorf("deny: %v", err)
			}
			// A busy machine may be late to notice.
			if most := time.Duration(late.Load()); most > patience+time.Second {
				t.Errorf("an answer took %v", most)
			}
			st := g.Stats()
			if !st.Down || st.Since.IsZero() || st.Err == nil || st.Local < 100 || st.Allowed != 20 || st.Denied != 1 || st.Outages != 1 {
				t.Errorf("got %+v", st)
			}
			if f.recover == nil {
				return
			}
			f.recover(s, admin)
			within(t, "asking Redis again", lim, up(g))
			other := witness(t, s)
			within(t, "handing over", lim, func() bool {
				d, err := other.Peek(t.Context(), client.For("k").Costing(0))
				return err == nil && d.Outcomes()[0].Remaining <= 80
			})
			// What was admitted alone counts for all: others find the rest.
			if n := takeAll(t, other, client.For("k")); n < 75 || n > 81 {
				// Asks that nobody waited for any more may have been answered late.
				t.Errorf("after the return another admits %d, want the other 80", n)
			}
			for _, want := range []string{"not asked", "asked again", "local=", "denied=1"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, &log)
				}
			}
		})
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestFullIsNoReasonToAllow fills a Redis that does not evict. Whatever the policy, nobody gets more than their part.
func TestFullIsNoReasonToAllow(t *testing.T) {
	s := startRedis(t, "--maxmemory-policy", "noeviction")
	admin := s.client()
	var log bytes.Buffer
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) {
		g.Shared.(*redisstore.Store).Timeout = 20 * time.Second
		g.Replicas = 3
		g.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))
		g.Policy = func(*weir.Limit) redisstore.Policy { return redisstore.Allow }
	})
	g, lim := guards[0], limiters[0]
	if _, err := lim.Take(t.Context(), client.For("before")); err != nil {
		t.Fatal(err)
	}
	do(t, admin, "CONFIG", "SET", "maxmemory", "1")
	if n := takeAll(t, lim, client.For("k")); n != 40 {
		t.Errorf("admitted %d, want 40, a third of the limit", n)
	}
	if st := g.Stats(); st.Full != 41 || st.Local != 41 || st.Allowed != 0 || st.Down {
		t.Errorf("got %+v", st)
	}
	if n := strings.Count(log.String(), "shared store is full"); n != 1 {
		t.Errorf("the log says so %d times, want once a minute:\n%s", n, &log)
	}
	// What needs no room is still decided there.
	if _, err := lim.Peek(t.Context(), client.For("k")); err != nil || g.Stats().Full != 41 {
		t.Error(err, g.Stats())
	}
	do(t, admin, "CONFIG", "SET", "maxmemory", "0")
	within(t, "handing over", lim, func() bool {
		d, err := lim.Peek(t.Context(), client.For("k").Costing(0))
		return err == nil && d.Outcomes()[0].Remaining <= 80
	})
}

// TestFullStaysFull: no algorithm makes a Redis that does not evict hold more keys than it has room for, whatever goes in one call with
// what makes room.
func TestFullStaysFull(t *testing.T) {
	s := startRedis(t, "--maxmemory-policy", "noeviction")
	admin := s.client()
	clock := time.Now().Truncate(time.Microsecond)
	lim := weir.Limiter{Store: &redisstore.Store{Client: admin, Timeout: 20 * time.Second, Calls: 1, Now: func() time.Time { return clock }}}
	slots := &weir.Limit{Name: "slots", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 1000, Period: time.Hour}}
	held, err := lim.Take(t.Context(), slots.For("").Costing(1000))
	if err != nil {
		t.Fatal(err)
	}
	limits := all() // 7 units in 3 s
	if _, err := lim.Take(t.Context(), charges(limits, "before")...); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(2 * time.Second)
	if _, err := lim.Take(t.Context(), charges(limits, "before")...); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(2 * time.Second) // of the logs, one entry has expired
	before := len(keys(t, admin))
	do(t, admin, "CONFIG", "SET", "maxmemory", "1")
	for _, l := range limits {
		for _, key := range []string{"before", "new"} {
			if d, err := lim.Take(t.Context(), l.For(key)); !errors.Is(err, redisstore.ErrFull) {
				t.Errorf("%v of %q: allowed=%t, %v", l.Algorithm, key, d.Allowed, err)
			}
		}
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 20 {
				lim.Refund(t.Context(), held.At, slots.For(""))
				lim.Take(t.Context(), limits[g%len(limits)].For(fmt.Sprint(g, i)))
			}
		})
	}
	wg.Wait()
	if n := len(keys(t, admin)); n != before {
		t.Errorf("%d keys, and when it got full %d", n, before)
	}
	if d, err := lim.Peek(t.Context(), slots.For("")); err != nil || d.Outcomes()[0].Remaining != 640 {
		t.Errorf("%v, %v; want 640 slots given back", d.Outcomes(), err)
	}
}

// TestFlushed has Redis lose all it knows: the limits start anew, without an error.
func TestFlushed(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) { g.Shared.(*redisstore.Store).Timeout = 20 * time.Second })
	takeAll(t, limiters[0], client.For("k"))
	do(t, s.client(), "FLUSHALL")
	do(t, s.client(), "SCRIPT", "FLUSH")
	if n := takeAll(t, limiters[0], client.For("k")); n != 120 {
		t.Errorf("admitted %d, want 120", n)
	}
	if st := guards[0].Stats(); st.Local != 0 || st.Outages != 0 {
		t.Errorf("got %+v", st)
	}
}

// TestStartWithoutRedis starts before its Redis does.
func TestStartWithoutRedis(t *testing.T) {
	s := newServer(t)
	var log bytes.Buffer
	guards, limiters := fleet(t, s, 2, func(g *redisstore.Guard) { g.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil)) })
	if n := takeAll(t, limiters[0], client.For("k")); n != 60 {
		t.Errorf("admitted %d, want 60, half of the limit", n)
	}
	if !strings.Contains(log.String(), "not asked") {
		t.Errorf("the log says %q", &log)
	}
	s.Start()
	within(t, "asking Redis", limiters[0], up(guards[0]))
	other := witness(t, s)
	within(t, "handing over", limiters[0], func() bool {
		d, err := other.Peek(t.Context(), client.For("k").Costing(0))
		return err == nil && d.Outcomes()[0].Remaining <= 60
	})
	if n := takeAll(t, other, client.For("k")); n < 59 || n > 61 {
		t.Errorf("the other admits %d, want 60", n)
	}
}

// TestTheLogFollowsTheCause: a Redis that was dead and now wants a password is not dead any more.
func TestTheLogFollowsTheCause(t *testing.T) {
	s := newServer(t)
	var log bytes.Buffer
	to := &lockedWriter{w: &log}
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) { g.Log = slog.New(slog.NewTextHandler(to, nil)) })
	takeAll(t, limiters[0], client.For("k"))
	if !guards[0].Stats().Down {
		t.Fatalf("got %+v", guards[0].Stats())
	}
	s.Args = append(s.Args, "--requirepass", "secret")
	s.Start()
	said := func() bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		return strings.Contains(log.String(), "NOAUTH")
	}
	within(t, "the password in the log", limiters[0], said)
	to.mu.Lock()
	defer to.mu.Unlock()
	if n := strings.Count(log.String(), "\n"); n > 10 {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

// TestGoroutinesStayFlat hammers a frozen and then a dead Redis.
func TestGoroutinesStayFlat(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 1, nil)
	takeAll(t, limiters[0], client.For("k"))
	before := runtime.NumGoroutine()
	hammer := func() {
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 200 {
					limiters[0].Take(context.Background(), client.For("k"))
				}
			})
		}
		wg.Wait()
	}
	s.Freeze()
	hammer()
	if !guards[0].Stats().Down {
		t.Error("a frozen Redis is still asked")
	}
	if n := runtime.NumGoroutine(); n > before+20 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	s.Thaw()
	within(t, "asking Redis again", limiters[0], up(guards[0]))
	s.Kill()
	hammer()
	within(t, "as few goroutines as before", nil, func() bool { return runtime.NumGoroutine() <= before+4 })
}

// TestHoldsOutliveAnOutage: a hold made while Redis is away is everybody's once it is back, and one made before holds here too.
func TestHoldsOutliveAnOutage(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 2, nil)
	until := time.Now().Add(time.Hour)
	if err := limiters[0].Hold(t.Context(), until, client.For("before")); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	within(t, "leaving Redis", limiters[0], down(guards[0]))
	if d, err := limiters[0].Take(t.Context(), client.For("before")); err != nil || d.Allowed {
		t.Error("a hold made before is not known in this process", err)
	}
	if err := limiters[0].Hold(t.Context(), until, client.For("during")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	within(t, "asking Redis again", limiters[0], up(guards[0]))
	other := witness(t, s)
	within(t, "a hold for all", limiters[0], func() bool {
		d, err := other.Take(t.Context(), client.For("during"))
		return err == nil && !d.Allowed
	})
}

// TestRefundsGoWhereTheChargeWas: what was charged alone is not given back to Redis, nor the other way round.
func TestRefundsGoWhereTheChargeWas(t *testing.T) {
	s := startRedis(t)
	guards, limiters := fleet(t, s, 1, func(g *redisstore.Guard) { g.Replicas = 2 })
	lim := limiters[0]
	there, err := lim.Take(t.Context(), client.For("k").Costing(50))
	if err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	within(t, "leaving Redis", lim, down(guards[0]))
	here, err := lim.Take(t.Context(), client.For("k").Costing(50))
	if err != nil || !here.Allowed {
		t.Fatal(err)
	}
	if err := lim.Refund(t.Context(), there.At, client.For("k").Costing(50)); err != nil {
		t.Fatal(err)
	}
	if n := takeAll(t, lim, client.For("k")); n != 10 {
		t.Errorf("%d fit here after a refund of what was charged there, want 10", n)
	}
	s.Thaw()
	within(t, "asking Redis again", lim, up(guards[0]))
	within(t, "handing over", lim, func() bool {
		d, err := lim.Peek(t.Context(), client.For("k").Costing(0))
		return err == nil && d.Outcomes()[0].Remaining <= 11
	})
	if err := lim.Refund(t.Context(), here.At, client.For("k").Costing(50)); err != nil {
		t.Fatal(err)
	}
	d, err := lim.Peek(t.Context(), client.For("k").Costing(0))
	if err != nil || d.Outcomes()[0].Remaining > 12 {
		t.Errorf("%d left after a refund of what was charged here, want about 10: %v", d.Outcomes()[0].Remaining, err)
	}
}

// TestTheDeadlineIs50ms asks a frozen Redis by the default.
func TestTheDeadlineIs50ms(t *testing.T) {
	s := startRedis(t)
	lim := weir.Limiter{Store: &redisstore.Guard{Shared: &redisstore.Store{Client: s.client()}}}
	s.Freeze()
	defer s.Thaw()
	start := time.Now()
	if d, err := lim.Take(t.Context(), client.For("k")); err != nil || !d.Allowed {
		t.Error(d.Allowed, err)
	}
	if took := time.Since(start); took < 40*time.Millisecond || took > 5*time.Second {
		t.Errorf("the answer took %v, want 50ms", took)
	}
}
