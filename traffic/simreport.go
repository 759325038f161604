package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// SimulationReport is what one or several policies do with the same events, and the answer to what was asked. It is the JSON of weir simulate.
type SimulationReport struct {
	Source   string       `json:"source"` // the scenario, or the logs
	Agreed   string       `json:"agreed,omitempty"`
	Log      *LogStats    `json:"log,omitempty"`
	Verdicts []Judgement  `json:"verdicts"`
	Results  []*Simulated `json:"policies"`
	Notes    []string     `json:"notes"`
}

// Judgement is whether a class survives under a policy.
type Judgement struct {
	Policy   string `json:"policy"`
	Class    string `json:"class"`
	OK       bool   `json:"ok"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"` // in the end
	Later    int64  `json:"later"`   // served when they came back
	AtMost   Share  `json:"refused_at_most"`
	Agreed   bool   `json:"agreed"` // the bound is the scenario's
}

// String is a sentence.
func (j *Judgement) String() string {
	verb := "survive"
	if !j.OK {
		verb = "do not survive"
	}
	if j.Requests == 0 {
		return verb + ": there are none"
	}
	by := ""
	if j.Agreed {
		by = " agreed"
	}
	later := ""
	if j.Later > 0 {
		later = fmt.Sprintf("; %s were served only when they came back", Percent(j.Later, j.Requests))
	}
	return fmt.Sprintf("%s: %s of %s refused, at most %s%s%s", verb, Percent(j.Refused, j.Requests), Count(j.Requests), j.AtMost, by, later)
}

// Judge adds the verdicts: of the scenario, which may be nil, for each class that it gives a bound, and of failOver, which may be nil, for
// every class without one.
func (r *SimulationReport) Judge(s *Scenario, failOver *Share) {
	r.Verdicts = []Judgement{}
	for _, p := range r.Results {
		judge := func(class string, most Share, agreed bool) {
			j := Judgement{Policy: p.Policy, Class: class, AtMost: most, Agreed: agreed}
			for i := range p.Classes {
				if c := &p.Classes[i]; c.Name == class {
					j.Requests, j.Refused, j.Later = c.Requests, c.Refused, c.Later
				}
			}
			j.OK = j.Requests > 0 && float64(j.Refused) <= float64(most)*float64(j.Requests)*(1+1e-12)
			r.Verdicts = append(r.Verdicts, j)
		}
		agreed := map[string]bool{}
		if s != nil {
			for i := range s.Classes {
				if c := &s.Classes[i]; c.RefusedAtMost != nil {
					agreed[c.Name] = true
					judge(c.Name, *c.RefusedAtMost, true)
				}
			}
		}
		if failOver != nil {
			for i := range p.Classes {
				if name := p.Classes[i].Name; !agreed[name] && name != RunawayClass {
					judge(name, *failOver, false)
				}
			}
		}
	}
}

// RunawayClass is what a simulation counts the requests of the runaway under: nobody minds that they are refused.
const RunawayClass = "runaway"

// OK reports whether every verdict is yes.
func (r *SimulationReport) OK() bool {
	return !slices.ContainsFunc(r.Verdicts, func(j Judgement) bool { return !j.OK })
}

// Page is the report as a page. Made is its last line.
func (r *SimulationReport) Page(title, lead, made string) *Report {
	page := &Report{Title: title, Lead: lead, Agreed: sentence(r.Agreed), Notes: r.Notes, Made: made}
	for i := range r.Verdicts {
		j := &r.Verdicts[i]
		subject := j.Class
		if len(r.Results) > 1 {
			subject += " under " + j.Policy
		}
		page.Verdicts = append(page.Verdicts, Verdict{Subject: subject, OK: j.OK, Text: j.String()})
	}
	for i, p := range r.Results {
		several := len(r.Results) > 1
		if i == 0 {
			page.Facts = p.facts()
		}
		if several { // whose figures these are has to be said
			page.Facts = append(page.Facts[:i+1], Fact{Value: Percent(p.Refused, p.Requests), Label: "would be refused under " + p.Policy, Bad: p.Refused > 0})
		}
		page.Sections = append(page.Sections, p.overview(several))
		for i := range p.Limits {
			section := p.Limits[i].section()
			if several {
				section.Title += " under " + p.Policy
			}
			page.Sections = append(page.Sections, section)
		}
	}
	return page
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (p *Simulated) facts() []Fact {
	refused := "would be refused with 429"
	for i := range p.Classes { // else it seems that customers are
		if c := &p.Classes[i]; c.Name == RunawayClass && c.Refused > 0 {
			refused += fmt.Sprintf("; %s of these are the runaway's", Percent(c.Refused, p.Refused))
		}
	}
	f := []Fact{
		{Value: Count(p.Requests), Label: plural(p.Requests, "request", "requests") + " in " + length(p.From, p.To)},
		{Value: Percent(p.Refused, p.Requests), Label: refused, Bad: p.Refused > 0},
	}
	if p.Worst.Refused > 0 {
		f = append(f, Fact{Value: p.Worst.At.UTC().Format("15:04"), Label: fmt.Sprintf("the worst minute (UTC): %s of %s refused", Count(p.Worst.Refused), Count(p.Worst.Asked))})
	}
	if p.Later > 0 {
		f = append(f, Fact{Value: Percent(p.Later, p.Requests), Label: "were refused at first, and served when they came back"})
	}
	for i := range p.Limits {
		if l := &p.Limits[i]; !l.alone && l.KeysRefused > 0 {
			f = append(f, Fact{Value: Percent(l.KeysRefused, l.Keys), Label: fmt.Sprintf("of %s keys meet the limit %q at least once", Count(l.Keys), l.Name)})
			break
		}
	}
	return f
}

// length is how long from one time to another.
func length(from, to time.Time) string {
	d := to.Sub(from)
	switch {
	case d < time.Minute:
		return shortDuration(d.Round(10 * time.Millisecond))
	case d < 48*time.Hour:
		return shortDuration((d + time.Second/2).Truncate(time.Second))
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}

// overview is all requests of a policy over time, and by class.
func (p *Simulated) overview(named bool) Section {
	s := Section{Title: "All requests over time"}
	if named {
		s.Title = "Policy " + p.Policy + ": all requests over time"
		s.Text = fmt.Sprintf("%s of %s would be refused: %s.", Count(p.Refused), Count(p.Requests), Percent(p.Refused, p.Requests))
	}
	chart := p.all.chart("Served and refused", "requests a second")
	chart.Text = "The height is what was asked for. What the limits refuse is set off on top."
	if p.Returned > 0 {
		chart.Text += fmt.Sprintf(" After a refusal %s back, and are in it each time; refused below is who was never served.", CountOf(p.Returned, "request came", "requests came"))
	}
	if p.Worst.Refused > 0 {
		at := p.Worst.At.Sub(p.all.start)
		chart.Marks = []Mark{{Name: "the worst minute", From: at, To: at + time.Minute}}
	}
	s.Charts = []Chart{chart}
	classes := slices.Clone(p.Classes)
	slices.SortStableFunc(classes, func(a, b ClassResult) int { return cmp.Compare(b.Requests, a.Requests) })
	bars := Bars{Title: "By kind of request", Unit: "requests"}
	table := Table{Head: []string{"kind", "requests", "refused", "share", "worst minute (UTC)", "refused in it"}}
	if p.Returned > 0 {
		table.Head = append(table.Head, "served later")
	}
	for i, c := range classes {
		if i < 12 {
			bars.Items = append(bars.Items, Bar{Name: orEverybody(c.Name, "(no route)"), Total: float64(c.Requests), Refused: float64(c.Refused)})
		}
		worst, in := "–", "–"
		if c.Worst.Refused > 0 {
			worst, in = c.Worst.At.UTC().Format("2 Jan 15:04"), Count(c.Worst.Refused)+" of "+Count(c.Worst.Asked)
		}
		if i < 50 {
			row := []string{orEverybody(c.Name, "(no route)"), Count(c.Requests), Count(c.Refused), Percent(c.Refused, c.Requests), worst, in}
			if p.Returned > 0 {
				row = append(row, Count(c.Later))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	s.Bars, s.Tables = []Bars{bars}, []Table{table}
	return s
}

// chart is demand over time as areas.
func (t *timeline) chart(title, unit string) Chart {
	c := Chart{Title: title, Unit: unit, Start: t.start.UTC(), Step: t.width()}
	served, refused := Line{Name: "served", Role: RoleServed, Area: true}, Line{Name: "refused", Role: RoleRefused, Area: true}
	for _, s := range t.spans {
		served.Values = append(served.Values, float64(s.asked-s.refused)/t.width().Seconds())
		refused.Values = append(refused.Values, float64(s.refused)/t.width().Seconds())
	}
	c.Lines = []Line{served, refused}
	return c
}

// peaks is the greatest demand of one key over time, in steps of a period or more where that leaves enough to see.
func (t *timeline) peaks(period time.Duration) (values []float64, step time.Duration) {
	const least = 24
	n := int(max(1, period/t.width()))
	if len(t.spans)/n < least {
		n = max(1, len(t.spans)/least)
	}
	for i, s := range t.spans {
		if i%n == 0 {
			values = append(values, 0)
		}
		values[len(values)-1] = max(values[len(values)-1], float64(s.peak))
	}
	return values, t.width() * time.Duration(n)
}

func orEverybody(s, none string) string {
	if s == "" {
		return none
	}
	return s
}

// period is a rate's period in words, as minute, or 30s.
func period(r weir.Rate) string {
	switch r.Period {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return shortDuration(r.Period)
}

// Text is the limit in the form of --limit, without its key.
func (l *LimitResult) Text() string {
	text := l.Name + "=" + l.Rate.String()
	if l.Burst != l.Rate.Units {
		text += fmt.Sprintf(" burst=%d", l.Burst)
	}
	if l.Algorithm != weir.TokenBucket {
		text += " algorithm=" + l.Algorithm.String()
	}
	if l.Shadow {
		text += " shadow"
	}
	return text
}

func (l *LimitResult) section() Section {
	s := Section{Title: "Limit " + l.Text()}
	what := period(l.Rate)
	unit := "units a " + what
	if !slices.Contains([]string{"second", "minute", "hour", "day"}, what) {
		unit = "units in " + what
	}
	switch {
	case l.Asked == 0:
		s.Text = "Nothing was charged on it."
		return s
	case l.alone:
		s.Text = fmt.Sprintf("Everything counts together: %s asked it for %s, and it refused %s of them (%s).",
			CountOf(l.Asked, "request", "requests"), CountOf(l.Units, "unit", "units"), Count(l.Refused), Percent(l.Refused, l.Asked))
	default:
		about := ""
		if l.KeysPart > 1 {
			about = "about "
		}
		s.Text = fmt.Sprintf("Each key has its own: %s of %s%s asked it, and it refused %s of them (%s). Refused at least once: %s%s of the keys (%s). In one %s a key asks for %s in the median, for %s at the 99th percentile, for %s at most.",
			CountOf(l.Asked, "request", "requests"), about, CountOf(l.Keys, "key", "keys"), Count(l.Refused), Percent(l.Refused, l.Asked), about, Count(l.KeysRefused), Percent(l.KeysRefused, l.Keys),
			what, Count(l.Demand.P50), Count(l.Demand.P99), Count(l.Demand.Max))
	}
	if l.Shadow {
		s.Text += " It is a shadow: it reports and lets everything pass."
	}
	values, step := l.times.peaks(l.Rate.Period)
	chart := Chart{
		Title: "Demand of the busiest key against the limit", Unit: unit, Start: l.times.start.UTC(), Step: step,
		Text:  fmt.Sprintf("What the one key that asked for the most had asked for in its %s. Above the dashed line, and what the burst allows beyond it, there are refusals.", what),
		Lines: []Line{{Name: "demand", Role: RoleDemand, Values: values}}, Bounds: []Bound{{Name: "limit " + l.Rate.String(), Value: float64(l.Rate.Units)}},
	}
	if l.alone {
		chart.Title = "Demand against the limit"
		chart.Text = fmt.Sprintf("What all together had asked for in a %s. Above the dashed line, and what the burst allows beyond it, there are refusals.", what)
	}
	if from := l.Window.At.Sub(l.times.start); l.Window.Demand > 0 {
		of := " of one key"
		if l.alone {
			of = ""
		}
		chart.Marks = []Mark{{Name: fmt.Sprintf("the %s with the greatest demand%s: %s", what, of, Count(l.Window.Demand)), From: max(0, from), To: max(0, from) + l.Rate.Period}}
	}
	s.Charts = []Chart{chart}
	if len(l.TopRefused) > 0 && !l.alone {
		bars := Bars{Title: "Who is refused", Unit: "requests", Text: "The keys that are refused most, and how much they ask."}
		for _, k := range l.TopRefused {
			bars.Items = append(bars.Items, Bar{Name: orEverybody(k.Key, "(none)"), Total: float64(k.Asked), Refused: float64(k.Refused)})
		}
		s.Bars = []Bars{bars}
	}
	if len(l.Algorithms) > 0 {
		s.Tables = append(s.Tables, l.algorithmTable())
	}
	if g := l.Suggested; g != nil {
		s.Tables = append(s.Tables, Table{Title: "The smallest limit that would do", Text: g.Sentence(l)})
	}
	return s
}

// AlgorithmHead are the columns of AlgorithmRows.
var AlgorithmHead = []string{"algorithm", "refused", "share", "most in any period", "can be", "wrongly admitted", "wrongly refused"}

// Problems are the algorithms that cannot hold the limit, each with the reason.
func (l *LimitResult) Problems() (all []string) {
	for _, a := range l.Algorithms {
		if a.Problem != "" {
			all = append(all, a.Algorithm.String()+" cannot hold this limit: "+a.Problem)
		}
	}
	return all
}

// AlgorithmRows are the algorithms side by side.
func (l *LimitResult) AlgorithmRows() (rows [][]string, chosen int) {
	for i, a := range l.Algorithms {
		if a.Chosen {
			chosen = i + 1
		}
		if a.Problem != "" {
			rows = append(rows, []string{a.Algorithm.String(), "–", "–", "–", "–", "–", "–"})
			continue
		}
		row := []string{a.Algorithm.String(), Count(a.Refused), Percent(a.Refused, a.Asked), Count(a.MostIn), Count(a.Bound), "–", "–"}
		if l.Rate.Units > maxJudgedUnits {
			row[3] = "–"
		}
		if approximates(a.Algorithm) && a.Judged > 0 {
			row[5], row[6] = Count(a.WrongAdmitted), Count(a.WrongRefused)
		}
		rows = append(rows, row)
	}
	return rows, chosen
}

// WithoutReturns says, as the end of a sentence, that the algorithms were not asked by those who came back after a refusal, whom the counts
// of the limit itself have in them. It is empty if nobody came back.
func (l *LimitResult) WithoutReturns() string {
	for _, a := range l.Algorithms {
		if a.Problem == "" && a.Asked < l.Asked {
			return fmt.Sprintf(", without those who come back after a refusal (%s, not the %s above)", CountOf(a.Asked, "request", "requests"), Count(l.Asked))
		}
	}
	return ""
}

func (l *LimitResult) algorithmTable() Table {
	rows, chosen := l.AlgorithmRows()
	text := fmt.Sprintf("The same rate held in other ways, each as if it were the only limit"+l.WithoutReturns()+". “Most in any period” is what one key really got within some %s, wherever it begins, and “can be” how much that could be at worst: a fixed window lets twice its limit pass around a boundary, a sliding one estimates. Wrong is a decision that an exact log would have made otherwise.", period(l.Rate))
	for _, a := range l.Algorithms {
		if a.Problem == "" && approximates(a.Algorithm) && a.Judged < a.Asked && l.Rate.Units <= maxJudgedUnits {
			text += fmt.Sprintf(" Wrong decisions were counted for a sample of the keys, %s of the requests.", Percent(a.Judged, a.Asked))
			break
		}
	}
	for _, problem := range l.Problems() {
		text += " " + sentence(problem) + "."
	}
	return Table{Title: "Algorithms side by side", Text: text, Head: AlgorithmHead, Rows: rows, Strong: chosen}
}

// Dominated is the key that makes up more than half of what the limit refuses, or nil.
func (l *LimitResult) Dominated() *KeyCount {
	if l.Keys < 3 || len(l.TopRefused) == 0 || l.TopRefused[0].Refused*2 <= l.Refused {
		return nil
	}
	return &l.TopRefused[0]
}

// Sentence says what is suggested.
func (g *Suggestion) Sentence(l *LimitResult) string {
	if !g.Found {
		return fmt.Sprintf("No %s of any rate refuses at most %s of this traffic.", l.Algorithm, g.Goal)
	}
	limit := g.Rate.String()
	if g.Burst != g.Rate.Units {
		limit += fmt.Sprintf(" burst %s", Count(g.Burst))
	}
	smallest := "the smallest"
	if g.Uneven { // costs or priorities differ: see Suggestion
		smallest = "the smallest found"
	}
	text := fmt.Sprintf("%s is %s that refuses at most %s: it would refuse %s of %s (%s)", limit, smallest, g.Goal, Count(g.Refused), CountOf(g.Asked, "request", "requests"), Percent(g.Refused, g.Asked))
	if strings.HasSuffix(g.Goal, "clients") {
		text += fmt.Sprintf(", of %s of %s", Count(g.KeysHit), CountOf(g.Keys, "client", "clients"))
	}
	if g.Below != "" {
		text += fmt.Sprintf("; %s would refuse %s", weir.Rate{Units: g.Rate.Units - 1, Period: g.Rate.Period}, g.Below)
	}
	text += "."
	if k := l.Dominated(); k != nil && !strings.HasSuffix(g.Goal, "clients") {
		text += fmt.Sprintf(" But one key, %s, is %s of what is refused now: this is the limit that lets it have its way. Ask for a share of clients instead.", k.Key, Percent(k.Refused, l.Refused))
	}
	return text
}
