package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/gateway"
)

func newCheck() *cobra.Command {
	var path string
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration, and find what is probably a mistake in it",
		Long: `check reads a configuration as weir serve does, and looks for what is valid and still probably a mistake: routes that
nothing reaches, keys that an outsider chooses, trust in everybody, limits that nobody uses…

Exit codes: 0 nothing found, or only warnings; 1 an error found, or with --strict anything;
2 weir serve would not start with it.`,
		Example: "  weir check -c weir.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return check(cmd, path, asJSON, strict)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "weir.yaml", "the configuration `file`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	return cmd
}

// checkReport is the JSON of weir check.
type checkReport struct {
	Valid    bool              `json:"valid"`    // weir serve would start with it
	Problems []problemReport   `json:"problems"` // why it would not
	Findings []gateway.Finding `json:"findings"`
}

type problemReport struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Text   string `json:"text"`
}

func check(cmd *cobra.Command, path string, asJSON, strict bool) error {
	report := checkReport{Problems: []problemReport{}, Findings: []gateway.Finding{}}
	config, err := gateway.Load(path)
	if err == nil {
		report.Valid = true
		report.Findings = append(report.Findings, gateway.Lint(config)...)
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
		fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing found\n", path)
	}
	return nil
}
