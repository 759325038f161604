package benchmarks

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
)

// Quota is what a key may spend: one unit each Every, Burst at once.
type Quota struct {
	Every time.Duration
	Burst int
}

// Limiter admits or refuses one unit of a key.
type Limiter func(key string) bool

// Stores are all that is compared, by name: weir's algorithms, the peers, and the bare table. Each is made anew.
var Stores = []struct {
	Store, Algorithm string
	New              func(Quota) Limiter
}{
	{"bare-table", "none", bareTable},
	{"memory", "token-bucket", weirWith(weir.TokenBucket)},
	{"memory", "gcra", weirWith(weir.GCRA)},
	{"memory", "fixed-window", weirWith(weir.FixedWindow)},
	{"memory", "sliding-window", weirWith(weir.SlidingWindow)},
	{"sethvargo", "fixed-window", sethvargo},
	{"throttled", "gcra", throttledGCRA},
	{"httprate", "sliding-window", chiHTTPRate},
	{"x-time-rate", "token-bucket", xTimeRate},
}

// Limit is q as a limit of weir.
func (q Quota) Limit(a weir.Algorithm) *weir.Limit {
	units := max(1, int64(time.Millisecond/q.Every)) // a period is a millisecond at least
	l := &weir.Limit{Name: a.String(), Algorithm: a, Rate: weir.Rate{Units: units, Period: q.Every * time.Duration(units)}, Burst: int64(q.Burst)}
	if a == weir.FixedWindow || a == weir.SlidingWindow {
		l.Rate, l.Burst = weir.Rate{Units: int64(q.Burst), Period: q.window()}, 0
	}
	if err := l.Validate(); err != nil {
		panic(err)
	}
	return l
}

// window is in which a limiter that counts admits Burst: whole minutes.
func (q Quota) window() time.Duration {
	return max(time.Minute, (time.Duration(q.Burst) * q.Every).Truncate(time.Minute))
}

// weirWith stays out of line, as in the initializer of Stores the compiler would inline it and then no call within it.
//
//go:noinline
func weirWith(a weir.Algorithm) func(Quota) Limiter {
	return func(q Quota) Limiter {
		lim, l, ctx := &weir.Limiter{}, q.Limit(a), context.Background()
		return func(key string) bool {
			d, err := lim.Take(ctx, l.For(key))
			return err == nil && d.Allowed
		}
	}
}

func sethvargo(q Quota) Limiter {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Burst), Interval: q.window()})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		return ok && err == nil
	}
}

// throttledGCRA has no bound on its keys; with one it keeps an LRU, which is slower.
func throttledGCRA(q Quota) Limiter {
	s, err := memstore.NewCtx(0)
	if err != nil {
		panic(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(1, q.Every), MaxBurst: q.Burst - 1})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
}

// chiHTTPRate does what the handler of httprate does, without its lock and its HTTP.
func chiHTTPRate(q Quota) Limiter {
	window := q.window()
	l := httprate.NewRateLimiter(q.Burst, window)
	counter := l.Counter()
	return func(key string) bool {
		ok, _, err := l.Status(key)
		if !ok || err != nil {
			return false
		}
		return counter.IncrementBy(key, time.Now().UTC().Truncate(window), 1) == nil
	}
}

// xTimeRate is what one writes by hand.
func xTimeRate(q Quota) Limiter {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return func(key string) bool {
		mu.Lock()
		l := limiters[key]
		if l == nil {
			l = rate.NewLimiter(rate.Every(q.Every), q.Burst)
			limiters[key] = l
		}
		mu.Unlock()
		return l.Allow()
	}
}

// bareTable is the least that a limiter in memory can do: hash the key, twice, so that nobody can make
// two keys meet; lock; read the clock; find {hash, instant} in a flat table; compare and set the instant.
func bareTable(q Quota) Limiter {
	t := &flat{slots: make([]flatSlot, 1<<10), start: time.Now(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	every, full := int64(q.Every/time.Microsecond), int64(q.Every/time.Microsecond)*int64(q.Burst)
	return func(key string) bool {
		hi, lo := maphash.String(t.seeds[0], key), maphash.String(t.seeds[1], key)
		t.mu.Lock()
		defer t.mu.Unlock()
		now := int64(time.Since(t.start) / time.Microsecond)
		s := t.slot(hi, lo)
		next := max(s.instant, now) + every
		if next-now > full {
			return false
		}
		s.instant = next
		return true
	}
}

// flat is a table with linear probing that doubles when it is 7/8 full.
type flat struct {
	mu    sync.Mutex
	slots []flatSlot
	used  int
	start time.Time
	seeds [2]maphash.Seed
}

type flatSlot struct {
	hi, lo  uint64
	instant int64
}

func (t *flat) slot(hi, lo uint64) *flatSlot {
	mask := uint64(len(t.slots) - 1)
	for i := lo & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.hi == hi && s.lo == lo {
			return s
		}
		if s.hi|s.lo == 0 {
			if t.used++; t.used*8 > len(t.slots)*7 {
				t.grow()
				return t.slot(hi, lo)
			}
			*s = flatSlot{hi, lo, math.MinInt64}
			return s
		}
	}
}

func (t *flat) grow() {
	old := t.slots
	t.slots, t.used = make([]flatSlot, 2*len(old)), 0
	for i := range old {
		if s := &old[i]; s.hi|s.lo != 0 {
			*t.slot(s.hi, s.lo) = *s
		}
	}
	t.used++
}
