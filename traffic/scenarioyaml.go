package traffic

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// maxScenario is the size of the largest scenario that is read, in bytes.
const maxScenario = 1 << 20

var scenarioKind = strictyaml.Kind{Name: "a scenario", Least: "a name, a duration, a load and classes"}

// ScenarioError is what is wrong with a scenario, sorted by place; its text is one line a Fault.
type ScenarioError struct {
	Faults []Fault // at least one
}

// Fault is one thing that is wrong with a file.
type Fault struct {
	File   string // empty if it is not from a file
	Line   int    // from 1; 0: not known
	Column int    // from 1, in characters; 0: not known
	Field  string // as classes[0].share; empty: the file as a whole
	Text   string // what is wrong, and the form wanted
}

// Error has one line a Fault.
func (e *ScenarioError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// String is one line: file:line:column: field: text.
func (f Fault) String() string {
	return strictyaml.Where(f.File, strictyaml.Place{Line: f.Line, Column: f.Column}, f.Field) + f.Text
}

// LoadScenario reads the scenario in a file. The error is a [*ScenarioError], or why the file could not be read.
func LoadScenario(path string) (*Scenario, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxScenario {
		return nil, &ScenarioError{Faults: []Fault{{File: path, Text: fmt.Sprintf("over %d bytes", maxScenario)}}}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseScenario(path, data)
}

// ParseScenario reads the YAML of a file of that name. Fields that it does not know, and values that make no sense, are errors with their
// line, all of them at once; the error is a [*ScenarioError]. Nothing in it is expanded.
func ParseScenario(name string, data []byte) (*Scenario, error) {
	var faults []Fault
	s := new(Scenario)
	if len(data) > maxScenario {
		faults = []Fault{{Line: 1, Text: fmt.Sprintf("over %d bytes", maxScenario)}}
	} else {
		doc := strictyaml.Decode(data, s, scenarioKind)
		for _, f := range doc.Faults {
			faults = append(faults, Fault{Line: f.Line, Column: f.Column, Field: f.Field, Text: f.Text})
		}
		if len(faults) == 0 { // else what is missing may only be misspelt
			faults = s.faults()
			for i := range faults {
				at := doc.Place(faults[i].Field)
				faults[i].Line, faults[i].Column = at.Line, at.Column
			}
		}
	}
	if len(faults) == 0 {
		return s, nil
	}
	for i := range faults {
		faults[i].File = name
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil, &ScenarioError{Faults: faults}
}

// Validate says what is wrong with s; the error is a [*ScenarioError] without lines.
func (s *Scenario) Validate() error {
	if faults := s.faults(); len(faults) > 0 {
		return &ScenarioError{Faults: faults}
	}
	return nil
}

const (
	maxDuration = 40 * 24 * time.Hour
	maxPerSec   = 10_000_000
)

// faults is everything that is wrong with s, without places.
func (s *Scenario) faults() (all []Fault) {
	add := func(field, format string, args ...any) {
		all = append(all, Fault{Field: field, Text: fmt.Sprintf(format, args...)})
	}
	rate := func(field string, r weir.Rate) {
		if perSecond(r) > maxPerSec {
			add(field, "over %d requests a second", maxPerSec)
		}
	}
	length := func(field string, d time.Duration) {
		if d < 0 || d > maxDuration {
			add(field, "%v; it takes 0 to %v", d, maxDuration)
		}
	}
	if strings.TrimSpace(s.Name) == "" {
		add("name", "no name; it says what is expected, as Black Friday")
	}
	if _, err := time.Parse(time.DateOnly, s.Agreed.On); s.Agreed.On != "" && err != nil {
		add("agreed.on", "%.40q is no date; the form is 2026-10-01", s.Agreed.On)
	}
	if s.Duration <= 0 || s.Duration > maxDuration {
		add("duration", "%v; it takes more than 0 and up to %v, as 4h", s.Duration, maxDuration)
	}
	if !s.Start.IsZero() && (s.Start.Year() < 1970 || s.Start.Year() > 2100) {
		add("start", "the year %d; it takes 1970 to 2100", s.Start.Year())
	}

	l := &s.Load
	if l.Shape != "" && !slices.Contains(shapes, l.Shape) {
		add("load.shape", "%.40q is none of %s", l.Shape, strings.Join(shapes, ", "))
	}
	rate("load.normal", l.Normal)
	rate("load.peak", l.Peak)
	length("load.at", l.At)
	length("load.rise", l.Rise)
	length("load.for", l.For)
	if l.Peak.Units > 0 && perSecond(l.Peak) < perSecond(l.Normal) {
		add("load.peak", "%v is less than the normal load of %v", l.Peak, l.Normal)
	}

	s.peakFaults(add)

	names := map[string]bool{}
	shared, sum := false, 0.0
	for i := range s.Classes {
		c, field := &s.Classes[i], fmt.Sprintf("classes[%d]", i)
		switch {
		case c.Name == "":
			add(field+".name", "no name")
		case names[c.Name]:
			add(field+".name", "a second class called %.40q", c.Name)
		}
		names[c.Name] = true
		if why := badRequest(c); why != "" {
			add(field+".request", "%s; the form is a method and a path, as POST /orders", why)
		}
		for name, value := range c.Header {
			if !isToken(name) || strings.ContainsFunc(value, unicode.IsControl) {
				add(field+".header", "%.40q cannot be a line of a header", name+": "+value)
			}
		}
		rate(field+".rate", c.Rate)
		rate(field+".peak", c.Peak)
		switch {
		case c.Share > 0 && c.Rate.Units > 0:
			add(field+".share", "beside a rate; it takes one of them")
		case c.Share == 0 && c.Rate.Units == 0:
			add(field, "neither a share of the load, as 10%%, nor a rate, as 20/s")
		case c.Peak.Units > 0 && c.Rate.Units == 0:
			add(field+".peak", "a peak without a rate")
		case c.Peak.Units > 0 && perSecond(c.Peak) < perSecond(c.Rate):
			add(field+".peak", "%v is less than the rate of %v", c.Peak, c.Rate)
		}
		shared = shared || c.Share > 0
		sum += float64(c.Share)
	}
	switch {
	case len(s.Classes) == 0:
		add("classes", "none; it takes at least one, as {name: orders, request: POST /orders, share: 100%%}")
	case shared && math.Abs(sum-1) > 0.001:
		add("classes", "the shares add up to %s; it takes 100%%", Share(min(sum, 100)))
	}
	if shared && l.Normal.Units == 0 {
		add("load.normal", "no load; it takes a rate, as 200/s")
	}
	return append(all, s.Clients.faults(s, names)...)
}

// peakFaults finds a peak that is expected and would never come: what survives then has not been tried.
func (s *Scenario) peakFaults(add func(field, format string, args ...any)) {
	l := &s.Load
	if s.Duration <= 0 || l.At < 0 || l.Shape != "" && !slices.Contains(shapes, l.Shape) { // said already
		return
	}
	higher := func(peak, normal weir.Rate) bool { return perSecond(peak) > perSecond(normal) }
	peak, given := higher(l.Peak, l.Normal), l.Peak.Units > 0
	for i := range s.Classes {
		c := &s.Classes[i]
		peak, given = peak || higher(c.Peak, c.Rate), given || c.Peak.Units > 0
	}
	const day = 24 * time.Hour
	at, from := cmp.Or(l.At, defaultPeakOfDay), s.timeOfDay()
	switch {
	case l.Shape == Flat && peak:
		add("load.shape", "%s has no peak, and there is one; it takes step, ramp, spike or daily", l.Shape)
	case l.Shape != Flat && l.Shape != "" && !given:
		add("load.shape", "%s without a peak; load.peak says how much is expected, as 400/s", l.Shape)
	case !peak:
	case l.Shape != Daily && l.At >= s.Duration:
		add("load.at", "%v is not within the %v of the scenario: the peak would never come", l.At, s.Duration)
	case l.Shape == Daily && l.At > day:
		add("load.at", "%v is no time of day; it takes 0 to 24h", l.At)
	case l.Shape == Daily && (at-from+day)%day > s.Duration:
		clock := func(d time.Duration) string { return time.Time{}.Add(d).Format("15:04") }
		add("load.at", "from %s on for %v the peak at %s never comes; it takes the time of day of the peak, as 14h", clock(from), s.Duration, clock(at))
	}
}

func (c *Clients) faults(s *Scenario, classes map[string]bool) (all []Fault) {
	add := func(field, format string, args ...any) {
		all = append(all, Fault{Field: "clients." + field, Text: fmt.Sprintf(format, args...)})
	}
	if c.Count < 0 || c.Count > mostClients {
		add("count", "%d; it takes 1 to %d", c.Count, mostClients)
	}
	if !(c.Zipf >= 0 && c.Zipf <= 10) {
		add("zipf", "%v; it takes 0 to 10, and 1 is usual", c.Zipf)
	}
	if o := c.Office; o != nil {
		if o.People < 0 || o.People > mostClients {
			add("office.people", "%d; it takes 1 to %d", o.People, mostClients)
		}
		if o.Share == 0 {
			add("office.share", "none; it takes the share of all requests that come from there, as 5%%")
		}
	}
	if r := c.Returns; r != nil {
		if r.Share == 0 {
			add("returns.share", "none; it takes the share of the refused requests that come back, as 70%%")
		}
		if r.Times < 0 || r.Times > 100 {
			add("returns.times", "%d; it takes how often one comes back at most, 1 to 100", r.Times)
		}
		if r.Wait < 0 || r.Wait > 0 && r.Wait < time.Second || r.Wait > maxDuration {
			add("returns.wait", "%v; it takes the longest Retry-After that somebody waits for, 1s to %v", r.Wait, maxDuration)
		}
	}
	if r := c.Runaway; r != nil {
		switch {
		case r.Class != "" && !classes[r.Class]:
			add("runaway.class", "there is no class called %.40q", r.Class)
		case r.Rate.Units == 0:
			add("runaway.rate", "no rate; it takes how often it asks, as 50/s")
		case perSecond(r.Rate) > maxPerSec:
			add("runaway.rate", "over %d requests a second", maxPerSec)
		case r.At < 0 || s.Duration > 0 && r.At >= s.Duration:
			add("runaway.at", "%v; it takes a time within the %v of the scenario", r.At, s.Duration)
		case r.For < 0:
			add("runaway.for", "%v; it takes 0 or more", r.For)
		}
	}
	return all
}

// badRequest says why a class has no request.
func badRequest(c *Class) string {
	method, path := c.Method(), c.Path()
	if !isToken(method) || path == "" || path[0] != '/' || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) {
		return fmt.Sprintf("%.60q is no request", c.Request)
	}
	if _, err := http.NewRequest(method, "http://host"+path, nil); err != nil {
		return fmt.Sprintf("%.60q is no request", c.Request)
	}
	return ""
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 256
}
