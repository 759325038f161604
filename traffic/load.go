package traffic

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"
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

	// Inspect, if not nil, sees each answer before its body is read and thrown away. It may read the body, and must not
	// keep it. It is called concurrently.
	Inspect func(*Shot, *http.Response)
}

// Shot is one request to send.
type Shot struct {
	At      time.Duration // since the beginning of Run
	Class   int           // the caller's
	Request *http.Request // sent once, with a context of the Load
}

// Result is what became of a Shot.
type Result struct {
	Status  int           // 0 if there was no whole answer
	Err     error         // why there was none
	Late    time.Duration // from its instant to when it was sent
	Latency time.Duration // from its instant to the end of the answer, or to the error
}

// ErrMaxOpen means that a request was not sent because MaxOpen others were open.
var ErrMaxOpen = errors.New("traffic: too many requests are open")

// Run sends the shots, which must come in the order of time, and gives the result of each to done, one at a time.
// It returns when each has its result. When ctx ends, no more are sent, the open ones are given up, and Run returns its error.
func (l *Load) Run(ctx context.Context, shots iter.Seq[Shot], done func(*Shot, Result)) error {
	transport, timeout, maxOpen := l.Transport, l.Timeout, l.MaxOpen
	if transport == nil {
		transport = http.DefaultTransport
	}
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	if maxOpen == 0 {
		maxOpen = 10_000
	}
	var (
		open   sync.WaitGroup
		room   = make(chan struct{}, maxOpen)
		mu     sync.Mutex // held while done runs
		report = func(s *Shot, r Result) {
			mu.Lock()
			defer mu.Unlock()
			done(s, r)
		}
		start = time.Now()
		timer = time.NewTimer(0)
	)
	defer open.Wait()
	defer timer.Stop()
	for shot := range shots {
		if wait := time.Until(start.Add(shot.At)); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case room <- struct{}{}:
		default:
			late := time.Since(start.Add(shot.At))
			report(&shot, Result{Err: ErrMaxOpen, Late: late, Latency: late})
			continue
		}
		open.Go(func() {
			defer func() { <-room }()
			due := start.Add(shot.At)
			ctx, cancel := context.WithDeadline(ctx, due.Add(timeout))
			defer cancel()
			r := Result{Late: time.Since(due)}
			r.Status, r.Err = l.send(ctx, transport, &shot)
			r.Latency = time.Since(due)
			report(&shot, r)
		})
	}
	open.Wait()
	return ctx.Err()
}

func (l *Load) send(ctx context.Context, transport http.RoundTripper, shot *Shot) (status int, err error) {
	resp, err := transport.RoundTrip(shot.Request.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if l.Inspect != nil {
		l.Inspect(shot, resp)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
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
