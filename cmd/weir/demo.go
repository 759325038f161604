package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-go/weir/cmd/weir/internal/blackfriday"
)

// newDemo is weir demo, which by itself shows the serving side. Other demos are commands below it.
func newDemo() *cobra.Command {
	var (
		seconds float64
		rate    float64
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Black Friday with and without limits, on this machine",
		Long: `A backend meets a wave of 3.5 times what it serves: customers' orders, back-office reads and one runaway client. First
without limits, then with them, through the proxy of weir serve. Everything runs in this process, over loopback, in less
than a minute. The backend is made as large as this machine can drive, and every figure is measured in the run that
prints it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(seconds >= 1 && seconds <= 600) {
				return badUsage("demo: --seconds %v: want 1 to 600", seconds)
			}
			if !(rate >= 0.1 && rate <= 20) {
				return badUsage("demo: --rate %v: want 0.1 to 20", rate)
			}
			progress := newProgress(cmd.ErrOrStderr())
			report, err := blackfriday.Demo{
				Act:      time.Duration(seconds * float64(time.Second)),
				Factor:   rate,
				Progress: progress.show,
			}.Run(cmd.Context())
			progress.clear()
			if cmd.Context().Err() != nil {
				return failed(errors.New("demo: interrupted"))
			}
			if err != nil {
				return failed(err)
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				out.SetEscapeHTML(false)
				return failed(out.Encode(report))
			}
			return failed(report.WriteText(cmd.OutOrStdout()))
		},
	}
	cmd.AddCommand(newDemoClient())
	cmd.AddCommand(newDemoWatch())
	cmd.Flags().Float64Var(&seconds, "seconds", 12, "how long each act is")
	cmd.Flags().Float64Var(&rate, "rate", 3.5, "what arrives at the peak, as a multiple of what the backend serves")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

// progress tells how a demo goes: on a terminal in one line that is drawn over, elsewhere in a line for each part.
type progress struct {
	w     io.Writer
	width int // columns of the terminal; 0: it is none
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{w: w}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 {
		width = 80
	}
	return &progress{w, width}
}

func (p *progress) show(at blackfriday.Progress) {
	const cells = 16
	n := &at.Last
	if p.width > 0 {
		full := int(at.Done * cells)
		line := fmt.Sprintf("%-12s  %s%s", at.Part, strings.Repeat("█", full), strings.Repeat("░", cells-full))
		if n.Sent > 0 {
			line += fmt.Sprintf("  %d sent: %d served, %d refused, %d failed", n.Sent, n.OK, n.Refused, n.Sent-n.OK-n.Refused)
		}
		if columns := []rune(line); len(columns) >= p.width {
			line = string(columns[:p.width-1]) // one that wraps could not be drawn over
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		return
	}
	if at.Done == 1 {
		fmt.Fprintf(p.w, "demo: %s: %d requests: %d served, %d refused, %d failed\n", at.Part, n.Sent, n.OK, n.Refused, n.Sent-n.OK-n.Refused)
	}
}

// clear takes the line away.
func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
