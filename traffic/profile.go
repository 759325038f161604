package traffic

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// Profile is a rate of arrivals over time, along straight lines from point to point. Two points at one instant are a step.
// Before the first point and after the last one nothing arrives. The zero Profile is empty.
type Profile []Point

// Point is the rate at an instant.
type Point struct {
	At   time.Duration // since the beginning
	Rate float64       // arrivals a second
}

// Steady is one rate for a time.
func Steady(rate float64, length time.Duration) Profile {
	return Profile{{0, rate}, {length, rate}}
}

// Ramp goes evenly from one rate to another.
func Ramp(from, to float64, length time.Duration) Profile {
	return Profile{{0, from}, {length, to}}
}

// Validate says which point is wrong: instants must not go back and not be negative, rates must be finite and not negative.
func (p Profile) Validate() error {
	for i, pt := range p {
		if pt.At < 0 || i > 0 && pt.At < p[i-1].At {
			return fmt.Errorf("traffic: point %d: at %v, before the one in front of it", i, pt.At)
		}
		if !(pt.Rate >= 0) || math.IsInf(pt.Rate, 1) {
			return fmt.Errorf("traffic: point %d: rate %v is not a number of arrivals a second", i, pt.Rate)
		}
	}
	return nil
}

// Scale is p with every rate multiplied.
func (p Profile) Scale(by float64) Profile {
	q := make(Profile, len(p))
	for i, pt := range p {
		q[i] = Point{pt.At, pt.Rate * by}
	}
	return q
}

// Rate is the rate at an instant: at a step, the one after it.
func (p Profile) Rate(at time.Duration) float64 {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].At > at {
			continue
		}
		if p[i].At == at {
			return p[i].Rate
		}
		if i+1 == len(p) {
			return 0
		}
		share := float64(at-p[i].At) / float64(p[i+1].At-p[i].At)
		return p[i].Rate + share*(p[i+1].Rate-p[i].Rate)
	}
	return 0
}

// Peak is the highest rate.
func (p Profile) Peak() float64 {
	var peak float64
	for _, pt := range p {
		peak = max(peak, pt.Rate)
	}
	return peak
}

// End is the instant of the last point.
func (p Profile) End() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1].At
}

// Total is how many arrivals are to be expected.
func (p Profile) Total() float64 {
	var total float64
	for i := 1; i < len(p); i++ {
		total += area(p[i-1], p[i])
	}
	return total
}

// Even yields arrivals as regular as the profile: the first at its beginning, and each when exactly one more was due.
// At a steady rate they are evenly spaced, and there are ⌈Total⌉.
func (p Profile) Even() iter.Seq[time.Duration] { return p.Bursts(1) }

// Bursts yields arrivals in groups of size at one instant, each group when that many were due: the worst case of a rate.
func (p Profile) Bursts(size int) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		if size < 1 {
			return
		}
		due := p.due()
		for n := 0; ; n += size {
			at, ok := due(float64(n))
			if !ok {
				return
			}
			for range size {
				if !yield(at) {
					return
				}
			}
		}
	}
}

// Poisson yields arrivals that know nothing of each other, as those of many independent clients: about Total of them. The
// same seed yields the same arrivals.
func (p Profile) Poisson(seed uint64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		random := rand.New(rand.NewPCG(seed, 0))
		due := p.due()
		for n := random.ExpFloat64(); ; n += random.ExpFloat64() {
			at, ok := due(n)
			if !ok || !yield(at) {
				return
			}
		}
	}
}

// due is a function that says when n arrivals were due, for n that grows from call to call.
func (p Profile) due() func(n float64) (time.Duration, bool) {
	i, before := 1, 0.0 // arrivals due before segment i−1…i
	return func(n float64) (time.Duration, bool) {
		for ; i < len(p); i++ {
			a, b := p[i-1], p[i]
			here := area(a, b)
			if rest := max(0, n-before); rest < here-1e-9*(1+before) { // sums of floats: the end belongs to the next one
				// Solve a·x + (b−a)/(2·d)·x² = rest, in the form that divides by no difference.
				slope := (b.Rate - a.Rate) / (b.At - a.At).Seconds()
				x := 2 * rest / (a.Rate + math.Sqrt(max(0, a.Rate*a.Rate+2*slope*rest)))
				if rest == 0 {
					x = 0
				}
				return min(b.At, a.At+time.Duration(math.Round(x*1e9))), true
			}
			before += here
		}
		return 0, false
	}
}

// area is how many arrivals are due from a to b.
func area(a, b Point) float64 { return (a.Rate + b.Rate) / 2 * (b.At - a.At).Seconds() }

// Merge yields the arrivals of several classes in the order of time, each with the index of its class. Arrivals at
// one instant come in the order of the classes.
func Merge(classes ...iter.Seq[time.Duration]) iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		type head struct {
			at   time.Duration
			ok   bool
			next func() (time.Duration, bool)
		}
		heads := make([]head, len(classes))
		for i, class := range classes {
			next, stop := iter.Pull(class)
			defer stop()
			heads[i].next = next
			heads[i].at, heads[i].ok = next()
		}
		for {
			first := -1
			for i := range heads {
				if heads[i].ok && (first < 0 || heads[i].at < heads[first].at) {
					first = i
				}
			}
			if first < 0 || !yield(first, heads[first].at) {
				return
			}
			heads[first].at, heads[first].ok = heads[first].next()
		}
	}
}
