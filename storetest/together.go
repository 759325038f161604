package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// together are checks of what a decision over several charges promises: all or none, at one instant.
var together = []check{
	{"all or none", allOrNone},
	{"charges that meet are one", meeting},
	{"keys and limits are kept apart", apart},
	{"all or none under contention", contention},
	{"one key under contention", oneKey},
}

// allOrNone asks for random mixes of limits and keys. A mix is admitted if each of its cells would admit all that is
// asked of it; then each has spent that, and otherwise none anything.
func allOrNone(r *rig) error {
	return each(300, 300, func(pick picker) error {
		var limits []*weir.Limit
		for range pick.in(1, 5) {
			limits = append(limits, r.limit(randomLimit(pick, weir.Algorithm(pick(int64(algorithms))))))
		}
		for range 12 {
			r.now += step(pick, one(pick, limits...))
			var charges []weir.Charge
			for range pick.in(1, 7) {
				l := one(pick, limits...)
				charges = append(charges, l.For(one(pick, "a", "b", "")).Costing(randomCost(pick, l)).AtPriority(randomPriority(pick)))
			}
			sums := merged(charges)
			want, worst := true, time.Duration(0)
			var before []short
			for _, c := range sums {
				d := r.peek(c)
				want = want && d.Allowed
				worst = max(worst, d.RetryAfter)
				before = append(before, sketch(d))
			}
			d := r.take(charges...)
			if d.Allowed != want {
				return fmt.Errorf("%v: allowed is %v; of the limits one by one: %v", list(charges), d.Allowed, want)
			}
			if !d.Allowed && !d.Never && d.RetryAfter != worst {
				return fmt.Errorf("%v: retry %v; the longest of the limits one by one is %v", list(charges), d.RetryAfter, worst)
			}
			if d.Allowed {
				continue
			}
			for i, c := range sums {
				if after := sketch(r.peek(c)); after != before[i] {
					return fmt.Errorf("%v: the refusal changed %s key %q from %v to %v", list(charges), describe(c.Limit), c.Key, before[i], after)
				}
			}
		}
		return nil
	})
}

// merged adds charges of one limit and key together, at the priority that gives way first.
func merged(charges []weir.Charge) []weir.Charge {
	var sums []weir.Charge
next:
	for _, c := range charges {
		for i := range sums {
			if s := &sums[i]; s.Limit == c.Limit && s.Key == c.Key {
				s.Cost += c.Cost
				s.Priority = min(s.Priority, c.Priority)
				continue next
			}
		}
		sums = append(sums, c)
	}
	return sums
}

func list(charges []weir.Charge) (s []string) {
	for _, c := range charges {
		if c.Every {
			s = append(s, fmt.Sprintf("%s every key", c.Limit.Name))
			continue
		}
		s = append(s, fmt.Sprintf("%s (%s) key %q cost %d %v", c.Limit.Name, describe(c.Limit), c.Key, c.Cost, c.Priority))
	}
	return s
}

// meeting asks for one cell several times in one decision.
func meeting(r *rig) error {
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 10, Period: time.Hour}})
		c := l.For("k")
		if d := r.take(c.Costing(6), c.Costing(5)); d.Allowed || !d.Never {
			return fmt.Errorf("%s: 6 and 5 of 10 units at once: allowed %v, never %v", describe(l), d.Allowed, d.Never)
		}
		if d := r.take(c.Costing(6), c.Costing(4)); !d.Allowed {
			return fmt.Errorf("%s: 6 and 4 of 10 units at once are refused", describe(l))
		}
		if d := r.peek(c); d.Allowed {
			return fmt.Errorf("%s: 6 and 4 of 10 units are spent, and one more fits", describe(l))
		}
		r.refund(r.now, c.Costing(6), c.Costing(4))
		if d := r.peek(c.Costing(10)); !d.Allowed {
			return fmt.Errorf("%s: 6 and 4 units were given back, and 10 do not fit", describe(l))
		}
	}
	return nil
}

// apart uses names and keys that run into each other.
func apart(r *rig) error {
	rate := weir.Rate{Units: 1, Period: time.Hour}
	var all []weir.Charge
	for _, name := range []string{"a", "ab", "a:b", "a/b"} {
		for _, key := range []string{"", "b", ":b", "a", "a:b", "\x00", "b\x00", string(make([]byte, 5000)), "\xff\xfe", "{b}", "ключ"} {
			all = append(all, (&weir.Limit{Name: name, Rate: rate}).For(key))
		}
	}
	for _, c := range all {
		if !r.take(c).Allowed {
			return fmt.Errorf("limit %q, key %.20q has been charged for another key", c.Limit.Name, c.Key)
		}
	}
	for _, c := range all {
		if r.take(c).Allowed {
			return fmt.Errorf("limit %q, key %.20q is forgotten", c.Limit.Name, c.Key)
		}
	}
	return nil
}

// contention has many callers ask for random mixes at once, while the clock stands still: what each cell has spent
// is what was admitted.
func contention(r *rig) error {
	r.store.quiet = true
	global := r.limit(weir.Limit{Rate: weir.Rate{Units: 700, Period: 24 * time.Hour}})
	limits := []*weir.Limit{global}
	for a := range algorithms {
		if weir.Algorithm(a) != weir.LeakyBucket {
			limits = append(limits, r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 120, Period: 24 * time.Hour}}))
		}
	}
	keys := []string{"a", "b"}
	spent := make([]atomic.Int64, len(limits)*len(keys))
	failed := make(chan error, 8)
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			pick := picks(303, g)
			for range 300 {
				charges := []weir.Charge{global.For("a")}
				cells := []int64{0}
				for range pick.in(1, 3) {
					l, k := pick.in(1, int64(len(limits))-1), pick(int64(len(keys)))
					charges = append(charges, limits[l].For(keys[k]).Costing(pick.in(1, 3)))
					cells = append(cells, l*int64(len(keys))+k)
				}
				d, err := r.lim.Take(context.Background(), charges...)
				if err != nil {
					failed <- err
					return
				}
				if d.Allowed {
					for i, cell := range cells {
						spent[cell].Add(charges[i].Cost)
					}
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	for l, limit := range limits {
		for k, key := range keys {
			got := r.peek(limit.For(key)).Outcomes()[0].Remaining
			if want := limit.Capacity() - spent[l*len(keys)+k].Load(); got != want {
				return fmt.Errorf("%s key %q: %d units remaining after %d were admitted, want %d", describe(limit), key, got, limit.Capacity()-want, want)
			}
		}
	}
	return nil
}

// oneKey has many callers ask for one key: exactly its units are admitted.
func oneKey(r *rig) error {
	r.store.quiet = true
	for a := range algorithms {
		l := r.limit(weir.Limit{Algorithm: weir.Algorithm(a), Rate: weir.Rate{Units: 100, Period: 24 * time.Hour}})
		other := r.limit(weir.Limit{Rate: weir.Rate{Units: 1000, Period: 24 * time.Hour}})
		want := int64(100)
		if l.Algorithm == weir.LeakyBucket {
			want = 1
		}
		var admitted atomic.Int64
		failed := make(chan error, 8)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 60 {
					d, err := r.lim.Take(context.Background(), other.For("k"), l.For("k"))
					if err != nil {
						failed <- err
						return
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-failed:
			return err
		default:
		}
		if got := admitted.Load(); got != want {
			return fmt.Errorf("%s: %d of 480 concurrent asks admitted, want %d", describe(l), got, want)
		}
		if got := r.peek(other.For("k")).Outcomes()[0].Remaining; got != 1000-want {
			return fmt.Errorf("%s: the refusals have spent %d units of another limit", describe(l), 1000-want-got)
		}
	}
	return nil
}
