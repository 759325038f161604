package traffic

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// comparables are the algorithms that hold one rate in different ways. Concurrency counts something else.
var comparables = []weir.Algorithm{
	weir.TokenBucket, weir.GCRA, weir.LeakyBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog,
}

// AlgorithmResult is what an algorithm would have done with the charges of one limit, if it were the only limit.
type AlgorithmResult struct {
	Algorithm weir.Algorithm `json:"algorithm"`
	Chosen    bool           `json:"chosen"`             // it is the limit's own
	Burst     int64          `json:"burst,omitempty"`    // units at once, where the algorithm has them apart from the rate
	Problem   string         `json:"problem,omitempty"`  // why the limit cannot be held by it; nothing else is known then
	Asked     int64          `json:"asked"`              //
	Refused   int64          `json:"refused"`            //
	Bound     int64          `json:"bound"`              // the most units that it can admit in any period, whatever the traffic
	MostIn    int64          `json:"most_in_any_period"` // the most units that it did admit to one key in any period, wherever that begins
	MostAt    time.Time      `json:"most_at"`            // when that period ended
	MostKey   string         `json:"most_key"`           //

	// Decisions that an exact log of what the algorithm itself has admitted would have made otherwise. For windows these are mistakes;
	// buckets promise something else, and for them it is left at 0.
	WrongAdmitted int64 `json:"wrong_admitted"`
	WrongRefused  int64 `json:"wrong_refused"`
	Judged        int64 `json:"judged"` // of Asked: the decisions that were compared, all of them unless memory ran out
}

// Approximates reports whether a promises the rate in each window, so that decisions can be wrong.
func approximates(a weir.Algorithm) bool {
	return a == weir.FixedWindow || a == weir.SlidingWindow || a == weir.SlidingLog
}

const (
	maxJudged       = 2 << 20 // admissions remembered for one limit
	maxJudgedUnits  = 100_000 // as many as a SlidingLog remembers
	judgeSweepEvery = 10 * time.Second
)

// comparison holds one limit by all algorithms at once.
type comparison struct {
	limiter weir.Limiter
	limits  []*weir.Limit // nil: cannot be held
	laws    []*weir.Law
	results []AlgorithmResult
	window  weir.Instant
	room    int64 // units a period, for the exact log
	judged  bool

	keys    map[uint64]*judgedKey
	below   uint64 // keys with greater hashes are not judged any more
	entries int
	most    int // of entries and keys
	swept   weir.Instant
}

// judgedKey is what was admitted to one key in the last period, by each algorithm.
type judgedKey struct {
	seen weir.Instant
	logs [6]admissions
}

// admissions are those of the trailing period, the oldest first.
type admissions struct {
	entries []weir.Entry
	first   int
	used    int64
}

func newComparison(l *weir.Limit, algorithms []weir.Algorithm, now func() time.Time) *comparison {
	c := &comparison{
		limiter: weir.Limiter{Store: &weir.Memory{Now: now}},
		keys:    make(map[uint64]*judgedKey),
		below:   1<<64 - 1,
		window:  weir.Instant(l.Rate.Period / time.Microsecond),
		room:    l.Rate.Units,
		judged:  l.Rate.Units <= maxJudgedUnits,
		most:    maxJudged,
	}
	for _, a := range comparables {
		if !slices.Contains(algorithms, a) {
			continue
		}
		v := &weir.Limit{Name: l.Name, Algorithm: a, Rate: l.Rate}
		switch a {
		case weir.TokenBucket, weir.GCRA:
			v.Burst, v.Headroom = l.Capacity(), l.Headroom
		case weir.LeakyBucket: // holds nothing back
		default: // of fewer units at once the same part is held back
			v.Headroom = l.Headroom
			if c := l.Capacity(); c > l.Rate.Units {
				v.Headroom = int64(float64(l.Headroom) * float64(l.Rate.Units) / float64(c))
			}
		}
		r := AlgorithmResult{Algorithm: a, Chosen: a == l.Algorithm}
		law, err := v.Law()
		if err != nil {
			r.Problem = errorText(err)
			v = nil
		} else {
			r.Bound = bound(law, l.Rate)
			if v.Burst != 0 {
				r.Burst = v.Burst
			}
		}
		c.limits, c.laws, c.results = append(c.limits, v), append(c.laws, law), append(c.results, r)
	}
	return c
}

// bound is the most units that a law admits in any period of its rate.
func bound(law *weir.Law, r weir.Rate) int64 {
	window := int64(r.Period / time.Microsecond)
	if law.Capacity == 0 {
		return 0
	}
	switch law.Algorithm {
	case weir.TokenBucket, weir.GCRA:
		return law.Capacity + (window-1)*law.N/law.P
	case weir.LeakyBucket:
		return 1 + (window-1)/law.P
	case weir.FixedWindow:
		return 2 * law.Capacity
	case weir.SlidingWindow:
		return 2*law.Capacity - 1
	}
	return law.Capacity
}

// add asks all algorithms for a charge.
func (c *comparison) add(ctx context.Context, at weir.Instant, charge *weir.Charge, hash uint64) error {
	var key *judgedKey
	if c.judged && hash <= c.below && charge.Cost > 0 {
		key = c.key(at, hash)
	}
	for i, l := range c.limits {
		if l == nil {
			continue
		}
		one := *charge
		one.Limit = l
		d, err := c.limiter.Take(ctx, one)
		if err != nil {
			return err
		}
		r := &c.results[i]
		r.Asked++
		if !d.Allowed {
			r.Refused++
		}
		if key == nil {
			continue
		}
		log := &key.logs[i]
		c.entries -= log.expire(at - c.window)
		fits := log.used+charge.Cost <= c.room-floorOf(l, charge.Priority)
		if approximates(l.Algorithm) {
			r.Judged++
			switch {
			case d.Allowed && !fits:
				r.WrongAdmitted++
			case !d.Allowed && fits:
				r.WrongRefused++
			}
		}
		if d.Allowed {
			log.entries = append(log.entries, weir.Entry{At: at, Cost: charge.Cost})
			log.used += charge.Cost
			c.entries++
			if log.used > r.MostIn {
				r.MostIn, r.MostAt, r.MostKey = log.used, at.Time(), charge.Key
			}
		}
	}
	return nil
}

// floorOf is how many units a charge of priority p leaves.
func floorOf(l *weir.Limit, p weir.Priority) int64 { return int64(weir.High-p) * l.Headroom }

// expire forgets what was admitted at an instant or before, and says how many that were.
func (a *admissions) expire(until weir.Instant) int {
	n := 0
	for a.first < len(a.entries) && a.entries[a.first].At <= until {
		a.used -= a.entries[a.first].Cost
		a.first++
		n++
	}
	if a.first == len(a.entries) {
		a.entries, a.first = a.entries[:0], 0
	} else if a.first > len(a.entries)/2 {
		a.entries = a.entries[:copy(a.entries, a.entries[a.first:])]
		a.first = 0
	}
	return n
}

// key is what is remembered of a key. Keys that have asked for nothing for a period are forgotten, and if there is still too much, half of
// the keys are.
func (c *comparison) key(at weir.Instant, hash uint64) *judgedKey {
	if every := max(c.window, weir.Instant(judgeSweepEvery/time.Microsecond)); at >= c.swept+every || c.entries+len(c.keys) > c.most {
		for {
			for h, k := range c.keys {
				if k.seen <= at-c.window || h > c.below {
					for i := range k.logs {
						c.entries -= len(k.logs[i].entries) - k.logs[i].first
					}
					delete(c.keys, h)
				}
			}
			size := c.entries + len(c.keys)
			if size <= c.most/2 || size <= c.most && at >= c.swept+every || len(c.keys) <= 1 { // one key is no more than a log may have
				break
			}
			c.below >>= 1
		}
		c.swept = at
		if hash > c.below {
			return nil
		}
	}
	k := c.keys[hash]
	if k == nil {
		k = new(judgedKey)
		c.keys[hash] = k
	}
	k.seen = at
	return k
}
