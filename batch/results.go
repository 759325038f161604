package batch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// results is the file of results of the last run, whose records are read as they are wanted.
type results struct {
	file *os.File // nil if there is none
	of   string   // the run that it is read for: records of others are as if they were not there
	at   map[string]span
}

// openResults finds the records of a file. One that cannot be read is an error: taken for none, it would make
// every item a change.
func openResults(path string) (*results, error) {
	r := &results{at: make(map[string]span)}
	if path == "" {
		return r, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("batch: results: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("batch: results: %s is a directory", path)
	}
	r.file = f
	in := bufio.NewReaderSize(f, 1<<16)
	for n, from := 1, int64(0); ; n++ {
		line, err := readLine(in)
		if err == io.EOF && len(line) == 0 {
			return r, nil
		}
		var rec struct{ ID string }
		if err == nil {
			err = json.Unmarshal(line, &rec)
		}
		if err != nil || rec.ID == "" {
			f.Close()
			return nil, fmt.Errorf("batch: %s:%d: not a line of results; give another file, or move this one away", path, n)
		}
		r.at[rec.ID] = span{from, int64(len(line))}
		from += int64(len(line))
	}
}

func (r *results) close() {
	if r.file != nil {
		r.file.Close()
	}
}

func (r *results) record(id string) (Record, bool, error) {
	s, ok := r.at[id]
	if !ok {
		return Record{}, false, nil
	}
	rec, ok, err := readRecord(r.file, s)
	if err != nil {
		err = fmt.Errorf("batch: results: %w", err)
	}
	return rec, ok && rec.Of == r.of, err
}

// before is what is known of an item.
func (r *results) before(id string) (Before, error) {
	rec, ok, err := r.record(id)
	if !ok || err != nil || rec.Data == nil {
		return Before{}, err // without the content a 304 would be of no use
	}
	return Before{Hash: rec.Hash, ETag: rec.ETag, LastModified: rec.LastModified}, nil
}

// carry gives a record without content the one of the last run.
func (r *results) carry(rec *Record) error {
	old, ok, err := r.record(rec.ID)
	if err != nil || !ok {
		return err
	}
	rec.Data = old.Data
	if rec.Column == NotFetched {
		rec.Stale = true
		rec.Hash, rec.ETag, rec.LastModified, rec.Time = old.Hash, old.ETag, old.LastModified, old.Time
	}
	return nil
}
