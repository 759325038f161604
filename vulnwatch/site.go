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
			return nil, fmt.Errorf("vulnwatch: site %s: a folder that is not empty, and not made by weir; give another name", out)
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
	return errors.Join(
		removeIn(s.editions, func(name string) bool {
			return name == nextLink || strings.HasSuffix(name, unfinished) || strings.HasPrefix(name, ".last-failure.json.")
		}),
		removeIn(s.out, func(name string) bool {
			return strings.HasPrefix(name, ".status.json.") || strings.HasPrefix(name, ".status.css.")
		}),
	)
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
	if err := readLines(filepath.Join(data, "snapshots.jsonl"), func(line []byte) error {
		var snap Snapshot
		if err := json.Unmarshal(line, &snap); err != nil {
			return err
		}
		old.snapshots[snap.ID] = &snap
		return nil
	}); err != nil {
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
		if err == io.EOF && len(line) == 0 {
			return nil
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
	return errors.Join(
		writeLines(filepath.Join(data, "snapshots.jsonl"), e.Snapshots),
		writeLines(filepath.Join(data, "history.jsonl"), e.History),
		file("kev.json", kevFile{state.URL, state.ETag, state.LastModified, e.Report.KEV.Released, kev}),
		file(filepath.Join("runs", e.Report.Started.Format(runStamp)+".json"), e.Report),
		writeStatus(dir, nil, time.Time{}),
		e.render(dir),
	)
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

// refuse publishes nothing, and marks the pages stale for the reason in err.
func (s *site) refuse(e *Edition, err error) error {
	e.New, e.Report.Changes, e.Report.Complete = nil, 0, false
	e.Report.Verdict = strings.TrimPrefix(strings.ReplaceAll(err.Error(), ": "+batch.ErrVerdict.Error(), ""), "batch: ")
	if stale := s.markStale(&e.Report); stale != nil {
		err = fmt.Errorf("%w; and the pages could not be marked: %w", err, stale)
	}
	return fmt.Errorf("%w: %w", err, ErrIncomplete)
}

// status is status.json: whether the pages are of the last check that was tried.
type status struct {
	Stale    bool      `json:"stale"`
	Reason   string    `json:"reason,omitempty"`
	Tried    time.Time `json:"tried,omitzero"`
	Complete time.Time `json:"complete,omitzero"` // the last complete check
}

// markStale says on all pages that a check failed, and why. Besides these two files nothing of the site changes: the pages
// take in status.css, which has no rule while they are fresh.
func (s *site) markStale(rep *Report) error {
	failure, err := json.MarshalIndent(rep, "", "\t")
	if err != nil {
		return err
	}
	fill := func(w io.Writer) error { _, err := w.Write(append(failure, '\n')); return err }
	errs := []error{batch.WriteFile(filepath.Join(s.editions, "last-failure.json"), fill)}
	if _, err := os.Stat(s.out); err == nil { // else there are no pages yet
		var last time.Time
		runs, err := s.runs()
		if err != nil {
			errs = append(errs, err)
		} else if len(runs) > 0 {
			last, _ = time.Parse(runStamp+".json", filepath.Base(runs[len(runs)-1]))
		}
		errs = append(errs, writeStatus(s.out, rep, last))
	}
	return errors.Join(errs...)
}

func writeStatus(dir string, failed *Report, last time.Time) error {
	var st status
	css := "/* The pages are of the last check. */\n"
	if failed != nil {
		st = status{Stale: true, Reason: failed.Verdict, Tried: failed.Started, Complete: last}
		text := fmt.Sprintf("Stale: the check of %s failed (%s). These pages are of the last complete check, of %s.",
			failed.Started.Format("2006-01-02 15:04 UTC"), failed.Verdict, last.Format("2006-01-02 15:04 UTC"))
		css = "#stale::before { content: \"" + cssString(plain(text)) + "\"; display: block; }\n#stale { display: block !important; }\n"
	}
	raw, err := json.MarshalIndent(st, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		batch.WriteFile(filepath.Join(dir, "status.json"), func(w io.Writer) error { _, err := w.Write(append(raw, '\n')); return err }),
		batch.WriteFile(filepath.Join(dir, "status.css"), func(w io.Writer) error { _, err := io.WriteString(w, css); return err }),
	)
}

// cssString makes text safe inside a string of CSS: everything but letters, digits and a few marks becomes an
// escape.
func cssString(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(" .,:;()%/-+=?&", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\%06x ", r)
		}
	}
	return b.String()
}
