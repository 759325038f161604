package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/internal/words"
)

// says is what run prints of an error. A list of faults, each with its place, stands as it is, as from a compiler; anything else is one
// sentence that begins with the command, whichever package it came from.
func says(cmd *cobra.Command, err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	var config *gateway.ConfigError
	if errors.As(err, &config) || strings.Contains(text, "\n") {
		return text
	}
	for {
		begins, rest, ok := strings.Cut(text, ": ")
		if !ok || begins != cmd.Name() && !slices.Contains(packages, begins) {
			break
		}
		text = rest
	}
	// What cobra says of an argument where there should be none, although there are no commands below this one.
	if arg, ok := strings.CutSuffix(text, fmt.Sprintf(" for %q", cmd.CommandPath())); ok && !cmd.HasSubCommands() {
		text = "unknown argument" + strings.TrimPrefix(arg, "unknown command") + "; it takes flags only"
	}
	return cmd.CommandPath() + ": " + text
}

// packages are what errors of the packages begin with.
var packages = []string{"weir", "batch", "gateway", "httplimit", "redisstore", "traffic", "vulnwatch"}

// noCommand refuses arguments of weir itself, which are commands that it does not have.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := "there are " + words.List(names)
	if near := words.Nearest(strings.ToLower(args[0]), names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return badUsage("unknown command %s; %s", words.Quoted(args[0]), hint)
}

// afterC refuses arguments of a command that has a configuration, which goes after -c.
func afterC(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case strings.Contains(args[0], "://") && cmd.Flag("upstream") != nil:
		return badUsage("unknown argument %s; the upstream goes after --upstream: %s --upstream %s --limit 'client=100/m burst=20'",
			words.Quoted(args[0]), cmd.CommandPath(), words.OneLine(args[0]))
	case cmd.Flag("config").Changed:
		return badUsage("unknown argument %s; it takes flags only", words.Quoted(args[0]))
	}
	return badUsage("unknown argument %s; the file goes after -c: %s -c %s", words.Quoted(args[0]), cmd.CommandPath(), words.OneLine(args[0]))
}

// badFlag adds to an error about a flag that there is none of the one that may have been meant.
func badFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := words.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s\n", cmd.Root().Version)
			return failed(err)
		},
	}
}
