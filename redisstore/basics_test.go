package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// all is one limit of each algorithm.
func all() []*weir.Limit {
	var limits []*weir.Limit
	for a := weir.TokenBucket; a <= weir.Concurrency; a++ {
		limits = append(limits, &weir.Limit{Name: a.String(), Algorithm: a, Rate: weir.Rate{Units: 7, Period: 3 * time.Second}})
	}
	return limits
}

func charges(limits []*weir.Limit, key string) []weir.Charge {
	var cs []weir.Charge
	for _, l := range limits {
		cs = append(cs, l.For(key))
	}
	return cs
}

func TestSevenLimitsInOneCall(t *testing.T) {
	store := &redisstore.Store{Client: startRedis(t).client(), Timeout: 5 * time.Second}
	lim := weir.Limiter{Store: store}
	d, err := lim.Take(t.Context(), charges(all(), "k")...)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if got := store.Stats(); got.Decisions != 1 || got.Calls != 1 || got.Loads != 1 {
		t.Errorf("got %+v, want one decision in one call, with the script loaded once", got)
	}
	if off := time.Since(d.At).Abs(); off > time.Minute {
		t.Errorf("the decision was at %v, %v off", d.At, off)
	}
}

// TestKeysTellNothingAndEnd reads all of Redis: the names of keys are hashes, and each key has an end.
func TestKeysTellNothingAndEnd(t *testing.T) {
	client := startRedis(t).client()
	lim := weir.Limiter{Store: &redisstore.Store{Client: client, Prefix: "shop:", Timeout: 5 * time.Second}}
	ctx := t.Context()
	limits := all()
	for _, key := range []string{"alice@example.com", "alice@example.com", "", strings.Repeat("long", 10_000), "{slot}\r\n*1\r\n"} {
		if _, err := lim.Take(ctx, charges(limits, key)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := lim.Hold(ctx, time.Now().Add(time.Hour), limits[0].Every(), limits[1].For("bob"), limits[5].For("bob")); err != nil {
		t.Fatal(err)
	}
	if err := lim.Debit(ctx, charges(limits, "carol")...); err != nil {
		t.Fatal(err)
	}
	names := keys(t, client)
	if want := 7*4 + 3 + 7; len(names) != want {
		t.Errorf("%d keys, want %d", len(names), want)
	}
	form := regexp.MustCompile(`^shop:\{weir\}[0-9a-f]{32}$`)
	for _, name := range names {
		if !form.MatchString(name) {
			t.Errorf("key %q, want shop:{weir} and 32 hexadecimal digits", name)
		}
		if ttl := do(t, client, "PTTL", name).(int64); ttl < 0 || ttl > 3_602_000 {
			t.Errorf("key %s ends in %d ms", name, ttl)
		}
	}
}

// TestKeysAreApart has limits and keys that are the same text one after the other.
func TestKeysAreApart(t *testing.T) {
	lim := weir.Limiter{Store: &redisstore.Store{Client: startRedis(t).client(), Timeout: 5 * time.Second}}
	for _, text := range []string{"ab/c", "a/bc", "abc/", "a/\x02bc"} {
		name, key, _ := strings.Cut(text, "/")
		l := &weir.Limit{Name: name, Rate: weir.Rate{Units: 1, Period: time.Hour}}
		if d, err := lim.Take(t.Context(), l.For(key)); err != nil || !d.Allowed {
			t.Errorf("limit %q, key %q: allowed=%t, %v", name, key, d.Allowed, err)
		}
	}
}

// TestKeysOutliveWhatTheyRemember asks Redis when each key ends, and the limit until when it must be remembered.
func TestKeysOutliveWhatTheyRemember(t *testing.T) {
	client := startRedis(t).client()
	for _, l := range all() {
		clock := time.Now().Truncate(time.Microsecond)
		lim := weir.Limiter{Store: &redisstore.Store{Client: client, Prefix: l.Name, Now: func() time.Time { return clock }, Timeout: 5 * time.Second}}
		for range 3 {
			d, err := lim.Take(t.Context(), l.For("k"))
			if err != nil {
				t.Fatal(err)
			}
			clock = clock.Add(d.RetryAfter)
		}
		// The instant from which nothing is spent is where a peek of all units fits.
		full := l.For("k").Costing(l.Capacity())
		d, err := lim.Peek(t.Context(), full)
		if err != nil {
			t.Fatal(err)
		}
		ttl := time.Duration(do(t, client, "PTTL", keys(t, client)[0]).(int64)) * time.Millisecond
		if slack := ttl - d.RetryAfter; slack < 500*time.Millisecond || slack > 7*time.Second {
			t.Errorf("%v ends in %v and must be remembered for %v", l.Algorithm, ttl, d.RetryAfter)
		}
		do(t, client, "FLUSHALL")
	}
}

func TestAKeyWithoutAnEndHeals(t *testing.T) {
	client := startRedis(t).client()
	lim := weir.Limiter{Store: &redisstore.Store{Client: client, Timeout: 5 * time.Second}}
	for _, l := range all() {
		l.Rate = weir.Rate{Units: 1, Period: time.Hour}
		for _, want := range []bool{true, false} { // a refusal heals too
			d, err := lim.Take(t.Context(), l.For("k"))
			if err != nil || d.Allowed != want {
				t.Fatal(l.Name, d.Allowed, err)
			}
			name := keys(t, client)[0]
			if ttl := do(t, client, "PTTL", name).(int64); ttl <= 0 {
				t.Errorf("%s: allowed=%t: the key ends in %d ms", l.Name, d.Allowed, ttl)
			}
			do(t, client, "PERSIST", name)
		}
		do(t, client, "FLUSHALL")
	}
}

// TestForeignValuesAreNoSpending puts what is not ours where cells are, of each type: it is decided over, and has an end again.
func TestForeignValuesAreNoSpending(t *testing.T) {
	client := startRedis(t).client()
	lim := weir.Limiter{Store: &redisstore.Store{Client: client, Timeout: 5 * time.Second}}
	soon := strconv.FormatInt(time.Now().Add(time.Second).UnixMicro(), 10)
	values := [][]string{{"LPUSH", "x"}, {"HSET", "a", "b"}, {"SADD", "x"}, {"XADD", "*", "a", "b"},
		{"ZADD", "1", "x", soon, "y", "2", ":"}, {"ZADD", "-5", "r"}, {"ZADD", "-5", "r", "-5", "a"}, {"ZADD", "-inf", "r", "inf", "a", "-inf", "h"},
		{"ZADD", "-" + soon, "r", "-5", "a", "-1", "h", soon, "x"}, {"ZADD", "-" + soon, "r", "-1e15", "a", "-1", "h", "1", "x:1"}}
	for _, text := range []string{"", "x", "1e400", "-5", "nan", "inf", "0.5", soon + ".5", "0x7fffffffffffffff", "12 x", "99999999999999999999999999 1 1 1",
		"1 1 1 99999999999999999999999999", soon + " 99999999999999999999 1 1", soon + " 99999999999999 999999999999999"} {
		values = append(values, []string{"SET", text})
	}
	for _, l := range all() {
		for _, value := range values {
			do(t, client, "FLUSHALL")
			if _, err := lim.Take(t.Context(), l.For("k")); err != nil {
				t.Fatal(err)
			}
			name := keys(t, client)[0]
			do(t, client, "DEL", name)
			do(t, client, append([]string{value[0], name}, value[1:]...)...)
			for range 3 {
				d, err := lim.Take(t.Context(), l.For("k"))
				if err != nil {
					t.Errorf("%v over %q: %v", l.Algorithm, value, err)
				} else if left := d.Outcomes()[0].Remaining; left < 0 || left > l.Capacity() || d.RetryAfter > time.Minute {
					t.Errorf("%v over %q: %d units left of %d, and the next in %v", l.Algorithm, value, left, l.Capacity(), d.RetryAfter)
				}
			}
			if ttl := do(t, client, "PTTL", name).(int64); ttl < 0 || ttl > 120_000 {
				t.Errorf("%v over %q: ends in %d ms", l.Algorithm, value, ttl)
			}
		}
	}
}

func TestScriptFlush(t *testing.T) {
	client := startRedis(t).client()
	store := &redisstore.Store{Client: client, Timeout: 5 * time.Second}
	lim := weir.Limiter{Store: store}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 100, Period: time.Hour}}
	for i := range 5 {
		d, err := lim.Take(t.Context(), l.For("k"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.Outcomes()[0].Remaining, int64(99-i); got != want {
			t.Errorf("take %d leaves %d, want %d", i, got, want)
		}
		do(t, client, "SCRIPT", "FLUSH")
	}
	if n := store.Stats().Loads; n != 5 {
		t.Errorf("the script was loaded %d times, want 5", n)
	}
}

// TestTogetherIsAsOneByOne has many goroutines on few keys at once: as many are admitted as fit, in fewer calls than decisions.
func TestTogetherIsAsOneByOne(t *testing.T) {
	store := &redisstore.Store{Client: startRedis(t).client(), Calls: 1, Timeout: 20 * time.Second}
	lim := weir.Limiter{Store: store}
	limits := all()
	for _, l := range limits {
		l.Rate = weir.Rate{Units: 50, Period: time.Hour}
		if l.Algorithm == weir.LeakyBucket {
			l.Shadow = true
		}
	}
	var mu sync.Mutex
	admitted := map[string]int{}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 20 {
				key := strconv.Itoa((g + i) % 3)
				d, err := lim.Take(context.Background(), charges(limits, key)...)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					mu.Lock()
					admitted[key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if got := fmt.Sprint(admitted); got != "map[0:50 1:50 2:50]" {
		t.Errorf("admitted %s, want 50 for each key", got)
	}
	if s := store.Stats(); s.Decisions != 64*20 || s.Calls > s.Decisions/2 {
		t.Errorf("%d decisions in %d calls; want 1280 in less than half as many", s.Decisions, s.Calls)
	}
}

func TestNoChargesAndTooMany(t *testing.T) {
	lim := weir.Limiter{Store: &redisstore.Store{Client: startRedis(t).client(), Timeout: 5 * time.Second}}
	if d, err := lim.Take(t.Context()); err != nil || !d.Allowed {
		t.Error(d.Allowed, err)
	}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1, Period: time.Hour}}
	var cs []weir.Charge
	for i := range 1000 {
		cs = append(cs, l.For(strconv.Itoa(i)))
	}
	if d, err := lim.Take(t.Context(), cs...); err != nil || !d.Allowed {
		t.Error(d.Allowed, err)
	}
	if _, err := lim.Take(t.Context(), append(cs, l.For("one more"))...); err == nil {
		t.Error("1001 charges were taken")
	}
}

// TestManyChargesTogether has decisions wait for one call that would be too large together.
func TestManyChargesTogether(t *testing.T) {
	store := &redisstore.Store{Client: startRedis(t).client(), Calls: 1, Timeout: 60 * time.Second}
	lim := weir.Limiter{Store: store}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1, Period: time.Hour}}
	var wg sync.WaitGroup
	for g := range 32 {
		var cs []weir.Charge
		for i := range 600 {
			cs = append(cs, l.For(fmt.Sprint(g, "/", i)))
		}
		wg.Go(func() {
			if d, err := lim.Take(context.Background(), cs...); err != nil || !d.Allowed {
				t.Error(d.Allowed, err)
			}
		})
	}
	wg.Wait()
}

func TestTheContextEnds(t *testing.T) {
	s := startRedis(t)
	lim := weir.Limiter{Store: &redisstore.Store{Client: s.client(), Timeout: -1}}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1, Period: time.Hour}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lim.Take(ctx, l.For("k")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Freeze()
	defer s.Thaw()
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := lim.Take(ctx, l.For("k")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
