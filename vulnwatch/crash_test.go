//go:build unix

package vulnwatch

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// TestKilled is run in a process of its own by TestCrash, which kills it.
func TestKilled(t *testing.T) {
	out := os.Getenv("VULNWATCH_TEST_OUT")
	if out == "" {
		t.Skip("a part of TestCrash")
	}
	base := os.Getenv("VULNWATCH_TEST_URL")
	w := Watch{
		IDs: nvdtest.Synthetic(1, 60).IDs(), Out: out, NVD: &NVD{URL: base + nvdtest.NVDPath},
		KEV: &KEV{URLs: []string{base + nvdtest.KEVPath}},
	}
	if _, err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCrash kills checks at random instants of their publishing. What is there then is yesterday's site or today's, whole, and
// the next check goes on from it.
func TestCrash(t *testing.T) {
	b := newBench(t, 60)
	began := time.Now()
	b.run()
	whole := time.Since(began)
	old, fresh := 0, 0
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for range 16 {
		b.world.NextDay()
		b.server.Forget()
		before := tree(t, b.watch.Out)
		child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), "VULNWATCH_TEST_OUT="+b.watch.Out, "VULNWATCH_TEST_URL="+b.url)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		for done := false; !done; { // until the NVD has been asked: from there on it publishes
			select {
			case err := <-ended:
				t.Fatalf("the check ended before it asked anything: %v", err)
			case <-time.After(time.Millisecond):
				all, _ := b.server.Asked()
				done = all > 0
			}
		}
		select {
		case <-time.After(time.Duration(rnd.Int64N(int64(whole*3/2) + 1))):
			child.Process.Kill()
			<-ended
		case <-ended:
		}
		after := tree(t, b.watch.Out)
		if maps.Equal(before, after) {
			old++
		} else {
			fresh++
		}
		checkWhole(t, after)
	}
	t.Logf("killed 16 times: %d times the site is the old one, %d times the new one", old, fresh)
	e := b.run()
	checkWhole(t, tree(t, b.watch.Out))
	for _, s := range e.Snapshots {
		if s.Record == nil || s.Record.Status == "" {
			t.Errorf("%s: %+v", s.ID, s)
		}
	}
	s, err := openSite(b.watch.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	left, err := os.ReadDir(s.editions)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range left {
		if d.Name() != "lock" {
			names = append(names, d.Name())
		}
	}
	if len(names) != 2 { // the current one and the one before
		t.Errorf("left beside the site: %q", names)
	}
}

// checkWhole looks whether a site is one, of one check.
func checkWhole(t *testing.T, files map[string]string) {
	t.Helper()
	var runs []string
	pages := 0
	for name := range files {
		if strings.HasPrefix(name, "data/runs/") {
			runs = append(runs, name)
		}
		if strings.HasPrefix(name, "cve/") {
			pages++
		}
		if strings.HasPrefix(filepath.Base(name), ".") {
			t.Errorf("%s was left over", name)
		}
	}
	slices.Sort(runs)
	if pages != 60 || len(runs) == 0 || files["index.html"] == "" || files["status.css"] == "" || files["status.json"] == "" {
		t.Fatalf("%d pages, %d reports, index of %d bytes", pages, len(runs), len(files["index.html"]))
	}
	var last Report
	if err := json.Unmarshal([]byte(files[runs[len(runs)-1]]), &last); err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(files["data/history.jsonl"]) {
		var c Change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if c.Time.Equal(last.Started) {
			found++
		}
	}
	if found != last.Changes || strings.Count(files["data/snapshots.jsonl"], "\n") != 60 {
		t.Errorf("the last report tells %d changes, the history has %d of that check", last.Changes, found)
	}
}

// TestPublishFails: what cannot be written leaves the site as it was, and the next check is none the worse.
func TestPublishFails(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write anywhere: by a file in the way instead")
	}
	b := newBench(t, 40)
	b.run()
	b.world.NextDay()
	s, err := openSite(b.watch.Out)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, b.watch.Out)
	e := &Edition{Title: "x", Snapshots: []Snapshot{{ID: "CVE-2024-900001"}}, History: old.history}
	e.Report.Started = time.Now().UTC()
	// A folder stands where a file is to be written.
	dir := filepath.Join(s.editions, e.Report.Started.Format(runStamp)+unfinished, "index.html", "in the way")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.publish(e, old.kev, old.kevState); err == nil {
		t.Error("published over a folder")
	}
	s.close()
	if !maps.Equal(before, tree(t, b.watch.Out)) {
		t.Error("the site has changed")
	}
	if e := b.run(); len(e.New) == 0 {
		t.Error("the check after it tells nothing")
	}
}

// TestSecondEditionOfOneInstant: a clock that was set back must not write into an edition that is there.
func TestSecondEditionOfOneInstant(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	at := time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	for i := range 3 {
		s, err := openSite(out)
		if err != nil {
			t.Fatal(err)
		}
		e := &Edition{Title: strings.Repeat("x", i+1), Snapshots: []Snapshot{{ID: "CVE-2024-900001"}}}
		e.Report.Started, e.Report.Ended = at, at
		if err := s.publish(e, nil, KEVAnswer{}); err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	if index := tree(t, out)["index.html"]; !strings.Contains(index, "<title>xxx") {
		t.Errorf("not the last edition: %.300s", index)
	}
}

func TestForeignFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := os.MkdirAll(filepath.Join(out, "my pictures"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := openSite(out); err == nil || !strings.Contains(err.Error(), "not made by weir") {
		t.Errorf("got %v", err)
	}
	elsewhere := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	s, err := openSite(link)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.load(); err == nil {
		t.Error("a link to another folder is taken for a site")
	}
}
