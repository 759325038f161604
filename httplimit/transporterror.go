package httplimit

import (
	"fmt"
	"net/http"
	"time"
)

// HoldError is what a request fails with when its server asks for a longer wait than MaxHold.
type HoldError struct {
	Status int
	Asked  time.Duration // what the server asked for
	Max    time.Duration // what is waited for at most
	Source string        // the header field that says so
}

func (e *HoldError) Error() string {
	asked := e.Asked.Round(time.Millisecond).String()
	if days := e.Asked / (24 * time.Hour); days >= 4 {
		asked = fmt.Sprintf("%d days", days)
	}
	return fmt.Sprintf("weir: server answered %d and asks to wait %s (%s), more than %v", e.Status, asked, e.Source, e.Max)
}

// TimeoutError is what an attempt fails with that takes longer than Transport.Timeout.
type TimeoutError struct {
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("weir: no complete answer within %v", e.After)
}

// Timeout makes it a timeout for net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// Temporary is for net.Error.
func (e *TimeoutError) Temporary() bool { return true }

// BodyError is what an attempt fails with whose answer's body cannot be used.
type BodyError struct {
	Status int
	Read   int64 // bytes read, after decompression
	Err    error // ErrBodyTooLarge, what reading it ended with, or what Transport.Check said
}

func (e *BodyError) Error() string {
	return fmt.Sprintf("weir: body of a %d answer, after %d bytes: %v", e.Status, e.Read, e.Err)
}

func (e *BodyError) Unwrap() error { return e.Err }

// BreakerError is what a request fails with while the breaker of its host is open: nothing was sent.
type BreakerError struct {
	Host       string
	RetryAfter time.Duration // until it lets a request through to find out
}

func (e *BreakerError) Error() string {
	return fmt.Sprintf("weir: %s has been failing; the breaker is open for %v", e.Host, e.RetryAfter.Round(time.Millisecond))
}

// EventKind is what an Event tells of.
type EventKind int8

const (
	Waiting  EventKind = iota // a gate keeps the request waiting
	Sent                      // an attempt is sent
	Answered                  // an attempt is answered: Answer tells how
	Failed                    // an attempt has no answer, or none that can be used
	Held                      // the gate is closed to all, for Wait
	Retrying                  // another attempt follows, after Wait or, for Wait 0, when the gate opens
	GaveUp                    // no attempt follows although the last one failed
	eventKinds
)

var eventNames = [eventKinds]string{"waiting", "sent", "answered", "failed", "held", "retrying", "gave-up"}

// String is the name, as "gave-up".
func (k EventKind) String() string {
	if k < 0 || k >= eventKinds {
		return fmt.Sprintf("EventKind(%d)", int8(k))
	}
	return eventNames[k]
}

// Event is one thing that happens to a request in a Transport.
type Event struct {
	Kind    EventKind
	Request *http.Request // as given to the Transport
	Attempt int           // from 1
	Hedge   bool          // of an attempt beside a slow one
	Wait    time.Duration
	Limit   string  // Waiting: the limit that keeps it waiting the longest
	Closed  bool    // Waiting: because of a hold, not of what is spent
	Answer  *Answer // Answered, Held
	Err     error   // Failed, GaveUp
	Why     string  // Held, Retrying, GaveUp: in words
}
