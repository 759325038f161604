package traffic

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

// Report is a page about traffic, for people who do not read tables of quantiles: a verdict first, then pictures, then the numbers.
// Everything on it is text, so that nothing in a log can become markup; [Report.WriteHTML] makes one file of it that needs no other.
type Report struct {
	Title    string
	Lead     string // a sentence or two below the title
	Agreed   string // who decided what was to be expected: a line of its own; empty: none
	Verdicts []Verdict
	Facts    []Fact
	Sections []Section
	Notes    []string // small print: what was left out, how things are counted
	Made     string   // by what and when, the last line
}

// Verdict is the answer to a question that somebody asked.
type Verdict struct {
	Subject string // as orders
	OK      bool
	Text    string // as "survive: 0.02 % of 61,200 refused, at most 0.1 % agreed"
	Open    bool   // what was measured answers neither yes nor no; OK is false then
}

// Fact is one number that matters.
type Fact struct {
	Value string
	Label string
	Bad   bool // it deserves attention
}

// Section is a part of a report.
type Section struct {
	Title  string
	Text   string
	Charts []Chart
	Bars   []Bars
	Tables []Table
}

// Chart is lines over time.
type Chart struct {
	Title  string
	Text   string        // how to read it, a sentence
	Unit   string        // of the values, as "requests a second"
	Start  time.Time     // of the first value; zero: the axis has the time since the beginning
	Step   time.Duration // from value to value
	Lines  []Line        // drawn in order
	Bounds []Bound       // horizontal lines
	Marks  []Mark        // spans to look at
}

// Line is one line of a Chart, or with Area the area below it, on top of the areas before it.
type Line struct {
	Name   string
	Role   Role
	Area   bool
	Values []float64 // NaN: there is none
}

// Bound is a horizontal line: a limit.
type Bound struct {
	Name  string
	Value float64
}

// Mark is a span of time that is shaded.
type Mark struct {
	Name     string
	From, To time.Duration // since the first value
}

// Bars are amounts by name, the part that was refused set off.
type Bars struct {
	Title string
	Text  string
	Unit  string
	Items []Bar
}

// Bar is one of Bars.
type Bar struct {
	Name    string
	Total   float64
	Refused float64 // of Total
}

// Table is rows of text. Cells that begin like numbers stand to the right.
type Table struct {
	Title  string
	Text   string
	Head   []string
	Rows   [][]string
	Strong int // rows from 1 on to set off; 0: none
}

// Role is what a line stands for, and so how it looks.
type Role string

const (
	RoleServed  Role = "served"
	RoleRefused Role = "refused"
	RoleDemand  Role = "demand"
	RoleFailed  Role = "failed"
	RoleOther   Role = "other"
)

//go:embed report.html.tmpl
var reportTemplate string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"chart":   func(c Chart) template.HTML { return template.HTML(c.svg()) },
	"bars":    func(b Bars) template.HTML { return template.HTML(b.svg()) },
	"numeric": numeric,
	"inc":     func(i int) int { return i + 1 },
}).Parse(reportTemplate))

// WriteHTML writes the report as one page of HTML: no script, nothing loaded from elsewhere, light or dark as the reader's
// system is.
func (r *Report) WriteHTML(w io.Writer) error {
	return reportPage.Execute(w, r)
}

// numeric reports whether a cell is a number, with whatever unit.
func numeric(s string) bool {
	s = strings.TrimLeft(s, "+−-~≤<>")
	return s != "" && (s[0] >= '0' && s[0] <= '9' || s == "–")
}

// Count is a whole number for people, as 12,345.
func Count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if s[0] == '-' {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// CountOf is a whole number of things for people, as 1 request, or 12,345 requests.
func CountOf(n int64, one, many string) string {
	return Count(n) + " " + plural(n, one, many)
}

// Percent is part of whole in per cent for people, with as many digits as tell: never 0 % of something, and never 100 % of not all.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == 0 || part == whole:
		return fmt.Sprintf("%.0f %%", p)
	case p < 0.001:
		return "<0.001 %"
	case p > 99.99:
		return ">99.99 %"
	case p < 0.1:
		return fmt.Sprintf("%.3f %%", p)
	case p < 10:
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.1f %%", p)
}

// short is a number on an axis.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return trimZeros(fmt.Sprintf("%.1f", v/1e6)) + "M"
	case a >= 1e4:
		return trimZeros(fmt.Sprintf("%.1f", v/1e3)) + "k"
	case a >= 100 || v == math.Trunc(v):
		return Count(int64(math.Round(v)))
	case a >= 1:
		return trimZeros(fmt.Sprintf("%.1f", v))
	}
	return trimZeros(fmt.Sprintf("%.3f", v))
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
