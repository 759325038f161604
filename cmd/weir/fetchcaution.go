package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// remember charges a gate in memory with what runs before this one have sent within its window, going by their results and their
// journal: the server still counts it. A journal of a run that was killed does not have what was under way.
func (f *fetching) remember(ctx context.Context, limiter *weir.Limiter, gate httplimit.Gate, target *url.URL) error {
	window := gate.Limit.Rate.Period + gate.Guard
	since := time.Now().Add(-window)
	journal := f.out + ".journal"
	sent := 0
	for _, path := range []string{f.out, journal} {
		n, err := batch.Recent(path, f.url, since)
		if err != nil {
			return err
		}
		sent += n
	}
	if info, err := os.Stat(journal); err == nil && f.resume && info.ModTime().After(since.Add(-f.timeout)) {
		sent += f.workers
	}
	if sent == 0 {
		return nil
	}
	key := httplimit.Host(&http.Request{URL: target})
	return limiter.Debit(ctx, weir.Charge{Limit: gate.Limit, Key: key, Cost: min(int64(sent), gate.Limit.Rate.Units)})
}
