// Package batch runs many fetches and accounts for every one of them. An item that could not be fetched is never taken
// for one that did not change: each ends in exactly one column of a [Ledger], and a run in which too much was not fetched fails
// as a whole and writes nothing.
package batch

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Column is where an item ends. Every item of a run ends in exactly one.
type Column string

const (
	Changed     Column = "changed"          // fetched, and not what it was; so is an item seen for the first time
	Same        Column = "same"             // fetched, and what it was
	NotModified Column = "not_modified"     // the server said so (304)
	Unknown     Column = "unknown_upstream" // the server answered that it has no such item
	NotFetched  Column = "not_fetched"      // nothing is known of it; see Reason
)

// Reason says why an item was not fetched.
type Reason string

const (
	RateLimited Reason = "rate_limited" // refused by the server's limit to the last
	Server      Reason = "server"       // 5xx, or a status that fits nothing else
	Denied      Reason = "denied"       // 401, 403: no permission
	Network     Reason = "network"      // no connection, reset, no answer in time
	Parse       Reason = "parse"        // an answer that is not what was asked for: truncated, another type, another item
	TooLarge    Reason = "too_large"    // a body over the bound
	GaveUp      Reason = "gave_up"      // the wait asked for was too long, or the time for the item was over
	Interrupted Reason = "interrupted"  // the run was stopped before or while it was fetched
)

// Reasons are all reasons, in the order of reports.
var Reasons = []Reason{RateLimited, Server, Denied, Network, Parse, TooLarge, GaveUp, Interrupted}

// Result is what came of one item.
type Result struct {
	Column Column `json:"column"`
	Reason Reason `json:"reason,omitempty"` // of NotFetched, and only there
	Detail string `json:"detail,omitempty"` // for people: what the server or the network said
	Status int    `json:"status,omitempty"` // the last HTTP status, 0 if there was none

	Hash         string `json:"sha256,omitempty"` // of the content, hexadecimal
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	Body         []byte `json:"-"` // the content; nil where the column has none
}

// Lost is a Result of NotFetched.
func Lost(reason Reason, format string, args ...any) Result {
	return Result{Column: NotFetched, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// check says what is wrong with a Result that a Fetch returned.
func (r *Result) check() error {
	switch r.Column {
	case Changed, Same, NotModified, Unknown:
		if r.Reason != "" {
			return fmt.Errorf("batch: column %s with the reason %s", r.Column, r.Reason)
		}
	case NotFetched:
		for _, known := range Reasons {
			if r.Reason == known {
				return nil
			}
		}
		return fmt.Errorf("batch: not fetched for the reason %q, which is none", r.Reason)
	default:
		return fmt.Errorf("batch: %q is no column", r.Column)
	}
	return nil
}

// Ledger counts where the items of a run ended, and apart from them what it took.
type Ledger struct {
	Items       int            `json:"items"`
	Changed     int            `json:"changed"`
	Same        int            `json:"same"`
	NotModified int            `json:"not_modified"`
	Unknown     int            `json:"unknown_upstream"`
	NotFetched  int            `json:"not_fetched"`
	Reasons     map[Reason]int `json:"reasons,omitempty"` // of NotFetched

	Requests int           `json:"requests"`  // attempts sent, retries among them
	Refusals int           `json:"refusals"`  // of those, answered by 429 or what stands for it
	Waited   time.Duration `json:"waited_ns"` // by all workers together, for the gate and between attempts
}

// Add enters one item.
func (l *Ledger) Add(r Result) {
	l.Items++
	switch r.Column {
	case Changed:
		l.Changed++
	case Same:
		l.Same++
	case NotModified:
		l.NotModified++
	case Unknown:
		l.Unknown++
	default:
		l.NotFetched++
		if l.Reasons == nil {
			l.Reasons = make(map[Reason]int)
		}
		l.Reasons[r.Reason]++
	}
}

// Check says whether the books balance: the columns sum to the items, the reasons to the items not fetched.
func (l *Ledger) Check() error {
	sum := l.Changed + l.Same + l.NotModified + l.Unknown + l.NotFetched
	reasons := 0
	for _, n := range l.Reasons {
		reasons += n
	}
	if sum != l.Items || reasons != l.NotFetched {
		return fmt.Errorf("batch: the books do not balance: %d items, %d in the columns; %d not fetched, %d with a reason", l.Items, sum, l.NotFetched, reasons)
	}
	return nil
}

// RefusalShare is the part of the requests that was refused, 0 to 1.
func (l *Ledger) RefusalShare() float64 {
	if l.Requests == 0 {
		return 0
	}
	return float64(l.Refusals) / float64(l.Requests)
}

// String is one line.
func (l *Ledger) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d changed, %d same, %d not modified, %d unknown upstream, %d not fetched", counted(l.Items, "item"), l.Changed, l.Same, l.NotModified, l.Unknown, l.NotFetched)
	sep := " ("
	for _, r := range Reasons {
		if n := l.Reasons[r]; n > 0 {
			fmt.Fprintf(&b, "%s%s %d", sep, r, n)
			sep = ", "
		}
	}
	if sep == ", " {
		b.WriteByte(')')
	}
	fmt.Fprintf(&b, "; %s, %d refused", counted(l.Requests, "request"), l.Refusals)
	return b.String()
}

// counted is as: 1 item, 2 items.
func counted(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return fmt.Sprintf("%d %s", n, one)
}

// Thresholds are what a run may miss and still count. The zero Thresholds are the defaults.
//
// The defaults come from runs against a server of 5 requests in 30 s: 8 to 13 % of requests refused was ordinary, 68 %
// was a run without a gate. A threshold just above the ordinary trips every day and is then ignored. A share means
// nothing for few items, so a count stands beside it.
type Thresholds struct {
	// RefusalShare is the largest part of the requests that may be refused, 0 to 1. Zero means 0.30; negative
	// means none at all, 1 means any. Of a run that is resumed, the requests since then are meant.
	RefusalShare float64

	// RateLimited is how many items may end not fetched because of the server's limit. Zero means 2:
	// the third fails the run; negative means none.
	RateLimited int

	// NotFetched is how many items may end not fetched for any other reason. Zero means none.
	NotFetched int
}

// ErrVerdict is what errors of a run that failed its thresholds wrap.
var ErrVerdict = errors.New("nothing was written")

// Verdict is nil if a ledger is within the thresholds, else it wraps ErrVerdict and says what is over which.
func (t Thresholds) Verdict(l *Ledger) error {
	share := t.RefusalShare
	switch {
	case share == 0:
		share = 0.30
	case share < 0:
		share = 0
	}
	limited := t.RateLimited
	switch {
	case limited == 0:
		limited = 2
	case limited < 0:
		limited = 0
	}
	var over []string
	if got := l.RefusalShare(); got > share {
		over = append(over, fmt.Sprintf("%.1f %% of %s were refused, over %.1f %%", 100*got, counted(l.Requests, "request"), 100*share))
	}
	n := l.Reasons[RateLimited]
	if n > limited {
		over = append(over, fmt.Sprintf("%s not fetched because of the rate limit, over %d", counted(n, "item"), limited))
	}
	if other := l.NotFetched - n; other > max(0, t.NotFetched) {
		over = append(over, fmt.Sprintf("%s not fetched for other reasons, over %d", counted(other, "item"), max(0, t.NotFetched)))
	}
	if len(over) == 0 {
		return nil
	}
	return fmt.Errorf("batch: %s: %w", strings.Join(over, "; "), ErrVerdict)
}
