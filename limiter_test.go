package weir

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// clock is a Memory's clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

var epoch = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = epoch.Add(since)
}

func newLimiter() (*Limiter, *clock) {
	c := &clock{now: epoch}
	return &Limiter{Store: &Memory{Now: c.Now}}, c
}

// step is one ask of a script: at an instant, what is asked, and what the answer must be.
type step struct {
	at    time.Duration
	cost  int64
	allow bool
	retry time.Duration // where not allowed
	left  int64
}

func TestAlgorithms(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		limit Limit
		steps []step
	}{
		{Limit{Name: "token bucket, a third of a unit at a time", Rate: Rate{3, time.Second}, Burst: 2}, []step{
			{at: 0, cost: 2, allow: true, left: 0},
			{at: 0, cost: 1, retry: 333334 * time.Microsecond},
			{at: 333333 * time.Microsecond, cost: 1, retry: time.Microsecond},
			{at: 333334 * time.Microsecond, cost: 1, allow: true, left: 0},
			{at: 666667 * time.Microsecond, cost: 1, allow: true, left: 0},
			{at: 1000 * ms, cost: 1, allow: true, left: 0},
			{at: 1000 * ms, cost: 2, retry: 666667 * time.Microsecond},
			{at: 365 * 24 * time.Hour, cost: 0, allow: true, left: 2},
		}},
		{Limit{Name: "gcra", Algorithm: GCRA, Rate: Rate{10, time.Second}, Burst: 3}, []step{
			{at: 0, cost: 3, allow: true, left: 0},
			{at: 0, cost: 3, retry: 300 * ms},
			{at: 100 * ms, cost: 1, allow: true, left: 0},
			{at: 250 * ms, cost: 1, allow: true, left: 0},
			{at: 250 * ms, cost: 1, retry: 50 * ms},
		}},
		{Limit{Name: "leaky bucket", Algorithm: LeakyBucket, Rate: Rate{10, time.Second}}, []step{
			{at: 0, cost: 1, allow: true, left: 0},
			{at: 0, cost: 1, retry: 100 * ms},
			{at: 99 * ms, cost: 1, retry: 1 * ms},
			{at: 100 * ms, cost: 3, allow: true, left: 0},
			{at: 399 * ms, cost: 1, retry: 1 * ms},
			{at: 400 * ms, cost: 1, allow: true, left: 0},
			{at: 1000 * ms, cost: 0, allow: true, left: 1}, // at rest, and one fits at a time
		}},
		{Limit{Name: "fixed window", Algorithm: FixedWindow, Rate: Rate{3, time.Second}}, []step{
			{at: 900 * ms, cost: 3, allow: true, left: 0},
			{at: 950 * ms, cost: 1, retry: 50 * ms},
			{at: 1000 * ms, cost: 3, allow: true, left: 0}, // twice the limit in 100 ms: what this algorithm is
			{at: 1000 * ms, cost: 1, retry: 1000 * ms},
		}},
		{Limit{Name: "sliding window", Algorithm: SlidingWindow, Rate: Rate{10, time.Second}}, []step{
			{at: 0, cost: 10, allow: true, left: 0},
			{at: 500 * ms, cost: 1, retry: 600 * ms}, // 10·(1−e) ≤ 9 from e = 0.1 of the next window
			{at: 1100 * ms, cost: 1, allow: true, left: 0},
			{at: 1500 * ms, cost: 4, allow: true, left: 0}, // 10·0.5 + 1 + 4
			{at: 1500 * ms, cost: 1, retry: 100 * ms},
			{at: 4000 * ms, cost: 10, allow: true, left: 0},
		}},
		{Limit{Name: "sliding log", Algorithm: SlidingLog, Rate: Rate{3, time.Second}}, []step{
			{at: 900 * ms, cost: 2, allow: true, left: 1},
			{at: 1000 * ms, cost: 1, allow: true, left: 0},
			{at: 1000 * ms, cost: 1, retry: 900 * ms},
			{at: 1899 * ms, cost: 3, retry: 101 * ms},
			{at: 1900 * ms, cost: 2, allow: true, left: 0},
		}},
		{Limit{Name: "concurrency, nobody releases", Algorithm: Concurrency, Rate: Rate{2, time.Minute}}, []step{
			{at: 0, cost: 2, allow: true, left: 0},
			{at: 30 * time.Second, cost: 1, retry: 30 * time.Second},
			{at: 60 * time.Second, cost: 1, allow: true, left: 1},
		}},
	} {
		t.Run(c.limit.Name, func(t *testing.T) {
			lim, clock := newLimiter()
			limit := c.limit
			limit.Name = "x"
			for i, s := range c.steps {
				clock.set(s.at)
				d, err := lim.Take(background, limit.For("k").Costing(s.cost))
				if err != nil {
					t.Fatal(err)
				}
				got := step{s.at, s.cost, d.Allowed, d.RetryAfter, d.Outcomes()[0].Remaining}
				if want := s; got != want && (s.allow || got.allow != want.allow || got.retry != want.retry) {
					t.Errorf("step %d: got %+v, want %+v", i, got, want)
				}
			}
		})
	}
}

func TestPriorities(t *testing.T) {
	lim, _ := newLimiter()
	l := &Limit{Name: "shop", Rate: Rate{10, time.Hour}, Headroom: 2}
	admitted := map[Priority]int{}
	for range 20 {
		for p := Low; p <= High; p++ {
			if d, _ := lim.Take(background, l.For("").AtPriority(p)); d.Allowed {
				admitted[p]++
			}
		}
	}
	if admitted[Low] != 2 || admitted[Normal] != 3 || admitted[High] != 5 {
		// one each while ten are there; Low stops at four left, Normal at two
		t.Errorf("admitted %v", admitted)
	}
	d, _ := lim.Peek(background, l.For("").Costing(7).AtPriority(Low), l.For("other").Costing(9))
	if out := d.Outcomes(); !out[0].Never || !out[1].Never || !d.Never {
		t.Errorf("7 of 10 at low and 9 at normal, with headroom 2: %+v; want never", out)
	}
}

func TestHold(t *testing.T) {
	lim, clock := newLimiter()
	l := &Limit{Name: "api", Rate: Rate{10, time.Second}}
	other := &Limit{Name: "other", Rate: Rate{10, time.Second}}
	hold := func(at time.Duration, c Charge) {
		if err := lim.Hold(background, epoch.Add(at), c); err != nil {
			t.Fatal(err)
		}
	}
	retry := func(c ...Charge) time.Duration {
		d, err := lim.Take(background, c...)
		if err != nil {
			t.Fatal(err)
		}
		return d.RetryAfter
	}
	hold(30*time.Second, l.For("a"))
	hold(20*time.Second, l.For("a")) // the longer one stays
	if got := retry(l.For("a")); got != 30*time.Second {
		t.Errorf("held key: retry after %v", got)
	}
	if got := retry(l.For("b"), l.For("a"), other.For("x")); got != 30*time.Second {
		t.Errorf("held key among others: retry after %v", got)
	}
	if d, _ := lim.Peek(background, l.For("b"), other.For("x")); d.Outcomes()[0].Remaining != 10 || d.Outcomes()[1].Remaining != 10 {
		t.Errorf("a refusal by a hold has charged: %+v", d.Outcomes())
	}
	hold(time.Minute, l.Every())
	if got := retry(l.For("never seen")); got != time.Minute {
		t.Errorf("any key of a held limit: retry after %v", got)
	}
	if got := retry(other.For("a")); got != 0 {
		t.Errorf("another limit: retry after %v", got)
	}
	if d, _ := lim.Peek(background, l.For("a")); d.Outcomes()[0].Held != time.Minute || d.Outcomes()[0].Remaining != 0 {
		t.Errorf("a held key says %+v", d.Outcomes()[0])
	}
	if err := lim.Hold(background, time.Time{}, l.Every()); err != nil {
		t.Fatal(err)
	}
	if got := retry(l.For("a")); got != 30*time.Second {
		t.Errorf("with the limit's hold lifted, the key's own: retry after %v", got)
	}
	clock.set(30 * time.Second)
	if got := retry(l.For("a")); got != 0 {
		t.Errorf("when the hold ends: retry after %v", got)
	}
	hold(40*time.Second, l.For("a"))
	if err := lim.Hold(background, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), l.For("a")); err != nil {
		t.Fatal(err)
	}
	if got := retry(l.For("a")); got != 10*time.Second {
		t.Errorf("held until 1960, which is over and lifts nothing: retry after %v", got)
	}
	shadow := &Limit{Name: "shadow", Rate: Rate{1, time.Hour}, Shadow: true}
	hold(time.Hour, shadow.For("a"))
	if got := retry(shadow.For("a")); got != 0 {
		t.Errorf("a held shadow refuses for %v", got)
	}
}

func TestShadowNeverRefusesAndIsChargedWhereItAdmits(t *testing.T) {
	lim, _ := newLimiter()
	real := &Limit{Name: "real", Rate: Rate{5, time.Hour}}
	shadow := &Limit{Name: "shadow", Rate: Rate{2, time.Hour}, Shadow: true}
	refusedByShadow := 0
	for range 5 {
		d, _ := lim.Take(background, real.For("k"), shadow.For("k"))
		if !d.Allowed || d.RetryAfter != 0 {
			t.Fatalf("a shadow refused: %+v", d)
		}
		if out := d.Outcomes(); out[1].Refused() {
			refusedByShadow++
		}
	}
	if refusedByShadow != 3 {
		t.Errorf("the shadow of 2 would have refused %d of 5", refusedByShadow)
	}
	d, _ := lim.Take(background, real.For("k"), shadow.For("k2"))
	if d.Allowed {
		t.Fatal("the sixth of five was admitted")
	}
	if d, _ := lim.Peek(background, shadow.For("k2")); d.Outcomes()[0].Remaining != 2 {
		t.Error("a refusal has charged a shadow")
	}
	d, _ = lim.Take(background, shadow.For("k3").Costing(99))
	if !d.Allowed || d.Never || !d.Outcomes()[0].Never {
		t.Errorf("a cost that a shadow never admits: %+v", d)
	}
}

func TestWrongCharges(t *testing.T) {
	lim, _ := newLimiter()
	l := &Limit{Name: "x", Rate: Rate{5, time.Hour}}
	for _, c := range []struct {
		name    string
		charges []Charge
		want    error
	}{
		{"negative cost", []Charge{l.For("k").Costing(-1)}, ErrCost},
		{"most negative cost", []Charge{l.For("k").Costing(math.MinInt64)}, ErrCost},
		{"overflowing sum", []Charge{l.For("k").Costing(math.MaxInt64), l.For("k").Costing(math.MaxInt64)}, ErrCost},
		{"no limit", []Charge{{Key: "k", Cost: 1}}, ErrNoLimit},
		{"no such priority", []Charge{l.For("k").AtPriority(2)}, ErrPriority},
		{"every key", []Charge{l.Every()}, ErrEvery},
	} {
		good := l.For("good")
		if _, err := lim.Take(background, append([]Charge{good}, c.charges...)...); !errors.Is(err, c.want) {
			t.Errorf("%s: Take = %v, want %v", c.name, err, c.want)
		}
		if err := lim.Refund(background, epoch, c.charges...); !errors.Is(err, c.want) {
			t.Errorf("%s: Refund = %v, want %v", c.name, err, c.want)
		}
		if _, err := lim.Wait(background, c.charges...); !errors.Is(err, c.want) {
			t.Errorf("%s: Wait = %v, want %v", c.name, err, c.want)
		}
	}
	if d, _ := lim.Peek(background, l.For("good")); d.Outcomes()[0].Remaining != 5 {
		t.Error("an error has charged the good key beside")
	}
	if d, err := lim.Take(background, l.For("k").Costing(math.MaxInt64/4)); err != nil || !d.Never {
		t.Errorf("a huge cost: %+v, %v; want never", d, err)
	}
	if d, err := lim.Take(background); err != nil || !d.Allowed {
		t.Errorf("no charges: %+v, %v; want allowed", d, err)
	}
}

func TestChargesThatMeetAreSummed(t *testing.T) {
	lim, _ := newLimiter()
	l := &Limit{Name: "x", Rate: Rate{5, time.Hour}}
	again := &Limit{Name: "x", Rate: Rate{5, time.Hour}} // the same limit by name
	if d, _ := lim.Take(background, l.For("k").Costing(3), again.For("k").Costing(3)); d.Allowed || !d.Never {
		t.Errorf("3 + 3 of 5: %+v; want never", d)
	}
	if d, _ := lim.Take(background, l.For("k").Costing(3), again.For("k").Costing(2)); !d.Allowed || d.Outcomes()[0].Remaining != 0 || d.Outcomes()[1].Remaining != 0 {
		t.Errorf("3 + 2 of 5: %+v", d)
	}
	many := make([]Charge, 9)
	for i := range many {
		many[i] = l.For("z")
	}
	if d, _ := lim.Take(background, many[:6]...); d.Allowed {
		t.Error("six ones of five were admitted")
	}
	if d, _ := lim.Take(background, many[:5]...); !d.Allowed || len(d.Outcomes()) != 5 {
		t.Errorf("five ones of five: %+v", d)
	}
}

func TestRefundAndDebit(t *testing.T) {
	lim, clock := newLimiter()
	l := &Limit{Name: "tokens", Rate: Rate{10, 10 * time.Second}}
	left := func() int64 {
		d, _ := lim.Peek(background, l.For("k"))
		return d.Outcomes()[0].Remaining
	}
	d, _ := lim.Take(background, l.For("k").Costing(8))
	clock.set(3 * time.Second)
	lim.Refund(background, d.At, l.For("k").Costing(8)) // 3 of the 8 have come back by themselves
	if got := left(); got != 10 {
		t.Errorf("8 of 10 charged, 3 refilled, refunded: %d left", got)
	}
	lim.Refund(background, d.At, l.For("k").Costing(8))
	if got := left(); got != 10 {
		t.Errorf("refunded twice: %d left", got)
	}
	lim.Debit(background, l.For("k").Costing(15))
	if d, _ := lim.Peek(background, l.For("k")); d.RetryAfter != 6*time.Second || d.Outcomes()[0].Remaining != 0 {
		t.Errorf("5 in debt: %+v", d)
	}
	lim.Debit(background, l.For("k").Costing(math.MaxInt64/8))
	if d, _ := lim.Peek(background, l.For("k")); d.RetryAfter != 11*time.Second {
		t.Errorf("debt is cut off at twice the capacity: retry after %v, want 11s", d.RetryAfter)
	}
	lim.Reset(background, l.For("k"))
	if got := left(); got != 10 {
		t.Errorf("reset: %d left", got)
	}

	window := &Limit{Name: "window", Algorithm: FixedWindow, Rate: Rate{5, time.Minute}}
	clock.set(10 * time.Minute)
	d, _ = lim.Take(background, window.For("k").Costing(5))
	clock.set(11 * time.Minute)
	lim.Take(background, window.For("k").Costing(5))
	lim.Refund(background, d.At, window.For("k").Costing(5))
	if d, _ := lim.Peek(background, window.For("k")); d.Allowed {
		t.Error("a refund of the last window was given to this one")
	}
}

// TestRefundOfMoreThanWasCharged: who asks too much back gets what the charge has taken, and nothing of another's.
func TestRefundOfMoreThanWasCharged(t *testing.T) {
	for a := TokenBucket; a < algorithms; a++ {
		lim, clock := newLimiter()
		l := &Limit{Name: "x", Algorithm: a, Rate: Rate{10, time.Minute}}
		key := l.For("k")
		full, _ := lim.Peek(background, key)
		first, _ := lim.Take(background, key.Costing(3))
		clock.set(time.Second)
		for range 3 {
			if err := lim.Refund(background, first.At, key.Costing(1000)); err != nil {
				t.Fatal(err)
			}
		}
		if d, _ := lim.Peek(background, key); d.Outcomes()[0].Remaining != full.Outcomes()[0].Remaining {
			t.Errorf("%v: 3 charged, 3000 refunded: %d left of %d", a, d.Outcomes()[0].Remaining, full.Outcomes()[0].Remaining)
		}
		if d, _ := lim.Take(background, key.Costing(10)); !d.Allowed {
			t.Errorf("%v: 10 of 10 refused: %+v", a, d)
		}
		if d, _ := lim.Take(background, key); d.Allowed {
			t.Errorf("%v: an 11th unit of 10 admitted", a)
		}
	}
	logs := &Limit{Name: "logs", Algorithm: SlidingLog, Rate: Rate{10, time.Minute}}
	lim, clock := newLimiter()
	first, _ := lim.Take(background, logs.For("k").Costing(3))
	clock.set(time.Second)
	lim.Take(background, logs.For("k").Costing(5))
	lim.Refund(background, first.At, logs.For("k").Costing(8))
	if d, _ := lim.Peek(background, logs.For("k")); d.Outcomes()[0].Remaining != 5 {
		t.Errorf("3 and 5 of 10 charged, 8 refunded to the 3: %d left, want 5", d.Outcomes()[0].Remaining)
	}
}

// TestRefundOfLongAgo: whenever a charge is said to have been made, no product overflows into units.
func TestRefundOfLongAgo(t *testing.T) {
	lim, clock := newLimiter()
	l := &Limit{Name: "x", Rate: Rate{999_983, 24 * time.Hour}, Burst: 1000}
	clock.set(0)
	lim.Debit(background, l.For("k").Costing(2000))
	for years := range 56 {
		at := epoch.AddDate(-years, 0, -1)
		lim.Refund(background, at, l.For("k").Costing(1000))
		if d, _ := lim.Peek(background, l.For("k")); d.Outcomes()[0].Remaining != 0 {
			t.Fatalf("1000 refunded of %v: %d left of a debt", at, d.Outcomes()[0].Remaining)
		}
	}
}

// TestDebitsDoNotOverflow debits the largest cost again and again.
func TestDebitsDoNotOverflow(t *testing.T) {
	for a := TokenBucket; a < algorithms; a++ {
		lim, _ := newLimiter()
		l := &Limit{Name: "x", Algorithm: a, Rate: Rate{10, time.Minute}}
		for i := range 20 {
			if err := lim.Debit(background, l.For("k").Costing(maxCost)); err != nil {
				t.Fatal(err)
			}
			if d, _ := lim.Peek(background, l.For("k")); d.Allowed || d.Outcomes()[0].Remaining != 0 {
				t.Fatalf("%v: after %d debits of %d: %+v", a, i+1, int64(maxCost), d.Outcomes()[0])
			}
		}
	}
}

// TestChangingLargeNumbers: what was counted under large numbers does not overflow under small ones, in the same window or
// in a long one, of which the time that it was counted in is the very end.
func TestChangingLargeNumbers(t *testing.T) {
	for _, period := range []time.Duration{1000 * time.Second, 400 * 24 * time.Hour} {
		lim, clock := newLimiter()
		old := &Limit{Name: "x", Algorithm: SlidingWindow, Rate: Rate{1_000_000_000_000, 1000 * time.Second}}
		now := &Limit{Name: "x", Algorithm: SlidingWindow, Rate: Rate{5, period}}
		lim.Debit(background, old.For("k").Costing(maxCost))
		from := time.Duration(0)
		if now.Rate.Period == old.Rate.Period { // in the next window, so that the large number is that of the one before
			from = 1000 * time.Second
			clock.set(from)
			lim.Debit(background, old.For("k"))
		}
		for at := from; at <= from+1000*time.Second; at += time.Second {
			clock.set(at)
			d, err := lim.Peek(background, now.For("k").Costing(5))
			if left := d.Outcomes()[0].Remaining; err != nil || left < 0 || left >= 5 || d.Allowed || d.RetryAfter > 3000*time.Second-at {
				t.Fatalf("%v: at %v: %d left, retry after %v, %v; want less than 5 until 3000s", now.Rate, at, left, d.RetryAfter, err)
			}
		}
	}
}

func TestChangingNumbersKeepsWhatIsSpent(t *testing.T) {
	rates := []Rate{{10, time.Second}, {7, 3 * time.Second}, {1000, time.Hour}, {1, time.Minute}, {999983, 24 * time.Hour}, {3, time.Second}}
	for a := TokenBucket; a < algorithms; a++ {
		lim, clock := newLimiter()
		at := time.Duration(0)
		random := rand.New(rand.NewPCG(5, uint64(a)))
		for i := range 2000 {
			r := rates[random.IntN(len(rates))]
			if a >= SlidingLog && r.Units > maxEntries || a == SlidingWindow && r.Units == 999983 {
				continue
			}
			l := &Limit{Name: "x", Algorithm: a, Rate: r}
			d, err := lim.Take(background, l.For("k").Costing(int64(i%3)))
			if err != nil {
				t.Fatal(err)
			}
			if left := d.Outcomes()[0].Remaining; left < 0 || left > l.Capacity() {
				t.Fatalf("%v at %v: %d left", a, l.Rate, left)
			}
			at += time.Duration(i%11) * 50 * time.Millisecond
			clock.set(at)
		}
	}
	lim, _ := newLimiter()
	for i, r := range rates { // a spent bucket stays spent, whatever word of its table it lives in
		l := &Limit{Name: "y", Rate: r}
		if i == 0 {
			lim.Take(background, l.For("k").Costing(10))
		} else if d, _ := lim.Take(background, l.For("k").Costing(l.Capacity())); d.Allowed {
			t.Errorf("a changed rate of %v gave a full burst at once", r)
		}
	}
}

func TestAllOrNothingUnderContention(t *testing.T) {
	lim := &Limiter{}
	global := &Limit{Name: "global", Rate: Rate{1000, 24 * time.Hour}}
	limits := []*Limit{global}
	for a := TokenBucket; a < algorithms; a++ {
		limits = append(limits, &Limit{Name: a.String(), Algorithm: a, Rate: Rate{300, 24 * time.Hour}})
	}
	limits[3].Algorithm = GCRA // a leaky bucket has no burst to fill
	const keys = 5
	var mu sync.Mutex
	admitted := map[string]int64{}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 600 {
				key := string(rune('a' + (i+g)%keys))
				a, b := limits[1+(i+g)%7], limits[1+(i*3+g)%7]
				charges := []Charge{global.For(""), a.For(key), b.For(key)}
				if i%2 == 0 {
					charges[0], charges[2] = charges[2], charges[0]
				}
				d, err := lim.Take(background, charges...)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					mu.Lock()
					for _, c := range charges {
						admitted[c.Limit.Name+c.Key]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if admitted["global"] != 1000 {
		t.Errorf("the global limit of 1000 admitted %d of 4800", admitted["global"])
	}
	for _, l := range limits[1:] {
		for k := range keys {
			key := string(rune('a' + k))
			d, _ := lim.Peek(background, l.For(key))
			if spent := l.Capacity() - d.Outcomes()[0].Remaining; spent != admitted[l.Name+key] {
				t.Errorf("%s/%s: %d spent, %d admitted: a refusal left a charge or a charge was lost", l.Name, key, spent, admitted[l.Name+key])
			}
		}
	}
}

// failing is a Store that is down.
type failing struct{ err error }

func (f failing) Apply(context.Context, *Tx) error { return f.err }

func TestFallback(t *testing.T) {
	down := errors.New("down")
	var told error
	lim := &Limiter{Store: &Fallback{Primary: failing{down}, Backup: &Memory{}, OnError: func(err error) { told = err }}}
	l := &Limit{Name: "x", Rate: Rate{1, time.Hour}}
	if d, err := lim.Take(background, l.For("k")); err != nil || !d.Allowed || told != down {
		t.Errorf("Take = %+v, %v; told %v", d, err, told)
	}
	if d, err := lim.Take(background, l.For("k")); err != nil || d.Allowed {
		t.Errorf("second Take of one: %+v, %v", d, err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := lim.Take(ctx, l.For("k2")); err != down {
		t.Errorf("with an ended context: %v, want the error of Primary", err)
	}
	if _, err := (&Limiter{Store: failing{down}}).Take(background, l.For("k")); err != down {
		t.Errorf("without a fallback: %v", err)
	}
}

func TestInstant(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want Instant
	}{
		{time.Time{}, 0},
		{time.Unix(0, -1), 0},
		{time.Unix(1, 999), 1_000_000},
		{time.Unix(1<<62, 0), 1 << 52},
		{time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), 1_795_996_800_000_000},
	} {
		if got := InstantOf(c.at); got != c.want {
			t.Errorf("InstantOf(%v) = %d, want %d", c.at, got, c.want)
		}
	}
}
