package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/batch"
)

// tell prints the account of a run, and turns its end into an exit code.
func (f *fetching) tell(cmd *cobra.Command, plan batch.Plan, rep *batch.Report, err error) error {
	ran := rep.Ledger.Items > 0 // else an account of nothing would replace the one of the run before
	if f.report != "" && ran {
		if e := batch.WriteFile(f.report, func(w io.Writer) error { return printJSON(w, rep) }); e != nil {
			err = errors.Join(err, fmt.Errorf("--report: %w", e))
		}
	}
	out := cmd.OutOrStdout()
	if f.asJSON && ran {
		if e := printJSON(out, rep); e != nil {
			return failed(e)
		}
	} else if ran {
		fmt.Fprintln(out, rep.Ledger.String())
		if rep.Dropped > 0 {
			fmt.Fprintln(out, "duplicates among the items:", rep.Dropped)
		}
		took := rep.Ended.Sub(rep.Started)
		plan.Latency = 0 // what is left is the least whatever the answers took
		if bound := plan.Bound(); bound > 0 && rep.Resumed == 0 && rep.Ledger.Requests >= plan.Requests {
			fmt.Fprintf(out, "took %v, %.2f times the least possible with this rate\n", took.Round(time.Millisecond), float64(took)/float64(bound))
		} else {
			fmt.Fprintf(out, "took %v\n", took.Round(time.Millisecond))
		}
		const shown = 20
		for i, r := range rep.NotFetched {
			if i == shown {
				fmt.Fprintf(out, "… and %d more\n", rep.Ledger.NotFetched-shown)
				break
			}
			fmt.Fprintf(out, "not fetched: %s: %s: %s\n", r.ID, r.Reason, r.Detail)
		}
		if rep.Written {
			fmt.Fprintln(out, "written:", f.out)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, batch.ErrInterrupted):
		return &exitError{code: exitInterrupted, err: fmt.Errorf("%w with --resume", err)}
	case errors.Is(err, batch.ErrJournal) && !f.resume:
		return badConfig(fmt.Errorf("%s.journal is of a run that is not finished; --resume goes on with it, or remove it to start anew", f.out))
	case errors.Is(err, batch.ErrJournal), errors.Is(err, context.Canceled):
		return badConfig(err)
	case errors.Is(err, batch.ErrVerdict) && f.out != "":
		return failed(fmt.Errorf("%w; %s", err, f.goOn(&rep.Ledger)))
	}
	return failed(err)
}

// goOn says what can be done after a run over the thresholds.
func (f *fetching) goOn(l *batch.Ledger) string {
	if l.NotFetched == 0 {
		return fmt.Sprintf("all items are in %s.journal, and --resume writes them", f.out)
	}
	hint := fmt.Sprintf("what was fetched is in %s.journal: --resume goes on with it, or remove it to start anew", f.out)
	if f.json && 2*l.Reasons[batch.Parse] > l.NotFetched {
		hint += ". If the answers are not meant to be JSON, give --expect-json=false"
	}
	return hint
}
