package vulnwatch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// TestSiteThatCannotBeRead: it is not taken for none, which would lose its history, and its pages are marked.
func TestSiteThatCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(data string) error{
		"a line of the history is broken": func(data string) error {
			return os.WriteFile(filepath.Join(data, "history.jsonl"), []byte("{\"id\":\n"), 0o644)
		},
		"a line has no end": func(data string) error {
			return os.WriteFile(filepath.Join(data, "snapshots.jsonl"), []byte(`{"id":"CVE-2024-900001"}`), 0o644)
		},
		"the catalogue is gone": func(data string) error { return os.Remove(filepath.Join(data, "kev.json")) },
		"the history is gone":   func(data string) error { return os.Remove(filepath.Join(data, "history.jsonl")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 10)
			b.run()
			b.server.Forget()
			if err := spoil(filepath.Join(b.watch.Out, "data")); err != nil {
				t.Fatal(err)
			}
			_, err := b.refused()
			if n := len(b.server.Requests()); n != 0 {
				t.Errorf("%d requests", n)
			}
			if status := tree(t, b.watch.Out)["status.json"]; strings.Contains(status, b.watch.Out) || !strings.Contains(err.Error(), "data") {
				t.Errorf("%v; %s", err, status)
			}
		})
	}
}

func TestMarkStale(t *testing.T) {
	b := newBench(t, 10)
	why := &fs.PathError{Op: "open", Path: "/etc/weir/cves.txt", Err: errors.New("no such file or directory")}
	if err := MarkStale(b.watch.Out, why); err != nil || tree(t, filepath.Dir(b.watch.Out)) == nil || len(tree(t, filepath.Dir(b.watch.Out))) != 0 {
		t.Errorf("without a site: %v, %v", err, tree(t, filepath.Dir(b.watch.Out)))
	}
	done := b.run().Report.Started
	before := tree(t, b.watch.Out)
	if err := MarkStale(b.watch.Out+"/", why); err != nil {
		t.Fatal(err)
	}
	after := tree(t, b.watch.Out)
	for _, want := range []string{`"stale": true`, `"reason": "no such file or directory"`, done.Format(`"complete": "2006-01-02T15:04:05.`)} {
		if !strings.Contains(after["status.json"], want) {
			t.Errorf("no %s in %s", want, after["status.json"])
		}
	}
	if !strings.Contains(after["status.css"], "of the last complete check, of "+done.Format("2006-01-02 15:04 UTC")) {
		t.Error(after["status.css"])
	}
	for _, files := range []map[string]string{before, after} {
		delete(files, "status.json")
		delete(files, "status.css")
	}
	if !maps.Equal(before, after) {
		t.Error("the site has changed beside its mark")
	}
	if b.run(); strings.Contains(tree(t, b.watch.Out)["status.json"], "true") {
		t.Error("still stale after a complete check")
	}
	s, err := openSite(b.watch.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := MarkStale(b.watch.Out, why); err == nil {
		t.Error("marked while another run was at work")
	}
}

// TestForeignFolderIsNotMarked: a link to a folder of somebody else is no site.
func TestForeignFolderIsNotMarked(t *testing.T) {
	b := newBench(t, 10)
	elsewhere := t.TempDir()
	mine := filepath.Join(elsewhere, ".status.json.mine")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, b.watch.Out); err != nil {
		t.Fatal(err)
	}
	if _, err := b.watch.Run(t.Context()); err == nil {
		t.Error("a folder of somebody else is taken for a site")
	}
	if err := MarkStale(b.watch.Out, errors.New("no list")); err != nil {
		t.Error(err)
	}
	if files := tree(t, elsewhere); len(files) != 1 {
		t.Errorf("in the folder are %d files", len(files))
	}
}

// TestLastCompleteCheckIsThatOfThePages, also where the clock was ahead for a while.
func TestLastCompleteCheckIsThatOfThePages(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	noon := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{noon.AddDate(1, 0, 0), noon, noon} {
		s, err := openSite(out)
		if err != nil {
			t.Fatal(err)
		}
		e := &Edition{Title: "x", Snapshots: []Snapshot{{ID: "CVE-2024-900001"}}}
		e.Report.Started, e.Report.Ended = at, at
		if err := s.publish(e, nil, KEVAnswer{}); err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	if err := MarkStale(out, errors.New("no list")); err != nil {
		t.Fatal(err)
	}
	if status := tree(t, out)["status.json"]; !strings.Contains(status, `"complete": "2026-01-05T12:00:00Z"`) {
		t.Error(status)
	}
}

// TestVerdictForReaders: the pages do not tell where the files of a machine are, and a server cannot fill them.
func TestVerdictForReaders(t *testing.T) {
	for err, want := range map[error]string{
		&BadKeyError{"Invalid apiKey.\x1b[31m"}: "the NVD refuses the request: Invalid apiKey.\uFFFD[31m",
		&fs.PathError{Op: "write", Path: "/srv/.site-editions/x/index.html", Err: errors.New("no space left on device")}:     "no space left on device",
		&os.LinkError{Op: "rename", Old: "/srv/.site-editions/next", New: "/srv/site", Err: errors.New("permission denied")}: "permission denied",
		batch.Thresholds{}.Verdict(&batch.Ledger{Items: 1, NotFetched: 1}):                                                   "1 item not fetched for other reasons, over 0",
	} {
		if got := verdictText(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := verdictText(&BadKeyError{strings.Repeat("x", 1<<20)}); len(got) > 400 {
		t.Errorf("a verdict of %d bytes", len(got))
	}
}

// TestMarkIsOneRule: whatever a server says, the mark is one text in two rules of CSS.
func TestMarkIsOneRule(t *testing.T) {
	dir := t.TempDir()
	evil := "\"; } body { display: none } /* \\ \n </style><script>alert(1)</script> \u202e é"
	if err := writeStatus(dir, &Report{Started: checkTime, Verdict: evil}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	css := tree(t, dir)["status.css"]
	for mark, n := range map[string]int{"{": 2, "}": 2, "\"": 2, "<": 0, "*": 0, "\u202e": 0, "\n": 2} {
		if got := strings.Count(css, mark); got != n {
			t.Errorf("%d times %q, want %d:\n%s", got, mark, n, css)
		}
	}
	if strings.Contains(css, "0001") {
		t.Errorf("a date that is none: %s", css)
	}
}

// TestFullDisk is in place of one: a page that cannot be written ends the writing, and one error says so.
func TestFullDisk(t *testing.T) {
	b := newBench(t, 10)
	b.run()
	s, err := openSite(b.watch.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	dir := filepath.Join(t.TempDir(), "edition")
	for _, name := range []string{"snapshots.jsonl", "history.jsonl", "kev.json"} {
		if err := os.MkdirAll(filepath.Join(dir, "data", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err = s.write(dir, &Edition{}, nil, KEVAnswer{})
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// TestListThatChanges: a CVE that leaves the list loses its page, and what became of it is told when it is back.
func TestListThatChanges(t *testing.T) {
	b := newBench(t, 30)
	all := b.watch.IDs
	b.run()
	id := all[7]
	b.watch.IDs = append(append([]string{}, all[:7]...), all[8:]...)
	if e := b.run(); len(e.New) != 0 || e.Report.Ledger.Items != 29 {
		t.Errorf("without it: %+v; %s", e.New, &e.Report.Ledger)
	}
	if _, there := tree(t, b.watch.Out)["cve/"+id+".html"]; there {
		t.Error("it still has a page")
	}
	b.world.Skip()
	if !b.world.Apply(nvdtest.Reworded, id) {
		t.Fatal(id)
	}
	b.run()
	b.watch.IDs = all
	e := b.run()
	if len(e.New) != 1 || e.New[0].CVE != id || e.New[0].Kind != Wording {
		t.Errorf("back: %+v", e.New)
	}
	if n := strings.Count(tree(t, b.watch.Out)["data/unlisted.jsonl"], "\n"); n != 0 {
		t.Errorf("%d are still kept apart", n)
	}
}

// TestWhatCannotBePublished: the link cannot be turned over, so that the site is the old one, and its history too.
func TestWhatCannotBePublished(t *testing.T) {
	b := newBench(t, 20)
	b.run()
	b.world.NextDay()
	b.watch.NVD.Progress = func(int) { os.MkdirAll(filepath.Join(filepath.Dir(b.watch.Out), ".site-editions", nextLink), 0o755) }
	e, err := b.refused()
	if len(e.History) != 0 || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("%v; a history of %d", err, len(e.History))
	}
	b.watch.NVD.Progress = nil
	if e := b.run(); len(e.New) == 0 {
		t.Error("the next check tells nothing")
	}
}
