package batch

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Recent is how many requests the run of that name has sent since a time, going by the items in a file of results or in a
// journal, up to 2^30: what a server still counts although the process that sent them has ended. A file that is not there has none. Lines that are
// none of a run end the count, without an error: it is for [Run.Do] to refuse them. In a journal, items that were under way when
// it ended are missing.
func Recent(path, name string, since time.Time) (requests int, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.ModTime().Before(since.Add(-2*time.Second)) { // file systems keep times of 2 s
		return 0, nil // most of the time: a file of results may be large
	}
	of := nameID(name)
	const most = 1 << 30 // whoever has written it
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := readLine(in)
		if err != nil {
			return requests, nil
		}
		var rec struct {
			Time     time.Time
			Of       string
			Requests int
		}
		if json.Unmarshal(line, &rec) != nil {
			return requests, nil
		}
		if rec.Of == of && rec.Requests > 0 && rec.Time.After(since) {
			requests = min(requests+min(rec.Requests, most), most)
		}
	}
}
