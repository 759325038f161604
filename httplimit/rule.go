package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir"
)

// Rule is one limit on requests: what it counts, for whom, and when.
type Rule struct {
	// Limit is charged. It is required.
	Limit *weir.Limit

	// Key says whose units they are. Nil is [Global]: all requests share. Where it finds nobody, which is the empty key,
	// requests share as well: a request without identity is never let through unlimited.
	Key KeyFunc

	// Cost is how many units the request takes: the operations of a GraphQL query, the length of a batch. Nil is 1.
	// Cost 0 asks the limit without charging it. An error, or a negative cost, refuses the request with 400 (with 413
	// if the error is a [http.MaxBytesError]), before anything is charged. It is called with every request that
	// the rule is for, so whatever it reads it must bound.
	Cost func(*http.Request) (int64, error)

	// Priority says who gives way first, see [weir.Limit.Headroom]. Nil is weir.Normal.
	Priority func(*http.Request) weir.Priority

	// When says which requests the rule is for. Nil is all.
	When func(*http.Request) bool

	// Only says which answers count, by status: for a login, 401 and 403. Nil is all. The units are charged
	// before the request is served, so that many at once cannot pass unseen, and given back when an answer turns out
	// not to count. A handler that panics before it answers has answered 500.
	Only func(status int) bool
}

// Units is a Cost of always n units.
func Units(n int64) func(*http.Request) (int64, error) {
	return func(*http.Request) (int64, error) { return n, nil }
}

// mostCost bounds what a request can ask for. It is more than any limit holds, so that the answer is the same, and
// small enough that costs do not overflow when they are added.
const mostCost = 1 << 52

// CostError says that the cost of a request is unknown; it wraps what the rule's Cost said.
type CostError struct {
	Limit string
	Err   error
}

func (e *CostError) Error() string { return fmt.Sprintf("weir: cost for limit %q: %v", e.Limit, e.Err) }
func (e *CostError) Unwrap() error { return e.Err }

var errNegativeCost = errors.New("negative")

// Charge is what the rule charges for r; ok is false if the rule is not for it. The error is a *CostError.
func (u *Rule) Charge(r *http.Request) (c weir.Charge, ok bool, err error) {
	if u.When != nil && !u.When(r) {
		return c, false, nil
	}
	c = weir.Charge{Limit: u.Limit, Cost: 1}
	if u.Cost != nil {
		if c.Cost, err = u.Cost(r); err == nil && c.Cost < 0 {
			err = errNegativeCost
		}
		if err != nil {
			return c, false, &CostError{Limit: u.name(), Err: err}
		}
		c.Cost = min(c.Cost, mostCost)
	}
	if u.Key != nil {
		c.Key = u.Key(r)
	}
	if u.Priority != nil {
		c.Priority = u.Priority(r)
	}
	return c, true, nil
}

func (u *Rule) name() string {
	if u.Limit == nil {
		return ""
	}
	return u.Limit.Name
}

// settles reports whether something may have to be given back after the answer.
func (u *Rule) settles() bool {
	return u.Only != nil || u.Limit != nil && u.Limit.Algorithm == weir.Concurrency
}
