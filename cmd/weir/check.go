package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/gateway"
)

func newCheck() *cobra.Command {
	var path string
	var asJSON, strict, connect bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration, and find what is probably a mistake in it",
		Long: `check reads a configuration as weir serve does, and looks for what is valid and still probably a mistake: routes that
nothing reaches, keys that an outsider chooses, trust in everybody, limits that nobody uses…

Exit codes: 0 nothing found, or only warnings; 1 an error found, or with --strict anything;
2 weir serve would not start with it.`,
		Example: "  weir check -c weir.yaml",
		Args:    afterC,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return check(cmd, path, asJSON, strict, connect)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "weir.yaml", "the configuration `file`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	cmd.Flags().BoolVar(&connect, "connect", false, "also have the shared store make a decision")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	return cmd
}

// checkReport is the JSON of weir check.
type checkReport struct {
	Valid    bool              `json:"valid"`    // weir serve would start with it
	Problems []problemReport   `json:"problems"` // why it would not
	Findings []gateway.Finding `json:"findings"`
	Store    *storeReport      `json:"store,omitempty"` // with --connect, if it decides
}

type problemReport struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Text   string `json:"text"`
}

// storeReport is what --connect found out about a shared store that decides.
type storeReport struct {
	Name  string  `json:"name"` // its URL without a password
	Milli float64 `json:"decision_ms"`
}

// connectTo asks the shared store, if there is one, for a decision. That it cannot be used is a finding: weir serve would start all the same.
func connectTo(ctx context.Context, config *gateway.Config) (*storeReport, []gateway.Finding) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	took, err := config.Ping(ctx)
	switch {
	case err != nil:
		return nil, []gateway.Finding{{
			Severity: gateway.SeverityError, Field: "store", Fault: err.Error(),
			Fix: "start it, or see whether address, user and password are right; until then each limit goes by on_error",
		}}
	case took == 0:
		return nil, nil
	}
	return &storeReport{Name: config.StoreName(), Milli: float64(took.Microseconds()) / 1000}, nil
}

func check(cmd *cobra.Command, path string, asJSON, strict, connect bool) error {
	report := checkReport{Problems: []problemReport{}, Findings: []gateway.Finding{}}
	config, err := gateway.Load(path)
	if err == nil {
		report.Valid = true
		report.Findings = append(report.Findings, gateway.Lint(config)...)
		if connect {
			store, findings := connectTo(cmd.Context(), config)
			report.Store, report.Findings = store, append(report.Findings, findings...)
		}
	}
	if asJSON {
		var wrong *gateway.ConfigError
		if errors.As(err, &wrong) {
			for _, p := range wrong.Problems {
				report.Problems = append(report.Problems, problemReport{p.File, p.Line, p.Column, p.Field, p.Text})
			}
		}
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		if err := out.Encode(report); err != nil {
			return failed(err)
		}
	} else {
		if report.Store != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "store %s decides, in %v ms\n", report.Store.Name, report.Store.Milli)
		} else if connect && report.Valid && config.StoreName() == "memory" {
			fmt.Fprintln(cmd.OutOrStdout(), "store memory: there is nothing to connect to")
		}
		for _, f := range report.Findings {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), f); err != nil {
				return failed(err)
			}
		}
	}
	if err != nil {
		if asJSON {
			err = nil // it has been printed
		}
		return &exitError{code: exitUsage, err: err}
	}
	for _, f := range report.Findings {
		if strict || f.Severity == gateway.SeverityError {
			return &exitError{code: exitFailure}
		}
	}
	if len(report.Findings) == 0 && !asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: no mistakes found\n", path)
	}
	return nil
}
