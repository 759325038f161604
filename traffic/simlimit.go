package traffic

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// LimitResult is what a limit did.
type LimitResult struct {
	Name      string         `json:"name"`
	Algorithm weir.Algorithm `json:"algorithm"`
	Rate      weir.Rate      `json:"rate"`
	Burst     int64          `json:"burst"`
	Shadow    bool           `json:"shadow"`

	Asked   int64 `json:"asked"`   // how often it was asked
	Refused int64 `json:"refused"` // how often it said no; where several limits say no each counts
	Units   int64 `json:"units"`   // that it was asked for

	Keys        int64 `json:"keys"`         // that asked
	KeysRefused int64 `json:"keys_refused"` // that were refused at least once
	KeysPart    int   `json:"keys_part"`    // of so many keys one was counted, and the counts multiplied; 1: all, exactly

	TopAsked   []KeyCount  `json:"top_asked"`
	TopRefused []KeyCount  `json:"top_refused"`
	Worst      Minute      `json:"worst_minute"`
	Window     WorstWindow `json:"worst_window"`

	// Demand is what keys ask for in one period of the rate, of all periods in which they ask at all; KeyPeak is what they
	// ask for in their own greatest one. Periods are aligned to the Unix epoch.
	Demand  Quantiles `json:"demand_per_key_and_period"`
	KeyPeak Quantiles `json:"peak_demand_per_key"`

	Algorithms []AlgorithmResult `json:"algorithms"`
	Suggested  *Suggestion       `json:"suggested,omitempty"`

	times timeline
	alone bool // there is one key
}

// KeyCount is how much one key asked.
type KeyCount struct {
	Key     string `json:"key"`
	Asked   int64  `json:"asked"`
	Refused int64  `json:"refused"`
	Over    int64  `json:"over"` // the count that the list is ordered by may be too high by up to this
}

// WorstWindow is the period in which one key asked for the most.
type WorstWindow struct {
	At     time.Time `json:"at"` // when it begins
	Key    string    `json:"key"`
	Demand int64     `json:"demand"`
}

// Quantiles are of numbers of units, up to 0.8 % too high where they are large.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

const (
	maxKeysKept = 1 << 18 // of one limit, counted one by one
	sketchSize  = 1 << 10
)

// keyStat is what is known of one key.
type keyStat struct {
	asked, refused int64
	period         int64 // the number of the last period in which it asked
	demand         int64 // in it
	peak           int64 // the greatest demand
}

// limitRun is a limit while it is simulated.
type limitRun struct {
	limit          *weir.Limit
	asked, refused int64
	units          int64
	keys           *keySample[keyStat]
	topAsked       *topKeys
	topRefused     *topKeys
	demand         Histogram // of units
	window         WorstWindow
	worst          worst
	times          timeline
	compare        *comparison
	trace          *trace // nil: nobody asks for a suggestion
}

func newLimitRun(l *weir.Limit, algorithms []weir.Algorithm, now func() time.Time) *limitRun {
	r := &limitRun{
		limit:      l,
		keys:       newKeySample[keyStat](maxKeysKept),
		topAsked:   newTopKeys(sketchSize),
		topRefused: newTopKeys(sketchSize),
	}
	if l.Algorithm != weir.Concurrency && len(algorithms) > 0 {
		r.compare = newComparison(l, algorithms, now)
	}
	return r
}

// add counts one charge, and asks the other algorithms, unless it is one of somebody who comes back.
func (r *limitRun) add(ctx context.Context, now time.Time, at weir.Instant, c *weir.Charge, refused, again bool) error {
	hash := keyHash(c.Key)
	r.asked++
	r.units += c.Cost
	span := r.times.at(now)
	span.asked++
	r.topAsked.add(c.Key, 1)
	r.worst.add(now, refused)
	if refused {
		r.refused++
		span.refused++
		r.topRefused.add(c.Key, 1)
	}
	if k := r.keys.of(hash); k != nil {
		k.asked++
		if refused {
			k.refused++
		}
		window := int64(r.limit.Rate.Period / time.Microsecond)
		if p := int64(at) / window; p != k.period {
			r.ended(k)
			k.period, k.demand = p, 0
		}
		k.demand += c.Cost
		span.peak = max(span.peak, k.demand)
		if k.demand > r.window.Demand {
			if k.demand == c.Cost || r.window.Key != c.Key {
				r.window.Key = strings.Clone(c.Key)
			}
			r.window.At, r.window.Demand = weir.Instant(k.period*window).Time(), k.demand
		}
	}
	if again {
		return nil
	}
	if r.trace != nil {
		if err := r.trace.add(at, hash, c); err != nil {
			return err
		}
	}
	if r.compare != nil {
		return r.compare.add(ctx, at, c, hash)
	}
	return nil
}

// ended counts the demand of a key in a period that is over.
func (r *limitRun) ended(k *keyStat) {
	if k.demand > 0 {
		r.demand.Add(units(k.demand))
		k.peak = max(k.peak, k.demand)
	}
}

func (r *limitRun) result(ctx context.Context, out *LimitResult, top int, names func(string) string, goal *Goal) (err error) {
	*out = LimitResult{
		Name: r.limit.Name, Algorithm: r.limit.Algorithm, Rate: r.limit.Rate, Burst: r.limit.Capacity(), Shadow: r.limit.Shadow,
		Asked: r.asked, Refused: r.refused, Units: r.units,
		Keys: r.keys.all(), KeysPart: 1 << r.keys.part,
		Worst: r.worst.Most, Window: r.window, times: r.times,
	}
	out.Window.Key = names(out.Window.Key)
	var peaks Histogram
	var keysRefused int64
	for _, k := range r.keys.kept {
		r.ended(k)
		k.demand = 0
		peaks.Add(units(k.peak))
		if k.refused > 0 {
			keysRefused++
		}
	}
	out.KeysRefused = keysRefused << r.keys.part
	out.alone = out.Keys == 1
	out.Demand, out.KeyPeak = unitsOf(&r.demand), unitsOf(&peaks)
	list := func(t *topKeys) []KeyCount {
		all := make([]KeyCount, 0, top)
		for _, k := range t.top(top) {
			c := KeyCount{Key: names(k.key), Over: k.over}
			if t == r.topAsked {
				c.Asked = k.count
			} else {
				c.Asked, c.Refused = k.count, k.count
			}
			if exact := r.keys.kept[keyHash(k.key)]; exact != nil {
				c.Asked, c.Refused, c.Over = exact.asked, exact.refused, 0
			}
			all = append(all, c)
		}
		return all
	}
	out.TopAsked, out.TopRefused = list(r.topAsked), list(r.topRefused)
	out.Algorithms = []AlgorithmResult{}
	if r.compare != nil {
		out.Algorithms = slices.Clone(r.compare.results)
		for i := range out.Algorithms {
			out.Algorithms[i].MostKey = names(out.Algorithms[i].MostKey)
		}
	}
	if goal != nil && r.trace != nil {
		out.Suggested, err = r.suggest(ctx, goal)
	}
	return err
}

// units is n in a Histogram, which gives the end of a bucket for a quantile: n microseconds end the bucket of what is just below.
func units(n int64) time.Duration { return time.Duration(n)*time.Microsecond - 1 }

func unitsOf(h *Histogram) Quantiles {
	of := func(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
	return Quantiles{of(h.Quantile(0.50)), of(h.Quantile(0.99)), of(h.Max())}
}

// errorText is an error about a limit without its name.
func errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "weir: limit ")
	if i := strings.Index(text, `": `); i >= 0 {
		text = text[i+3:]
	}
	return text
}
