package vulnwatch

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/weir-go/weir/batch"
)

// hostile are texts that would be more than text if a page let them.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`javascript:alert(1)`,
	"java\tscript:alert(1)",
	`data:text/html,<script>alert(1)</script>`,
	`https://user@example.org/<script>`,
	`https://example.org/" onclick="alert(1)`,
	`//evil.example/x.js`,
	"https://example.org/\u202Efdp.exe",
	"right\u202Eto left\u2066 and \u200Emarks",
	"nul\x00 bell\a escape\x1b[31m delete\x7f next line\u0085 separator\u2028",
	"broken \xff\xfe utf-8 \xed\xa0\x80",
	`]]> <!-- --> <![CDATA[ {{.}} {{"{{"}} ${x} </title></textarea></style>`,
	"a\r\nb\n\nc",
	strings.Repeat("very long ", 20000),
	strings.Repeat("x", 100000),
	"\uFFFE\uFFFF\U0001FFFE",
	"",
}

// poison puts hostile texts into every string that can be reached.
func poison(v reflect.Value, next *int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile[*next%len(hostile)])
		*next++
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), next)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[time.Time]() && v.Field(i).CanSet() {
				poison(v.Field(i), next)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), next)
		}
	}
}

func poisoned() *Edition {
	e := &Edition{Report: Report{Started: checkTime, Ended: checkTime.Add(time.Minute), KEV: KEVReport{Tried: []string{"", ""}}, Problems: make([]string, 3)}}
	for range 2 * len(hostile) {
		e.Snapshots = append(e.Snapshots, Snapshot{
			KEV:    &Entry{},
			Record: &Record{Scores: make([]Score, 2), CWEs: make([]string, 2), References: []Reference{{Tags: make([]string, 2)}, {Tags: make([]string, 1)}, {}}},
		})
		e.Report.Lost = append(e.Report.Lost, Lost{})
	}
	for range 3 * len(Kinds) {
		e.History = append(e.History, Change{Also: make([]string, 3)})
	}
	for n := 0; n < 7*len(hostile); { // until each field has had some of each
		poison(reflect.ValueOf(e).Elem(), &n)
	}
	e.URL = ""
	for i := range e.Snapshots {
		s := &e.Snapshots[i]
		s.ID = fmt.Sprintf("CVE-2026-%d", 1000+i)
		e.Report.Lost[i].ID = s.ID
		if i%3 == 0 {
			s.Result.Column = batch.NotFetched
		} else if i%3 == 1 {
			s.Result.Column, s.Missing = batch.Unknown, true
		}
	}
	for i := range e.History {
		c := &e.History[i]
		c.ID += fmt.Sprint(i)
		c.Kind, c.Time = Kinds[i%len(Kinds)], checkTime.AddDate(0, 0, -i%2)
		if i%3 > 0 {
			c.CVE = e.Snapshots[i%len(e.Snapshots)].ID
		}
		c.Also[0] = e.Snapshots[(i+1)%len(e.Snapshots)].ID
	}
	e.New = e.History[len(e.History)/2:]
	return e
}

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

// The only elements and attributes that the pages have. Handlers, styles, sources and frames are not among them.
var (
	elements = strings.Fields(`a b button caption code col colgroup dd del details div dl dt footer form h1 h2 h3 head header html body i input ins
		label li link main meta nav ol option output p pre script section select small span strong summary table tbody td th thead time title tr ul`)
	attributes = strings.Fields(`aria-label aria-labelledby aria-live autocomplete charset class content data-d data-f data-s data-t datetime hidden href
		http-equiv id lang name placeholder rel role scope spellcheck tabindex title type value`)
)

// TestHostileText: whatever stands in records, catalogues, histories and reports, the pages have no element, attribute, link or
// hidden character that the templates do not have.
func TestHostileText(t *testing.T) {
	e := poisoned()
	dir := publishMade(t, e)
	for name, page := range pagesOf(t, dir) {
		for n := range page.Descendants() {
			if n.Type == html.TextNode && strings.ContainsFunc(n.Data, hidden) {
				t.Errorf("%s: hidden characters in %.80q", name, n.Data)
			}
			if n.Type != html.ElementNode {
				continue
			}
			if !slices.Contains(elements, n.Data) {
				t.Errorf("%s: an element <%s>", name, n.Data)
			}
			for _, a := range n.Attr {
				if !slices.Contains(attributes, a.Key) {
					t.Errorf("%s: an attribute %s=%.80q of <%s>", name, a.Key, a.Val, n.Data)
				}
				if strings.ContainsFunc(a.Val, hidden) {
					t.Errorf("%s: hidden characters in %s=%.80q", name, a.Key, a.Val)
				}
			}
			if n.Data == "script" && (name != "index.html" || textOf(n) != strings.Join(strings.Fields(indexScript), " ")) {
				t.Errorf("%s: a script %.80q", name, textOf(n))
			}
			checkTarget(t, name, n)
		}
		if len(find(page, "script")) > 1 {
			t.Errorf("%s: %d scripts", name, len(find(page, "script")))
		}
	}
	for _, name := range []string{"atom.xml", "kev.atom.xml"} {
		readAtom(t, dir, name)
	}
	for _, name := range []string{"feed.json", "kev-feed.json"} {
		f := readJSONFeed(t, dir, name)
		for _, item := range f.Items {
			for n := range mustParse(t, item.HTML).Descendants() {
				if n.Type == html.ElementNode && !slices.Contains(strings.Fields("html head body p pre del ins"), n.Data) || len(n.Attr) > 0 {
					t.Errorf("%s: an element <%s> %v", name, n.Data, n.Attr)
				}
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.html"))
	for _, file := range append(files, filepath.Join(dir, "index.html"), filepath.Join(dir, "feed.json")) {
		if info, err := os.Stat(file); err != nil || info.Size() > 4<<20 {
			t.Errorf("%s has %d bytes: %v", file, info.Size(), err)
		}
	}
}

func mustParse(t *testing.T, s string) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkTarget: nothing is loaded from elsewhere, and what readers may follow leads to http or https, without telling where
// they come from.
func checkTarget(t *testing.T, page string, n *html.Node) {
	t.Helper()
	href := attr(n, "href")
	if href == "" {
		return
	}
	u, err := url.Parse(href)
	switch {
	case err != nil:
		t.Errorf("%s: <%s href=%.80q>: %v", page, n.Data, href, err)
	case u.Scheme == "" && u.Host == "":
	case n.Data != "a":
		t.Errorf("%s: <%s href=%.80q> loads from elsewhere", page, n.Data, href)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil:
		t.Errorf("%s: a link to %.80q", page, href)
	case attr(n, "rel") != "noreferrer noopener nofollow":
		t.Errorf("%s: a link to %.80q with rel %q", page, href, attr(n, "rel"))
	}
}

// TestPolicy: the policy allows what the page has, and no more.
func TestPolicy(t *testing.T) {
	dir := publishMade(t, madeEdition(30))
	for name, page := range pagesOf(t, dir) {
		var policies []string
		for _, m := range find(page, "meta") {
			if attr(m, "http-equiv") == "Content-Security-Policy" {
				policies = append(policies, attr(m, "content"))
			}
		}
		if len(policies) != 1 || !strings.HasPrefix(policies[0], "default-src 'none'; ") || strings.Contains(policies[0], "unsafe") {
			t.Fatalf("%s: policies %q", name, policies)
		}
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, after, has := strings.Cut(string(raw), "<script>")
		if has != (name == "index.html") {
			t.Errorf("%s: a script: %v", name, has)
		}
		if has {
			script, _, _ := strings.Cut(after, "</script>")
			sum := sha256.Sum256([]byte(script))
			if want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policies[0], want) {
				t.Errorf("%s: the policy %s does not allow the script, whose hash is in %s", name, policies[0], want)
			}
		} else if strings.Contains(policies[0], "script-src") {
			t.Errorf("%s: the policy %s allows scripts", name, policies[0])
		}
		if len(find(page, "#stale")) != 1 || len(find(page, "title")) != 1 || len(find(page, "h1")) != 1 || len(find(page, "main")) != 1 {
			t.Errorf("%s: it lacks the mark, a title, a heading or a main part", name)
		}
		if !strings.Contains(textOf(page), "This product uses data from the NVD API but is not endorsed or certified by the NVD.") {
			t.Errorf("%s: without the NVD's notice", name)
		}
		for _, th := range find(page, "th") {
			if attr(th, "scope") == "" {
				t.Errorf("%s: a heading of a table without scope: %s", name, textOf(th))
			}
		}
	}
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
		"✓ complete",
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

func TestOddIDs(t *testing.T) {
	for _, id := range []string{"../../etc/passwd", "cve-2026-1000", "CVE-2026-1000/../x", "", "CVE-2026-1"} {
		e := &Edition{Snapshots: []Snapshot{{ID: id}}}
		if err := e.render(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no CVE id") {
			t.Errorf("%q: %v", id, err)
		}
	}
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

func FuzzLink(f *testing.F) {
	for _, s := range append(slices.Clone(hostile), "https://example.org/a?b=c#d", "HTTP://EXAMPLE.ORG") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if l := link(s); l != "" && !strings.HasPrefix(strings.ToLower(l), "http://") && !strings.HasPrefix(strings.ToLower(l), "https://") {
			t.Errorf("%q is a link", s)
		}
	})
}

func FuzzPlain(f *testing.F) {
	for _, s := range hostile {
		f.Add(s[:min(len(s), 200)])
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := plain(s)
		if !utf8.ValidString(p) || strings.ContainsFunc(p, hidden) || plain(p) != p {
			t.Errorf("%q became %q", s, p)
		}
		if !xmlLegal.MatchString(p) {
			t.Errorf("%q became %q, which XML does not allow", s, p)
		}
		if c := clip(5, p); utf8.RuneCountInString(c) > 6 || !utf8.ValidString(c) {
			t.Errorf("%q was cut to %q", p, c)
		}
	})
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
