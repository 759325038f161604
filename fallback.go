package weir

import "context"

// Fallback is a Store that asks Primary, and Backup where Primary could not decide. What was charged in one is
// not known to the other.
type Fallback struct {
	Primary Store
	Backup  Store

	// OnError, if not nil, is told each error of Primary. It may be called concurrently.
	OnError func(error)
}

// Apply asks Primary, then Backup. When the context has ended, the caller has stopped waiting and Backup is
// not asked.
func (f *Fallback) Apply(ctx context.Context, tx *Tx) error {
	err := f.Primary.Apply(ctx, tx)
	if err == nil {
		return nil
	}
	if f.OnError != nil {
		f.OnError(err)
	}
	if ctx.Err() != nil {
		return err
	}
	return f.Backup.Apply(ctx, tx)
}
