package httplimit

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Advice is what a client should do after an answer.
type Advice int8

const (
	// GoOn is for an answer that is one, be it 200, 304 or a 404 that says so.
	GoOn Advice = iota

	// HoldOn is for a refusal on account of the rate: everybody who shares the quota waits Answer.Wait, then
	// the request can be sent again.
	HoldOn

	// BackOff is for a server that is unwell (500, 502, 504, a 503 without Retry-After …): this request can be sent
	// again after a while, others are not affected.
	BackOff

	// Change is for a request that is wrong: sent again, it gets the same answer.
	Change

	// Stop is for a caller that is wrong, as with a bad API key: no request will do better.
	Stop

	advices = iota
)

var adviceNames = [advices]string{"go-on", "hold-on", "back-off", "change", "stop"}

// String is the name, as "hold-on".
func (a Advice) String() string {
	if a < 0 || a >= advices {
		return fmt.Sprintf("Advice(%d)", int8(a))
	}
	return adviceNames[a]
}

// MarshalText writes the name.
func (a Advice) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Unknown stands for a number that the server did not say.
const Unknown = -1

// Quota is one limit that a server speaks of, in whatever header fields.
type Quota struct {
	Name      string        // as the server calls it, or the kind of unit, as "tokens"; may be empty
	Unit      string        // what is counted; empty means requests
	Limit     int64         // units in a window, or Unknown
	Remaining int64         // units left, rounded down, or Unknown
	Window    time.Duration // length of the window; 0 if it was not said
	Reset     time.Duration // from the answer until there are more units, or until all are back; Unknown (−1 ns) if it was not said
	Source    string        // the fields it was read from
}

// Requests reports whether the quota counts requests. Others, as bytes or tokens, say nothing on when the next request may start.
func (q *Quota) Requests() bool {
	switch q.Unit {
	case "", "request", "requests":
		return true
	}
	return false
}

// Note is how one header field was read.
type Note struct {
	Field   string `json:"field"`
	Value   string `json:"value"` // at most 200 bytes of it
	Meaning string `json:"meaning"`
}

// Answer is what an HTTP answer says to a client about its rate.
type Answer struct {
	Status int
	Advice Advice

	// Wait is how long after the answer nobody should ask again, 0 if the server did not say. It is what the server asked
	// for, without a cap: up to 292 years. Only HoldOn and BackOff have one.
	Wait time.Duration

	// Source is the field that Wait is from.
	Source string

	// Reason is the server's own words, from a header field, or empty.
	Reason string

	// Concurrent says that too many requests were under way at once: fewer workers help, waiting does not.
	Concurrent bool

	// Quotas are the limits that the answer tells of.
	Quotas []Quota

	// Notes tell how each field was read, and which were ignored and why.
	Notes []Note
}

// Refused reports whether the server refused the request on account of the rate.
func (a *Answer) Refused() bool { return a.Advice == HoldOn }

// Tightest is the quota of requests with the fewest units left, of those the one that comes back last; nil if none says
// what is left.
func (a *Answer) Tightest() *Quota {
	var t *Quota
	for i := range a.Quotas {
		q := &a.Quotas[i]
		if !q.Requests() || q.Remaining < 0 {
			continue
		}
		if t == nil || q.Remaining < t.Remaining || q.Remaining == t.Remaining && q.Reset > t.Reset {
			t = q
		}
	}
	return t
}

// Pause is how long new requests should wait so as not to be refused, given how many others, sent before this answer
// came, are still to be counted. Zero means that the answer gives no reason to wait. It is for answers that are not refusals.
func (a *Answer) Pause(inFlight int64) time.Duration {
	var pause time.Duration
	for i := range a.Quotas {
		q := &a.Quotas[i]
		if q.Requests() && q.Remaining >= 0 && q.Remaining <= inFlight && q.Reset > pause {
			pause = q.Reset
		}
	}
	return pause
}

// Pace is how far apart requests should start so that what is left lasts until it comes back; 0 if that is unknown.
func (a *Answer) Pace() time.Duration {
	var pace time.Duration
	for i := range a.Quotas {
		if q := &a.Quotas[i]; q.Requests() && q.Remaining > 0 && q.Reset > 0 {
			pace = max(pace, q.Reset/time.Duration(q.Remaining))
		}
	}
	return pace
}

// ReadAnswer reads what an answer says about the rate: its status, Retry-After, and the fields of the IETF drafts and
// of the providers that are known to differ. now is when the answer came; absolute times are taken against the Date of
// the answer, where it has one, so that clocks need not agree. body is the start of the answer's body, where the profile
// needs it to tell a refusal from another answer of the same status; nil means that it is not known. A nil profile
// is one found by the header, or none.
//
// The longest wait wins, and a wait of 0 is no information. A field that does not parse is ignored as a whole. Where
// the answer comes from a cache (Age > 0), the fields on quotas are ignored.
func ReadAnswer(status int, h http.Header, body []byte, now time.Time, p *Profile) Answer {
	r := reading{Answer: Answer{Status: status}, h: h, now: now, profile: p}
	if p == nil {
		r.profile = profileOf(h)
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		r.now, r.dated = date, true
	}
	if age := parseCount(h.Get("Age")); age > 0 {
		r.note("Age", h.Get("Age"), "from a cache: its quotas are those of an earlier answer, ignored")
	} else {
		r.quotas()
	}
	r.reason()
	r.advise(body)
	switch r.Advice {
	case HoldOn:
		r.waits(true)
	case BackOff:
		r.waits(false)
	}
	return r.Answer
}

// reading is an Answer being read.
type reading struct {
	Answer
	h       http.Header
	now     time.Time // of the answer: its Date, or when it came
	dated   bool
	profile *Profile
	said    []asked // the Retry-After of any spelling
}

// asked is one wait that a field asks for.
type asked struct {
	field string
	wait  time.Duration
}

func (r *reading) note(field, value, format string, args ...any) {
	const most = 200
	if len(value) > most {
		value = value[:most] + "…"
	}
	r.Notes = append(r.Notes, Note{field, strings.ToValidUTF8(value, "?"), fmt.Sprintf(format, args...)})
}

// advise sets Advice, from the status and what the profile and the fields make of it.
func (r *reading) advise(body []byte) {
	r.retryAfters()
	status := r.Status
	switch {
	case status == http.StatusTooManyRequests:
		r.Advice = HoldOn
	case r.profile.refuses(status):
		if r.profile.bodyDenies(body) {
			r.Advice = Change
			r.note("status", fmt.Sprint(status), "a refusal at %s only if the body says so, which it does not", r.profile.Name)
			return
		}
		r.Advice = HoldOn
		r.note("status", fmt.Sprint(status), "%s refuses with this status", r.profile.Name)
	case status == http.StatusForbidden:
		// Without a profile a 403 is a refusal only where it says so itself.
		r.Advice = Change
		if len(r.said) > 0 || r.exhausted() {
			r.Advice = HoldOn
			r.note("status", "403", "a refusal, as it says when to come back")
		}
	case status == http.StatusServiceUnavailable:
		r.Advice = BackOff
		if len(r.said) > 0 {
			r.Advice = HoldOn
		}
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		r.Advice = BackOff
	case status >= 400 && status != http.StatusNotFound && status != http.StatusGone:
		r.Advice = Change
	}
	if r.profile != nil && r.profile.explain != nil {
		if a, ok := r.profile.explain(status, r.Reason); ok {
			r.Advice = a
		}
	}
}

// exhausted reports whether a quota of requests is used up.
func (r *reading) exhausted() bool {
	for i := range r.Quotas {
		if q := &r.Quotas[i]; q.Requests() && q.Remaining == 0 {
			return true
		}
	}
	return false
}

// reasonFields carry words of servers on why.
var reasonFields = []string{"Stripe-Rate-Limited-Reason", "Ratelimit-Reason", "X-Ratelimit-Scope"}

func (r *reading) reason() {
	fields := reasonFields
	if r.profile != nil && r.profile.ReasonField != "" {
		fields = append([]string{r.profile.ReasonField}, fields...)
	}
	for _, f := range fields {
		if v := r.h.Get(f); v != "" {
			r.note(f, v, "the server's reason")
			if r.Reason == "" {
				r.Reason = r.Notes[len(r.Notes)-1].Value
			}
		}
	}
	if strings.HasSuffix(r.h.Get("Stripe-Rate-Limited-Reason"), "-concurrency") {
		r.Concurrent = true
	}
}

// waits sets Wait: the longest of what Retry-After says, in any spelling, and, on a refusal, of when quotas that are used up come
// back. Where only quotas that are not used up say when, that is the best there is: what is left is no permission
// on a refusal.
func (r *reading) waits(refused bool) {
	for _, s := range r.said {
		if s.wait > r.Wait {
			r.Wait, r.Source = s.wait, s.field
		}
	}
	if !refused {
		return
	}
	if r.profile != nil && r.profile.RetryAfterWins && r.Wait > 0 {
		return
	}
	var other asked
	for i := range r.Quotas {
		q := &r.Quotas[i]
		switch {
		case q.Reset <= 0:
		case q.Remaining == 0 || q.Remaining < 0 && len(r.said) == 0:
			if q.Reset > r.Wait {
				r.Wait, r.Source = q.Reset, q.Source
			}
		case q.Reset > other.wait && q.Requests():
			other = asked{q.Source, q.Reset}
		}
	}
	if r.Wait == 0 && other.wait > 0 {
		r.Wait, r.Source = other.wait, other.field
		r.note(other.field, "", "the server refuses although units are left: waiting until they come back")
	}
}
