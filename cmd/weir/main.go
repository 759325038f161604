// Command weir limits rates on both sides of HTTP 429: a reverse proxy with limits (weir serve), and what goes
// with it.
//
// It exits with 0 when all is well, 1 when something failed or the verdict is no, and 2 when the
// arguments or the configuration are wrong and nothing was started.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/gateway"
)

const (
	exitOK      = 0
	exitFailure = 1 // something failed, or the verdict is no
	exitUsage   = 2 // the arguments or the configuration are wrong: nothing was started

	exitInterrupted = 3 // stopped before the end, and --resume goes on
)

// version is set at link time by releases: -ldflags "-X main.version=v1.2.3".
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is weir with these arguments; it returns the exit code. It ends when ctx does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: err, usage: true} // from cobra: an unknown command or flag
		var config *gateway.ConfigError
		if errors.As(err, &config) {
			exit.usage = false
		}
	}
	if exit.err != nil {
		fmt.Fprintln(stderr, says(cmd, exit.err))
	}
	if exit.usage {
		fmt.Fprintf(stderr, "Run '%s --help' for the usage.\n", cmd.CommandPath())
	}
	return exit.code
}

// exitError ends weir with a code, and with what err says, if it is not nil, as the last lines on standard error.
type exitError struct {
	code  int
	err   error
	usage bool // point to --help
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// failed is for what went wrong while running: exit code 1. It is nil if err is.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitFailure, err: err}
}

// badUsage is for arguments that cannot be run with: exit code 2, with a pointer to --help.
func badUsage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), usage: true}
}

// badConfig is for a configuration that cannot be run with: exit code 2. It is nil if err is.
func badConfig(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Rate limiting for both sides of HTTP 429",
		Long: `weir protects a service from what comes in, and keeps a caller inside the limits of what it calls.

Exit codes: 0 all is well; 1 something failed, or the verdict is no;
2 the arguments or the configuration are wrong, and nothing was started; 3 interrupted, and can go on.`,
		Version:       versionText(),
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(badFlag)

	// One line a command.
	root.AddCommand(newServe())
	root.AddCommand(newCheck())
	root.AddCommand(newFetch())
	root.AddCommand(newWatch())
	root.AddCommand(newSimulate())
	root.AddCommand(newLoad())
	root.AddCommand(newDemo())
	root.AddCommand(newGateHeaders())
	root.AddCommand(newHashKey())
	root.AddCommand(newVersion())
	return root
}

// versionText is the released version, else what the build knows about itself.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	return text + " " + info.GoVersion
}
