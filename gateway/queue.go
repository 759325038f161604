package gateway

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// What a Queue means where it says 0.
const (
	defaultQueueWait   = 5 * time.Second
	defaultQueueLength = 100
)

// queue is where requests of a route wait until their limits admit them: first come first served among those of the same
// keys, no longer than wait, no more than length at once.
type queue struct {
	wait    time.Duration
	length  int64
	waiting atomic.Int64
}

func newQueue(conf *Queue) *queue {
	if conf == nil {
		return nil
	}
	return &queue{wait: cmp.Or(conf.Wait, defaultQueueWait), length: int64(cmp.Or(conf.Length, defaultQueueLength))}
}

// take is lim.Take, with a wait for what would be admitted in time. A refusal says how long it would take; the
// error is the context's if the client left, or the Store's.
func (q *queue) take(ctx context.Context, lim *weir.Limiter, charges []weir.Charge) (weir.Decision, error) {
	if q.waiting.Load() == 0 { // nobody to stand behind
		d, err := lim.Take(ctx, charges...)
		if err != nil || d.Allowed || d.Never || d.RetryAfter > q.wait {
			return d, err
		}
	}
	if q.waiting.Add(1) > q.length {
		q.waiting.Add(-1)
		return q.refuse(ctx, lim, charges, 0)
	}
	defer q.waiting.Add(-1)

	bound, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	d, err := lim.Wait(bound, charges...)
	var limited *weir.LimitedError
	switch {
	case err == nil:
		return d, nil
	case ctx.Err() != nil:
		return d, ctx.Err()
	case errors.As(err, &limited):
		return q.refuse(ctx, lim, charges, limited.RetryAfter)
	case errors.Is(err, context.DeadlineExceeded): // the line did not move as fast as it was foreseen
		return q.refuse(ctx, lim, charges, 0)
	}
	return d, err
}

// refuse is the refusal of a request that may not wait any longer: what its limits say now, and no sooner than after.
func (q *queue) refuse(ctx context.Context, lim *weir.Limiter, charges []weir.Charge, after time.Duration) (weir.Decision, error) {
	d, err := lim.Peek(ctx, charges...)
	if err != nil {
		return d, err
	}
	d.Allowed = false
	if !d.Never {
		// Those in line come first; nobody knows how many of them have the same keys.
		d.RetryAfter = max(d.RetryAfter, after, time.Second)
	}
	return d, nil
}
