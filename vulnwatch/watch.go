package vulnwatch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/weir-go/weir/batch"
)

// Watch is one complete check of a list, and the site that tells of it.
type Watch struct {
	// IDs are the CVEs, in order and each once; see [ReadList].
	IDs []string

	// Out is where the site is: a symbolic link to its current edition, which Watch makes and replaces.
	Out string

	NVD        *NVD
	KEV        *KEV
	Thresholds batch.Thresholds

	// Title is what the pages are called; empty: "Watched CVEs".
	Title string

	// URL is where the site is published, as https://example.org/cves/. Empty: the feeds have relative links, and
	// JSON Feed, which knows none, has no links.
	URL string
}

// Snapshot is what is known of one CVE.
type Snapshot struct {
	ID        string       `json:"id"`
	Record    *Record      `json:"record,omitempty"`    // the last that was fetched; nil if there was none yet
	KEV       *Entry       `json:"kev,omitempty"`       // nil: not in CISA's catalogue
	Checked   time.Time    `json:"checked,omitzero"`    // when the NVD last answered for it
	Result    batch.Result `json:"result"`              // of the last run
	Disagrees string       `json:"disagrees,omitempty"` // how the NVD's KEV fields differ from CISA's catalogue
}

// Report is the account of one run.
type Report struct {
	Started  time.Time    `json:"started"`
	Ended    time.Time    `json:"ended"`
	Ledger   batch.Ledger `json:"ledger"`
	KEV      KEVReport    `json:"kev"`
	Changes  int          `json:"changes"`  // new lines of the history
	Drift    int          `json:"drift"`    // values of another shape than known, which were left out
	Complete bool         `json:"complete"` // within the thresholds, with a whole catalogue
	Verdict  string       `json:"verdict"`  // ok, or why nothing was published
	Lost     []Lost       `json:"not_fetched,omitempty"`
}

// Lost is a CVE that was not fetched.
type Lost struct {
	ID     string       `json:"id"`
	Reason batch.Reason `json:"reason"`
	Detail string       `json:"detail,omitempty"`
}

// KEVReport is where the catalogue was from.
type KEVReport struct {
	URL         string    `json:"url,omitempty"`
	Released    time.Time `json:"released,omitzero"`
	Entries     int       `json:"entries"`
	NotModified bool      `json:"not_modified,omitempty"`
	Tried       []string  `json:"tried,omitempty"` // what the sources before it said
	Error       string    `json:"error,omitempty"`
}

// Edition is everything that the site tells.
type Edition struct {
	Title     string
	URL       string // where it is published, or empty
	Report    Report
	Snapshots []Snapshot // in the order of the list
	History   []Change   // the oldest first
	New       []Change   // those that this run added to the history
}

// ErrIncomplete is what a run that publishes nothing wraps.
var ErrIncomplete = errors.New("incomplete: nothing was published, and the pages are marked stale")

// ReadList reads a list of CVE ids, one a line; # begins a comment. What is no id and what stands there twice is told
// in problems, with its line.
func ReadList(r io.Reader) (ids []string, problems []string, err error) {
	seen := make(map[string]int)
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 4096), 1<<16)
	for n := 1; in.Scan(); n++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		id, err := ParseID(text)
		switch first := seen[id]; {
		case err != nil:
			problems = append(problems, fmt.Sprintf("line %d: %v", n, err))
		case first > 0:
			problems = append(problems, fmt.Sprintf("line %d: %s stands in line %d already", n, id, first))
		default:
			seen[id] = n
			ids = append(ids, id)
		}
	}
	if err := in.Err(); err != nil {
		return ids, problems, fmt.Errorf("vulnwatch: list: line %d: %w", len(ids)+len(problems)+1, err)
	}
	return ids, problems, nil
}

// Run checks the list once and publishes what it found, or publishes nothing: then the pages of the last complete
// check stay as they are, marked stale, and the error wraps ErrIncomplete.
func (w *Watch) Run(ctx context.Context) (*Edition, error) {
	if len(w.IDs) == 0 {
		return nil, errors.New("vulnwatch: the list has no CVE ids")
	}
	if _, err := siteURL(w.URL); err != nil {
		return nil, err
	}
	site, err := openSite(w.Out)
	if err != nil {
		return nil, err
	}
	defer site.close()
	old, err := site.load()
	if err != nil {
		return nil, err
	}
	e := &Edition{Title: w.Title, URL: w.URL, History: old.history}
	if e.Title == "" {
		e.Title = "Watched CVEs"
	}
	e.Report.Started = time.Now().UTC()
	ctx, counter := batch.WithTally(ctx)

	catalogue, state, kevErr := w.catalogue(ctx, e, old)
	var answers map[string]Answer
	var fatal error
	if ctx.Err() == nil {
		answers, fatal = w.NVD.Fetch(ctx, w.IDs)
	}
	e.Report.Ended = time.Now().UTC()
	for _, id := range w.IDs {
		a, ok := answers[id]
		if !ok {
			a = Answer{Result: batch.Lost(batch.Interrupted, "the run ended before")}
		}
		w.enter(e, old.snapshots[id], id, a, catalogue, kevErr == nil)
	}
	counter.Settle(&e.Report.Ledger)

	verdict := w.Thresholds.Verdict(&e.Report.Ledger)
	switch err := e.Report.Ledger.Check(); {
	case err != nil:
		return e, err
	case fatal != nil:
		verdict = fatal
	case kevErr != nil:
		verdict = errors.Join(verdict, fmt.Errorf("no KEV catalogue: %w", kevErr))
	}
	if verdict != nil {
		e.New = nil
		e.Report.Verdict = verdict.Error()
		return e, errors.Join(fmt.Errorf("%w: %w", verdict, ErrIncomplete), site.markStale(&e.Report))
	}
	e.Report.Complete, e.Report.Verdict = true, "ok"
	e.New = Fold(e.New)
	stamp(e.New, e.Report.Started)
	e.Report.Changes = len(e.New)
	e.History = append(e.History, e.New...)
	return e, site.publish(e, catalogue, state)
}

// catalogue gets the KEV catalogue, or the last one where it has not been modified.
func (w *Watch) catalogue(ctx context.Context, e *Edition, old *saved) (map[string]Entry, KEVAnswer, error) {
	a, err := w.KEV.Fetch(ctx, old.kev, old.kevState)
	rep := &e.Report.KEV
	rep.Tried = a.Tried
	if err != nil {
		rep.Error = err.Error()
		return old.kev, old.kevState, err
	}
	entries := old.kev
	released := old.kevReleased
	if !a.NotModified {
		entries, released = a.Catalogue.Entries, a.Catalogue.Released
	}
	rep.URL, rep.NotModified, rep.Entries, rep.Released = a.URL, a.NotModified, len(entries), released
	return entries, a, nil
}

// enter puts one CVE into the books and finds out what changed.
func (w *Watch) enter(e *Edition, old *Snapshot, id string, a Answer, catalogue map[string]Entry, haveKEV bool) {
	s := Snapshot{ID: id, Result: a.Result}
	if old != nil {
		s.Record, s.KEV, s.Checked, s.Disagrees = old.Record, old.KEV, old.Checked, old.Disagrees
	}
	var changes []Change
	known := func(s *Snapshot) *Record { // the record, if the NVD still knew it
		if s == nil || s.Result.Column == batch.Unknown {
			return nil
		}
		return s.Record
	}
	switch {
	case a.Record != nil:
		s.Record, s.Checked = a.Record, e.Report.Ended
		e.Report.Drift += a.Record.Drift
		if old != nil && reflect.DeepEqual(known(old), a.Record) {
			s.Result.Column = batch.Same
		}
		if old != nil && (old.Record != nil || old.Result.Column == batch.Unknown) {
			changes = DiffRecords(known(old), a.Record)
		}
	case a.Result.Column == batch.Unknown:
		s.Checked = e.Report.Ended
		if r := known(old); r != nil {
			changes = DiffRecords(r, nil)
		}
	default:
		e.Report.Lost = append(e.Report.Lost, Lost{id, a.Result.Reason, a.Result.Detail})
	}
	if haveKEV {
		s.KEV = nil
		if entry, ok := catalogue[id]; ok {
			s.KEV = &entry
		}
		if old != nil {
			changes = append(DiffKEV(id, old.KEV, s.KEV), changes...)
		}
		s.Disagrees = Disagreement(s.Record, s.KEV)
		if old != nil && s.Disagrees != old.Disagrees {
			text := s.Disagrees
			if text == "" {
				text = "the NVD and CISA agree again"
			}
			changes = append(changes, Change{CVE: id, Kind: KEVDisagrees, Old: old.Disagrees, New: s.Disagrees, Text: text})
		}
	}
	e.Report.Ledger.Add(s.Result)
	e.Snapshots = append(e.Snapshots, s)
	e.New = append(e.New, changes...)
}

// ListFile reads the list in a file.
func ListFile(path string) (ids, problems []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("vulnwatch: list: %w", err)
	}
	defer f.Close()
	return ReadList(f)
}
