package vulnwatch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-go/weir/batch"
)

// site is the folder that is published. It is a symbolic link, and each complete check writes a new edition beside the old one and
// then turns the link over to it: one rename, so that readers and crashes see yesterday's site or
// today's, never a mix.
//
//	site -> .site-editions/20261130T060000Z
//	.site-editions/20261130T060000Z/index.html, cve/*.html, feeds, data/…
//	.site-editions/lock
//	.site-editions/last-failure.json
type site struct {
	out      string // the link
	editions string
	lock     *os.File
}

// saved is what the last complete check left.
type saved struct {
	snapshots map[string]*Snapshot
	history   []Change
	kev       map[string]Entry
	kevState  KEVAnswer
}

// kevFile is data/kev.json.
type kevFile struct {
	URL          string           `json:"url"`
	ETag         string           `json:"etag,omitempty"`
	LastModified string           `json:"last_modified,omitempty"`
	Released     time.Time        `json:"released,omitzero"`
	Entries      map[string]Entry `json:"entries"`
}

// openSite takes the site for this process, and clears away what a crash has left.
func openSite(out string) (*site, error) {
	out = filepath.Clean(out)
	s := &site{out: out, editions: filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+"-editions")}
	switch info, err := os.Lstat(out); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("vulnwatch: site: %w", err)
	case info.IsDir():
		if err := os.Remove(out); err != nil { // an empty folder that somebody made for us may go
			return nil, fmt.Errorf("vulnwatch: site %s: a folder that was not made by weir, and that it cannot replace (%w); give a name that is free, as %s", out, errors.Unwrap(err), filepath.Join(out, "site"))
		}
	case info.Mode()&fs.ModeSymlink == 0:
		return nil, fmt.Errorf("vulnwatch: site %s: not a folder", out)
	}
	if err := os.MkdirAll(s.editions, 0o755); err != nil {
		return nil, fmt.Errorf("vulnwatch: site: %w", err)
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(s.editions, "lock"), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("vulnwatch: site: %w", err)
	}
	if err := batch.LockFile(s.lock); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("vulnwatch: site %s: another run is at work on it", out)
	}
	if err := s.repair(); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("vulnwatch: site: %w", err)
	}
	return s, nil
}

// Names inside the folder of editions: of one that is being written, and of a link that is not turned yet.
const (
	unfinished = ".unfinished"
	nextLink   = "next"
)

// repair removes what a run left that did not get to its end. No other run is at work.
func (s *site) repair() error {
	err := removeIn(s.editions, func(name string) bool {
		return name == nextLink || strings.HasSuffix(name, unfinished) || strings.HasPrefix(name, ".last-failure.json.")
	})
	if err != nil || s.edition() == "" {
		return err
	}
	return removeIn(s.out, func(name string) bool {
		return strings.HasPrefix(name, ".status.json.") || strings.HasPrefix(name, ".status.css.")
	})
}

// edition is the name of the current edition. It is empty where there is no site, and where the link leads to a folder
// that is none of weir's.
func (s *site) edition() string {
	target, err := os.Readlink(s.out)
	if err != nil || filepath.Base(filepath.Dir(target)) != filepath.Base(s.editions) {
		return ""
	}
	return filepath.Base(target)
}

// removeIn removes what is left over in a folder, if there is one.
func removeIn(dir string, leftover func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range entries {
		if leftover(d.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, d.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) close() { s.lock.Close() }

// load reads the current edition. A site that cannot be read is an error: taken for none, it would lose its history.
func (s *site) load() (*saved, error) {
	old := &saved{snapshots: make(map[string]*Snapshot), kev: make(map[string]Entry)}
	if _, err := os.Lstat(s.out); errors.Is(err, fs.ErrNotExist) {
		return old, nil
	}
	data := filepath.Join(s.out, "data")
	fail := func(err error) (*saved, error) {
		return nil, fmt.Errorf("vulnwatch: the site's data: %w", err)
	}
	remember := func(line []byte) error {
		var snap Snapshot
		if err := json.Unmarshal(line, &snap); err != nil {
			return err
		}
		old.snapshots[snap.ID] = &snap
		return nil
	}
	if err := readLines(filepath.Join(data, "snapshots.jsonl"), remember); err != nil {
		return fail(err)
	}
	if err := readLines(filepath.Join(data, "unlisted.jsonl"), remember); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := readLines(filepath.Join(data, "history.jsonl"), func(line []byte) error {
		var c Change
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		old.history = append(old.history, c)
		return nil
	}); err != nil {
		return fail(err)
	}
	raw, err := os.ReadFile(filepath.Join(data, "kev.json"))
	if err != nil {
		return fail(err)
	}
	var k kevFile
	if err := json.Unmarshal(raw, &k); err != nil {
		return fail(fmt.Errorf("kev.json: %w", err))
	}
	old.kev = k.Entries
	old.kevState = KEVAnswer{URL: k.URL, ETag: k.ETag, LastModified: k.LastModified, Released: k.Released}
	return old, nil
}

func readLines(path string, each func([]byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			err = errors.New("the line has no end")
		}
		if err == nil {
			err = each(line)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", filepath.Base(path), n, err)
		}
	}
}

// publish writes an edition and turns the site over to it.
func (s *site) publish(e *Edition, kev map[string]Entry, state KEVAnswer) error {
	name := e.Report.Started.Format(runStamp)
	for n := 2; exists(filepath.Join(s.editions, name)); n++ { // where a clock was set back
		name = fmt.Sprintf("%s-%d", e.Report.Started.Format(runStamp), n)
	}
	was, _ := os.Readlink(s.out)
	dir := filepath.Join(s.editions, name)
	link := filepath.Join(s.editions, nextLink)
	err := s.write(dir+unfinished, e, kev, state)
	if err == nil {
		syncAll() // the name must not reach the disk before the pages
		err = os.Rename(dir+unfinished, dir)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(filepath.Base(s.editions), name), link)
	}
	if err == nil {
		err = os.Rename(link, s.out) // from here on the site is the new one
	}
	if err != nil {
		return errors.Join(fmt.Errorf("vulnwatch: site: %w", err), os.RemoveAll(dir+unfinished), os.RemoveAll(dir))
	}
	syncAll()
	s.prune(name, filepath.Base(was))
	return nil
}

// runStamp is how editions and reports of runs are named by time. Names sort as times do.
const runStamp = "20060102T150405.000000Z"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// runs are the reports of the runs that the site has, the oldest first.
func (s *site) runs() ([]string, error) {
	dir := filepath.Join(s.out, "data", "runs")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var paths []string
	for _, d := range entries { // sorted by name
		paths = append(paths, filepath.Join(dir, d.Name()))
	}
	return paths, err
}

func (s *site) write(dir string, e *Edition, kev map[string]Entry, state KEVAnswer) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(filepath.Join(data, "runs"), 0o755); err != nil {
		return err
	}
	// The reports of earlier runs go along.
	runs, err := s.runs()
	if err != nil {
		return err
	}
	own := e.Report.Started.Format(runStamp) + ".json"
	e.began = own
	if len(runs) > 0 {
		e.began = filepath.Base(runs[0])
	}
	for _, run := range runs {
		if err := linkOrCopy(run, filepath.Join(data, "runs", filepath.Base(run))); err != nil {
			return err
		}
	}
	file := func(name string, v any) error {
		b, err := json.MarshalIndent(v, "", "\t")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(data, name), append(b, '\n'), 0o644)
	}
	for _, part := range []func() error{
		func() error { return writeLines(filepath.Join(data, "snapshots.jsonl"), e.Snapshots) },
		func() error { return writeLines(filepath.Join(data, "unlisted.jsonl"), e.unlisted) },
		func() error { return writeLines(filepath.Join(data, "history.jsonl"), e.History) },
		func() error {
			return file("kev.json", kevFile{state.URL, state.ETag, state.LastModified, e.Report.KEV.Released, kev})
		},
		func() error { return file(filepath.Join("runs", own), e.Report) },
		func() error { return writeStatus(dir, nil, time.Time{}) },
		func() error { return e.render(dir) },
	} {
		if err := part(); err != nil { // on a full disk the others would fail as well
			return err
		}
	}
	return nil
}

// linkOrCopy gives a file a second name; where the file system knows none, a copy.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

func writeLines[T any](path string, lines []T) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range lines {
		if err := enc.Encode(&lines[i]); err != nil {
			f.Close()
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// prune removes all editions but the current one and the one before, on which a reader may still be. What cannot be removed today may be
// tomorrow; the site has been published.
func (s *site) prune(current, before string) {
	all, err := os.ReadDir(s.editions)
	if err != nil {
		return
	}
	for _, d := range all {
		if d.IsDir() && d.Name() != current && d.Name() != before {
			os.RemoveAll(filepath.Join(s.editions, d.Name()))
		}
	}
}
