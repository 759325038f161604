package traffic

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are less than 0.8 % wide, from a microsecond to days, in bounded memory. The zero
// Histogram is empty and ready. It is not safe for concurrent use.
type Histogram struct {
	counts []int64 // grown as needed
	n      int64
	max    time.Duration
}

// A value of 8 bits or fewer, in microseconds, has a bucket of its own; above, its 8 leading bits choose the bucket.
const subBits = 7

// Add counts one duration; a negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	i := bucket(d.Microseconds())
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	h.n++
	h.max = max(h.max, d)
}

// Count is how many durations were added.
func (h *Histogram) Count() int64 { return h.n }

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the duration that a share q of all stayed within, q from 0 to 1: at least the true one and less than 0.8 %
// or a microsecond above it. It is 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := min(h.n, max(1, ceil(q*float64(h.n))))
	for i, c := range h.counts {
		if rank -= c; rank <= 0 {
			return min(h.max, time.Duration(min(end(i), math.MaxInt64/1000))*time.Microsecond)
		}
	}
	return h.max
}

func ceil(x float64) int64 {
	i := int64(x)
	if float64(i) < x {
		i++
	}
	return i
}

func bucket(us int64) int {
	if us < 2<<subBits {
		return int(us)
	}
	shift := bits.Len64(uint64(us)) - subBits - 1
	return shift<<subBits + int(us>>shift)
}

// end is the first microsecond above bucket i.
func end(i int) int64 {
	if i < 2<<subBits {
		return int64(i) + 1
	}
	shift := i>>subBits - 1
	return int64(i-shift<<subBits+1) << shift
}

// Merge adds everything that o counted.
func (h *Histogram) Merge(o *Histogram) {
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]int64, len(o.counts)-len(h.counts))...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}
