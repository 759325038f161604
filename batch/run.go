package batch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Run fetches items with some workers and accounts for each. Its zero fields are defaults; Items and Fetch
// must be set. A Run is used once.
type Run struct {
	// Name says what is fetched, say the URL. With the items it identifies the run: a journal of
	// another one is not resumed. The results of a run with another name are of other items, even if they are called the
	// same: nothing of them is before these.
	Name string

	// Items are the identifiers of what is fetched, in the order of the results. Empty and duplicate ones are dropped and
	// counted.
	Items []string

	// Fetch fetches one item; what it knows of it from the last run is in before. For content it returns Changed with
	// the Body: Do finds out whether it is the Same. It must return soon after ctx ends. It is called concurrently.
	Fetch func(ctx context.Context, id string, before Before) Result

	Workers int           // at once; 0: 4
	Timeout time.Duration // for one item with all its waiting and attempts; 0: none

	// Out is the file of results, a Record in a line of JSON for each item. It is replaced by rename, and only after the
	// verdict; the one that is there is what before and Same are about. Empty: no results.
	Out string

	// Journal is the file in which items are noted as they end, removed when the results are written. Empty:
	// Out with ".journal" added, or no journal without Out.
	Journal string

	// Resume goes on with the journal of a run that was not finished. Items that were not fetched are fetched
	// again.
	Resume bool

	// ShutOut is how many items in a row may end refused by the server's limit before the run takes itself for shut out: the rest
	// is given up then, and ends as not fetched (RateLimited) too. It is for a Fetch that is refused often before it
	// gives an item up. 0: any number.
	ShutOut int

	Thresholds Thresholds

	// Progress, if not nil, is told each item as it ends. Calls are one at a time.
	Progress func(r Record, sofar Ledger)
}

// Before is what the last run knew of an item. The zero Before is an item that is new.
type Before struct {
	Hash, ETag, LastModified string
}

// Report is the account of a run.
type Report struct {
	Name       string    `json:"name,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended"`
	Ledger     Ledger    `json:"ledger"`
	Dropped    int       `json:"dropped,omitempty"` // items that were empty or there already
	Resumed    int       `json:"resumed,omitempty"` // items that the journal had
	Complete   bool      `json:"complete"`          // within the thresholds
	Written    bool      `json:"written"`           // the results have been replaced
	Verdict    string    `json:"verdict"`           // ok, or what is over which threshold
	NotFetched []Record  `json:"not_fetched,omitempty"`
}

// ErrInterrupted is what Do returns when its context ended first. The journal can be resumed.
var ErrInterrupted = errors.New("batch: interrupted; nothing was written, and the journal can be resumed")

// Do runs. The Report is there even with an error: one that wraps ErrVerdict, ErrInterrupted, or what
// went wrong with the files.
func (r *Run) Do(ctx context.Context) (*Report, error) {
	items := unique(r.Items)
	rep := &Report{Name: r.Name, Started: time.Now().UTC(), Dropped: len(r.Items) - len(items)}
	last, err := openResults(r.Out)
	if err != nil {
		return rep, err
	}
	defer last.close()
	last.of = nameID(r.Name)
	path := r.Journal
	if path == "" && r.Out != "" {
		path = r.Out + ".journal"
	}
	s := &state{run: r, report: rep, last: last, records: make(map[string]Record)}
	done := map[string]Result{}
	if path != "" {
		if s.journal, done, err = openJournal(path, runID(r.Name, items), r.Resume); err != nil {
			return rep, err
		}
	}
	var todo []string
	for _, id := range items {
		had, ok := done[id]
		if ok && had.Column == NotModified {
			// What it was not modified since must still be there.
			before, err := last.before(id)
			if err != nil {
				return rep, errors.Join(err, s.journal.close(false))
			}
			ok = before.Hash == had.Hash
		}
		if !ok {
			todo = append(todo, id)
			continue
		}
		rec, _, err := s.journal.record(id)
		if err != nil {
			return rep, errors.Join(err, s.journal.close(false))
		}
		rep.Resumed++
		s.earlier.Requests += rec.Requests
		s.earlier.Refusals += rec.Refusals
		s.enter(rec)
	}
	s.work(ctx, todo)
	return s.finish(ctx, items)
}

func unique(items []string) []string {
	seen := make(map[string]bool, len(items))
	var out []string
	for _, id := range items {
		if id != "" && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// state is a Run under way.
type state struct {
	run     *Run
	report  *Report
	last    *results
	journal *journal

	mu      sync.Mutex
	records map[string]Record // without content, unless there is no journal to keep it
	err     error             // the first of the journal, which ends the run
	refused int               // items that ended so, in a row
	shut    func()            // ends the waiting for the others
	earlier Tally             // of the items that were in the journal
}

// work fetches what is to do.
func (s *state) work(ctx context.Context, todo []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items, shut := context.WithCancel(ctx)
	defer shut()
	s.shut = shut
	workers := s.run.Workers
	if workers <= 0 {
		workers = 4
	}
	queue := make(chan string)
	var wg sync.WaitGroup
	for range min(workers, len(todo)) {
		wg.Go(func() {
			for id := range queue {
				if err := s.one(ctx, items, id); err != nil {
					s.mu.Lock()
					s.err = cmpErr(s.err, err)
					s.mu.Unlock()
					cancel()
				}
			}
		})
	}
feed:
	for _, id := range todo {
		select {
		case queue <- id:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	wg.Wait()
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// one fetches an item and notes what came of it. items ends with ctx, or when the run is shut out: what waits for the server
// then need not wait any longer.
func (s *state) one(ctx, items context.Context, id string) error {
	if ctx.Err() != nil {
		return nil
	}
	before, err := s.last.before(id)
	if err != nil {
		return err
	}
	itemCtx, tally := WithTally(items)
	if s.run.Timeout > 0 {
		var cancel context.CancelFunc
		itemCtx, cancel = context.WithTimeout(itemCtx, s.run.Timeout)
		defer cancel()
	}
	var res Result
	if items.Err() == nil {
		res = s.run.Fetch(itemCtx, id, before)
	}
	if items.Err() != nil && ctx.Err() == nil && (res.Column == "" || res.Reason == Interrupted) {
		res = Lost(RateLimited, "given up, as %s before it ended refused", counted(s.run.ShutOut+1, "item"))
	}
	if err := res.check(); err != nil {
		res = Lost(Parse, "%v", err)
	}
	if ctx.Err() != nil && res.Column == NotFetched {
		// Stopped: it is not the item's fault, and it will be fetched when the run is resumed. What it took counts.
		s.mu.Lock()
		tally.Settle(&s.report.Ledger)
		s.mu.Unlock()
		return nil
	}
	res.compare(before)
	rec := Record{ID: id, Time: time.Now().UTC(), Of: s.last.of, Result: res, Data: dataOf(res.Body), Tally: tally.read()}
	rec.Body = nil
	if s.journal != nil {
		if err := s.journal.add(rec); err != nil {
			return err
		}
	}
	s.enter(rec)
	return nil
}

// compare finds out whether content is the same as before.
func (res *Result) compare(before Before) {
	switch res.Column {
	case Changed, Same:
		if res.Hash == "" {
			sum := sha256.Sum256(res.Body)
			res.Hash = hex.EncodeToString(sum[:])
		}
		res.Column = Changed
		if res.Hash == before.Hash {
			res.Column = Same
		}
	case NotModified:
		if before.ETag == "" && before.LastModified == "" {
			*res = Lost(Parse, "304 to a request without a condition")
			return
		}
		res.Hash = before.Hash
		if res.ETag == "" {
			res.ETag = before.ETag
		}
		if res.LastModified == "" {
			res.LastModified = before.LastModified
		}
	}
}

// enter puts a record into the books.
func (s *state) enter(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.report.Ledger
	l.Add(rec.Result)
	switch {
	case rec.Column != NotFetched:
		s.refused = 0
	case rec.Reason == RateLimited && s.run.ShutOut > 0:
		if s.refused++; s.refused > s.run.ShutOut {
			s.shut()
		}
	}
	l.Requests += rec.Requests
	l.Refusals += rec.Refusals
	l.Waited += rec.Waited
	if s.journal != nil {
		rec.Data = nil // it is in the journal
	}
	s.records[rec.ID] = rec
	if s.run.Progress != nil {
		s.run.Progress(rec, *l)
	}
}

// finish balances the books, gives the verdict, and writes.
func (s *state) finish(ctx context.Context, items []string) (*Report, error) {
	rep := s.report
	const named = 1000
	for _, id := range items {
		rec, ok := s.records[id]
		if !ok {
			rec = Record{ID: id, Of: s.last.of, Result: Lost(Interrupted, "the run was stopped")}
			rep.Ledger.Add(rec.Result)
		}
		if rec.Column == NotFetched && len(rep.NotFetched) < named {
			rep.NotFetched = append(rep.NotFetched, rec)
		}
	}
	rep.Ended = time.Now().UTC()
	judged := rep.Ledger
	judged.Requests -= s.earlier.Requests // what was refused before has failed the run before
	judged.Refusals -= s.earlier.Refusals
	verdict := s.run.Thresholds.Verdict(&judged)
	rep.Complete = verdict == nil
	rep.Verdict = "ok"
	if verdict != nil {
		rep.Verdict = verdict.Error()
	}
	closeJournal := func(remove bool) error {
		if s.journal == nil {
			return nil
		}
		return s.journal.close(remove)
	}
	switch err := rep.Ledger.Check(); {
	case s.err != nil:
		rep.Complete, rep.Verdict = false, s.err.Error()
		return rep, errors.Join(s.err, closeJournal(false))
	case err != nil:
		return rep, errors.Join(err, closeJournal(false))
	case ctx.Err() != nil && rep.Ledger.Reasons[Interrupted] > 0:
		rep.Complete, rep.Verdict = false, "interrupted"
		return rep, errors.Join(ErrInterrupted, closeJournal(false))
	case verdict != nil:
		return rep, errors.Join(verdict, closeJournal(false))
	}
	if s.run.Out != "" {
		if err := s.write(items); err != nil {
			return rep, errors.Join(fmt.Errorf("batch: results: %w", err), closeJournal(false))
		}
		rep.Written = true
	}
	return rep, closeJournal(true)
}

// write replaces the results: whole, or not at all.
func (s *state) write(items []string) error {
	return WriteFile(s.run.Out, func(w io.Writer) error {
		for _, id := range items {
			rec := s.records[id]
			if s.journal != nil {
				from, ok, err := s.journal.record(id)
				if err != nil {
					return err
				}
				if ok {
					rec = from
				}
			}
			if rec.Column == NotModified || rec.Column == NotFetched {
				if err := s.last.carry(&rec); err != nil {
					return err
				}
			}
			line, err := json.Marshal(rec)
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteFile replaces a file by rename, once all of it is on disk. On an error the file that was there stays as it was.
func WriteFile(path string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := fill(w); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDir(path)
	return nil
}

// syncDir makes the name of a file last, which is in its folder and not in itself. Some file systems know no such thing;
// the file is there all the same.
func syncDir(path string) {
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		dir.Sync()
		dir.Close()
	}
}
