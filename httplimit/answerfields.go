package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryFields are the spellings of Retry-After, in the canonical form of Go, and the unit of their plain numbers.
var retryFields = []struct {
	name string
	unit time.Duration
}{
	{"Retry-After", time.Second},
	{"Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"X-Ratelimit-Retry-After", time.Second},
	{"Retryafter", time.Second},
	{"X-Retry-In", time.Second},
	{"X-Ratelimit-Next", time.Second},
}

// retryAfters reads all that says when to come back.
func (r *reading) retryAfters() {
	var seconds, millis = Unknown, Unknown // where in said
	for _, f := range retryFields {
		for _, v := range r.h[f.name] {
			unit := f.unit
			if f.name == "Retry-After" && r.profile != nil && r.profile.RetryAfterMillis {
				unit = time.Millisecond
			}
			wait, ok := r.when(v, unit)
			switch {
			case !ok:
				r.note(f.name, v, "not a number of seconds, a date or a duration: ignored")
			case wait <= 0:
				r.note(f.name, v, "not in the future: no information")
			default:
				r.note(f.name, v, "come back in %v", wait)
				switch {
				case f.name == "Retry-After":
					seconds = len(r.said)
				case f.unit == time.Millisecond:
					millis = len(r.said)
				}
				r.said = append(r.said, asked{f.name, wait})
			}
		}
	}
	// Whole seconds beside milliseconds are the same wait rounded up: the finer one is meant.
	if seconds >= 0 && millis >= 0 {
		s, ms := &r.said[seconds], r.said[millis].wait
		if s.wait-ms > 0 && s.wait-ms < time.Second && s.wait%time.Second == 0 {
			s.wait = ms
			s.field = r.said[millis].field
		}
	}
}

// family is the spelling of one set of quota fields.
type family struct {
	name                     string // of the Quota
	unit                     string
	limit, remaining, resets string // field names, canonical
}

var families = []family{
	{"", "", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{"", "", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"", "", "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"requests", "", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"tokens", "tokens", "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"requests", "", "Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"tokens", "tokens", "Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"input-tokens", "tokens", "Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"output-tokens", "tokens", "Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// quotas reads the quota fields of every generation and provider.
func (r *reading) quotas() {
	r.structured()
	for i := range families {
		f := &families[i]
		if i == 0 && len(r.h["Ratelimit"]) > 0 && len(r.Quotas) > 0 {
			continue // the older form beside the newer
		}
		r.family(f)
	}
	if v := r.h.Get("X-Shopify-Shop-Api-Call-Limit"); v != "" {
		used, limit, ok := strings.Cut(v, "/")
		u, l := parseCount(used), parseCount(limit)
		if !ok || u < 0 || l < 0 {
			r.note("X-Shopify-Shop-Api-Call-Limit", v, "not used/limit: ignored")
			return
		}
		r.note("X-Shopify-Shop-Api-Call-Limit", v, "%d of %d used", u, l)
		r.Quotas = append(r.Quotas, Quota{Limit: l, Remaining: max(0, l-u), Reset: Unknown, Source: "X-Shopify-Shop-Api-Call-Limit"})
	}
}

// family reads limit, remaining and reset under the names of f.
func (r *reading) family(f *family) {
	q := Quota{Name: f.name, Unit: f.unit, Limit: Unknown, Remaining: Unknown, Reset: Unknown, Source: f.resets}
	var old []Quota
	if v, ok := r.single(f.limit); ok {
		q.Limit, old = parseOldLimit(v)
		if q.Limit < 0 {
			r.note(f.limit, v, "not a number: ignored")
		} else {
			r.note(f.limit, v, "%d at most", q.Limit)
		}
	}
	if v, ok := r.single(f.remaining); ok {
		if q.Remaining = parseCount(v); q.Remaining < 0 {
			r.note(f.remaining, v, "not a number of units: unknown")
		} else {
			r.note(f.remaining, v, "%d left", q.Remaining)
		}
	}
	if v, ok := r.single(f.resets); ok {
		r.reset(&q, f.resets, v)
	}
	// Finer spellings of the same moment win over it.
	if f.resets == "X-Ratelimit-Reset" {
		if v, ok := r.single("X-Ratelimit-Reset-After"); ok {
			r.reset(&q, "X-Ratelimit-Reset-After", v)
		}
	}
	if q.Limit < 0 && q.Remaining < 0 && q.Reset < 0 {
		return
	}
	if q.Remaining < 0 && q.Limit >= 0 && q.Reset < 0 && len(old) > 0 {
		r.Quotas = append(r.Quotas, old...)
		return
	}
	r.Quotas = append(r.Quotas, q)
}

func (r *reading) reset(q *Quota, field, v string) {
	wait, ok := r.when(v, time.Second)
	switch {
	case !ok:
		r.note(field, v, "not a time: ignored")
	case wait <= 0:
		r.note(field, v, "not in the future: no information")
	default:
		r.note(field, v, "more in %v", wait)
		q.Reset, q.Source = wait, field
	}
}

// single is the value of a field that should be there once. Of several lines none can be told to be the right one, so
// that they are ignored together, unless they agree.
func (r *reading) single(field string) (string, bool) {
	lines := r.h[field]
	for _, v := range lines {
		if v != lines[0] {
			r.note(field, strings.Join(lines, ", "), "given several times: ignored")
			return "", false
		}
	}
	if len(lines) == 0 {
		return "", false
	}
	return lines[0], true
}

// parseOldLimit reads RateLimit-Limit of the drafts up to 03, "10, 10;w=1, 50;w=60", and a plain number.
func parseOldLimit(v string) (limit int64, policies []Quota) {
	first, rest, list := strings.Cut(v, ",")
	first, _, _ = strings.Cut(first, ";")
	limit = parseCount(first)
	if list && limit >= 0 {
		policies, _ = parsePolicies([]string{rest})
	}
	return limit, policies
}

// parseCount is a number of units, rounded down: digits, with a fraction or without. Anything else, and what does
// not fit, is Unknown.
func parseCount(s string) int64 {
	whole, fraction, dot := strings.Cut(strings.Trim(s, " \t"), ".")
	if dot && !digitsOnly(fraction) || !digitsOnly(whole) {
		return Unknown
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return Unknown
	}
	return n
}

func digitsOnly(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const longestWait = time.Duration(math.MaxInt64)

// when reads a moment in any of the forms that servers use, as the time from the answer on: a number of units, or, where it is
// too large for that, of seconds or milliseconds since 1970; a duration as 6m0s; an HTTP date of any of the three forms; ISO 8601
// with or without seconds; what JavaScript prints for a Date. A time without a zone is UTC. What is longer than a
// Duration can say is cut down to that. Negative numbers are unknown, which ok = false says.
func (r *reading) when(v string, unit time.Duration) (wait time.Duration, ok bool) {
	v = strings.Trim(v, " \t")
	if v == "" || len(v) > 100 {
		return 0, false
	}
	if n, ok := parseDecimal(v); ok {
		switch {
		case n >= 1e9 && n < 1e11:
			return r.until(epoch(n, 1e9)), true
		case n >= 1e12 && n < 1e14:
			return r.until(epoch(n, 1e6)), true
		}
		return saturate(n * float64(unit)), true
	}
	if v[0] < '0' || v[0] > '9' {
		if t, err := http.ParseTime(v); err == nil {
			return r.until(t), true
		}
		zoned, _, _ := strings.Cut(v, " (") // the zone's name, after its offset
		if t, err := time.Parse("Mon Jan _2 2006 15:04:05 GMT-0700", zoned); err == nil {
			return r.until(t), true
		}
		return 0, false
	}
	if d, err := time.ParseDuration(v); err == nil {
		return d, true
	}
	for _, layout := range timeLayouts {
		t, err := time.Parse(layout.form, v)
		if err == nil {
			return r.until(t.Add(layout.round)), true
		}
	}
	return 0, false
}

// timeLayouts are written with dates that begin with a digit. A time without seconds may have been cut off anywhere in its minute.
var timeLayouts = []struct {
	form  string
	round time.Duration
}{
	{time.RFC3339, 0},
	{"2006-01-02T15:04Z07:00", 59 * time.Second},
	{"2006-01-02 15:04:05Z07:00", 0},
	{"2006-01-02T15:04:05", 0},
	{"2006-01-02 15:04:05", 0},
	{"2006-01-02 15:04:05 UTC", 0},
	{"2006-01-02 15:04", 59 * time.Second},
}

// until is the time from the answer to t.
func (r *reading) until(t time.Time) time.Duration { return t.Sub(r.now) }

// epoch is n units since 1970, of so many nanoseconds each, rounded up to a microsecond: a float has no more to say.
func epoch(n, nanos float64) time.Time {
	return time.UnixMicro(int64(math.Ceil(n * nanos / 1000)))
}

// parseDecimal reads digits with or without a fraction; no sign, no exponent.
func parseDecimal(s string) (float64, bool) {
	whole, fraction, dot := strings.Cut(s, ".")
	if !digitsOnly(whole) || dot && !digitsOnly(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// saturate is so many nanoseconds, at most what a Duration holds.
func saturate(ns float64) time.Duration {
	if ns >= float64(longestWait) {
		return longestWait
	}
	return time.Duration(math.Ceil(ns))
}
