package main

import "github.com/spf13/cobra"

func newCheck() *cobra.Command {
	return &cobra.Command{Use: "check", Short: "Check a configuration", Args: cobra.NoArgs}
}
