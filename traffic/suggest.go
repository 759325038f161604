package traffic

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir"
)

// Goal is what a suggested limit has to keep to.
type Goal struct {
	Refused Share // the most that may be refused: of requests,
	Clients bool  // or, if this is set, of keys, at least once
}

// Suggestion is the smallest limit that keeps to a Goal on the traffic that was seen, if it were the only limit: the least units in the
// limit's own period, with the burst in the limit's own proportion to them, and then the least burst that still does. It is found by halving the
// interval in which it lies, each time going through all requests again with the limit in question.
//
// That finds the smallest of all where all charges cost the same at the same priority. Otherwise a larger limit can refuse more requests: it
// has room for one that is dear, and then none for several that are cheap; and twice the headroom, in whole units, grows in steps of two. What is found keeps to the Goal then, and with one unit less would not;
// a much smaller one may.
type Suggestion struct {
	Goal    string    `json:"goal"`
	Found   bool      `json:"found"` // false: no limit of this kind keeps to it
	Rate    weir.Rate `json:"rate"`
	Burst   int64     `json:"burst"` // units at once
	Asked   int64     `json:"asked"`
	Refused int64     `json:"refused"`
	Keys    int64     `json:"keys"`         // among those that are counted
	KeysHit int64     `json:"keys_refused"` // of Keys
	Below   string    `json:"below"`        // what one unit less would refuse; empty if there is none
	Uneven  bool      `json:"uneven"`       // charges differ in cost or priority, or are Low beside headroom
	Runs    int       `json:"runs"`         // how often the requests were gone through
}

// String is as 12 % of requests.
func (g *Goal) String() string {
	if g.Clients {
		return g.Refused.String() + " of clients"
	}
	return g.Refused.String() + " of requests"
}

// search looks for a Suggestion.
type search struct {
	run     *limitRun
	goal    *Goal
	most    int64 // of refusals, or keys
	runs    int
	refused int64 // by the last run
	keys    int64
}

const maxUnits = 1 << 40

func (r *limitRun) suggest(ctx context.Context, goal *Goal) (*Suggestion, error) {
	if goal.Clients && len(r.keys.kept) == 1 { // there is one key, and it is no client
		goal = &Goal{Refused: goal.Refused}
	}
	s := &search{run: r, goal: goal}
	of := r.trace.n
	if goal.Clients {
		of = int64(len(r.keys.kept))
	}
	s.most = int64(math.Floor(float64(goal.Refused)*float64(of) + 1e-9))
	out := &Suggestion{Goal: goal.String(), Asked: r.trace.n, Keys: int64(len(r.keys.kept)),
		Uneven: r.trace.uneven || r.limit.Headroom > 0 && r.trace.first.Priority == weir.Low}
	defer func() { out.Runs = s.runs }()

	fits := func(units, burst int64) (bool, error) { return s.fits(ctx, units, burst) }
	burst := func(units int64) int64 { // in the limit's own proportion
		if r.limit.Burst == 0 || r.limit.Rate.Units == 0 {
			return units
		}
		high, low := bits.Mul64(uint64(units), uint64(r.limit.Burst))
		if high >= uint64(r.limit.Rate.Units) {
			return maxUnits
		}
		b, rest := bits.Div64(high, low, uint64(r.limit.Rate.Units))
		if rest > 0 {
			b++
		}
		return int64(max(1, b))
	}
	units, err := least(max(1, r.limit.Rate.Units), func(u int64) (bool, error) { return fits(u, burst(u)) })
	if err != nil || units == 0 {
		return out, err
	}
	out.Found = true
	out.Rate, out.Burst = weir.Rate{Units: units, Period: r.limit.Rate.Period}, units
	if r.hasBurst() {
		if out.Burst, err = least(burst(units), func(b int64) (bool, error) { return fits(units, b) }); err != nil {
			return nil, err
		}
		if out.Burst == 0 { // not reached: burst(units) fits
			out.Burst = burst(units)
		}
	}
	if units > 1 {
		out.Below = s.verdict()
	}
	if _, err := fits(units, out.Burst); err != nil {
		return nil, err
	}
	out.Refused, out.KeysHit = s.refused, s.keys
	return out, nil
}

func (s *search) verdict() string {
	what := "requests"
	if s.goal.Clients {
		what = "clients"
	}
	if s.most == 0 {
		return "some " + what
	}
	return "more than " + Count(s.most) + " " + what
}

func (r *limitRun) hasBurst() bool {
	return r.limit.Algorithm == weir.TokenBucket || r.limit.Algorithm == weir.GCRA
}

// least is the smallest number from 1 on that fits, given that all greater ones do too; 0 if there is none. It looks around start first.
func least(start int64, fits func(int64) (bool, error)) (int64, error) {
	low, high := int64(0), start // low does not fit
	for {
		ok, err := fits(high)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		if low = high; high >= maxUnits {
			return 0, nil
		}
		high = min(maxUnits, high*2)
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		ok, err := fits(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			high = mid
		} else {
			low = mid
		}
	}
	return high, nil
}

// fits goes through the trace with a limit, and stops as soon as it has refused too much.
func (s *search) fits(ctx context.Context, units, burst int64) (bool, error) {
	s.runs++
	l := &weir.Limit{Name: s.run.limit.Name, Algorithm: s.run.limit.Algorithm, Rate: weir.Rate{Units: units, Period: s.run.limit.Rate.Period}}
	if s.run.hasBurst() {
		l.Algorithm, l.Burst = weir.TokenBucket, burst // which GCRA is, where it can be held
	}
	if h := s.run.limit.Headroom; h > 0 { // in proportion too
		l.Headroom = min(int64(float64(h)*float64(burst)/float64(s.run.limit.Capacity())), (burst-1)/2)
	}
	if l.Validate() != nil {
		return false, nil // more than it can be held with
	}
	var now time.Time
	lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
	hit := make(map[uint64]struct{})
	s.refused, s.keys = 0, 0
	n := 0
	err := s.run.trace.each(func(c *traced) (bool, error) {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		now = time.UnixMicro(int64(c.at))
		var key [8]byte
		binary.LittleEndian.PutUint64(key[:], c.key)
		d, err := lim.Take(ctx, weir.Charge{Limit: l, Key: string(key[:]), Cost: c.cost, Priority: c.priority})
		if err != nil || d.Allowed {
			return true, err
		}
		s.refused++
		if s.goal.Clients && c.key <= s.run.keys.below {
			hit[c.key] = struct{}{}
			s.keys = int64(len(hit))
			return s.keys <= s.most, nil
		}
		return s.goal.Clients || s.refused <= s.most, nil
	})
	if err != nil {
		return false, err
	}
	if s.goal.Clients {
		return s.keys <= s.most, nil
	}
	return s.refused <= s.most, nil
}
