package vulnwatch

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/weir-go/weir/batch"
)

// pagesOf parses all pages in a folder.
func pagesOf(t *testing.T, dir string) map[string]*html.Node {
	t.Helper()
	out := map[string]*html.Node{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		name, _ := filepath.Rel(dir, file)
		out[filepath.ToSlash(name)], err = html.Parse(f)
		return err
	})
	if err != nil || len(out) < 2 {
		t.Fatalf("%d pages: %v", len(out), err)
	}
	return out
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// find are the elements with a name, a class or an id: "a", ".score", "#rows".
func find(n *html.Node, what string) []*html.Node {
	var out []*html.Node
	for d := range n.Descendants() {
		if d.Type != html.ElementNode {
			continue
		}
		switch {
		case what[0] == '.' && slices.Contains(strings.Fields(attr(d, "class")), what[1:]),
			what[0] == '#' && attr(d, "id") == what[1:],
			d.Data == what:
			out = append(out, d)
		}
	}
	return out
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		switch {
		case d.Type == html.TextNode:
			b.WriteString(d.Data)
		case !slices.Contains([]string{"a", "b", "i", "strong", "span", "time", "code"}, d.Data):
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestInternalLinks: every link inside the site has its end.
func TestInternalLinks(t *testing.T) {
	e := madeEdition(60)
	e.History = append(e.History, Change{ID: "left", CVE: "CVE-2001-0001", Kind: StatusChanged, Text: "of a CVE that has left the list", Time: checkTime, Also: []string{"CVE-2001-0002"}})
	e.New = e.History[len(e.History)-len(e.New)-1:]
	dir := publishMade(t, e)
	links := 0
	check := func(from, href string) {
		u, err := url.Parse(href)
		if err != nil || u.IsAbs() || u.Host != "" {
			return
		}
		links++
		if _, err := os.Stat(filepath.Join(dir, path.Join(path.Dir(from), u.Path))); err != nil {
			t.Errorf("%s: the link %s leads nowhere", from, href)
		}
	}
	for name, page := range pagesOf(t, dir) {
		for n := range page.Descendants() {
			if href := attr(n, "href"); href != "" {
				check(name, href)
				checkTarget(t, name, n)
			}
		}
	}
	for _, name := range []string{"atom.xml", "kev.atom.xml"} {
		f := readAtom(t, dir, name)
		for _, l := range f.Links {
			check(name, l.Href)
		}
		for _, entry := range f.Entries {
			check(name, entry.Link.Href)
		}
	}
	if links < 60*6 {
		t.Errorf("only %d links", links)
	}
}

// TestSameBytes: the same edition gives the same site, whatever order maps have today.
func TestSameBytes(t *testing.T) {
	read := func(dir string) map[string]string {
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(file)
			name, _ := filepath.Rel(dir, file)
			files[name] = string(raw)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	a, b := read(publishMade(t, madeEdition(60))), read(publishMade(t, madeEdition(60)))
	if len(a) != len(b) || len(a) < 66 {
		t.Errorf("%d and %d files", len(a), len(b))
	}
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
}

// TestIndex: what the index tells of a check.
func TestIndex(t *testing.T) {
	e := madeEdition(60)
	page := pagesOf(t, publishMade(t, e))["index.html"]
	text := textOf(page)
	for _, want := range []string{
		"Last complete check 2026-11-30 06:01 UTC, in 71 s",
		"✓ complete, but not all lines of the list are CVE ids",
		`1 line of the list is no CVE id: line 7 "CVE-24-1". What is meant there is not watched.`,
		"KEV: 1404 entries, released 2026-11-29 15:00 UTC, 15 h before this check; from " + KEVURL,
		"3 not fetched (rate limited 2, network 1)",
		"It took 3 requests, of which 1 was refused",
		`1 problem in the list itself line 7: "CVE-24-1" is no CVE id`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the index does not say %q", want)
		}
	}
	sum := 0
	for _, d := range find(find(page, ".ledger")[0], "div") {
		n, err := strconv.Atoi(textOf(find(d, "dd")[0]))
		if err != nil {
			t.Fatal(err)
		}
		if attr(d, "class") != "sum" {
			sum += n
		} else if n != sum || n != 60 {
			t.Errorf("the columns sum to %d, and it says %d", sum, n)
		}
	}

	var kinds []int
	for _, h := range find(page, "h3") {
		for i, k := range Kinds {
			if textOf(find(h, ".tag")[0]) == kindName(k) {
				kinds = append(kinds, i)
			}
		}
	}
	if len(kinds) < 5 || !slices.IsSorted(kinds) || kinds[0] != 0 {
		t.Errorf("the changes are in the order %v", kinds)
	}
	if !strings.Contains(text, "mass edit of 11 CVEs: status: Modified → Analyzed 10 more with the same change") {
		t.Error("the mass edit is not folded")
	}

	rows := find(find(page, "#rows")[0], "tr")
	if len(rows) != len(e.Snapshots) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, tr := range rows {
		s := &e.Snapshots[i]
		text := textOf(tr)
		if !strings.HasPrefix(text, s.ID) {
			t.Errorf("row %d is %s, want %s", i, text, s.ID)
		}
		has := func(want string, when bool) {
			t.Helper()
			if strings.Contains(text, want) != when {
				t.Errorf("%s: says %q: %v, want %v: %s", s.ID, want, !when, when, text)
			}
		}
		has("in KEV", s.KEV != nil)
		has("ransomware", s.KEV != nil && s.KEV.Ransomware)
		has("not fetched", s.Result.Column == batch.NotFetched)
		has("unknown to the NVD", s.Missing)
		has("NVD disagrees", s.Disagrees != "")
		if s.Record != nil {
			best, ok := s.Record.Best()
			has("none", !ok || strings.Contains(text, "none seen"))
			if ok {
				has(best.Number()+" "+strings.ToLower(best.Severity()), true)
				has("by the NVD", best.Source == NVDSource)
				has("by "+best.Source+", not the NVD", best.Source != NVDSource)
			}
		}
	}
}

// TestCVEPage: what the page of a CVE tells.
func TestCVEPage(t *testing.T) {
	e := madeEdition(60)
	pages := pagesOf(t, publishMade(t, e))
	s := &e.Snapshots[3]
	page := pages["cve/"+s.ID+".html"]
	text := textOf(page)
	for _, want := range []string{s.Record.Description, s.KEV.Name, s.KEV.Text, "NVD and CISA disagree: " + s.Disagrees, "CWE-", "CVSS:3.1/AV:N", "Really checked 2026-11-30 06:01 UTC", "Due 2026-12-20"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if refs := find(find(page, ".refs")[0], "li"); len(refs) != 3 || !strings.Contains(textOf(refs[0]), "Patch Vendor Advisory") {
		t.Error("the patch is not the first reference")
	}
	scores := find(find(page, ".scores")[0], "tr")
	if len(scores) != 1+len(s.Record.Scores) || !strings.Contains(textOf(scores[1]), "NVD Primary CVSS:3.1") {
		t.Errorf("%d rows of scores", len(scores))
	}

	timeline := find(find(page, "#timeline")[0], "time")
	var times []string
	for _, line := range timeline {
		times = append(times, attr(line, "datetime"))
	}
	if len(times) < 5 || !slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("a timeline of %v", times)
	}

	// Every line of the history stands on the page of every CVE that it names, and on no other.
	want := map[string]int{}
	for i := range e.History {
		want[e.History[i].CVE]++
		for _, id := range e.History[i].Also {
			want[id]++
		}
	}
	for i := range e.Snapshots {
		id := e.Snapshots[i].ID
		if got := len(find(find(pages["cve/"+id+".html"], "#timeline")[0], "time")); got != want[id] {
			t.Errorf("%s: a timeline of %d lines, want %d", id, got, want[id])
		}
	}
	never := textOf(pages["cve/"+e.Snapshots[11].ID+".html"])
	if !strings.Contains(never, "Not fetched in the last check (network): no answer within 30 s. It never was") || !strings.Contains(never, "Really checked never") {
		t.Errorf("of a CVE that was never fetched: %s", never)
	}
	unknown := textOf(pages["cve/"+e.Snapshots[8].ID+".html"])
	if !strings.Contains(unknown, "Unknown to the NVD: not in two answers of the NVD. What follows is what the NVD said before") {
		t.Errorf("of a CVE that is gone: %s", unknown)
	}
}

// TestEmptyEdition: a first check, in which nothing could change.
func TestEmptyEdition(t *testing.T) {
	e := madeEdition(12)
	e.History, e.New = nil, nil
	dir := publishMade(t, e)
	if text := textOf(pagesOf(t, dir)["index.html"]); !strings.Contains(text, "Nothing changed in what was fetched") {
		t.Error("the index does not say that nothing changed")
	}
	if f := readAtom(t, dir, "atom.xml"); len(f.Entries) != 0 || f.Updated != rfc3339(e.Report.Ended) {
		t.Errorf("%+v", f)
	}
	readJSONFeed(t, dir, "kev-feed.json")
}

func TestRewording(t *testing.T) {
	tail := strings.Repeat(" and", 20)
	for _, c := range []struct {
		old, now string
		want     rewording
	}{
		{"a flaw in X allows code", "a flaw in Y allows code", rewording{"a flaw in", "X", "Y", "allows code"}},
		{"", "all new", rewording{"", "", "all new", ""}},
		{"a a", "a a a", rewording{"a a", "", "a", ""}},
		{"one" + tail, "two" + tail, rewording{"", "one", "two", strings.Repeat("and ", 14) + "and …"}},
		{"x", "x", rewording{"x", "", "", ""}},
	} {
		got := line{Change: &Change{Kind: Wording, Old: c.old, New: c.now}}.Rewording()
		if *got != c.want {
			t.Errorf("%q → %q: %+v, want %+v", c.old, c.now, *got, c.want)
		}
	}
}

// BenchmarkRender writes a site.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{271, 10_000} {
		b.Run(fmt.Sprintf("cves=%d", n), func(b *testing.B) {
			e := madeEdition(n)
			dir := b.TempDir()
			b.ReportAllocs()
			for b.Loop() {
				if err := e.render(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFlags: what a row of the index is found by.
func TestFlags(t *testing.T) {
	nvd, other := Score{Source: NVDSource, Tenths: 98}, Score{Source: "cna@x.example", Tenths: 98}
	for want, s := range map[string]Snapshot{
		"":                             {Record: &Record{Scores: []Score{nvd, other}}},
		"unscored":                     {Record: &Record{}},
		"others":                       {Record: &Record{Scores: []Score{other}}},
		"missing unscored":             {Missing: true},
		"missing":                      {Record: &Record{Scores: []Score{nvd}}, Result: batch.Lost(batch.Network, "down")},
		"kev unscored":                 {KEV: &Entry{}},
		"kev ransomware unscored":      {KEV: &Entry{Ransomware: true}},
		"recent disagrees unscored":    {ID: "CVE-2026-0001", Disagrees: "x"},
		"kev ransomware recent others": {ID: "CVE-2026-0001", KEV: &Entry{Ransomware: true}, Record: &Record{Scores: []Score{other}}},
	} {
		p := &pages{Edition: &Edition{}, recent: map[string]bool{"CVE-2026-0001": true}}
		if got := p.row(&s).Flags(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
