package traffic

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func TestEvenArrivals(t *testing.T) {
	ms := func(all ...float64) (out []time.Duration) {
		for _, x := range all {
			out = append(out, time.Duration(math.Round(x*1e6)))
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		profile Profile
		want    []time.Duration
	}{
		{"nothing", nil, nil},
		{"a point has no length", Profile{{0, 100}}, nil},
		{"rate 0", Steady(0, time.Hour), nil},
		{"steady", Steady(5, time.Second), ms(0, 200, 400, 600, 800)},
		{"the end belongs to what comes next", Steady(2, time.Second), ms(0, 500)},
		{"a part of an arrival is one", Steady(2.5, time.Second), ms(0, 400, 800)},
		{"late beginning", Profile{{time.Second, 2}, {2 * time.Second, 2}}, ms(1000, 1500)},
		{"step", Profile{{0, 2}, {time.Second, 2}, {time.Second, 4}, {2 * time.Second, 4}}, ms(0, 500, 1000, 1250, 1500, 1750)},
		{"pause", Profile{{0, 2}, {time.Second, 2}, {time.Second, 0}, {3 * time.Second, 0}, {3 * time.Second, 2}, {4 * time.Second, 2}}, ms(0, 500, 3000, 3500)},
		// From 0 to 8/s in a second, t² · 4 are due at t: the n-th at √(n/4).
		{"ramp up", Ramp(0, 8, time.Second), ms(0, 500, 1000*math.Sqrt(0.5), 1000*math.Sqrt(0.75))},
		{"ramp down", Ramp(8, 0, time.Second), ms(0, 1000*(1-math.Sqrt(0.75)), 1000*(1-math.Sqrt(0.5)), 500)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := slices.Collect(tt.profile.Even()); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEvenCountsAreExact(t *testing.T) {
	for _, rate := range []float64{1, 3, 7, 997, 1500, 4999} {
		for _, seconds := range []int{1, 7, 60} {
			length := time.Duration(seconds) * time.Second
			n, last := 0, time.Duration(-1)
			for at := range Steady(rate, length).Even() {
				if want := time.Duration(math.Round(float64(n) / rate * 1e9)); at != want || at <= last || at >= length {
					t.Fatalf("%v/s, arrival %d: at %v, want %v", rate, n, at, want)
				}
				last = at
				n++
			}
			if n != int(rate)*seconds {
				t.Errorf("%v/s for %d s: %d arrivals", rate, seconds, n)
			}
		}
	}
}

func TestBursts(t *testing.T) {
	got := slices.Collect(Steady(6, time.Second).Bursts(3))
	want := []time.Duration{0, 0, 0, 500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := slices.Collect(Steady(6, time.Second).Bursts(0)); got != nil {
		t.Errorf("bursts of 0: got %v, want none", got)
	}
}

func TestPoissonIsTheSameForTheSameSeed(t *testing.T) {
	p := Profile{{0, 100}, {5 * time.Second, 900}, {10 * time.Second, 0}}
	first, again, other := slices.Collect(p.Poisson(7)), slices.Collect(p.Poisson(7)), slices.Collect(p.Poisson(8))
	if !slices.Equal(first, again) {
		t.Error("two runs of seed 7 differ")
	}
	if slices.Equal(first, other) {
		t.Error("seeds 7 and 8 are the same")
	}
	if !slices.IsSorted(first) || first[0] < 0 || first[len(first)-1] >= p.End() {
		t.Error("arrivals out of order or out of the profile")
	}
	// The count of a Poisson process has the variance of its mean; five deviations are one in two million.
	if n, mean := float64(len(first)), p.Total(); math.Abs(n-mean) > 5*math.Sqrt(mean) {
		t.Errorf("%v arrivals, want about %v", n, mean)
	}
}

// The time to the next arrival has the deviation of its mean, as of no other process; evenly spaced it would have none.
func TestPoissonGaps(t *testing.T) {
	var gaps []float64
	last := time.Duration(0)
	for at := range Steady(1000, 20*time.Second).Poisson(1) {
		gaps = append(gaps, (at - last).Seconds())
		last = at
	}
	var mean, variance float64
	for _, g := range gaps {
		mean += g / float64(len(gaps))
	}
	for _, g := range gaps {
		variance += (g - mean) * (g - mean) / float64(len(gaps))
	}
	if ratio := math.Sqrt(variance) / mean; math.Abs(ratio-1) > 0.05 {
		t.Errorf("deviation of the gaps is %.3f of their mean, want 1", ratio)
	}
}

func TestRate(t *testing.T) {
	p := Profile{{0, 10}, {time.Second, 20}, {time.Second, 50}, {2 * time.Second, 50}}
	for at, want := range map[time.Duration]float64{
		0: 10, 500 * time.Millisecond: 15, time.Second: 50, 1500 * time.Millisecond: 50, 2 * time.Second: 50, 3 * time.Second: 0,
	} {
		if got := p.Rate(at); got != want {
			t.Errorf("at %v: %v/s, want %v/s", at, got, want)
		}
	}
	if p.Peak() != 50 || p.End() != 2*time.Second || p.Total() != 65 {
		t.Errorf("peak %v, end %v, total %v; want 50, 2s, 65", p.Peak(), p.End(), p.Total())
	}
	if got := p.Scale(2).Total(); got != 130 {
		t.Errorf("scaled by 2: total %v, want 130", got)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		profile Profile
		ok      bool
	}{
		{nil, true},
		{Steady(1, time.Second), true},
		{Profile{{time.Second, 1}, {0, 1}}, false},
		{Profile{{-1, 1}}, false},
		{Profile{{0, -1}}, false},
		{Profile{{0, math.NaN()}}, false},
		{Profile{{0, math.Inf(1)}}, false},
	} {
		if err := tt.profile.Validate(); (err == nil) != tt.ok {
			t.Errorf("%v: %v, want ok=%v", tt.profile, err, tt.ok)
		}
	}
}

func TestMerge(t *testing.T) {
	var got []string
	for class, at := range Merge(Steady(2, 2*time.Second).Even(), Profile(nil).Even(), Steady(1, 2*time.Second).Even()) {
		got = append(got, fmt.Sprintf("%d@%v", class, at))
	}
	want := []string{"0@0s", "2@0s", "0@500ms", "0@1s", "2@1s", "0@1.5s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range Merge(Steady(2, time.Second).Even()) {
		break // leaves nothing running
	}
}
