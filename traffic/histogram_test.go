package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Against all durations, sorted.
func TestHistogramQuantiles(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 2, 10, 1000, 20_000} {
		var h Histogram
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(math.Exp(random.Float64() * math.Log(float64(24*time.Hour)))) // from 1 ns to a day
			h.Add(all[i])
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			want := all[max(0, int(math.Ceil(q*float64(n)))-1)]
			got := h.Quantile(q)
			if got < want || float64(got-want) > max(float64(time.Microsecond), float64(want)/128) {
				t.Errorf("seed %d, %d durations, quantile %v: %v, want %v", seed, n, q, got, want)
			}
		}
		if h.Count() != int64(n) || h.Max() != all[n-1] {
			t.Errorf("count %d, max %v; want %d, %v", h.Count(), h.Max(), n, all[n-1])
		}
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 || h.Max() != 0 {
		t.Error("an empty Histogram is not zero")
	}
	h.Add(-time.Second)
	if got := h.Quantile(1); got != 0 {
		t.Errorf("a negative duration counts as %v, want 0", got)
	}
	h.Add(math.MaxInt64)
	if got := h.Quantile(1); got < math.MaxInt64-time.Microsecond {
		t.Errorf("the longest duration reads as %v", got)
	}
	last := -1
	for us := range int64(1 << 17) {
		i := bucket(us)
		if i != last && i != last+1 || us >= end(i) {
			t.Fatalf("%d µs is in bucket %d, which ends at %d, after bucket %d", us, i, end(i), last)
		}
		last = i
	}
}
