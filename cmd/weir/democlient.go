package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-go/weir/cmd/weir/internal/quota"
)

// newDemoClient is weir demo client, which shows the calling side.
func newDemoClient() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Show ways to stay inside somebody else's limit",
		Long: `Thirty items are fetched from servers that take five requests in any three seconds, in several ways at the same time, each
from a server of its own: without a gate, with sleeps, with a gate on starts, with a token bucket, and with weir. The servers count
when requests arrive, and requests are on their way for a random time. It takes about 20 seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			demo := quota.Default
			file, ok := cmd.ErrOrStderr().(*os.File)
			terminal := ok && term.IsTerminal(int(file.Fd()))
			if terminal {
				demo.Progress = func(done, all int) { fmt.Fprintf(file, "\r\x1b[K%d of %d", done, all) }
			}
			report, err := demo.Run(cmd.Context())
			if terminal {
				fmt.Fprint(file, "\r\x1b[K")
			}
			if cmd.Context().Err() != nil {
				return failed(errors.New("demo: interrupted"))
			}
			if err != nil {
				return failed(err)
			}
			if asJSON {
				return failed(printJSON(cmd.OutOrStdout(), report))
			}
			return failed(report.WriteText(cmd.OutOrStdout()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}
