package batch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"
)

// Record is one line of a journal and of the results: an item and what came of it.
type Record struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`         // of the answer
	Of   string    `json:"of,omitempty"` // tells runs with other names apart, whose items are other ones
	Result
	Tally

	// Stale says that Column is not_fetched and the content is that of an earlier run.
	Stale bool `json:"stale,omitempty"`

	Data *Data `json:"data,omitempty"`
}

// Data is content in a line of JSON: as JSON if it is that, as text if it is UTF-8, else in base64.
type Data struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func dataOf(body []byte) *Data {
	switch {
	case body == nil:
		return nil
	case json.Valid(body):
		var compact bytes.Buffer
		if json.Compact(&compact, body) == nil {
			return &Data{JSON: compact.Bytes()}
		}
		fallthrough
	case utf8.Valid(body):
		text := string(body)
		return &Data{Text: &text}
	}
	return &Data{Base64: body}
}

// journal is the file in which a run writes down each item as it ends, so that a run that is interrupted or crashes loses
// none that were fetched. Its first line says which run it is.
type journal struct {
	mu     sync.Mutex
	file   *os.File
	size   int64
	synced time.Time
	at     map[string]span // where the last record of each item stands
}

type span struct{ from, length int64 }

type journalHead struct {
	Journal string `json:"weir_journal"`
	Run     string `json:"run"`
}

const (
	journalVersion = "1"
	maxLine        = 256 << 20
)

// ErrJournal means that a journal is there from another run, or from one that was not finished.
var ErrJournal = errors.New("journal of an unfinished run")

// runID tells runs apart: what is fetched, and for which items.
func runID(name string, items []string) string {
	h := sha256.New()
	for _, s := range append([]string{name}, items...) {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// nameID stands for the name of a run, in which there may be secrets.
func nameID(name string) string {
	if name == "" {
		return ""
	}
	return runID(name, nil)[:16]
}

// openJournal makes a journal, or with resume goes on with the one that is there. Two runs cannot have it at once.
func openJournal(path, run string, resume bool) (*journal, map[string]Result, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("batch: journal: %w", err)
	}
	fail := func(err error) (*journal, map[string]Result, error) {
		f.Close()
		return nil, nil, err
	}
	if err := LockFile(f); err != nil {
		return fail(fmt.Errorf("batch: journal %s: another run is using it", path))
	}
	info, err := f.Stat()
	if err != nil {
		return fail(fmt.Errorf("batch: journal: %w", err))
	}
	// The run that had it may have ended, and removed it, just before: what is written to it now would be lost.
	if named, err := os.Stat(path); err != nil || !os.SameFile(info, named) {
		return fail(fmt.Errorf("batch: journal %s: another run has just removed it; start again", path))
	}
	j := &journal{file: f, at: make(map[string]span)}
	if info.Size() > 0 && !resume {
		return fail(fmt.Errorf("batch: %s: %w; resume it, or remove the file to start anew", path, ErrJournal))
	}
	done := make(map[string]Result)
	if info.Size() > 0 {
		if err := j.replay(path, run, done); err != nil {
			return fail(err)
		}
	}
	if j.size == 0 {
		head, _ := json.Marshal(journalHead{journalVersion, run})
		if err := j.write(append(head, '\n')); err != nil {
			return fail(err)
		}
		syncDir(path)
	}
	return j, done, nil
}

// replay reads what is there. A last line without its end is what a crash leaves, and is cut off.
func (j *journal) replay(path, run string, done map[string]Result) error {
	in := bufio.NewReaderSize(j.file, 1<<16)
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("batch: %s:%d: %w", path, n, err)
		}
		if n == 1 {
			var head journalHead
			if json.Unmarshal(line, &head) != nil || head.Journal != journalVersion {
				return fmt.Errorf("batch: %s:1: not a journal of this version; move the file away to start anew", path)
			}
			if head.Run != run {
				return fmt.Errorf("batch: %s: %w: it fetched something else or other items; remove the file to start anew", path, ErrJournal)
			}
		} else {
			var r Record
			if err := json.Unmarshal(line, &r); err != nil || r.ID == "" || r.Result.check() != nil {
				return fmt.Errorf("batch: %s:%d: not a record; remove the file to start anew", path, n)
			}
			if r.Column == NotFetched {
				delete(done, r.ID)
			} else {
				done[r.ID] = r.Result
			}
			j.at[r.ID] = span{j.size, int64(len(line))}
		}
		j.size += int64(len(line))
	}
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("batch: journal: %w", err)
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}

// readLine reads a line with its end. A line that has none is no line: io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("a line of over %d MiB", maxLine>>20)
		}
	}
}

func (j *journal) write(line []byte) error {
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		return fmt.Errorf("batch: journal: %w", err)
	}
	j.size += int64(len(line))
	return nil
}

// add writes a record down. It is safe against a crash of the process at once, and of the machine within a second.
func (j *journal) add(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("batch: journal: %w", err)
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	from := j.size
	if err := j.write(line); err != nil {
		return err
	}
	j.at[r.ID] = span{from, int64(len(line))}
	if now := time.Now(); now.Sub(j.synced) > time.Second {
		j.synced = now
		return j.file.Sync()
	}
	return nil
}

// record reads back the record of an item.
func (j *journal) record(id string) (Record, bool, error) {
	j.mu.Lock()
	s, ok := j.at[id]
	j.mu.Unlock()
	if !ok {
		return Record{}, false, nil
	}
	return readRecord(j.file, s)
}

func readRecord(f io.ReaderAt, s span) (Record, bool, error) {
	line := make([]byte, s.length)
	if _, err := f.ReadAt(line, s.from); err != nil && err != io.EOF {
		return Record{}, false, err
	}
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, false, err
	}
	return r, true, nil
}

// close ends the journal; with remove it has served.
func (j *journal) close(remove bool) error {
	name := j.file.Name()
	if remove {
		if err := os.Remove(name); err != nil {
			j.file.Close()
			return err
		}
		return j.file.Close()
	}
	return errors.Join(j.file.Sync(), j.file.Close())
}
