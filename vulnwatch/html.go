package vulnwatch

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/batch"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed templates/style.css
var styleSheet string

//go:embed templates/index.js
var indexScript string

var pageTemplates = template.Must(template.New("pages").Funcs(template.FuncMap{
	"clip":      clip,
	"utc":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"iso":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"day":       func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	"span":      span,
	"words":     func(s any) string { return strings.ReplaceAll(fmt.Sprint(s), "_", " ") },
	"kind":      kindName,
	"severity":  func(s Score) string { return strings.ToLower(s.Severity()) },
	"assessor":  assessorName,
	"ofNVD":     func(s Score) bool { return s.Source == NVDSource },
	"link":      link,
	"urgent":    func(r Reference) bool { return rank(r) == 0 },
	"cweNumber": cweNumber,
}).ParseFS(templateFiles, "templates/*.html"))

// policy is the Content-Security-Policy of a page: its own two style sheets, the one script that is known by its hash, and
// nothing else from anywhere. "file:" is for readers who open the pages from their disk, where some browsers
// know no 'self'.
func policy(script string) template.HTML {
	p := "default-src 'none'; style-src 'self' file:; base-uri 'none'; form-action 'none'"
	if script != "" {
		sum := sha256.Sum256([]byte(script))
		p += "; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return template.HTML(`<meta http-equiv="Content-Security-Policy" content="` + p + `">`)
}

var indexPolicy, cvePolicy = policy(indexScript), policy("")

// link is a URL that readers may follow: http or https, to a plain host. Others are shown, but are no links.
func link(s string) string {
	u, err := url.Parse(s)
	if err != nil || len(s) > 4000 || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || plain(s) != s {
		return ""
	}
	return s
}

// span is a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func kindName(k Kind) string {
	switch k {
	case KEVListed:
		return "Listed as exploited"
	case KEVRansomware:
		return "Ransomware use"
	case KEVDue:
		return "Due date moved"
	case KEVRemoved:
		return "Removed from KEV"
	case KEVDisagrees:
		return "NVD and CISA disagree"
	case ScoreChanged:
		return "Score"
	case StatusChanged:
		return "Status"
	case RefsChanged:
		return "References"
	case CWEChanged:
		return "Weakness"
	case Gone:
		return "Gone from the NVD"
	case Appeared:
		return "New in the NVD"
	case Wording:
		return "Wording"
	}
	return string(k)
}

// cisaADP is CISA as it assesses for the CVE programme; it has no address in the NVD, only this.
const cisaADP = "134c704f-9b21-4f2e-91b3-4a467353bcc0"

func assessorName(s Score) string {
	switch s.Source {
	case NVDSource:
		return "NVD"
	case cisaADP:
		return "CISA-ADP"
	case "":
		return "unnamed"
	}
	return s.Source
}

// cweNumber is the number in a CWE id, or empty.
func cweNumber(cwe string) string {
	n := strings.TrimPrefix(cwe, "CWE-")
	if n == "" || len(n) > 6 || strings.Trim(n, "0123456789") != "" {
		return ""
	}
	return n
}

// indexPage is what index.html tells.
type indexPage struct{ *pages }

func (indexPage) Root() string          { return "" }
func (indexPage) Policy() template.HTML { return indexPolicy }
func (indexPage) Script() template.JS   { return template.JS(indexScript) }

// totals are what the index says of the list as a whole.
type totals struct {
	KEV, Ransomware, Critical, High, Others, Unscored, Disagree int
}

func (p indexPage) Totals() (t totals) {
	for i := range p.Snapshots {
		r := p.row(&p.Snapshots[i])
		if r.KEV != nil {
			t.KEV++
			if r.KEV.Ransomware {
				t.Ransomware++
			}
		}
		if r.Disagrees != "" {
			t.Disagree++
		}
		switch {
		case r.Best == nil:
			t.Unscored++
		case r.Best.Severity() == "CRITICAL":
			t.Critical++
		case r.Best.Severity() == "HIGH":
			t.High++
		}
		if r.Best != nil && r.Best.Source != NVDSource {
			t.Others++
		}
	}
	return t
}

// Released says how old the KEV catalogue was.
func (p indexPage) KEVAge() string {
	if p.Report.KEV.Released.IsZero() {
		return ""
	}
	return span(max(0, p.Report.Ended.Sub(p.Report.KEV.Released)))
}

// Edited is how many CVEs changed that were known before.
func (p indexPage) Edited() int { return p.Report.Ledger.Changed - p.Report.New }

func (p indexPage) Took() string { return span(p.Report.Ended.Sub(p.Report.Started)) }

// Reasons are why what was not fetched was not.
func (p indexPage) Reasons() string {
	var parts []string
	for _, r := range batch.Reasons {
		if n := p.Report.Ledger.Reasons[r]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", strings.ReplaceAll(string(r), "_", " "), n))
		}
	}
	return strings.Join(parts, ", ")
}

// How much the index shows of what could be very much.
const (
	mostOfKind  = 200
	mostEarlier = 100
	mostAlso    = 500
	mostLost    = 200
	mostProblem = 50
)

// group are the changes of one kind.
type group struct {
	Kind    Kind
	Changes []line
	Total   int
}

// More is how many are not shown.
func (g group) More() int { return g.Total - len(g.Changes) }

// Problems are what was wrong with the list.
func (p indexPage) Problems() []string {
	return p.Report.Problems[:min(mostProblem, len(p.Report.Problems))]
}
func (p indexPage) MoreProblems() int { return max(0, len(p.Report.Problems)-mostProblem) }

// line is a change on a page.
type line struct {
	*Change
	pages *pages
}

// Groups are what this run found changed, the most urgent kinds first.
func (p indexPage) Groups() []group {
	byKind := make(map[Kind][]line)
	for i := range p.New {
		byKind[p.New[i].Kind] = append(byKind[p.New[i].Kind], line{&p.New[i], p.pages})
	}
	var out []group
	for _, k := range Kinds {
		if all := byKind[k]; len(all) > 0 {
			n := min(len(all), mostOfKind)
			out = append(out, group{k, all[:n], len(all)})
		}
	}
	return out
}

// Earlier are the changes that runs before this one found, the newest first.
func (p indexPage) Earlier() []line {
	var out []line
	for i := len(p.History) - len(p.New) - 1; i >= 0 && len(out) < mostEarlier; i-- {
		out = append(out, line{&p.History[i], p.pages})
	}
	slices.SortStableFunc(out, func(a, b line) int { return newestFirst(a.Change, b.Change) })
	return out
}

// newestFirst orders changes by their run, and those of one run by their urgency.
func newestFirst(a, b *Change) int {
	if c := b.Time.Compare(a.Time); c != 0 {
		return c
	}
	return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind)
}

func (p indexPage) NotFetched() []Lost { return p.Report.Lost[:min(mostLost, len(p.Report.Lost))] }
func (p indexPage) MoreNotFetched() int {
	return max(0, len(p.Report.Lost)-mostLost)
}

// subject is a CVE that is named. It may have left the list, and then has no page.
type subject struct {
	ID      string
	HasPage bool
}

func (p *pages) subject(id string) subject {
	_, ok := p.page[id]
	return subject{id, ok}
}

func (l line) Subject() subject { return l.pages.subject(l.CVE) }

func (l line) Others() []subject {
	var out []subject
	for _, id := range l.Also[:min(mostAlso, len(l.Also))] {
		out = append(out, l.pages.subject(id))
	}
	return out
}

func (l line) MoreOthers() int { return max(0, len(l.Also)-mostAlso) }

// Before and After are shown where the sentence does not tell all.
func (l line) Before() string {
	if l.Kind == ScoreChanged || l.Kind == RefsChanged {
		return l.Old
	}
	return ""
}

func (l line) After() string {
	if l.Kind == ScoreChanged || l.Kind == RefsChanged {
		return l.New
	}
	return ""
}

// rewording is a text with what was taken out of it and put into it.
type rewording struct{ Head, Out, In, Tail string }

// Rewording is nil where the change is of another kind.
func (l line) Rewording() *rewording {
	if l.Kind != Wording {
		return nil
	}
	const around = 15 // words that are shown before and after
	a, b := strings.Fields(clip(20000, l.Old)), strings.Fields(clip(20000, l.New))
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	r := &rewording{
		Head: strings.Join(a[max(0, head-around):head], " "),
		Out:  strings.Join(a[head:len(a)-tail], " "),
		In:   strings.Join(b[head:len(b)-tail], " "),
		Tail: strings.Join(a[len(a)-tail:len(a)-max(0, tail-around)], " "),
	}
	if head > around {
		r.Head = "… " + r.Head
	}
	if tail > around {
		r.Tail += " …"
	}
	return r
}

// row is one CVE in the table of the index.
type row struct {
	*Snapshot
	Best   *Score // nil if nobody has scored it
	Last   *Change
	Recent bool // this run found it changed
}

func (p *pages) row(s *Snapshot) row {
	r := row{Snapshot: s, Recent: p.recent[s.ID]}
	if s.Record != nil {
		if best, ok := s.Record.Best(); ok {
			r.Best = &best
		}
	}
	if h := p.history[s.ID]; len(h) > 0 {
		r.Last = &p.History[h[len(h)-1]]
	}
	return r
}

// Rows are made one by one while they are written.
func (p indexPage) Rows() iter.Seq[row] {
	return func(yield func(row) bool) {
		for i := range p.Snapshots {
			if !yield(p.row(&p.Snapshots[i])) {
				return
			}
		}
	}
}

// Flags are what the index can be filtered by.
func (r row) Flags() string {
	var flags []string
	add := func(is bool, flag string) {
		if is {
			flags = append(flags, flag)
		}
	}
	add(r.KEV != nil, "kev")
	add(r.KEV != nil && r.KEV.Ransomware, "ransomware")
	add(r.Recent, "recent")
	add(r.Lost() || r.Missing, "missing")
	add(r.Disagrees != "", "disagrees")
	add(r.Best == nil, "unscored")
	add(r.Best != nil && r.Best.Source != NVDSource, "others")
	return strings.Join(flags, " ")
}

// Tenths orders rows by score.
func (r row) Tenths() int {
	if r.Best == nil {
		return -1
	}
	return r.Best.Tenths
}

// Name is what people call the vulnerability, or how its description begins.
func (s *Snapshot) Name() string {
	switch {
	case s.KEV != nil && s.KEV.Name != "":
		return clip(140, s.KEV.Name)
	case s.Record != nil:
		return clip(140, s.Record.Description)
	}
	return ""
}

// Lost reports whether the last run could not fetch it.
func (s *Snapshot) Lost() bool { return s.Result.Column == batch.NotFetched }

// cvePage is what the page of a CVE tells.
type cvePage struct {
	*pages
	*Snapshot
}

func (cvePage) Root() string          { return "../" }
func (cvePage) Policy() template.HTML { return cvePolicy }

// mostLines is how much of a timeline, or of the references, one page shows.
const mostLines = 500

// Timeline is the history of the CVE, the newest first.
func (c cvePage) Timeline() []line {
	all := c.history[c.ID]
	var out []line
	for _, i := range all[max(0, len(all)-mostLines):] {
		out = append(out, line{&c.History[i], c.pages})
	}
	slices.SortStableFunc(out, func(a, b line) int { return newestFirst(a.Change, b.Change) })
	return out
}

func (c cvePage) MoreTimeline() int { return max(0, len(c.history[c.ID])-mostLines) }

func (c cvePage) Best() *Score { return c.row(c.Snapshot).Best }

// References are the links of the record, those that bring a remedy first.
func (c cvePage) References() []Reference {
	refs := slices.Clone(c.Record.References)
	slices.SortStableFunc(refs, func(a, b Reference) int { return rank(a) - rank(b) })
	return refs[:min(mostLines, len(refs))]
}

func (c cvePage) MoreReferences() int { return max(0, len(c.Record.References)-mostLines) }
