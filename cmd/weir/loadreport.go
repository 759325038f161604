package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/traffic"
)

// loadReport is what weir load measured. It is also its JSON; latencies are in milliseconds, from the instant at which a request was
// due to the end of its answer.
type loadReport struct {
	Target   string          `json:"target"`
	Scenario string          `json:"scenario,omitempty"`
	Agreed   string          `json:"agreed,omitempty"`
	Share    float64         `json:"share"` // of the scenario
	Ceiling  string          `json:"ceiling"`
	Began    time.Time       `json:"began"`
	Planned  float64         `json:"planned_seconds"`
	Lasted   float64         `json:"lasted_seconds"`
	Ended    string          `json:"ended"`
	Total    loadClass       `json:"total"`
	Classes  []loadClass     `json:"classes"`
	Faults   []loadFault     `json:"faults"`
	Verdicts []loadVerdict   `json:"verdicts"`
	Step     float64         `json:"step_seconds"` // of the moments of the classes
	plan     *loadPlan       // what was to be sent
	driven   *traffic.Driven // as it was measured
}

type loadClass struct {
	Name        string       `json:"name"`
	Due         int64        `json:"due"` // sent + over_ceiling + over_open + too_late + cut
	Sent        int64        `json:"sent"`
	Served      int64        `json:"served"`  // 2xx
	Refused     int64        `json:"refused"` // 429
	Failed      int64        `json:"failed"`  // 5xx
	Other       int64        `json:"other"`
	Unanswered  int64        `json:"unanswered"`
	OverCeiling int64        `json:"over_ceiling"`
	OverOpen    int64        `json:"over_open"`
	TooLate     int64        `json:"too_late"`
	Cut         int64        `json:"cut"`
	Late        int64        `json:"late"` // left more than 10 ms after they were due
	MaxLate     float64      `json:"max_late_ms"`
	ServedIn    quantiles    `json:"served_ms"`
	RefusedIn   quantiles    `json:"refused_ms"`
	Promises    loadPromises `json:"retry_after"`
	Moments     []loadMoment `json:"moments,omitempty"`
}

type quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func quantilesOf(h *traffic.Histogram) quantiles {
	return quantiles{millis(h.Quantile(0.5)), millis(h.Quantile(0.99)), millis(h.Quantile(0.999)), millis(h.Max())}
}

func millis(d time.Duration) float64 { return math.Round(float64(d.Microseconds())) / 1000 }

// loadPromises is traffic.Promises.
type loadPromises struct {
	Given    int64                  `json:"given"`
	Missing  int64                  `json:"missing"`
	TooLong  int64                  `json:"too_long"`
	Followed int64                  `json:"followed"` // kept + taken + unclear + broken + lost + open
	Kept     int64                  `json:"kept"`
	Taken    int64                  `json:"taken"`
	Unclear  int64                  `json:"unclear"`
	Broken   int64                  `json:"broken"`
	Lost     int64                  `json:"lost"`
	Open     int64                  `json:"open"`
	Example  *traffic.BrokenPromise `json:"example,omitempty"`
}

type loadMoment struct {
	Sent    int64   `json:"sent"`
	Served  int64   `json:"served"`
	Refused int64   `json:"refused"`
	Failed  int64   `json:"failed"`     // or not answered
	Slowest float64 `json:"slowest_ms"` // of the served
}

type loadFault struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

type loadVerdict struct {
	Subject string `json:"subject"`
	OK      bool   `json:"ok"`
	Text    string `json:"text"`
	Open    bool   `json:"not_shown,omitempty"` // neither yes nor no could be shown: OK is false, and yet nothing has failed
}

// sign is how the line of a verdict begins.
func (v *loadVerdict) sign() string {
	switch {
	case v.OK:
		return "yes"
	case v.Open:
		return "not shown"
	}
	return "NO"
}

func newLoadReport(p *loadPlan, d *traffic.Driven) *loadReport {
	r := &loadReport{
		Target: p.target, Share: p.share, Ceiling: p.drive.Ceiling.String(), Began: d.Began, Planned: p.length.Seconds(), Lasted: d.Lasted.Seconds(),
		Ended: d.Ended, Step: d.Step.Seconds(), Classes: []loadClass{}, Faults: []loadFault{}, Verdicts: []loadVerdict{}, plan: p, driven: d,
	}
	if p.scenario != nil {
		r.Scenario, r.Agreed = p.scenario.Name, p.scenario.Agreed.String()
	}
	all := traffic.ClassDriven{Name: "all"}
	for i := range d.Classes {
		c := &d.Classes[i]
		all.Tally.Merge(&c.Tally)
		all.Promises.Merge(&c.Promises)
		all.OverCeiling += c.OverCeiling
		all.OverOpen += c.OverOpen
		all.TooLate += c.TooLate
		all.Cut += c.Cut
		r.Classes = append(r.Classes, loadClassOf(c))
	}
	r.Total = loadClassOf(&all)
	for _, f := range d.Faults {
		r.Faults = append(r.Faults, loadFault(f))
	}
	r.judge()
	return r
}

func loadClassOf(c *traffic.ClassDriven) loadClass {
	t, p := &c.Tally, &c.Promises
	out := loadClass{
		Name: c.Name, Due: c.Due(), Sent: t.Sent, Served: t.OK, Refused: t.Refused, Failed: t.Failed, Other: t.Other, Unanswered: t.Unanswered,
		OverCeiling: c.OverCeiling, OverOpen: c.OverOpen, TooLate: c.TooLate, Cut: c.Cut, Late: t.Late, MaxLate: millis(t.MaxLate),
		ServedIn: quantilesOf(&t.Latency), RefusedIn: quantilesOf(&t.Refusal),
		Promises: loadPromises{
			Given: p.Given, Missing: p.Missing, TooLong: p.TooLong, Followed: p.Followed(), Kept: p.Kept, Taken: p.Taken, Unclear: p.Unclear,
			Broken: p.Broken, Lost: p.Lost, Open: p.Open, Example: p.Example,
		},
	}
	for _, m := range c.Moments {
		out.Moments = append(out.Moments, loadMoment{m.Sent, m.OK, m.Refused, m.Failed + m.Unanswered, millis(m.Slowest)})
	}
	return out
}

// judge answers what the scenario asks, and whether Retry-After can be believed. What was cut off or not sent proves nothing.
func (r *loadReport) judge() {
	if s := r.plan.scenario; s != nil && r.Ended != traffic.EndInterrupted {
		for i := range s.Classes {
			most := s.Classes[i].RefusedAtMost
			if most == nil {
				continue
			}
			c := &r.Classes[i]
			v := loadVerdict{Subject: c.Name}
			lost := c.Refused + c.Failed + c.Unanswered
			switch {
			case c.Sent == 0:
				v.Text = "not tested: none was sent"
			case float64(c.Due-c.Sent) > 0.01*float64(c.Due):
				v.Text = fmt.Sprintf("not tested: %s of %s were not sent", traffic.Count(c.Due-c.Sent), traffic.Count(c.Due))
			default:
				v.OK = float64(lost) <= float64(*most)*float64(c.Sent)
				v.Text = fmt.Sprintf("%s: of %s, %s refused, %s failed or not answered; at most %s agreed", map[bool]string{true: "served as agreed", false: "not served as agreed"}[v.OK],
					traffic.Count(c.Sent), traffic.Percent(c.Refused, c.Sent), traffic.Percent(c.Failed+c.Unanswered, c.Sent), most)
				if lost == 0 && float64(*most)*float64(c.Sent) < 3 { // the rule of three: 95 % sure that it is below 3/n
					v.Text += fmt.Sprintf(" (so few requests show only that it is under %.2g %%)", min(100, 300/float64(c.Sent)))
				}
			}
			r.Verdicts = append(r.Verdicts, v)
		}
	}
	switch p := &r.Total.Promises; {
	case p.Broken > 0:
		e := p.Example
		r.Verdicts = append(r.Verdicts, loadVerdict{Subject: "Retry-After", Text: fmt.Sprintf(
			"cannot be believed: of %s that did what it said, refused again though nobody was served meanwhile: %d. As %s for %s: told %s, waited %v, then told %s",
			clients(p.Followed), p.Broken, printable(e.Request), printable(e.Client), printable(e.Said), e.Waited.Round(time.Millisecond), dash(printable(e.ThenSaid)))})
	case p.Kept > p.Unclear:
		text := fmt.Sprintf("can be believed: of %s that did what it said, served: %d; overtaken by requests of the same client: %d", clients(p.Followed), p.Kept, p.Taken)
		if p.Unclear > 0 {
			text += fmt.Sprintf("; perhaps by those of others: %d", p.Unclear)
		}
		r.Verdicts = append(r.Verdicts, loadVerdict{Subject: "Retry-After", OK: true, Text: text})
	case p.Kept+p.Taken+p.Unclear > 0: // that nobody was let down is no proof when hardly anybody was served
		none := fmt.Sprintf("none of %s that did what it said was served", clients(p.Followed))
		switch {
		case p.Kept > 0:
			none = fmt.Sprintf("of %s that did what it said, served: %d", clients(p.Followed), p.Kept)
		case p.Followed == 1:
			none = "the one client that did what it said was not served"
		}
		remedy := "lower --rate or use more --clients"
		if r.plan.scenario != nil {
			remedy = "send less of the scenario with --share"
		}
		if p.Unclear > p.Taken {
			remedy += ", and see whether the server tells clients apart by --identify"
		}
		r.Verdicts = append(r.Verdicts, loadVerdict{Subject: "Retry-After", Open: true, Text: fmt.Sprintf("may be true or not: %s; others came first (requests of the same client: %d; perhaps those of others: %d): %s",
			none, p.Taken, p.Unclear, remedy)})
	}
}

// verdict is the exit code.
func (r *loadReport) verdict() error {
	if r.Ended == traffic.EndInterrupted {
		return &exitError{code: exitInterrupted, err: fmt.Errorf("load: interrupted after %v of %v", r.driven.Lasted.Round(10*time.Millisecond), r.plan.length)}
	}
	if t := &r.Total; t.Sent > 0 && t.Unanswered == t.Sent {
		return failed(fmt.Errorf("load: nothing was answered: %s", printable(r.Faults[0].Reason)))
	}
	for _, v := range r.Verdicts {
		if !v.OK && !v.Open {
			return failed(errors.New("load: the verdict is no"))
		}
	}
	return nil
}

func latency(d time.Duration) string { return latencyOf(millis(d)) }

// latencyOf is milliseconds with as many digits as tell.
func latencyOf(ms float64) string {
	switch {
	case ms == 0:
		return "–"
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// rows are the classes, and all together if there are several.
func (r *loadReport) rows() []loadClass {
	if len(r.Classes) == 1 {
		return r.Classes
	}
	return append(r.Classes[:len(r.Classes):len(r.Classes)], r.Total)
}

var (
	countHead   = []string{"class", "due", "sent", "served 2xx", "refused 429", "failed 5xx", "other", "no answer", "p50", "p99", "p99.9", "slowest"}
	promiseHead = []string{"class", "refused 429", "said when", "did not", "waited for", "kept", "taken", "unclear", "broken", "lost", "still waiting"}
)

func (c *loadClass) counts() []string {
	q := c.ServedIn
	row := []string{printable(c.Name)}
	for _, n := range []int64{c.Due, c.Sent, c.Served, c.Refused, c.Failed, c.Other, c.Unanswered} {
		row = append(row, traffic.Count(n))
	}
	for _, ms := range []float64{q.P50, q.P99, q.P999, q.Max} {
		row = append(row, latencyOf(ms))
	}
	return row
}

func (c *loadClass) promises() []string {
	p := &c.Promises
	row := []string{printable(c.Name)}
	for _, n := range []int64{c.Refused, p.Given, p.Missing, p.Followed, p.Kept, p.Taken, p.Unclear, p.Broken, p.Lost, p.Open} {
		row = append(row, traffic.Count(n))
	}
	return row
}

// notes are what one should know of the figures.
func (r *loadReport) notes() []string {
	var out []string
	t := &r.Total
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch r.Ended {
	case traffic.EndInterrupted:
		add("Interrupted: these are the figures up to then. %s were under way.", requests(t.Cut))
	case traffic.EndMaxRequests:
		add("Ended early: as many requests as --max-requests were sent.")
	case traffic.EndMaxTime:
		add("Ended early: --max-time was over.")
	}
	if t.OverCeiling > 0 {
		add("%s not sent: they would have passed the ceiling of %s.", requests(t.OverCeiling), r.Ceiling)
	}
	if t.OverOpen > 0 {
		add("%s not sent: as many as --max-open were without an answer.", requests(t.OverOpen))
	}
	if t.TooLate > 0 {
		add("%s not sent: this machine fell behind by more than --timeout, and they would have come for nothing.", requests(t.TooLate))
	}
	for _, f := range r.Faults {
		add("%s without an answer: %s.", requests(f.Count), printable(f.Reason))
	}
	if t.Late > 0 {
		add("%s (%s) left more than 10 ms after the instant, the latest %s: this machine could not do better. Latencies have that in them.",
			requests(t.Late), traffic.Percent(t.Late, t.Sent), latencyOf(t.MaxLate))
	}
	if t.Promises.TooLong > 0 {
		add("%s told to come back after more than --linger: nobody waited for that.", requests(t.Promises.TooLong))
	}
	return out
}

func clients(n int64) string {
	return traffic.CountOf(n, "client", "clients")
}

func requests(n int64) string {
	return traffic.CountOf(n, "request", "requests")
}

func (r *loadReport) lead() string {
	what := fmt.Sprintf("%s at %.4g/s", printable(r.Classes[0].Name), r.plan.peak)
	if r.Scenario != "" {
		what = printable(r.Scenario)
		if r.plan.length < r.plan.scenario.Duration {
			what += fmt.Sprintf(", %v played in %v", r.plan.scenario.Duration, r.plan.length)
		}
		if r.Share < 1 {
			what += fmt.Sprintf(", %v of it", traffic.Share(r.Share))
		}
	}
	return fmt.Sprintf("%s to %s: %s sent in %v, at most %s.", what, printable(r.Target), requests(r.Total.Sent), r.driven.Lasted.Round(100*time.Millisecond), r.Ceiling)
}

func (r *loadReport) writeText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.lead())
	if r.Agreed != "" {
		fmt.Fprintln(&b, "Expected load", printable(r.Agreed)+".")
	}
	rows := r.rows()
	table := func(head []string, row func(*loadClass) []string) {
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.ToUpper(strings.Join(head, "\t")))
		for i := range rows {
			fmt.Fprintln(w, strings.Join(row(&rows[i]), "\t"))
		}
		w.Flush()
	}
	table(countHead, (*loadClass).counts)
	if r.Total.Refused > 0 {
		table(promiseHead, (*loadClass).promises)
	}
	for i, n := range r.notes() {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintln(&b, n)
	}
	for i, v := range r.Verdicts {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s %s.\n", v.sign(), printable(v.Subject), v.Text)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// page is the report with pictures.
func (r *loadReport) page() *traffic.Report {
	t := &r.Total
	sent := "requests sent"
	if t.Sent == 1 {
		sent = "request sent"
	}
	page := &traffic.Report{
		Title: "Load test: " + r.plan.target, Lead: r.lead() + " Requests were sent when they were due, whatever had become of earlier ones, and " +
			"latencies count from then.",
		Facts: []traffic.Fact{
			{Value: traffic.Count(t.Sent), Label: sent},
			{Value: traffic.Percent(t.Served, t.Sent), Label: "served"},
			{Value: traffic.Percent(t.Refused, t.Sent), Label: "refused with 429"},
			{Value: traffic.Percent(t.Failed+t.Unanswered, t.Sent), Label: "failed or not answered", Bad: t.Failed+t.Unanswered > 0},
			{Value: latencyOf(t.ServedIn.P99), Label: "p99 of the served"},
		},
		Notes: append(r.notes(), "Served: a status of 2xx; refused: 429; failed: 5xx. Redirects are not followed."),
		Made:  fmt.Sprintf("Made by weir load, %s, %s.", versionText(), r.Began.Format(time.RFC1123)),
	}
	if r.Scenario != "" {
		page.Title = "Load test: " + r.Scenario
	}
	if r.Agreed != "" {
		page.Agreed = "Expected load " + r.Agreed
	}
	for _, v := range r.Verdicts {
		page.Verdicts = append(page.Verdicts, traffic.Verdict(v))
	}
	rows := r.rows()
	counts, promises := traffic.Table{Head: countHead}, traffic.Table{Head: promiseHead}
	bars := traffic.Bars{Title: "Requests and refusals", Unit: "requests"}
	for i := range rows {
		counts.Rows = append(counts.Rows, rows[i].counts())
		promises.Rows = append(promises.Rows, rows[i].promises())
	}
	for i := range r.Classes {
		bars.Items = append(bars.Items, traffic.Bar{Name: r.Classes[i].Name, Total: float64(r.Classes[i].Sent), Refused: float64(r.Classes[i].Refused)})
	}
	if len(rows) > 1 {
		counts.Strong, promises.Strong = len(rows), len(rows)
	}
	page.Sections = []traffic.Section{
		{Title: "All requests over time", Charts: []traffic.Chart{r.demand(r.driven.Classes...), r.slowest()}},
		{Title: "By class", Tables: []traffic.Table{counts}, Bars: []traffic.Bars{bars}},
	}
	if len(r.Classes) > 1 {
		for i := range r.driven.Classes {
			chart := r.demand(r.driven.Classes[i])
			chart.Title, chart.Text = r.Classes[i].Name, ""
			page.Sections[1].Charts = append(page.Sections[1].Charts, chart)
		}
	}
	if t.Refused > 0 {
		page.Sections = append(page.Sections, traffic.Section{
			Title: "Is Retry-After true?",
			Text: "Some of the refused did what it said: they waited just as long and asked again. Kept: they were not refused then. " +
				"Taken: another request of the same client was served meanwhile and used the place. Unclear: only others were served meanwhile, who " +
				"may share a limit with it. Broken: nobody was served, so nothing but the server explains it.",
			Tables: []traffic.Table{promises},
		})
	}
	return page
}

// demand is what came and what became of it.
func (r *loadReport) demand(classes ...traffic.ClassDriven) traffic.Chart {
	chart := traffic.Chart{
		Title: "Demand", Text: "Each request counts at the instant at which it was due.", Unit: "requests a second", Step: r.driven.Step,
	}
	var all []traffic.Moment
	for _, c := range classes {
		for i, m := range c.Moments {
			if i == len(all) {
				all = append(all, traffic.Moment{})
			}
			all[i].Sent += m.Sent
			all[i].OK += m.OK
			all[i].Refused += m.Refused
			all[i].Failed += m.Failed
		}
	}
	line := func(name string, role traffic.Role, area bool, of func(*traffic.Moment) int64) {
		l := traffic.Line{Name: name, Role: role, Area: area, Values: make([]float64, len(all))}
		sum := 0.0
		for i := range all {
			l.Values[i] = float64(of(&all[i])) / r.driven.Step.Seconds()
			sum += l.Values[i]
		}
		if sum > 0 {
			chart.Lines = append(chart.Lines, l)
		}
	}
	line("served", traffic.RoleServed, true, func(m *traffic.Moment) int64 { return m.OK })
	line("refused", traffic.RoleRefused, true, func(m *traffic.Moment) int64 { return m.Refused })
	line("failed or not answered", traffic.RoleFailed, true, func(m *traffic.Moment) int64 { return m.Failed + m.Unanswered })
	line("sent", traffic.RoleDemand, false, func(m *traffic.Moment) int64 { return m.Sent })
	return chart
}

// slowest is the longest wait of those who were served.
func (r *loadReport) slowest() traffic.Chart {
	chart := traffic.Chart{
		Title: "Slowest answer", Text: "The longest that anybody waited who was served, of those who were due at that time.", Unit: "milliseconds", Step: r.driven.Step,
	}
	var values []float64
	for i := range r.Classes {
		for j, m := range r.Classes[i].Moments {
			if j == len(values) {
				values = append(values, math.NaN())
			}
			if m.Served > 0 && !(values[j] >= m.Slowest) {
				values[j] = m.Slowest
			}
		}
	}
	chart.Lines = []traffic.Line{{Name: "slowest", Role: traffic.RoleDemand, Values: values}}
	return chart
}
