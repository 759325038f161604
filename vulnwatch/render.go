package vulnwatch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pages are an edition as readers see it: an index, a page a CVE, and feeds. They are written one after another through one
// buffer, so that a long list takes time and not memory. The same edition always gives the same bytes.
type pages struct {
	*Edition
	dir     string
	buf     *bufio.Writer
	page    map[string]int32   // by CVE, its place in Snapshots; what is not here has no page
	history map[string][]int32 // by CVE with a page, places in History, the oldest first
	recent  map[string]bool    // CVEs that this run found changed
}

// render writes the pages and feeds.
func (e *Edition) render(dir string) error {
	p, err := e.pages(dir)
	if err != nil {
		return err
	}
	err = errors.Join(p.index(), p.feeds())
	for i := range e.Snapshots {
		if err != nil {
			return err
		}
		s := &e.Snapshots[i]
		err = p.html(filepath.Join("cve", s.ID+".html"), "cve", cvePage{p, s})
	}
	return err
}

func (e *Edition) pages(dir string) (*pages, error) {
	p := &pages{
		Edition: e, dir: dir, buf: bufio.NewWriterSize(nil, 1<<16),
		page:    make(map[string]int32, len(e.Snapshots)),
		history: make(map[string][]int32, len(e.Snapshots)),
		recent:  make(map[string]bool),
	}
	for i := range e.Snapshots {
		id := e.Snapshots[i].ID
		if plain, err := ParseID(id); err != nil || plain != id { // it becomes the name of a file
			return nil, fmt.Errorf("vulnwatch: page: %.40q is no CVE id", id)
		}
		p.page[id] = int32(i)
	}
	for i := range e.History {
		for _, id := range e.History[i].cves() {
			if _, ok := p.page[id]; ok {
				p.history[id] = append(p.history[id], int32(i))
			}
		}
	}
	for i := range e.New {
		for _, id := range e.New[i].cves() {
			p.recent[id] = true
		}
	}
	return p, os.MkdirAll(filepath.Join(dir, "cve"), 0o755)
}

// index writes the index, and the style sheet of all pages.
func (p *pages) index() error {
	return errors.Join(
		p.write("style.css", func(w io.Writer) error { _, err := io.WriteString(w, styleSheet); return err }),
		p.html("index.html", "index", indexPage{p}),
	)
}

// cves are all CVEs of a change, which are several where it is folded.
func (c *Change) cves() []string {
	return append([]string{c.CVE}, c.Also...)
}

// write writes one file.
func (p *pages) write(name string, fill func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	p.buf.Reset(f)
	return errors.Join(fill(p.buf), p.buf.Flush(), f.Close())
}

// html writes one page.
func (p *pages) html(name, templateName string, data any) error {
	return p.write(name, func(w io.Writer) error {
		return pageTemplates.ExecuteTemplate(plainWriter{p.buf}, templateName, data)
	})
}

// fragment is a piece of HTML for a feed.
func fragment(name string, data any) (string, error) {
	var b strings.Builder
	err := pageTemplates.ExecuteTemplate(plainWriter{&b}, name, data)
	return b.String(), err
}

// plainWriter lets nothing through that is not what it looks like: see hidden. Everything that a page says goes
// through it. The templates write whole strings, so that no character is cut in two.
type plainWriter struct {
	w interface {
		io.Writer
		io.StringWriter
	}
}

func (p plainWriter) Write(b []byte) (int, error) {
	done := 0 // b[:done] is written
	for i := 0; i < len(b); {
		r, size := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(b[i:])
		}
		if hidden(r) || r == utf8.RuneError && size == 1 {
			p.w.Write(b[done:i])
			p.w.WriteString("\uFFFD")
			done = i + size
		}
		i += size
	}
	if _, err := p.w.Write(b[done:]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// hidden are the characters that would let a text pass for another: controls, which XML forbids too, and those that
// turn the direction of what follows.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7F
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Noncharacter_Code_Point, r) ||
		r == '\u2028' || r == '\u2029'
}

// plain is s without hidden characters, and valid.
func plain(s string) string {
	var b strings.Builder
	plainWriter{&b}.Write([]byte(s))
	return b.String()
}

// clip shortens s to n characters.
func clip(n int, s string) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + "…"
		}
		count++
	}
	return s
}
