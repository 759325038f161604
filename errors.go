package weir

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNoLimit means that a Charge has no Limit.
	ErrNoLimit = errors.New("weir: charge without a limit")

	// ErrCost means that a Charge has a negative cost, or that costs add up beyond what a number holds.
	ErrCost = errors.New("cost is negative or too large")

	// ErrTooFine means that a Limit's numbers are beyond what can be kept exactly; the error that
	// wraps it names what would fit.
	ErrTooFine = errors.New("numbers too fine to keep exactly")

	// ErrPriority means that a Charge has a Priority that is none of Low, Normal and High.
	ErrPriority = errors.New("priority is none of low, normal, high")

	// ErrEvery means that a Charge made by [Limit.Every] was given to an operation other than Hold.
	ErrEvery = errors.New("a charge for every key only goes with Hold")
)

// LimitedError is what [Limiter.Wait] returns when the units would come too late: after the context's
// deadline, or never.
type LimitedError struct {
	Limit      string        // the name of the limit that refuses the longest
	RetryAfter time.Duration // how long the wait would have been, at least
	Never      bool          // no wait would help: the cost is more than the limit ever has
}

func (e *LimitedError) Error() string {
	if e.Never {
		return fmt.Sprintf("weir: limit %q never admits this cost", e.Limit)
	}
	return fmt.Sprintf("weir: limit %q admits this only in %v, after the context ends", e.Limit, e.RetryAfter)
}

// ChargeError says which charge is wrong; it wraps ErrCost, ErrPriority or ErrEvery.
type ChargeError struct {
	Limit string
	Err   error
}

func (e *ChargeError) Error() string { return fmt.Sprintf("weir: limit %q: %v", e.Limit, e.Err) }
func (e *ChargeError) Unwrap() error { return e.Err }
