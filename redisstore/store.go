package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// Client sends one command to Redis and returns its reply: a string or []byte for the script of this package.
// It is safe for concurrent use. [Open] makes one; other libraries fit in a line or two, see [ClientFunc].
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// ClientFunc is a function as a [Client]:
//
//	redisstore.ClientFunc(func(ctx context.Context, args ...string) (any, error) { // go-redis
//		a := make([]any, len(args))
//		for i := range args {
//			a[i] = args[i]
//		}
//		return rdb.Do(ctx, a...).Result()
//	})
//
//	redisstore.ClientFunc(func(ctx context.Context, args ...string) (any, error) { // valkey-go
//		n, _ := strconv.Atoi(args[2])
//		return c.Do(ctx, c.B().Arbitrary(args[:3]...).Keys(args[3:3+n]...).Args(args[3+n:]...).Build()).ToAny()
//	})
//
// The first argument is EVALSHA or EVAL, the third how many keys follow it. A client must not repeat a command
// that it may have sent.
type ClientFunc func(ctx context.Context, args ...string) (any, error)

// Do calls f.
func (f ClientFunc) Do(ctx context.Context, args ...string) (any, error) { return f(ctx, args...) }

var (
	// ErrFull means that the server is at its maxmemory and does not evict. It is a lack of room, which anybody with
	// enough keys can bring about, and no reason to let anything pass.
	ErrFull = errors.New("weir: redis: out of memory")

	// ErrCrossSlot means that limits of one decision are kept in different slots of a Cluster, which cannot decide
	// over them together. The error that wraps it names them.
	ErrCrossSlot = errors.New("limits in different slots")

	errTooMany = fmt.Errorf("weir: redis: over %d charges in one decision", mostCells)
)

const (
	defaultTimeout = 50 * time.Millisecond
	defaultGrace   = time.Second
	defaultCalls   = 2
	mostCells      = 1000 // in one call; Lua unpacks up to 8000 values
	mostTxs        = 32   // in one call
)

// Store is a weir.Store in Redis 6.2 or later, or Valkey. Fill in Client; set the other fields before first use. It is safe for
// concurrent use, must not be copied after its first use, and needs no closing: its goroutines end with the calls they make.
//
// Decisions that are asked for while Calls calls are under way go into the next call together. Nothing waits for company.
type Store struct {
	Client Client

	// Prefix starts each key; empty means "weir:". Stores that share limits have the same.
	Prefix string

	// Secret keys the hash of keys; empty means a fixed one, the same everywhere. With a secret of their own, those who
	// can read the keys cannot find out by trying whose they are. Stores that share limits have the same.
	Secret []byte

	// Tag, if not nil, is the hash tag of a limit's keys, {tag}, without the braces; nil and "" mean "weir". All keys of one
	// tag are in one slot of a Cluster, so on one of its nodes, and only limits in one slot can be decided together. It must
	// give the same for the same limit every time.
	Tag func(*weir.Limit) string

	// Timeout is how long Apply waits for an answer; zero means 50 ms, negative as long as the context says.
	Timeout time.Duration

	// Calls is how many script calls are under way at once before decisions wait to go together; zero means 2.
	Calls int

	// Grace is how long keys stay beyond their use, for a server clock that steps back, as after a failover; zero
	// means 1 s.
	Grace time.Duration

	// Now, if not nil, is the clock instead of the server's: for tests and simulations. It is called for each call of the
	// script.
	Now func() time.Time

	script *script // nil: decideScript
	once   sync.Once
	names  *namer
	rules  rules
	grace  string

	mu    sync.Mutex
	lanes map[string]*lane // by hash tag

	calls    atomic.Int64
	evals    atomic.Int64
	txs      atomic.Int64
	failed   atomic.Int64
	answered atomic.Int64 // decisions
}

// StoreStats counts what a Store has done. The numbers only grow.
type StoreStats struct {
	Decisions int64 // sent to Redis
	Calls     int64 // of the script; fewer than Decisions where they went together
	Loads     int64 // of the script's text, where the server did not have it
	Failed    int64 // calls without a decision
}

// Stats is what s has done so far.
func (s *Store) Stats() StoreStats {
	return StoreStats{Decisions: s.txs.Load(), Calls: s.calls.Load(), Loads: s.evals.Load(), Failed: s.failed.Load()}
}

func (s *Store) init() {
	s.once.Do(func() {
		if s.script == nil {
			s.script = decideScript
		}
		s.names = newNamer(s.Prefix, s.Secret)
		grace := s.Grace
		if grace <= 0 {
			grace = defaultGrace
		}
		s.grace = fmt.Sprint(grace.Milliseconds())
		s.lanes = map[string]*lane{}
	})
}

func (s *Store) tag(l *weir.Limit) string {
	if s.Tag != nil {
		if tag := s.Tag(l); tag != "" {
			return tag
		}
	}
	return "weir"
}

// clustered reports whether keys in different slots are in different places.
func (s *Store) clustered() bool {
	c, ok := s.Client.(interface{ Cluster() bool })
	return ok && c.Cluster()
}

// Apply implements weir.Store. When Redis does not answer within Timeout or before ctx ends, whichever is earlier, the error wraps
// context.DeadlineExceeded or what ctx says, and the decision may yet be made there, unseen.
//
// In a Cluster a Take of limits in different slots has an error that wraps ErrCrossSlot; all else is done slot by slot.
func (s *Store) Apply(ctx context.Context, tx *weir.Tx) error {
	s.init()
	err := s.apply(ctx, tx)
	switch {
	case err == nil || !errors.Is(err, ErrCrossSlot):
		return err
	case tx.Op == weir.Take:
		if named := s.checkSlots(tx); named != nil {
			return named
		}
		return err
	}
	return s.bySlot(ctx, tx)
}

func (s *Store) checkSlots(tx *weir.Tx) error {
	limits := make([]*weir.Limit, len(tx.Charges))
	for i := range tx.Charges {
		limits[i] = tx.Charges[i].Limit
	}
	return s.CheckSlots(limits...)
}

func (s *Store) apply(ctx context.Context, tx *weir.Tx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := s.ask(tx)
	if err != nil {
		return err
	}
	l := s.lane(a.tag)
	l.enter(s, a)
	if err := s.wait(ctx, l, a); err != nil {
		return err
	}
	defer a.free()
	if a.err != nil {
		return a.err
	}
	a.read(tx)
	s.answered.Add(1)
	return nil
}

func (s *Store) answers() int64 { return s.answered.Load() }

// answerer counts how often the server has decided. The Stores that can answer without it pass on the count of the one below, so that
// a Guard sees whether a decision says anything about the server.
type answerer interface{ answers() int64 }

// answersOf is the count of a Store, or -1 if it has none.
func answersOf(s weir.Store) int64 {
	if a, ok := s.(answerer); ok {
		return a.answers()
	}
	return -1
}

func (s *Store) wait(ctx context.Context, l *lane, a *ask) error {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	var after <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		l.leave(a)
		return fmt.Errorf("weir: redis: %w", ctx.Err())
	case <-after:
		l.leave(a)
		return fmt.Errorf("weir: redis: no answer in %v: %w", timeout, context.DeadlineExceeded)
	}
}

// CheckSlots says whether a Cluster can decide the limits together: whether their hash tags have one slot. Call it at start for
// the limits of each kind of request, if Redis is a Cluster ([Conn.Cluster]). The error wraps ErrCrossSlot.
func (s *Store) CheckSlots(limits ...*weir.Limit) error {
	for _, l := range limits {
		if a, b := s.tag(limits[0]), s.tag(l); slot(a) != slot(b) {
			return crossSlot(limits[0], l, a, b)
		}
	}
	return nil
}

func crossSlot(a, b *weir.Limit, tagA, tagB string) error {
	return fmt.Errorf("weir: redis: %q is in slot %d {%s}, %q in slot %d {%s}: %w of the Cluster; give them one tag, or lease one of them",
		a.Name, slot(tagA), tagA, b.Name, slot(tagB), tagB, ErrCrossSlot)
}

// slot is the slot of a hash tag: CRC-16/XMODEM mod 16384, from the Redis Cluster specification.
func slot(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}
