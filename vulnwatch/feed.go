package vulnwatch

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// mostEntries is how many changes a feed has: those who come by each day miss none, and the history has all.
const mostEntries = 200

// siteURL reads where a site is published. Empty is allowed: then feeds name no addresses but relative ones.
func siteURL(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("vulnwatch: site URL %.80q: not of the form https://host/path/", s)
	}
	return strings.TrimSuffix(u.String(), "/") + "/", nil
}

// uuid is a name that stays the same for ever, as a UUID of version 8 (RFC 9562).
func uuid(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0F|0x80, b[8]&0x3F|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// feed is one of the two that there are, in a form between Atom's and JSON's.
type feed struct {
	ID      string
	Title   string
	About   string
	Updated time.Time
	Entries []entry
}

// entry is one change in a feed.
type entry struct {
	line
	Title string
	Page  string // relative to the site
	About string // how the CVE is described
	HTML  string
}

// feeds writes all changes, and those of KEV alone, each as Atom and as JSON Feed.
func (p *pages) feeds() error {
	base, err := siteURL(p.URL)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, title, atom, json string
		takes                   func(Kind) bool
	}{
		{"all", "all changes", "atom.xml", "feed.json", func(Kind) bool { return true }},
		{"kev", "KEV only", "kev.atom.xml", "kev-feed.json", Kind.KEV},
	} {
		feed, err := p.feed(f.name, f.title, f.takes)
		if err != nil {
			return err
		}
		err = errors.Join(
			p.write(f.atom, func(w io.Writer) error { return feed.atom(w, base, f.atom) }),
			p.write(f.json, func(w io.Writer) error { return feed.json(w, base, f.json) }),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) feed(name, title string, takes func(Kind) bool) (*feed, error) {
	f := &feed{
		ID:      uuid("weir watch feed", name, p.began),
		Title:   plain(clip(200, p.Title)) + ": " + title,
		About:   "Last complete check: " + p.Report.Ended.UTC().Format("2006-01-02 15:04 UTC"),
		Updated: p.Report.Ended,
	}
	var newest []*Change
	for i := len(p.History) - 1; i >= 0; i-- {
		c := &p.History[i]
		// A run's changes are not cut before they are in order.
		if len(newest) >= mostEntries && c.Time.Before(newest[len(newest)-1].Time) {
			break
		}
		if takes(c.Kind) {
			newest = append(newest, c)
		}
	}
	slices.Reverse(newest)
	slices.SortStableFunc(newest, newestFirst)
	for _, c := range newest[:min(mostEntries, len(newest))] {
		e := entry{line: line{c, p}, Page: "index.html"}
		e.Title = plain(clip(20, c.CVE) + ": " + clip(200, c.Text))
		if at, ok := p.page[c.CVE]; ok {
			s := &p.Snapshots[at]
			e.Page = "cve/" + s.ID + ".html"
			if s.Record != nil {
				e.About = s.Record.Description
			}
		}
		var err error
		if e.HTML, err = fragment("entry", e); err != nil {
			return nil, err
		}
		f.Entries = append(f.Entries, e)
	}
	if len(f.Entries) > 0 {
		f.Updated = f.Entries[0].Time
	}
	return f, nil
}

// The parts of Atom (RFC 4287) that the feeds use.
type (
	atomFeed struct {
		XMLName  xml.Name    `xml:"http://www.w3.org/2005/Atom feed"`
		ID       string      `xml:"id"`
		Title    string      `xml:"title"`
		Subtitle string      `xml:"subtitle"`
		Updated  string      `xml:"updated"`
		Author   string      `xml:"author>name"`
		Links    []atomLink  `xml:"link"`
		Entries  []atomEntry `xml:"entry"`
	}
	atomLink struct {
		Rel  string `xml:"rel,attr"`
		Type string `xml:"type,attr"`
		Href string `xml:"href,attr"`
	}
	atomEntry struct {
		ID        string       `xml:"id"`
		Title     string       `xml:"title"`
		Updated   string       `xml:"updated"`
		Published string       `xml:"published"`
		Category  atomCategory `xml:"category"`
		Link      atomLink     `xml:"link"`
		Content   atomContent  `xml:"content"`
	}
	atomCategory struct {
		Term  string `xml:"term,attr"`
		Label string `xml:"label,attr"`
	}
	atomContent struct {
		Type string `xml:"type,attr"`
		HTML string `xml:",chardata"`
	}
)

func (f *feed) atom(w io.Writer, base, self string) error {
	out := atomFeed{
		ID: f.ID, Title: f.Title, Subtitle: f.About, Updated: rfc3339(f.Updated), Author: "weir watch",
		Links: []atomLink{
			{"self", "application/atom+xml", base + self},
			{"alternate", "text/html", base + "index.html"},
		},
	}
	for _, e := range f.Entries {
		out.Entries = append(out.Entries, atomEntry{
			ID: uuid("weir watch change", e.ID), Title: e.Title, Updated: rfc3339(e.Time), Published: rfc3339(e.Time),
			Category: atomCategory{plain(clip(60, string(e.Kind))), plain(clip(60, kindName(e.Kind)))},
			Link:     atomLink{"alternate", "text/html", base + e.Page},
			Content:  atomContent{"html", e.HTML},
		})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", " ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// The parts of JSON Feed 1.1 that the feeds use. It knows no relative addresses: without the site's they are left out.
type (
	jsonFeed struct {
		Version     string     `json:"version"`
		Title       string     `json:"title"`
		Description string     `json:"description"`
		HomePage    string     `json:"home_page_url,omitempty"`
		Self        string     `json:"feed_url,omitempty"`
		Language    string     `json:"language"`
		Authors     []author   `json:"authors"`
		Items       []jsonItem `json:"items"`
	}
	author struct {
		Name string `json:"name"`
	}
	jsonItem struct {
		ID        string     `json:"id"`
		URL       string     `json:"url,omitempty"`
		Title     string     `json:"title"`
		HTML      string     `json:"content_html"`
		Published string     `json:"date_published"`
		Tags      []string   `json:"tags"`
		Change    jsonChange `json:"_weir"`
	}
	// jsonChange is the change for programs.
	jsonChange struct {
		About string `json:"about"`
		ID    string `json:"id"` // in data/history.jsonl
		CVE   string `json:"cve"`
		Kind  Kind   `json:"kind"`
		Page  string `json:"page"`           // relative to the feed
		Also  int    `json:"also,omitempty"` // how many more CVEs have the same change
	}
)

func (f *feed) json(w io.Writer, base, self string) error {
	out := jsonFeed{
		Version: "https://jsonfeed.org/version/1.1", Title: f.Title, Description: f.About, Language: "en",
		Authors: []author{{"weir watch"}}, Items: []jsonItem{},
	}
	if base != "" {
		out.HomePage, out.Self = base+"index.html", base+self
	}
	for _, e := range f.Entries {
		item := jsonItem{
			ID: uuid("weir watch change", e.ID), Title: e.Title, HTML: e.HTML, Published: rfc3339(e.Time),
			Tags:   []string{plain(clip(60, string(e.Kind)))},
			Change: jsonChange{"a change found by weir watch", plain(clip(100, e.ID)), plain(clip(40, e.CVE)), e.Kind, e.Page, len(e.Also)},
		}
		if base != "" {
			item.URL = base + e.Page
		}
		out.Items = append(out.Items, item)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	return enc.Encode(out)
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
