package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
)

// runFlags are the flags of what asks a limited server many times, and accounts for every answer: weir fetch and weir watch. What is
// in it when the flags are added are their defaults.
type runFlags struct {
	rate    string
	workers int
	timeout time.Duration // for one attempt
	latency time.Duration
	plan    bool
	quiet   bool
	asJSON  bool

	refused float64
	limited int
	lost    int
}

// add adds the flags to a command that fetches what, as "items".
func (f *runFlags) add(cmd *cobra.Command, what string) {
	fl := cmd.Flags()
	fl.StringVar(&f.rate, "rate", f.rate, "the server's `limit`, as 5/30s: never more starts than that in any such time")
	fl.IntVar(&f.workers, "workers", f.workers, "`requests` at once")
	fl.DurationVar(&f.timeout, "timeout", f.timeout, "for one attempt, to the end of its answer")
	fl.DurationVar(&f.latency, "latency", f.latency, "what to expect of one answer, for --plan and the first estimate")
	fl.BoolVar(&f.plan, "plan", f.plan, "say what the run will take, send nothing")
	fl.BoolVar(&f.quiet, "quiet", f.quiet, "no progress on a terminal")
	fl.BoolVar(&f.asJSON, "json", f.asJSON, "print the account, or the plan, as JSON")
	fl.Float64Var(&f.refused, "max-refused-share", f.refused, "fail over this `share` of requests refused")
	fl.IntVar(&f.limited, "max-rate-limited", f.limited, "fail over this `number` of "+what+" not fetched because of the limit")
	fl.IntVar(&f.lost, "max-not-fetched", f.lost, "fail over this `number` of "+what+" not fetched for other reasons")
}

// check looks at the flags, and reads the rate; it is zero if none was given.
func (f *runFlags) check() (weir.Rate, error) {
	if f.workers < 1 {
		return weir.Rate{}, badUsage("--workers %d: want 1 or more", f.workers)
	}
	if err := checkShare("max-refused-share", f.refused); err != nil || f.rate == "" {
		return weir.Rate{}, err
	}
	rate, err := weir.ParseRate(f.rate)
	if err != nil {
		return weir.Rate{}, badUsage("--rate: %v", err)
	}
	return rate, nil
}

func checkShare(flag string, share float64) error {
	if !(share >= 0 && share <= 1) {
		return badUsage("--%s %v: want 0 to 1", flag, share)
	}
	return nil
}

func (f *runFlags) thresholds(cmd *cobra.Command) batch.Thresholds {
	return batch.Thresholds{
		RefusalShare: given(cmd, "max-refused-share", f.refused), RateLimited: given(cmd, "max-rate-limited", f.limited), NotFetched: f.lost,
	}
}

// given is the value of a flag as thresholds take it: a 0 that was written is none, while theirs is what is usual.
func given[T int | float64](cmd *cobra.Command, flag string, n T) T {
	if n == 0 && cmd.Flags().Changed(flag) {
		return -1
	}
	return n
}
