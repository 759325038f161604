package main

import "github.com/spf13/cobra"

func newHashKey() *cobra.Command {
	return &cobra.Command{Use: "hash-key", Short: "Make the line of an API key file", Args: cobra.NoArgs}
}
