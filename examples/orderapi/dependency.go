package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// Dependency is a service that an order needs, behind four lines of defence.
type Dependency struct {
	name      string
	url       string // its base URL
	otherwise Status
	calls     failsafe.Executor[Status]
	client    *http.Client
}

// Defence is how much of a dependency's trouble an order puts up with.
type Defence struct {
	Timeout  time.Duration // of one try
	Tries    int           // of one call, the first one included
	Pause    time.Duration // before the second try, give or take half of it; it doubles from try to try
	Failures uint          // so many of the last 2·Failures tries open the breaker
	Rest     time.Duration // how long an open breaker lets nothing through
	Budget   budget.Budget // of retries; shared by all dependencies
}

// Guard puts d around the service at a base URL. What it answers when the service does not is otherwise.
//
// The order of the lines matters. From the inside out:
//
//	the timeout is around each single try, so that one stuck try leaves time for the next;
//	the breaker sees each try, and counts those that ran out of time;
//	the retry is outside the breaker, so that it stops when the breaker opens instead of hammering on;
//	the fallback is outside of all, for whatever is left.
func Guard(name, url string, otherwise Status, d Defence, log *slog.Logger) *Dependency {
	log = log.With("dependency", name)

	// Every call needs an upper bound: an order that waits for ever holds its connection and its memory for ever.
	limit := timeout.New[Status](d.Timeout)

	// A service in trouble recovers faster if left alone, and orders are answered faster if they do not wait for it. After
	// the rest, two good tries close the breaker and one bad try opens it again.
	breaker := circuitbreaker.NewBuilder[Status]().
		WithFailureThresholdRatio(d.Failures, 2*d.Failures).
		WithSuccessThreshold(2).
		WithDelay(d.Rest).
		OnStateChanged(func(e circuitbreaker.StateChangedEvent) {
			log.Warn("breaker", "was", e.OldState.String(), "is", e.NewState.String())
		}).
		Build()

	// A lost packet or a restarting server is gone a moment later. The jitter keeps callers that failed together from
	// coming back together; the budget keeps an outage from becoming a storm of retries.
	again := retrypolicy.NewBuilder[Status]().
		WithMaxAttempts(d.Tries).
		WithBackoff(d.Pause, 8*d.Pause).
		WithJitterFactor(0.5).
		WithBudget(d.Budget).
		AbortIf(func(_ Status, err error) bool { return !worthRetrying(err) }).
		ReturnLastFailure().
		Build()

	// The customer gets an order with an open end, not an error page.
	plan := fallback.NewWithFunc(func(e failsafe.Execution[Status]) (Status, error) {
		log.Warn("fallback", "answer", otherwise, "tries", e.Attempts(), "err", e.LastError())
		return otherwise, nil
	})

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // the default of 2 would dial anew for most calls under load
	return &Dependency{
		name:      name,
		url:       url,
		otherwise: otherwise,
		calls:     failsafe.With(plan, again, breaker, limit),
		client:    &http.Client{Transport: transport},
	}
}

// worthRetrying tells trouble that may be over in a moment. An open breaker has just said that it is not; a
// service that answers 429 asks for fewer calls, not for more.
func worthRetrying(err error) bool {
	var status statusError
	return !errors.Is(err, circuitbreaker.ErrOpen) &&
		!(errors.As(err, &status) && status == http.StatusTooManyRequests)
}

// statusError is an answer that says that the service could not do its work.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("%d %s", int(e), http.StatusText(int(e))) }

// Ask has the service do its step for an order, and is its answer or, if there is none, the fallback's.
func (d *Dependency) Ask(ctx context.Context, method, path string, o Order) Status {
	status, err := d.calls.WithContext(ctx).GetWithExecution(func(try failsafe.Execution[Status]) (Status, error) {
		return d.try(try.Context(), method, path, o)
	})
	if err != nil { // ctx ended: the fallback is not asked
		return d.otherwise
	}
	return status
}

// try is one call. Its error counts against the service; a "no" such as 402 is an answer like any other, and does not.
func (d *Dependency) try(ctx context.Context, method, path string, o Order) (Status, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", o.ID)
	res, err := d.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10)) // no service may fill our memory
	if err != nil {
		return "", err
	}
	if res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests {
		return "", statusError(res.StatusCode)
	}
	var answer struct{ Status Status }
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status == "" {
		return "", fmt.Errorf("%s: answer %d without a status", d.name, res.StatusCode)
	}
	return answer.Status, nil
}
