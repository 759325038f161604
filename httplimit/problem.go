package httplimit

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
)

// ProblemQuotaExceeded is the problem type (RFC 9457) of a refusal.
const ProblemQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// undecidedRetry is when to ask again after 503.
const undecidedRetry = time.Second

// Refusal is an answer instead of the one that was asked for.
type Refusal struct {
	// Decision is what refused; zero if there is none, because of Err.
	Decision weir.Decision

	// Charges is what was asked, in the order of Decision.Outcomes. It may be nil; then a refusal that no wait cures does not
	// say by how much it was too large.
	Charges []weir.Charge

	// Err is why there is no decision: a *CostError if the request was wrong, a *weir.LimitedError if a Take that waits
	// found the line too long, else the Store's error. One with a method Wait() time.Duration, as *redisstore.UnavailableError,
	// says when to ask again; others mean in a second.
	Err error

	Form       Form          // as in Handler
	Jitter     time.Duration // as in Handler
	ExposeCORS bool          // as in Handler

	retry time.Duration // RetryAfter, once drawn
}

// Status is 429, or because of Err 400 or 413 where the request was wrong, 503 where the limits could not be asked.
func (f *Refusal) Status() int {
	if f.limits() {
		return http.StatusTooManyRequests
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(f.Err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case f.wrong():
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// limits reports whether it is the limits that refuse.
func (f *Refusal) limits() bool { return f.Err == nil || f.waited() != nil }

func (f *Refusal) waited() *weir.LimitedError {
	if f.Err == nil { // the usual case; errors.As would allocate
		return nil
	}
	var limited *weir.LimitedError
	errors.As(f.Err, &limited)
	return limited
}

// never reports whether no wait will help.
func (f *Refusal) never() bool {
	w := f.waited()
	return f.Decision.Never || w != nil && w.Never
}

func (f *Refusal) wrong() bool {
	var cost *CostError
	return errors.As(f.Err, &cost)
}

// RetryAfter is when to ask again, in whole seconds, the jitter in it; 0 if asking again is of no use. It stays the same once it has
// been called.
func (f *Refusal) RetryAfter() time.Duration {
	if f.retry != 0 {
		return f.retry
	}
	switch w := f.waited(); {
	case f.limits():
		if f.never() {
			break
		}
		f.retry = RetryAfter(&f.Decision)
		if w != nil {
			f.retry = max(f.retry, wholeSeconds(w.RetryAfter)) // others are before it in the line
		}
	case !f.wrong():
		f.retry = undecidedRetry
		var waits interface{ Wait() time.Duration }
		if errors.As(f.Err, &waits) {
			f.retry = max(f.retry, wholeSeconds(waits.Wait()))
		}
	}
	if f.retry != 0 && f.Jitter > 0 {
		more := time.Duration(rand.Int64N(int64(f.Jitter)))
		f.retry = wholeSeconds(f.retry + min(more, math.MaxInt64-f.retry))
	}
	return f.retry
}

// WriteHeaders writes all header fields but those of the body: Retry-After, those of the Form, and Cache-Control: no-store.
// It takes away those that were meant for another answer.
func (f *Refusal) WriteHeaders(h http.Header) {
	for _, name := range [...]string{
		"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires",
		"Surrogate-Control", "Cdn-Cache-Control", "Retry-After",
	} {
		delete(h, name)
	}
	h["Cache-Control"] = []string{"no-store"} // RFC 6585, section 4
	if f.limits() {
		WriteHeaders(h, &f.Decision, f.Form)
	}
	if retry := f.RetryAfter(); retry > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(int64(retry/time.Second), 10)}
	}
	if f.ExposeCORS && f.Form.known() {
		h.Add("Access-Control-Expose-Headers", exposed[f.Form])
	}
}

// Write answers with status, header fields and a problem+json body (RFC 9457). Nothing may have been written to w. The body names
// the limits that refuse, and no key, address or user.
func (f *Refusal) Write(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	f.WriteHeaders(h)
	h["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(f.Status())
	var few [512]byte
	w.Write(f.appendProblem(few[:0])) // an error here is the client's, which has gone
}

// appendProblem writes the body. Everything in it is ours, or a limit's name, in which Validate admits nothing that JSON would
// escape.
func (f *Refusal) appendProblem(b []byte) []byte {
	status := f.Status()
	kind, title := "about:blank", http.StatusText(status)
	if f.limits() {
		kind, title = ProblemQuotaExceeded, "Request cannot be satisfied as assigned quota has been exceeded"
	}
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","title":"`...), title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
	b = append(b, `,"detail":"`...)
	b = append(f.appendDetail(b), '"')
	if f.limits() {
		b = f.appendViolated(append(b, `,"violated-policies":[`...))
		b = append(b, ']')
		if f.never() {
			b = append(b, `,"retryable":false`...)
		}
	}
	return append(b, '}', '\n')
}

func (f *Refusal) appendViolated(b []byte) []byte {
	if w := f.waited(); w != nil && f.Decision.Allowed {
		return append(append(append(b, '"'), w.Limit...), '"')
	}
	out := f.Decision.Outcomes()
	first := true
	for i := range out {
		if !shown(&f.Decision, out, i) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendName(b, out[i].Limit)
	}
	return b
}

func (f *Refusal) appendDetail(b []byte) []byte {
	switch status := f.Status(); {
	case status == http.StatusRequestEntityTooLarge:
		return append(b, "The request is too large for its cost to be determined."...)
	case status == http.StatusBadRequest:
		return append(b, "The cost of the request cannot be determined."...)
	case !f.limits():
		return append(b, "The limits of the request cannot be checked at the moment."...)
	case !f.never():
		seconds := int64(f.RetryAfter() / time.Second)
		b = strconv.AppendInt(append(b, "Try again in "...), seconds, 10)
		if seconds == 1 {
			return append(b, " second."...)
		}
		return append(b, " seconds."...)
	}
	out := f.Decision.Outcomes()
	for i := range out {
		if o := &out[i]; o.Never && tells(&f.Decision, o) {
			b = append(append(b, "Limit "...), o.Limit.Name...)
			if o.Limit.Rate.Units == 0 || i >= len(f.Charges) {
				return append(b, " never admits this request."...)
			}
			cost, capacity := f.asked(i)
			b = strconv.AppendInt(append(b, ": cost "...), cost, 10)
			b = strconv.AppendInt(append(b, " exceeds capacity "...), capacity, 10)
			return append(b, '.')
		}
	}
	return append(b, "The request is never admitted."...)
}

// asked is what the request asks of the key of charge i in all, and the most that it could get.
func (f *Refusal) asked(i int) (cost, capacity int64) {
	c := &f.Charges[i]
	headroom := int64(0)
	for j := range f.Charges {
		o := &f.Charges[j]
		if o.Limit.Name != c.Limit.Name || o.Key != c.Key {
			continue
		}
		cost += o.Cost
		switch o.Priority {
		case weir.Normal:
			headroom = max(headroom, o.Limit.Headroom)
		case weir.Low:
			headroom = max(headroom, 2*o.Limit.Headroom)
		}
	}
	return cost, c.Limit.Capacity() - headroom
}
