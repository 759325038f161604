package traffic

import "context"

// Ahead calls f with the events that read gives, and lets read go on meanwhile, a few thousand events ahead: reading a log takes as long as
// deciding. The Event is f's until it returns. It ends with the first error of either.
func Ahead(ctx context.Context, read func(context.Context, func(*Event) error) error, f func(*Event) error) error {
	const batch, batches = 512, 8
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	full, empty := make(chan []Event, batches), make(chan []Event, batches)
	done := make(chan error, 1)
	go func() {
		defer close(full)
		events := make([]Event, 0, batch)
		send := func() error {
			select {
			case full <- events:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case events = <-empty:
				events = events[:0]
			default:
				events = make([]Event, 0, batch)
			}
			return nil
		}
		err := read(ctx, func(e *Event) error {
			if events = append(events, *e); len(events) < batch {
				return nil
			}
			return send()
		})
		if err == nil && len(events) > 0 {
			err = send()
		}
		done <- err
	}()
	var err error
	for events := range full {
		for i := range events {
			if err = f(&events[i]); err != nil {
				break
			}
		}
		if err != nil {
			cancel()
			for range full { // so that read sees that it is over
			}
			break
		}
		clear(events)
		select {
		case empty <- events:
		default:
		}
	}
	if readErr := <-done; err == nil {
		err = readErr
	}
	return err
}
