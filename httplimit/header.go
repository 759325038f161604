package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
)

// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// WriteHeaders writes what d says of its limits into h. Shadow limits are left out, and if d is a refusal the limits that
// did not refuse are too. With FormDraft a field that is there already, from an upstream say, gets
// one more line; the other forms have room for one limit, and on an admitted request leave fields that are there alone.
//
// What is written for a limit:
//
//	q  units in w seconds: its rate, with w made long enough that q is no less than the burst
//	w  whole seconds; rates with a finer period are given as the nearest that is not faster
//	r  units left, rounded down, for requests of this priority
//	t  seconds, rounded up. FixedWindow: until the window ends. Others: until r grows, or, if that is later, until r units
//	   have come back, so that r in t is no faster than the rate. In a refusal no later than Retry-After
//
// Concurrency has qu="concurrent-requests" instead of w, and no t unless it is held: a unit comes back when a request
// ends, not at a time.
func WriteHeaders(h http.Header, d *weir.Decision, form Form) {
	var few [256]byte
	var b []byte
	refused := !d.Allowed
	switch form {
	case FormDraft:
		b = appendLimits(few[:0], d, itemLeft)
		if len(b) == 0 {
			return
		}
		n := len(b)
		b = appendLimits(b, d, itemPolicy)
		text := string(b) // one allocation for both values, and one below for both slices
		lines := [2]string{text[:n], text[n:]}
		two := lines[:]
		add(h, "Ratelimit", two[0:1:1])
		add(h, "Ratelimit-Policy", two[1:2:2])
	case FormDraft07:
		o := nearest(d)
		if o == nil || !refused && h["Ratelimit"] != nil {
			return
		}
		q, _ := quota(o.Limit)
		b = strconv.AppendInt(append(few[:0], "limit="...), q, 10)
		b = strconv.AppendInt(append(b, ", remaining="...), left(o), 10)
		b = strconv.AppendInt(append(b, ", reset="...), reset(o, d), 10)
		h["Ratelimit"] = []string{string(b)}
		if b = appendLimits(few[:0], d, itemOldPolicy); len(b) > 0 {
			h["Ratelimit-Policy"] = []string{string(b)}
		}
	case FormDraft06, FormLegacy:
		o := nearest(d)
		names := &oldNames[0]
		if form == FormLegacy {
			names = &oldNames[1]
		}
		if o == nil || !refused && h[names[0]] != nil {
			return
		}
		q, _ := quota(o.Limit)
		t := reset(o, d)
		if form == FormLegacy {
			at := d.At.Add(time.Duration(t) * time.Second)
			if t = at.Unix(); at.Nanosecond() > 0 {
				t++
			}
		} else if b = appendLimits(few[:0], d, itemOldPolicy); len(b) > 0 {
			h["Ratelimit-Policy"] = []string{string(b)}
		}
		three := []string{strconv.FormatInt(q, 10), strconv.FormatInt(left(o), 10), strconv.FormatInt(t, 10)}
		for i, name := range names {
			h[name] = three[i : i+1 : i+1]
		}
	}
}

var oldNames = [2][3]string{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
}

// add puts one more line into the field of a canonical name.
func add(h http.Header, name string, line []string) {
	if old := h[name]; len(old) > 0 {
		line = append(old[:len(old):len(old)], line[0])
	}
	h[name] = line
}

// item is what a list says of each limit. (Function values in its place would move every decision to the heap.)
type item int8

const (
	itemLeft      item = iota // "client";r=99;t=60
	itemPolicy                // "client";q=100;w=60
	itemOldPolicy             // 100;w=60
)

// appendLimits writes a list with an item for each limit that is shown.
func appendLimits(b []byte, d *weir.Decision, what item) []byte {
	start := len(b)
	out := d.Outcomes()
	for i := range out {
		if !shown(d, out, i) {
			continue
		}
		before := len(b)
		if before > start {
			b = append(b, ", "...)
		}
		begin := len(b)
		switch what {
		case itemLeft:
			b = appendLeft(b, &out[i], d)
		case itemPolicy:
			b = appendPolicy(b, out[i].Limit)
		case itemOldPolicy:
			b = appendOldPolicy(b, out[i].Limit)
		}
		if len(b) == begin {
			b = b[:before]
		}
	}
	return b
}

// shown reports whether outcome i stands in headers: its limit enforces, refuses if d is a refusal, and no other
// charge of the same limit says something worse.
func shown(d *weir.Decision, out []weir.Outcome, i int) bool {
	o := &out[i]
	if !tells(d, o) {
		return false
	}
	for j := range out {
		p := &out[j]
		if j == i || p.Limit != o.Limit && p.Limit.Name != o.Limit.Name || !tells(d, p) {
			continue
		}
		if worse(p, o) || j < i && !worse(o, p) {
			return false
		}
	}
	return true
}

// tells reports whether an outcome takes part in the answer that d is.
func tells(d *weir.Decision, o *weir.Outcome) bool {
	return !o.Limit.Shadow && (d.Allowed || o.Refused())
}

// worse reports whether a client must mind o rather than p.
func worse(o, p *weir.Outcome) bool {
	switch {
	case o.Never != p.Never:
		return o.Never
	case o.After != p.After:
		return o.After > p.After
	case o.Remaining != p.Remaining:
		return o.Remaining < p.Remaining
	}
	return o.Next > p.Next
}

// nearest is the outcome for the forms that have room for one: of those that refuse the one that does so the longest, else
// the one with the least left. A concurrency limit has no reset, and is taken only if nothing else refuses.
func nearest(d *weir.Decision) *weir.Outcome {
	var best *weir.Outcome
	out := d.Outcomes()
	for i := range out {
		o := &out[i]
		if !tells(d, o) || d.Allowed && concurrent(o.Limit) {
			continue
		}
		switch {
		case best == nil, concurrent(best.Limit) && !concurrent(o.Limit):
			best = o
		case concurrent(o.Limit) && !concurrent(best.Limit):
		case worse(o, best):
			best = o
		}
	}
	return best
}

func concurrent(l *weir.Limit) bool { return l.Algorithm == weir.Concurrency }

func appendName(b []byte, l *weir.Limit) []byte {
	b = append(b, '"')
	b = append(b, l.Name...) // Validate admits nothing that would need an escape
	return append(b, '"')
}

func appendLeft(b []byte, o *weir.Outcome, d *weir.Decision) []byte {
	b = appendName(b, o.Limit)
	b = strconv.AppendInt(append(b, ";r="...), left(o), 10)
	if !concurrent(o.Limit) && o.Limit.Rate.Units > 0 || o.Held > 0 {
		b = strconv.AppendInt(append(b, ";t="...), reset(o, d), 10)
	}
	return b
}

func appendPolicy(b []byte, l *weir.Limit) []byte {
	q, w := quota(l)
	b = appendName(b, l)
	b = strconv.AppendInt(append(b, ";q="...), q, 10)
	if concurrent(l) {
		return append(b, `;qu="concurrent-requests"`...)
	}
	return strconv.AppendInt(append(b, ";w="...), w, 10)
}

// appendOldPolicy writes nothing for a concurrency limit, as those forms require a window.
func appendOldPolicy(b []byte, l *weir.Limit) []byte {
	if concurrent(l) {
		return b
	}
	q, w := quota(l)
	b = strconv.AppendInt(b, q, 10)
	return strconv.AppendInt(append(b, ";w="...), w, 10)
}

// quota is a limit's policy: q units in w seconds.
func quota(l *weir.Limit) (q, w int64) {
	units, period := l.Rate.Units, l.Rate.Period.Seconds()
	if concurrent(l) || units == 0 {
		return min(units, maxInteger), max(1, ceil(period))
	}
	most := units
	if l.Algorithm == weir.TokenBucket || l.Algorithm == weir.GCRA {
		most = l.Capacity()
	}
	w = ceil(max(period, float64(most)*period/float64(units)))
	q = units
	if float64(w) != period {
		q = max(most, int64(min(float64(units)*float64(w)/period, maxInteger)))
	}
	return min(q, maxInteger), w
}

func left(o *weir.Outcome) int64 { return min(max(o.Remaining, 0), maxInteger) }

// reset is the t of an outcome, at least 1.
func reset(o *weir.Outcome, d *weir.Decision) int64 {
	l := o.Limit
	wait := o.Next.Seconds()
	switch {
	case concurrent(l):
		return max(1, ceil(o.Held.Seconds()))
	case l.Algorithm == weir.FixedWindow:
		if w := int64(l.Rate.Period / time.Microsecond); o.Next == 0 && w > 0 {
			wait = float64(w-d.At.UnixMicro()%w) / 1e6
		}
	case l.Rate.Units > 0:
		wait = max(wait, float64(o.Remaining)*l.Rate.Period.Seconds()/float64(l.Rate.Units))
	}
	if o.After > 0 {
		wait = min(wait, o.After.Seconds())
	}
	return max(1, ceil(wait))
}

// ceil is x rounded up to a whole number, within what a structured field holds.
func ceil(x float64) int64 {
	if !(x < maxInteger) {
		return maxInteger
	}
	return int64(math.Ceil(x))
}

// RetryAfter is the Retry-After of a refusal: the longest wait of the limits that enforce, in whole seconds rounded up, at
// least one. A concurrency limit counts as one second, as nobody knows when a request ends, unless it is held. It is 0 if d admits,
// or never will.
func RetryAfter(d *weir.Decision) time.Duration {
	if d.Allowed || d.Never {
		return 0
	}
	var wait time.Duration
	known := false
	out := d.Outcomes()
	for i := range out {
		if o := &out[i]; tells(d, o) {
			known = true
			if concurrent(o.Limit) {
				wait = max(wait, o.Held)
			} else {
				wait = max(wait, o.After)
			}
		}
	}
	if !known {
		wait = d.RetryAfter
	}
	return wholeSeconds(wait)
}

// wholeSeconds is d rounded up to seconds, at least one.
func wholeSeconds(d time.Duration) time.Duration {
	if d > math.MaxInt64-time.Second {
		return math.MaxInt64 / time.Second * time.Second
	}
	return max(time.Second, (d+time.Second-1)/time.Second*time.Second)
}
