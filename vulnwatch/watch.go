package vulnwatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/batch"
)

// Watch is one complete check of a list, and the site that tells of it.
type Watch struct {
	// IDs are the CVEs, in order and each once; see [ReadList].
	IDs []string

	// Out is where the site is: a symbolic link to its current edition, which Watch makes and replaces.
	Out string

	NVD *NVD // nil: the official source, without a key
	KEV *KEV // nil: the official sources

	// Thresholds are what a check may miss and still count. Of fewer than 20 requests the share that was refused is not
	// looked at unless it is set: two of four say nothing.
	Thresholds batch.Thresholds

	// GoneShare is the largest share of the CVEs that the NVD knew at the last check and may know no longer at once. Over it, they are not gone but
	// not fetched: the NVD keeps what it rejects. Zero means 0.01, negative none; one CVE may always be gone.
	GoneShare float64

	// Problems are those of the list, which the report and the pages repeat.
	Problems []Problem

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
	Missing   bool         `json:"missing,omitempty"`   // the NVD's last answer was that it does not know it
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
	New      int          `json:"new"`      // CVEs seen for the first time; the ledger has them among the changed
	Changes  int          `json:"changes"`  // new lines of the history
	Drift    int          `json:"drift"`    // values of another shape than known, which were not read
	Complete bool         `json:"complete"` // within the thresholds, with a whole catalogue
	Verdict  string       `json:"verdict"`  // ok, or why nothing was published
	Lost     []Lost       `json:"not_fetched,omitempty"`
	Problems []string     `json:"list_problems,omitempty"` // what was wrong with the list
	NoIDs    string       `json:"no_ids,omitempty"`        // which lines of the list are no CVE ids; see [NoIDs]
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
	Requests    int       `json:"requests"` // that the catalogue took; those of the ledger have them in them
	NotModified bool      `json:"not_modified,omitempty"`
	Tried       []string  `json:"tried,omitempty"` // what the sources before it said
	Error       string    `json:"error,omitempty"`
}

// Edition is everything that the site tells.
type Edition struct {
	Title     string
	URL       string // where it is published, or empty
	First     bool   // there was no check before
	Report    Report
	Snapshots []Snapshot // in the order of the list
	History   []Change   // the oldest first
	New       []Change   // those that this run added to the history

	unlisted []Snapshot // of CVEs that have left the list: they may come back
	began    string     // which was the site's first check: it tells its feeds from those of others
}

// What errors of a run that publishes nothing wrap.
var (
	// ErrIncomplete: too much was not fetched, or nothing can be. The pages are marked stale, if there are any.
	ErrIncomplete = errors.New("incomplete: nothing was published")

	// ErrInterrupted: the context ended first. The pages stay as they are.
	ErrInterrupted = errors.New("interrupted: nothing was published, and the pages stay as they are")
)

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
	e := &Edition{Title: w.Title, URL: w.URL}
	if e.Title == "" {
		e.Title = "Watched CVEs"
	}
	e.Report.Started, e.Report.NoIDs = time.Now().UTC(), NoIDs(w.Problems)
	for _, p := range w.Problems {
		e.Report.Problems = append(e.Report.Problems, p.String())
	}
	old, err := site.load()
	if err != nil {
		e.Report.Ended = time.Now().UTC()
		return e, site.refuse(e, err)
	}
	e.First, e.History = len(old.snapshots) == 0, old.history
	ctx, counter := batch.WithTally(ctx)

	catalogue, state, kevErr := w.catalogue(ctx, e, old)
	var forKEV batch.Ledger
	counter.Settle(&forKEV)
	e.Report.KEV.Requests = forKEV.Requests
	nvd := w.NVD
	if nvd == nil {
		nvd = &NVD{}
	}
	var answers map[string]Answer
	var fatal error
	if ctx.Err() == nil {
		answers, fatal = nvd.Fetch(ctx, w.IDs, old.known)
	}
	e.Report.Ended = time.Now().UTC()
	w.doubt(answers, old)
	for _, id := range w.IDs {
		a, ok := answers[id]
		if !ok {
			a = Answer{Result: batch.Lost(batch.Interrupted, "the run ended before")}
		}
		w.enter(e, old.snapshots[id], id, a, catalogue, kevErr == nil)
	}
	e.unlisted = old.without(w.IDs)
	counter.Settle(&e.Report.Ledger)
	if err := e.Report.Ledger.Check(); err != nil {
		return e, err
	}
	if err := ctx.Err(); err != nil {
		e.New, e.Report.Verdict = nil, "interrupted"
		return e, fmt.Errorf("vulnwatch: %w: %w", err, ErrInterrupted)
	}
	verdict := fatal
	if verdict == nil {
		verdict = w.verdict(&e.Report.Ledger)
	}
	if kevErr != nil {
		kevErr = fmt.Errorf("no KEV catalogue: %w", kevErr)
		if verdict != nil {
			kevErr = fmt.Errorf("%w; %w", verdict, kevErr)
		}
		verdict = kevErr
	}
	if verdict != nil {
		return e, site.refuse(e, verdict)
	}
	e.Report.Complete, e.Report.Verdict = true, "ok"
	e.New = Fold(e.New)
	stamp(e.New, e.Report.Started)
	e.Report.Changes = len(e.New)
	e.History = append(e.History, e.New...)
	if err := site.publish(e, catalogue, state); err != nil {
		e.History = old.history
		return e, site.refuse(e, err)
	}
	return e, nil
}

func (w *Watch) verdict(l *batch.Ledger) error {
	t := w.Thresholds
	if t.RefusalShare == 0 && l.Requests < 20 {
		t.RefusalShare = 1
	}
	return t.Verdict(l)
}

// known reports whether the NVD had a CVE at the last check.
func (old *saved) known(id string) bool {
	s := old.snapshots[id]
	return s != nil && s.Record != nil && !s.Missing
}

// without are the snapshots of other CVEs than those, by id.
func (old *saved) without(ids []string) []Snapshot {
	listed := make(map[string]bool, len(ids))
	for _, id := range ids {
		listed[id] = true
	}
	var left []Snapshot
	for _, id := range slices.Sorted(maps.Keys(old.snapshots)) {
		if !listed[id] {
			left = append(left, *old.snapshots[id])
		}
	}
	return left
}

// doubt takes answers for lost by which the NVD would have forgotten more CVEs than is believable.
func (w *Watch) doubt(answers map[string]Answer, old *saved) {
	known, gone := 0, 0
	for _, id := range w.IDs {
		if old.known(id) {
			known++
			if answers[id].Result.Column == batch.Unknown {
				gone++
			}
		}
	}
	most := w.GoneShare
	if most == 0 {
		most = 0.01
	}
	if gone <= 1 || float64(gone) <= most*float64(known) {
		return
	}
	for _, id := range w.IDs {
		if a := answers[id]; old.known(id) && a.Result.Column == batch.Unknown {
			a.Result = batch.Lost(batch.Parse, "%s, as are %d more of %d that it knew at the last check: taken for a broken answer", a.Result.Detail, gone-1, known)
			answers[id] = a
		}
	}
}

// catalogue gets the KEV catalogue, or the last one where it has not been modified.
func (w *Watch) catalogue(ctx context.Context, e *Edition, old *saved) (map[string]Entry, KEVAnswer, error) {
	kev := w.KEV
	if kev == nil {
		kev = &KEV{}
	}
	a, err := kev.Fetch(ctx, old.kev, old.kevState)
	rep := &e.Report.KEV
	rep.Tried = a.Tried
	if err != nil {
		rep.Error = err.Error()
		return old.kev, old.kevState, err
	}
	entries := old.kev
	if !a.NotModified {
		entries = a.Catalogue.Entries
	}
	rep.URL, rep.NotModified, rep.Entries, rep.Released = a.URL, a.NotModified, len(entries), a.Released
	return entries, a, nil
}

// enter puts one CVE into the books and finds out what changed.
func (w *Watch) enter(e *Edition, old *Snapshot, id string, a Answer, catalogue map[string]Entry, haveKEV bool) {
	s := Snapshot{ID: id, Result: a.Result}
	var before *Record // what the NVD knew at the last check
	if old != nil {
		s.Record, s.KEV, s.Checked, s.Disagrees, s.Missing = old.Record, old.KEV, old.Checked, old.Disagrees, old.Missing
		if !old.Missing {
			before = old.Record
		}
	}
	var changes []Change
	switch {
	case a.Record != nil:
		a.Record.keep(s.Record)
		s.Record, s.Checked, s.Missing = a.Record, e.Report.Ended, false
		e.Report.Drift += a.Record.Drift
		if a.Record.Same(before) {
			s.Result.Column = batch.Same
		}
		if before != nil || old != nil && old.Missing {
			changes = DiffRecords(before, a.Record)
		} else {
			e.Report.New++
		}
		if old != nil && old.Missing && old.Record != nil { // what changed while the NVD did not know it
			changes = append(changes, DiffRecords(old.Record, a.Record)...)
		}
	case a.Result.Column == batch.Unknown:
		s.Checked, s.Missing = e.Report.Ended, true
		changes = DiffRecords(before, nil)
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
		if a.Record != nil { // else the NVD has not been heard on what CISA says today
			s.Disagrees = Disagreement(a.Record, s.KEV)
		}
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
