package redisstore

import (
	"errors"
	"fmt"
	"time"
)

// Policy is what becomes of a limit's decisions while the shared store makes none.
type Policy int8

const (
	// Local decides in this process, at the limit divided by the number of replicas. The default. The fleet admits no
	// more than the limit, if it is as large as said; a client that one replica serves alone gets only that part.
	Local Policy = iota

	// Allow admits. It is for limits that keep things fair, not safe. A shared store that is full is
	// no reason for it: then Allow is as Local.
	Allow

	// Deny makes no decision: an [UnavailableError], which is 503 in HTTP.
	Deny
)

var policyNames = [...]string{"local", "allow", "deny"}

// String is the text form: local, allow or deny.
func (p Policy) String() string {
	if p < 0 || int(p) >= len(policyNames) {
		return fmt.Sprintf("Policy(%d)", int8(p))
	}
	return policyNames[p]
}

// MarshalText writes the text form.
func (p Policy) MarshalText() ([]byte, error) {
	if p < 0 || int(p) >= len(policyNames) {
		return nil, fmt.Errorf("weir: %v is not a policy", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads the text form; empty text is Local.
func (p *Policy) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = Local
		return nil
	}
	for i, name := range policyNames {
		if name == string(text) {
			*p = Policy(i)
			return nil
		}
	}
	return fmt.Errorf("weir: policy %.40q is none of local, allow, deny", text)
}

// ErrUnavailable means that the shared store makes no decisions and the limit's Policy is Deny.
var ErrUnavailable = errors.New("shared store unavailable")

// UnavailableError says which limit could not be decided. It wraps ErrUnavailable and the store's error.
type UnavailableError struct {
	Limit      string
	RetryAfter time.Duration // when the store is asked again, at the earliest
	Err        error         // of the store
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("weir: limit %q: %v: %v", e.Limit, ErrUnavailable, e.Err)
}

// Wait is RetryAfter, for the Retry-After of a 503: see httplimit.Refusal.
func (e *UnavailableError) Wait() time.Duration { return e.RetryAfter }

func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }
