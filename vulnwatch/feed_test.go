package vulnwatch

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var xmlLegal = regexp.MustCompile(`^[\t\n\r\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]*$`)

// readAtom reads a feed, and checks what RFC 4287 asks of all.
func readAtom(t *testing.T, dir, name string) *atomFeed {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(raw) || !xmlLegal.Match(raw) {
		t.Errorf("%s: characters that XML does not have", name)
	}
	var f atomFeed
	if err := xml.Unmarshal(raw, &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ids := map[string]bool{f.ID: true}
	last := "9999"
	for _, e := range f.Entries {
		if ids[e.ID] || !strings.HasPrefix(e.ID, "urn:uuid:") || len(e.ID) != len("urn:uuid:")+36 {
			t.Errorf("%s: id %q is none, or stands twice", name, e.ID)
		}
		ids[e.ID] = true
		if _, err := time.Parse(time.RFC3339, e.Updated); err != nil || e.Updated > last {
			t.Errorf("%s: %s after %s: %v", name, e.Updated, last, err)
		}
		last = e.Updated
		if e.Title == "" || e.Content.Type != "html" || e.Link.Href == "" || strings.ContainsFunc(e.Title, hidden) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if f.Title == "" || f.Author == "" || f.Updated == "" || len(f.Links) != 2 || len(f.Entries) > mostEntries {
		t.Errorf("%s: title %q, author %q, updated %q, %d links, %d entries", name, f.Title, f.Author, f.Updated, len(f.Links), len(f.Entries))
	}
	return &f
}

// readJSONFeed reads a feed, and checks what JSON Feed 1.1 asks of all.
func readJSONFeed(t *testing.T, dir, name string) *jsonFeed {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var f jsonFeed
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if f.Version != "https://jsonfeed.org/version/1.1" || f.Title == "" || f.Items == nil || len(f.Items) > mostEntries {
		t.Errorf("%s: version %q, title %q, items %v", name, f.Version, f.Title, f.Items != nil)
	}
	for _, item := range f.Items {
		if _, err := time.Parse(time.RFC3339, item.Published); err != nil || item.ID == "" || item.HTML == "" {
			t.Errorf("%s: %+v: %v", name, item, err)
		}
	}
	return &f
}

// TestFeeds: the feeds tell the newest changes, each under an id that it keeps.
func TestFeeds(t *testing.T) {
	e := madeEdition(2000)
	dir := feedsOf(t, e)
	all, kev := readAtom(t, dir, "atom.xml"), readAtom(t, dir, "kev.atom.xml")
	if len(all.Entries) != mostEntries || all.ID == kev.ID {
		t.Errorf("%d entries, ids %s and %s", len(all.Entries), all.ID, kev.ID)
	}
	wantKEV := 0
	for _, c := range e.History {
		if c.Kind.KEV() {
			wantKEV++
		}
	}
	if len(kev.Entries) != min(wantKEV, mostEntries) || wantKEV == 0 {
		t.Errorf("%d entries of KEV, want %d", len(kev.Entries), wantKEV)
	}
	for _, entry := range kev.Entries {
		if !Kind(entry.Category.Term).KEV() {
			t.Errorf("%s in the feed of KEV", entry.Category.Term)
		}
	}
	if all.Entries[0].Category.Term != string(KEVListed) || all.Entries[0].Updated != rfc3339(checkTime) {
		t.Errorf("it begins with %+v", all.Entries[0])
	}
	ids := func(f *atomFeed) map[string]string {
		m := map[string]string{}
		for _, e := range f.Entries {
			m[e.ID] = e.Title
		}
		return m
	}
	before := ids(kev)

	// The next day has one change more, and the site an address.
	next := Change{CVE: e.Snapshots[0].ID, Kind: KEVRemoved, Text: "removed"}
	changes := []Change{next}
	stamp(changes, checkTime.AddDate(0, 0, 1))
	e.History, e.New, e.URL = append(e.History, changes...), changes, "https://cves.example.org/watch"
	dir = feedsOf(t, e)
	later := readAtom(t, dir, "kev.atom.xml")
	if later.ID != kev.ID {
		t.Errorf("the feed's id became %s", later.ID)
	}
	fresh := 0
	for id, title := range ids(later) {
		switch old, ok := before[id]; {
		case !ok:
			fresh++
		case old != title:
			t.Errorf("%s was %q and is %q", id, old, title)
		}
	}
	if fresh != 1 {
		t.Errorf("%d new ids for one change", fresh)
	}
	if got, want := later.Entries[0].Link.Href, "https://cves.example.org/watch/cve/"+next.CVE+".html"; got != want {
		t.Errorf("a link to %s, want %s", got, want)
	}
	j := readJSONFeed(t, dir, "kev-feed.json")
	if j.Self != "https://cves.example.org/watch/kev-feed.json" || j.Items[0].URL != later.Entries[0].Link.Href || j.Items[0].ID != later.Entries[0].ID || j.Items[0].Change.ID != changes[0].ID {
		t.Errorf("JSON Feed %+v begins with %+v", j.Self, j.Items[0])
	}
}

func TestSiteURL(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "https://example.org": "https://example.org/", "http://example.org/cves/": "http://example.org/cves/",
		"example.org": "refused", "ftp://example.org/": "refused", "https:///x": "refused", "https://example.org/?q": "refused", "javascript:alert(1)": "refused",
	} {
		got, err := siteURL(in)
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", in, got, err, want)
		}
	}
}

// feedsOf writes the feeds of an edition alone.
func feedsOf(t *testing.T, e *Edition) string {
	t.Helper()
	p, err := e.pages(t.TempDir())
	if err == nil {
		err = p.feeds()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.dir
}

// TestFeedsKeepTheirIDs: from the first check on, before there is a history, and each site has its own.
func TestFeedsKeepTheirIDs(t *testing.T) {
	ids := func(b *bench) (all []string) {
		files := tree(t, b.watch.Out)
		for _, name := range []string{"atom.xml", "kev.atom.xml"} {
			_, rest, _ := strings.Cut(files[name], "<id>")
			id, _, _ := strings.Cut(rest, "</id>")
			all = append(all, id)
		}
		return all
	}
	a, b := newBench(t, 20), newBench(t, 20)
	a.run()
	b.run()
	first := ids(a)
	a.world.NextDay()
	if e := a.run(); len(e.New) == 0 {
		t.Fatal("nothing changed")
	}
	if got := ids(a); !slices.Equal(got, first) || got[0] == got[1] || got[0] == ids(b)[0] {
		t.Errorf("%q, then %q; another site's: %q", first, got, ids(b))
	}
}
