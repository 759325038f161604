package gateway

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
)

// ConfigError is everything that is wrong with a configuration, sorted by place; its text is one line a Problem.
type ConfigError struct {
	Problems []Problem // at least one
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File   string // empty if the configuration is not from a file
	Line   int    // from 1; 0: not known
	Column int    // from 1, in characters; 0: not known
	Field  string // as limits[0].rate; empty: the file as a whole
	Text   string // what is wrong, and the form wanted
	Err    error  // the cause, if there is one
}

// Error has one line a Problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i := range e.Problems {
		lines[i] = e.Problems[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each Problem.
func (e *ConfigError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i := range e.Problems {
		errs[i] = &e.Problems[i]
	}
	return errs
}

// Error is one line: file:line:column: field: text.
func (p *Problem) Error() string {
	return strictyaml.Where(p.File, strictyaml.Place{Line: p.Line, Column: p.Column}, p.Field) + p.Text
}

// Unwrap is the cause, or nil.
func (p *Problem) Unwrap() error { return p.Err }

// problems collects what is wrong.
type problems []Problem

// err is all of it sorted by place, or nil.
func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &ConfigError{Problems: ps}
}
