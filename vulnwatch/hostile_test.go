package vulnwatch

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	e := &Edition{Report: Report{Started: checkTime, Ended: checkTime.Add(time.Minute), KEV: KEVReport{Tried: []string{"", ""}}, Problems: make([]string, 3), NoIDs: " "}}
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

func TestOddIDs(t *testing.T) {
	for _, id := range []string{"../../etc/passwd", "cve-2026-1000", "CVE-2026-1000/../x", "", "CVE-2026-1"} {
		e := &Edition{Snapshots: []Snapshot{{ID: id}}}
		if err := e.render(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no CVE id") {
			t.Errorf("%q: %v", id, err)
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

// TestPlain: what is not what it looks like is shown as a sign, and the rest as it is.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"a\u202Egnp.exe\u202C":       "a\uFFFDgnp.exe\uFFFD",
		"\u2066x\u2069\u200E\u061Cy": "\uFFFDx\uFFFD\uFFFD\uFFFDy",
		"\x1b[31m\x07\x7f\u0085":     "\uFFFD[31m\uFFFD\uFFFD\uFFFD",
		"a\r\nb\tc\x00":              "a\uFFFD\nb\tc\uFFFD",
		"\u2028\u2029\uFFFE":         "\uFFFD\uFFFD\uFFFD",
		"\xff\xc3":                   "\uFFFD\uFFFD",
		"日本語 é \U0001F600 عربي <b>":  "日本語 é \U0001F600 عربي <b>",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
