package main

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/gateway"
)

func newHashKey() *cobra.Command {
	var generate bool
	cmd := &cobra.Command{
		Use:   "hash-key USER",
		Short: "Make the line of an API key file for a user's key",
		Long: `hash-key prints a line for the file of identity.api_keys: the user, and the SHA-256 of the key. The key itself is
kept nowhere. It is read from standard input, or with --generate made up and printed to standard error, so that

  weir hash-key --generate alice >> keys.txt

adds the line to the file and shows the key once.`,
		Example: "  weir hash-key alice < key.txt >> keys.txt\n  weir hash-key --generate alice >> keys.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hashKey(cmd, args[0], generate)
		},
	}
	cmd.Flags().BoolVarP(&generate, "generate", "g", false, "make up a key of 256 random bits")
	return cmd
}

func hashKey(cmd *cobra.Command, user string, generate bool) error {
	var key string
	var err error
	if generate {
		var random [32]byte
		rand.Read(random[:]) // never fails
		key = "weir_" + base64.RawURLEncoding.EncodeToString(random[:])
	} else if key, err = readKey(cmd.InOrStdin()); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	line, err := gateway.APIKeyLine(user, key)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if generate {
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "the key of %s, shown this once: %s\n", user, key); err != nil {
			return failed(err)
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
	return failed(err)
}

// readKey reads one line, without the line break.
func readKey(in io.Reader) (string, error) {
	const most = 4096
	r := bufio.NewReader(io.LimitReader(in, most))
	line, err := r.ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("standard input: %w", err)
	}
	if _, err := r.ReadByte(); err == nil {
		return "", errors.New("standard input has more than one line; a key is one")
	}
	return strings.TrimRight(line, "\r\n"), nil
}
