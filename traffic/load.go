package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// Load sends requests at instants that were fixed before, whatever becomes of the earlier ones: an open loop, as customers
// are. A server that stalls is sent just as much, and the wait shows in the latencies, which count from the instant at which a
// request should have been sent. Its methods are safe for concurrent use.
type Load struct {
	// Transport sends; nil means http.DefaultTransport, which reuses few connections.
	Transport http.RoundTripper

	// Timeout is how long after its instant a request may take, to the end of its answer; zero means 10 s.
	Timeout time.Duration

	// MaxOpen is how many requests may be open at once; beyond it a request is not sent and its Result is
	// ErrMaxOpen. Zero means 10,000.
	MaxOpen int

	// Ceiling is the most requests that may be sent in any time of its period, by when they really are sent: what comes
	// late all at once does not pass it either. One beyond it is held for at most LateAfter; if that is not enough it is not
	// sent, and its Result is ErrCeiling. Zero means none; up to 100,000 units.
	Ceiling weir.Rate

	// Inspect, if not nil, sees each answer before its body is read and thrown away. It may read the body, and must not
	// keep it. It is called concurrently.
	Inspect func(*Shot, *http.Response)

	// For Drive. sent is told of each request just before it is sent, and may forbid it. follow is asked after each answer, at once,
	// whether to send one more request, and how long after the answer; those count under MaxOpen and Ceiling as all do. They are
	// given up when linger has passed after the last of the shots.
	sent   func(*Shot) error
	follow func(*Shot, *http.Response) (next Shot, after time.Duration, ok bool)
	linger time.Duration
}

// Shot is one request to send.
type Shot struct {
	At      time.Duration // since the beginning of Run
	Class   int           // the caller's
	Request *http.Request // sent once, with a context of the Load

	call *call // of a Drive
}

// Result is what became of a Shot.
type Result struct {
	Status  int           // 0 if there was no whole answer
	Err     error         // why there was none
	Late    time.Duration // from its instant to when it was sent
	Latency time.Duration // from its instant to the end of the answer, or to the error
}

// Why a request was not sent: MaxOpen others were open, it would have passed the Ceiling, or its Timeout was over before its turn
// came, which is the sender's fault.
var (
	ErrMaxOpen = errors.New("traffic: too many requests are open")
	ErrCeiling = errors.New("traffic: over the ceiling")
	ErrTooLate = errors.New("traffic: this machine fell too far behind")
)

// Run sends the shots, which must come in the order of time, and gives the result of each to done, one at a time.
// It returns when each has its result. When ctx ends, no more are sent, the open ones are given up, and Run returns its error.
func (l *Load) Run(ctx context.Context, shots iter.Seq[Shot], done func(*Shot, Result)) error {
	r := &run{Load: *l, ctx: ctx, done: done, start: time.Now()}
	if r.Transport == nil {
		r.Transport = http.DefaultTransport
	}
	if r.Timeout == 0 {
		r.Timeout = 10 * time.Second
	}
	r.room = make(chan struct{}, cmp.Or(r.MaxOpen, 10_000))
	if r.Ceiling != (weir.Rate{}) {
		r.ceiling = &weir.Limit{Name: "ceiling", Algorithm: weir.SlidingLog, Rate: r.Ceiling}
		if err := r.ceiling.Validate(); err != nil {
			return fmt.Errorf("traffic: %w", err)
		}
	}
	var end context.CancelFunc
	r.lingering, end = context.WithCancel(ctx)
	defer end()
	for shot := range shots {
		if !r.until(ctx, r.start.Add(shot.At)) {
			break
		}
		r.launch(shot)
	}
	defer time.AfterFunc(r.linger, end).Stop()
	r.open.Wait()
	return ctx.Err()
}

// run is one Run of a Load.
type run struct {
	Load
	ctx       context.Context
	lingering context.Context // ends when no more may follow
	start     time.Time
	room      chan struct{}
	ceiling   *weir.Limit // nil: none
	limiter   weir.Limiter
	open      sync.WaitGroup

	mu   sync.Mutex // held while done runs
	done func(*Shot, Result)
}

// until waits for an instant; it is false if ctx ends before.
func (r *run) until(ctx context.Context, at time.Time) bool {
	if wait := time.Until(at); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// launch sends a request whose instant has come, if it may, and does not wait for the answer.
func (r *run) launch(shot Shot) {
	due := r.start.Add(shot.At)
	if time.Since(due) >= r.Timeout {
		r.unsent(&shot, due, ErrTooLate)
		return
	}
	select {
	case r.room <- struct{}{}:
	default:
		r.unsent(&shot, due, ErrMaxOpen)
		return
	}
	err := r.underCeiling(due)
	if err == nil && r.sent != nil {
		err = r.sent(&shot)
	}
	if err != nil {
		<-r.room
		r.unsent(&shot, due, err)
		return
	}
	r.open.Go(func() {
		res := Result{Late: time.Since(due)}
		ctx, cancel := context.WithDeadline(r.ctx, due.Add(r.Timeout))
		var next Shot
		var again bool
		res.Status, next, again, res.Err = r.send(ctx, &shot)
		cancel()
		res.Latency = time.Since(due)
		<-r.room
		r.report(&shot, res)
		if again && r.until(r.lingering, r.start.Add(next.At)) {
			r.launch(next)
		}
	})
}

// underCeiling is nil if a request may be sent now, perhaps after a moment.
func (r *run) underCeiling(due time.Time) error {
	if r.ceiling == nil {
		return nil
	}
	for {
		d, err := r.limiter.Take(r.ctx, r.ceiling.For(""))
		switch {
		case err != nil:
			return err
		case d.Allowed:
			return nil
		}
		at := time.Now().Add(d.RetryAfter)
		if at.Sub(due) > LateAfter {
			return ErrCeiling
		}
		if !r.until(r.ctx, at) {
			return r.ctx.Err()
		}
	}
}

func (r *run) unsent(shot *Shot, due time.Time, err error) {
	late := time.Since(due)
	r.report(shot, Result{Err: err, Late: late, Latency: late})
}

func (r *run) report(shot *Shot, res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done(shot, res)
}

func (r *run) send(ctx context.Context, shot *Shot) (status int, next Shot, again bool, err error) {
	resp, err := r.Transport.RoundTrip(shot.Request.WithContext(ctx))
	if err != nil {
		return 0, next, false, err
	}
	defer resp.Body.Close()
	if r.follow != nil {
		var after time.Duration
		next, after, again = r.follow(shot, resp)
		next.At = time.Since(r.start) + after
	}
	if r.Inspect != nil {
		r.Inspect(shot, resp)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, next, again, err
	}
	return resp.StatusCode, next, again, nil
}

// Tally counts results. Sent is the sum of OK, Refused, Failed, Other and Unanswered. The zero Tally is ready.
type Tally struct {
	Sent       int64
	OK         int64 // 2xx
	Refused    int64 // 429
	Failed     int64 // 5xx
	Other      int64 // any other status
	Unanswered int64 // timeouts and connections that broke
	Late       int64 // of all: sent more than LateAfter after their instant, which is the sender's fault

	MaxLate time.Duration // the latest of them all

	Latency Histogram // of the 2xx
	Refusal Histogram // of the 429s
}

// LateAfter is how long after its instant a request may be sent without being counted as late.
const LateAfter = 10 * time.Millisecond

// Add counts one result.
func (t *Tally) Add(r Result) {
	t.Sent++
	t.MaxLate = max(t.MaxLate, r.Late)
	if r.Late > LateAfter {
		t.Late++
	}
	switch {
	case r.Err != nil:
		t.Unanswered++
	case r.Status >= 200 && r.Status < 300:
		t.OK++
		t.Latency.Add(r.Latency)
	case r.Status == http.StatusTooManyRequests:
		t.Refused++
		t.Refusal.Add(r.Latency)
	case r.Status >= 500:
		t.Failed++
	default:
		t.Other++
	}
}

// Merge adds everything that o counted.
func (t *Tally) Merge(o *Tally) {
	t.Sent += o.Sent
	t.OK += o.OK
	t.Refused += o.Refused
	t.Failed += o.Failed
	t.Other += o.Other
	t.Unanswered += o.Unanswered
	t.Late += o.Late
	t.MaxLate = max(t.MaxLate, o.MaxLate)
	t.Latency.Merge(&o.Latency)
	t.Refusal.Merge(&o.Refusal)
}
