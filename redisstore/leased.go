package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

const (
	defaultLifetime = time.Second
	mostLeases      = 1 << 14 // keys with portions; further ones are decided by the shared store
)

// Leased is a Store that takes units of a limit from Store in portions, which it has paid for, and spends them at the speed of memory. It is
// for limits of a whole fleet next to those of single clients: the one key that everybody asks, and in a Redis Cluster the one whose
// slot is another.
//
//	limits := &redisstore.Leased{Store: shared, Instances: 10, Lease: func(l *weir.Limit) bool { return l.Name == "global" }}
//
// What it promises, of a limit with capacity C and Instances · Portion = F:
//
//   - The fleet is never admitted more than the limit, however its clocks are off: each unit is charged before
//     it is spent, and F units stay uncharged for those that are charged and not yet spent. A FixedWindow needs no F, since a portion ends
//     with its window.
//   - So at most C − F units are admitted at once, and one request can cost no more. The rate of a bucket is not less; windows and logs
//     admit C − F in a Period.
//   - Units that an instance holds and does not need, at most Portion, are given back after Lifetime. How large a portion is follows
//     the demand: all of it, then twice as much, up to Portion; what came back unspent, less.
//   - A Hold or Reset made here counts at once, one made by another instance within Lifetime.
//
// LeakyBucket, Concurrency, limits with Headroom or Shadow, and those too small for F are decided by Store, as are all operations
// but Take and Peek. Charges of one decision that are not leased are decided together by Store after the leased ones are set
// aside; a refusal by either gives back what the other would have spent. Units that a crashed instance held are lost until the limit
// gives them back by itself.
//
// Remaining is what was left in Store when the last portion was taken, and what is left of the portion. It is safe for concurrent use. It
// needs no closing, though [Leased.Close] gives back at once what it holds.
type Leased struct {
	Store weir.Store

	// Lease says which limits are leased; nil means all that can be.
	Lease func(*weir.Limit) bool

	// Instances is how many processes lease from Store at most; zero means 1.
	Instances int

	// Portion is how many units of a key this process holds unspent at most; zero means a tenth of
	// the capacity for all instances together.
	Portion int64

	// Lifetime is how long a portion may be spent; zero means 1 s.
	Lifetime time.Duration

	mu     sync.RWMutex
	laws   map[*weir.Law]*terms
	leases map[leaseKey]*lease
	swept  time.Time
}

type leaseKey struct {
	limit     string
	algorithm weir.Algorithm
	key       string
}

// terms are how a limit is leased; nil if it is not.
type terms struct {
	limit *weir.Limit // with the headroom F
	law   *weir.Law
	most  int64
}

// lease is what this process holds of one key.
type lease struct {
	charge weir.TxCharge // one unit of it, under its terms
	terms  *terms
	owner  *Leased

	mu       sync.Mutex
	portions []*portion    // the oldest first
	aside    int64         // units set aside by decisions under way
	coming   int64         // units asked for
	asking   chan struct{} // closed when the answer has come; nil if nobody asks
	size     int64         // of the next portion
	short    bool          // Store had less than was asked for, the last time
	rest     int64         // left in Store at the last answer
	not      time.Time     // no portion will be had before; only those who need one ask
	base     weir.Instant  // the Store's clock
	baseAt   time.Time     // when it was that
	timer    *time.Timer   // gives back at the end of the oldest portion
}

type portion struct {
	units int64
	taken int64
	at    weir.Instant // charged at
	until time.Time
}

func (l *Leased) answers() int64 { return answersOf(l.Store) }

func (l *Leased) lifetime() time.Duration {
	if l.Lifetime > 0 {
		return l.Lifetime
	}
	return defaultLifetime
}

// termsOf is how the limit of c is leased, or nil.
func (l *Leased) termsOf(c *weir.TxCharge) *terms {
	if c.Limit.Shadow || c.Every {
		return nil
	}
	l.mu.RLock()
	t, ok := l.laws[c.Law]
	l.mu.RUnlock()
	if ok {
		return t
	}
	if l.Lease == nil || l.Lease(c.Limit) {
		t = l.lease(c.Limit, c.Law)
	}
	l.mu.Lock()
	if l.laws == nil || len(l.laws) >= mostRules {
		l.laws = map[*weir.Law]*terms{}
	}
	l.laws[c.Law] = t
	l.mu.Unlock()
	return t
}

// Leases reports whether limit is taken in portions, of which Lease decides only a part: see [Leased] for what cannot be.
func (l *Leased) Leases(limit *weir.Limit) bool {
	law, err := limit.Law()
	return err == nil && !limit.Shadow && (l.Lease == nil || l.Lease(limit)) && l.lease(limit, law) != nil
}

func (l *Leased) lease(limit *weir.Limit, law *weir.Law) *terms {
	switch law.Algorithm {
	case weir.LeakyBucket, weir.Concurrency:
		return nil
	}
	instances := int64(max(1, l.Instances))
	most := l.Portion
	if most <= 0 {
		most = max(1, law.Capacity/(10*instances))
	}
	copied := fields(limit)
	if law.Algorithm == weir.FixedWindow {
		most = min(most, law.Capacity)
	} else {
		most = min(most, (law.Capacity-1)/2/instances)
		copied.Headroom = instances * most
	}
	if most <= 0 || limit.Headroom > 0 {
		return nil
	}
	compiled, err := copied.Law()
	if err != nil {
		return nil
	}
	return &terms{limit: &copied, law: compiled, most: most}
}

// of is the lease of a charge, or nil if Store decides it.
func (l *Leased) of(c *weir.TxCharge) *lease {
	t := l.termsOf(c)
	if t == nil {
		return nil
	}
	k := leaseKey{c.Limit.Name, c.Law.Algorithm, c.Key}
	l.mu.RLock()
	le := l.leases[k]
	l.mu.RUnlock()
	if le != nil && le.terms == t {
		return le
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.leases[k]
	if old != nil && old.terms == t {
		return old
	}
	if old == nil && len(l.leases) >= mostLeases && !l.sweep() {
		return nil
	}
	if l.leases == nil {
		l.leases = map[leaseKey]*lease{}
	}
	le = &lease{terms: t, owner: l, size: max(1, t.most/8)}
	le.charge = weir.TxCharge{Charge: weir.Charge{Limit: t.limit, Key: c.Key, Cost: 1}, Law: t.law}
	l.leases[k] = le
	if old != nil { // the limit has other numbers now
		go old.giveBack(context.Background(), true)
	}
	return le
}

// sweep drops the leases that hold nothing, and reports whether there is room now. It looks at most once in a Lifetime. The
// Leased is locked.
func (l *Leased) sweep() bool {
	if now := time.Now(); now.Sub(l.swept) > l.lifetime() {
		l.swept = now
		for k, le := range l.leases {
			le.mu.Lock()
			if le.asking == nil && le.held(now) == 0 {
				delete(l.leases, k)
			}
			le.mu.Unlock()
		}
	}
	return len(l.leases) < mostLeases
}

// Apply implements weir.Store.
func (l *Leased) Apply(ctx context.Context, tx *weir.Tx) error {
	switch tx.Op {
	case weir.Take:
		if len(tx.Charges) == 1 {
			if le := l.of(&tx.Charges[0]); le != nil {
				return le.take(ctx, tx)
			}
			return l.Store.Apply(ctx, tx)
		}
		return l.take(ctx, tx)
	case weir.Peek:
		return l.peek(ctx, tx)
	case weir.Refund:
		return l.refund(ctx, tx)
	case weir.Hold, weir.Reset:
		l.drop(ctx, tx)
	}
	return l.Store.Apply(ctx, tx)
}

// take decides a Take of one leased charge.
func (le *lease) take(ctx context.Context, tx *weir.Tx) error {
	c := &tx.Charges[0]
	le.mu.Lock()
	if le.spend(c.Cost, time.Now(), false) != nil {
		le.answer(tx, c, time.Now())
		le.mu.Unlock()
		return nil
	}
	le.mu.Unlock()
	_, got, err := le.acquire(ctx, c.Cost, false)
	if err != nil {
		return err
	}
	if got != nil {
		r := &got.Charges[0]
		tx.Now, tx.OK, tx.At = got.Now, got.OK, got.At
		c.When, c.Left, c.Next, c.Held = r.When, r.Left, r.Next, r.Held
		return nil
	}
	le.mu.Lock()
	le.answer(tx, c, time.Now())
	le.mu.Unlock()
	return nil
}

// spend takes units out of a portion that has them; aside means that they may come back. The lease is locked.
func (le *lease) spend(cost int64, now time.Time, aside bool) *portion {
	for _, p := range le.portions {
		if p.units >= cost && now.Before(p.until) {
			p.units -= cost
			p.taken += cost
			if aside {
				le.aside += cost
			}
			if le.asking == nil && le.held(now) < le.size/4 && !now.Before(le.not) {
				le.asking = make(chan struct{})
				go le.get(context.Background(), 1, le.asking) // ahead of need
			}
			return p
		}
	}
	return nil
}

// held is the units that can be spent, may come back, or are on their way. The lease is locked.
func (le *lease) held(now time.Time) int64 { return le.units(now) + le.aside + le.coming }

func (le *lease) units(now time.Time) (n int64) {
	for _, p := range le.portions {
		if now.Before(p.until) {
			n += p.units
		}
	}
	return n
}

// answer fills in that c is admitted. The lease is locked.
func (le *lease) answer(tx *weir.Tx, c *weir.TxCharge, now time.Time) {
	tx.Now, tx.OK = le.base+weir.Instant(now.Sub(le.baseAt)/time.Microsecond), true
	tx.At = tx.Now
	c.When, c.Next, c.Held = tx.Now, 0, 0
	c.Left = min(le.rest+le.units(now), c.Law.Capacity)
}

// acquire spends cost units of a portion that it asks Store for, or of one that others do. It gives either the portion or
// what Store said: that it refuses, or, of a cost beyond all portions, that it was charged there.
func (le *lease) acquire(ctx context.Context, cost int64, aside bool) (p *portion, got *weir.Tx, err error) {
	if cost > le.terms.most {
		got, err := le.ask(ctx, cost)
		return nil, got, err
	}
	for {
		le.mu.Lock()
		if p := le.spend(cost, time.Now(), aside); p != nil {
			le.mu.Unlock()
			return p, nil, nil
		}
		asking := le.asking
		mine := asking == nil
		if mine {
			asking = make(chan struct{})
			le.asking = asking
		}
		le.mu.Unlock()
		if !mine {
			select {
			case <-asking:
				continue
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		refused, err := le.get(ctx, cost, asking)
		if refused != nil || err != nil {
			return nil, refused, err
		}
	}
}

// get asks Store for the next portion, of at least cost units, and closes asking when it has an answer.
func (le *lease) get(ctx context.Context, cost int64, asking chan struct{}) (refused *weir.Tx, err error) {
	le.mu.Lock()
	now := time.Now()
	if room := le.terms.most - le.held(now); room < cost {
		// Splinters of portions fill what may be held. They are given back.
		le.mu.Unlock()
		le.giveBack(ctx, true)
		le.mu.Lock()
	}
	le.grow(now)
	n := max(cost, min(le.size, le.terms.most-le.held(now)))
	le.coming = n
	le.mu.Unlock()

	asked := time.Now()
	tx, err := le.ask(ctx, n)
	want := n
	for err == nil && !tx.OK && n > cost {
		n = max(cost, min(tx.Charges[0].Left, n/2)) // there is less: what there is, or what is needed
		asked = time.Now()
		tx, err = le.ask(ctx, n)
	}

	le.mu.Lock()
	defer le.mu.Unlock()
	le.asking, le.coming = nil, 0
	close(asking)
	if err != nil {
		return nil, err
	}
	le.base, le.baseAt, le.rest = tx.Now, time.Now(), tx.Charges[0].Left
	if le.short = n < want || !tx.OK; le.short {
		le.size = max(1, n)
	}
	if !tx.OK {
		le.not = time.Now().Add(le.owner.lifetime() / 10)
		return tx, nil
	}
	p := &portion{units: n, at: tx.Now, until: asked.Add(le.owner.lifetime())}
	if law := le.terms.law; law.Algorithm == weir.FixedWindow {
		w := weir.Instant(law.Window)
		end := asked.Add(time.Duration(w-tx.Now%w) * time.Microsecond)
		if end.Before(p.until) {
			p.until = end
		}
	}
	le.portions = append(le.portions, p)
	le.wind()
	return nil, nil
}

// grow doubles the portion if most of the last one went in less than half its life, and drops those that are spent. The lease is locked.
func (le *lease) grow(now time.Time) {
	if n := len(le.portions); n > 0 {
		if last := le.portions[n-1]; 3*last.units <= last.taken && last.until.Sub(now) > le.owner.lifetime()/2 {
			more := le.size
			if le.short { // near what there is: feel the way
				more = 1 + le.size/8
			}
			le.size = min(le.terms.most, le.size+more)
		}
	}
	kept := le.portions[:0]
	for _, p := range le.portions {
		if p.units > 0 || le.aside > 0 {
			kept = append(kept, p)
		}
	}
	clear(le.portions[len(kept):])
	le.portions = kept
}

// ask takes n units from Store.
func (le *lease) ask(ctx context.Context, n int64) (*weir.Tx, error) {
	tx := &weir.Tx{Op: weir.Take, Charges: []weir.TxCharge{le.charge}}
	tx.Charges[0].Cost = n
	if err := le.owner.Store.Apply(ctx, tx); err != nil {
		return nil, err
	}
	return tx, nil
}

// wind sets the timer to the end of the oldest portion. The lease is locked.
func (le *lease) wind() {
	if len(le.portions) == 0 {
		return
	}
	wait := max(0, time.Until(le.portions[0].until))
	if le.timer == nil {
		le.timer = time.AfterFunc(wait, func() { le.giveBack(context.Background(), false) })
		return
	}
	le.timer.Reset(wait)
}

// giveBack refunds what is left of the portions that have ended, or of all.
func (le *lease) giveBack(ctx context.Context, all bool) {
	le.mu.Lock()
	now := time.Now()
	var over []*portion
	kept := le.portions[:0]
	for _, p := range le.portions {
		if !all && now.Before(p.until) {
			kept = append(kept, p)
			continue
		}
		if p.units > 0 {
			le.size = max(1, min(le.size, p.taken))
			over = append(over, &portion{units: p.units, at: p.at})
			p.units = 0
		}
		p.until = time.Time{} // nothing comes back to it
	}
	clear(le.portions[len(kept):])
	le.portions = kept
	le.wind()
	le.mu.Unlock()
	for _, p := range over {
		tx := &weir.Tx{Op: weir.Refund, Made: p.at, Charges: []weir.TxCharge{le.charge}}
		tx.Charges[0].Cost = p.units
		le.owner.Store.Apply(ctx, tx) // what is not given back comes back by itself, later
	}
}

// Close gives back all that this process holds. Later decisions take new portions.
func (l *Leased) Close(ctx context.Context) {
	l.mu.RLock()
	var leases []*lease
	for _, le := range l.leases {
		leases = append(leases, le)
	}
	l.mu.RUnlock()
	for _, le := range leases {
		le.giveBack(ctx, true)
	}
}
