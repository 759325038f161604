package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/vulnwatch"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// watchedList is a made-up NVD, a list of its CVEs, and the arguments to watch it.
func watchedList(t *testing.T, cves int) (server *nvdtest.Server, site string, args []string) {
	t.Helper()
	server = &nvdtest.Server{World: nvdtest.Synthetic(3, cves), Key: "0123-good", Units: -1, KeyUnits: -1}
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	dir := t.TempDir()
	list := filepath.Join(dir, "cves.txt")
	text := "# ours\n" + strings.Join(server.World.IDs(), "\n") + "\nCVE-nonsense\n"
	if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	site = filepath.Join(dir, "site")
	return server, site, []string{"watch", "--list", list, "--out", site, "--rate", "100000/s",
		"--nvd-url", ts.URL + nvdtest.NVDPath, "--kev-url", ts.URL + nvdtest.KEVPath, "--kev-url", ts.URL + nvdtest.MirrorPath}
}

func TestWatch(t *testing.T) {
	server, site, args := watchedList(t, 150)
	code, stdout, stderr := weirIn(t.Context(), "", args...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"150 CVEs: 2 requests at 100000 in 1.016666666s: at least",
		"150 CVEs: 150 new, 0 changed, 0 same", "3 requests, 2 to the NVD and 1 for KEV, 0 refused", "published: " + site,
		`verdict: ok, complete, but 1 line of the list is no CVE id: line 152 "CVE-nonsense"; the first check`,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if !strings.Contains(stderr, `line 152: "CVE-NONSENSE" is no CVE id`) && !strings.Contains(stderr, `line 152: "CVE-nonsense" is no CVE id`) || strings.Contains(stderr, "\x1b") {
		t.Errorf("stderr %q", stderr)
	}
	if index, err := os.ReadFile(filepath.Join(site, "index.html")); err != nil || !strings.Contains(string(index), "1 line of the list is no CVE id: line 152 &#34;CVE-nonsense&#34;.") {
		t.Errorf("%v: the index does not name the line that is no id", err)
	}

	// The next day: CISA turns us away, and something has changed.
	edits := server.World.NextDay()
	server.Inject(nvdtest.Fault{Kind: nvdtest.Forbidden, At: nvdtest.KEV})
	code, stdout, _ = weirIn(t.Context(), "", args...)
	if code != exitOK || !strings.Contains(stdout, "KEV: not from http") || !strings.Contains(stdout, nvdtest.MirrorPath+", released 2026-01-06") || strings.Count(stdout, "\nchanged: ") < len(edits)-1 {
		t.Errorf("exit code %d, %d edits:\n%s", code, len(edits), stdout)
	}

	// A day on which the NVD is down: nothing is published, and exit code 1.
	server.World.NextDay()
	server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 404, Message: "Invalid cveIds parameter."})
	code, stdout, stderr = weirIn(t.Context(), "", append(args, "--json")...)
	var got watched
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if code != exitFailure || got.Published || got.Report.Complete || got.Report.Ledger.NotFetched != 150 || !strings.Contains(stderr, "nothing was published, and the pages are marked stale") || got.Report.New != 0 {
		t.Errorf("exit code %d, %+v, stderr %s", code, got.Report.Ledger, stderr)
	}
	status, err := os.ReadFile(filepath.Join(site, "status.json"))
	if err != nil || !strings.Contains(string(status), `"stale": true`) {
		t.Errorf("%v: %s", err, status)
	}
}

func TestWatchKey(t *testing.T) {
	server, _, args := watchedList(t, 150)
	for key, want := range map[string]int{"0123-good\n": exitOK, "0123-bad": exitFailure} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
		server.Forget()
		code, stdout, stderr := weirIn(t.Context(), "", append(args, "--nvd-key-file", file, "--workers", "1")...)
		if code != want || strings.Contains(stdout+stderr, strings.TrimSpace(key)) {
			t.Errorf("%q: exit code %d:\n%s%s", key, code, stdout, stderr)
		}
		if want == exitFailure && !strings.Contains(stderr, "the NVD refuses the request: Invalid apiKey.") {
			t.Errorf("stderr %q", stderr)
		}
		for _, r := range server.Requests() {
			if r.WithKey != (r.Endpoint == nvdtest.NVD) {
				t.Errorf("%s: with a key: %v", r.Endpoint, r.WithKey)
			}
		}
	}
	code, stdout, _ := weirIn(t.Context(), "", "watch", "--plan", "--list", args[2])
	if code != exitOK || !strings.Contains(stdout, "2 requests at 5 in 30.5s") {
		t.Errorf("without a key: %s", stdout)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("0123"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = weirIn(t.Context(), "", "watch", "--plan", "--list", args[2], "--nvd-key-file", file)
	if code != exitOK || !strings.Contains(stdout, "2 requests at 50 in 30.5s") {
		t.Errorf("with a key: %s", stdout)
	}
}

// TestWatchAsAService: a check that fails does not end it, and being told to stop does, with 0.
func TestWatchAsAService(t *testing.T) {
	server, site, args := watchedList(t, 20)
	server.Inject(nvdtest.Fault{Kind: nvdtest.Empty, Times: 2}, nvdtest.Fault{Kind: nvdtest.HTML, At: nvdtest.KEV, Times: 1}, nvdtest.Fault{Kind: nvdtest.HTML, At: nvdtest.Mirror, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(site, "index.html")); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	code, stdout, stderr := weirIn(ctx, "", append(args, "--every", "1s")...)
	if code != exitOK || strings.Count(stdout, "next check: ") < 1 || !strings.Contains(stdout, "verdict: no: nothing was published\n") || !strings.Contains(stderr, "no KEV catalogue") || !strings.HasSuffix(stderr, "weir watch: stopped\n") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

// TestWatchWithoutItsFiles: a check that cannot begin marks the pages as one does that fails.
func TestWatchWithoutItsFiles(t *testing.T) {
	server, site, args := watchedList(t, 20)
	good, err := os.ReadFile(args[2])
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		b, err := os.ReadFile(filepath.Join(site, "status.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, tc := range map[string]struct {
		list   string
		more   []string
		reason string
	}{
		"an empty list":   {"# nothing yet\n", nil, "no CVE ids in it"},
		"a list of words": {strings.Repeat("log4shell\n", 500), nil, "and 497 more lines like that"},
		"no key":          {string(good), []string{"--nvd-key-file", filepath.Join(t.TempDir(), "key")}, "no such file or directory"},
	} {
		if err := os.WriteFile(args[2], good, 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := weirIn(t.Context(), "", args...); code != exitOK || strings.Contains(status(), "true") {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		server.Forget()
		if err := os.WriteFile(args[2], []byte(tc.list), 0o644); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := weirIn(t.Context(), "", append(slices.Clone(args), tc.more...)...)
		if code != exitUsage || len(server.Requests()) != 0 {
			t.Errorf("%s: exit code %d, %d requests: %s", name, code, len(server.Requests()), stderr)
		}
		if s := status(); !strings.Contains(s, `"stale": true`) || !strings.Contains(s, tc.reason) || strings.Contains(s, filepath.Dir(args[2])) {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// TestWatchAsAServiceWithoutList: the list may come and go while it runs.
func TestWatchAsAServiceWithoutList(t *testing.T) {
	_, site, args := watchedList(t, 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stale := false
	go func() {
		for ctx.Err() == nil {
			b, _ := os.ReadFile(filepath.Join(site, "status.json"))
			switch {
			case len(b) > 0 && !strings.Contains(string(b), "true"):
				os.Remove(args[2])
			case strings.Contains(string(b), "true"):
				stale = true
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	code, stdout, stderr := weirIn(ctx, "", append(args, "--every", "1s")...)
	if code != exitOK || !stale || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit code %d, stale %v:\n%s%s", code, stale, stdout, stderr)
	}
}

// TestWatchSharesOfNothing: a share of 0 that is given is none, and not what is usual.
func TestWatchSharesOfNothing(t *testing.T) {
	server, _, args := watchedList(t, 400)
	weirIn(t.Context(), "", args...)
	for _, id := range server.World.IDs()[:2] {
		server.World.Apply(nvdtest.Gone, id)
	}
	if code, stdout, _ := weirIn(t.Context(), "", append(slices.Clone(args), "--max-gone-share", "0")...); code != exitFailure {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
	if code, stdout, _ := weirIn(t.Context(), "", args...); code != exitOK {
		t.Errorf("two of four hundred: exit code %d:\n%s", code, stdout)
	}
}

// TestWatchTellsPlainly: what upstream says cannot write to a terminal what it likes.
func TestWatchTellsPlainly(t *testing.T) {
	const evil = "\x1b]0;pwned\x07\nverdict: ok\u202e"
	e := &vulnwatch.Edition{New: []vulnwatch.Change{{CVE: "CVE-2026-0001", Text: evil + strings.Repeat("x", 1<<20)}}}
	e.Report.Verdict, e.Report.KEV.Tried = evil, []string{evil}
	e.Report.Lost = []vulnwatch.Lost{{ID: "CVE-2026-0001", Reason: batch.Server, Detail: evil}}
	var out strings.Builder
	e.Report.KEV.URL, e.Report.NoIDs = "https://kev.example/", evil
	tellWatch(&out, e)
	fmt.Fprintln(&out, "verdict:", watchVerdict(e, vulnwatch.ErrIncomplete))
	fmt.Fprintln(&out, watchVerdict(e, nil))
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07\u202e") || strings.Contains(s, "\nverdict: ok") || strings.Count(s, "pwned") != 5 || len(s) > 5000 {
		t.Errorf("%q", s)
	}
}

// TestWatchWithoutNetwork: that there is none is said once, short, and that there are no pages if there are none.
func TestWatchWithoutNetwork(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	list := filepath.Join(t.TempDir(), "cves.txt")
	if err := os.WriteFile(list, []byte("CVE-2024-3094\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := weirIn(t.Context(), "", "watch", "--list", list, "--out", filepath.Join(t.TempDir(), "site"), "--rate", "100000/s",
		"--nvd-url", closed.URL+nvdtest.NVDPath, "--kev-url", closed.URL+nvdtest.KEVPath, "--kev-url", closed.URL+nvdtest.MirrorPath)
	host := strings.TrimPrefix(closed.URL, "http://")
	if want := "weir watch: 1 item not fetched for other reasons, over 0; no KEV catalogue: connect: connection refused (" + host + "): nothing was published, and there are no pages yet\n"; code != exitFailure || stderr != want {
		t.Errorf("exit code %d, stderr %s, want %s", code, stderr, want)
	}
	for _, want := range []string{"1 CVE: 1 request at", "1 CVE: 0 changed, 0 same, 0 unknown upstream, 1 not fetched (network 1); ",
		"not fetched: CVE-2024-3094: " + host + ": connect: connection refused (network)\n", "\nverdict: no: nothing was published\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "KEV: ") || strings.Contains(stdout+stderr, "dial tcp") {
		t.Errorf("said again:\n%s%s", stdout, stderr)
	}
}

func TestWatchInterrupted(t *testing.T) {
	server, _, args := watchedList(t, 20)
	server.Inject(nvdtest.Fault{Kind: nvdtest.Stall})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !slices.ContainsFunc(server.Requests(), func(r nvdtest.Request) bool { return r.Endpoint == nvdtest.NVD }) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if code, stdout, stderr := weirIn(ctx, "", args...); code != exitInterrupted || !strings.Contains(stderr, "interrupted: nothing was published") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

func TestNextCheck(t *testing.T) {
	began := time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		took, every time.Duration
		failed      bool
		want        time.Duration // after began, or up to a minute later
	}{
		{2 * time.Minute, 24 * time.Hour, false, 24 * time.Hour},
		{2 * time.Minute, 24 * time.Hour, true, 2*time.Hour + 2*time.Minute},
		{3 * time.Hour, time.Hour, false, 3 * time.Hour},
	} {
		got := nextCheck(began, began.Add(tc.took), tc.every, tc.failed).Sub(began)
		if got < tc.want || got > tc.want+time.Minute {
			t.Errorf("%+v: after %v", tc, got)
		}
	}
}

func TestWatchUsage(t *testing.T) {
	_, _, args := watchedList(t, 1)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"watch"}, "--list is missing"},
		{[]string{"watch", "--list", empty}, "--out is missing"},
		{[]string{"watch", "--list", empty, "--out", "x"}, "no CVE ids in it"},
		{append(slices.Clone(args), "--workers", "0"), "--workers 0"},
		{append(slices.Clone(args), "--max-gone-share", "NaN"), "--max-gone-share NaN"},
		{append(slices.Clone(args), "--rate", "fast"), "--rate"},
		{append(slices.Clone(args), "--kev-url", "kev.json"), "want http:// or https://"},
		{append(slices.Clone(args), "--nvd-key-file", empty), "want one key, in one line"},
		{append(slices.Clone(args), "--nvd-key-file", key, "--nvd-url", "http://nvd.example/"), "over https only"},
	} {
		code, stdout, stderr := weirIn(t.Context(), "", tc.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Contains(stderr, "secret-key") {
			t.Errorf("%q: exit code %d, stderr %q, want %q", tc.args, code, stderr, tc.want)
		}
	}
}

func TestDemoWatch(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site")
	code, stdout, stderr := weirIn(t.Context(), "", "demo", "watch", "--json", "--cves", "120", "--window", "200ms", "--out", site)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got struct{ Days []watchedDay }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Days) != 4 {
		t.Fatalf("%d days", len(got.Days))
	}
	changes, edits := 0, 0
	for i, day := range got.Days {
		if broken := i == 2; day.Published == broken || day.Untouched != broken || day.Report.Complete == broken {
			t.Errorf("day %d: published %v, untouched %v: %s", day.Day, day.Published, day.Untouched, day.Report.Verdict)
		}
		changes += len(day.Changes)
		edits += len(day.Edits)
	}
	if changes == 0 || edits == 0 || len(got.Days[3].Report.KEV.Tried) != 1 {
		t.Errorf("%d edits, %d changes, KEV %+v", edits, changes, got.Days[3].Report.KEV)
	}
	if code, _, stderr := weirIn(t.Context(), "", "demo", "watch", "--out", site); code != exitUsage || !strings.Contains(stderr, "is there already") {
		t.Errorf("a second demo in one folder: exit code %d, %s", code, stderr)
	}
	var history []vulnwatch.Change
	raw, err := os.ReadFile(filepath.Join(site, "data", "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var c vulnwatch.Change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		history = append(history, c)
	}
	if len(history) != changes {
		t.Errorf("%d lines of history, %d changes", len(history), changes)
	}
}

// TestDemoWatchOfRecords: the demo edits the records of a folder as well.
func TestDemoWatchOfRecords(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(t.TempDir(), "site")
	args := []string{"demo", "watch", "--json", "--window", "200ms", "--out", site, "--records", dir}
	var list []any
	write := func(name string, v any) {
		t.Helper()
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	answer := func() map[string]any {
		return map[string]any{"format": "NVD_CVE", "totalResults": len(list), "vulnerabilities": list}
	}
	for i := range 30 {
		if i == 5 {
			write("few.json", answer())
			if code, _, stderr := weirIn(t.Context(), "", args...); code != exitUsage || !strings.Contains(stderr, "5 CVEs, want 10 or more") {
				t.Errorf("five records: exit code %d, %s", code, stderr)
			}
		}
		list = append(list, map[string]any{"cve": nvdtest.Record(1, i, fmt.Sprintf("CVE-2026-%d", 900001+i))})
	}
	write("page.json", answer())
	write("known_exploited_vulnerabilities.json", map[string]any{"count": 1, "vulnerabilities": []any{
		map[string]any{"cveID": "CVE-2026-900003", "dateAdded": "2026-01-02", "dueDate": "2026-01-23", "knownRansomwareCampaignUse": "Unknown"},
	}})
	code, stdout, stderr := weirIn(t.Context(), "", args...)
	var got struct {
		CVEs int
		Days []watchedDay
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if got.CVEs != 30 || len(got.Days) != 4 || !got.Days[0].Published || got.Days[0].Report.KEV.Entries != 1 || len(got.Days[1].Changes) == 0 || got.Days[2].Published {
		t.Errorf("%d CVEs, %d days, the first: %+v", got.CVEs, len(got.Days), got.Days[0].Report)
	}
	write("other.json", map[string]any{"hello": 1})
	if code, _, stderr := weirIn(t.Context(), "", append(args, "--out", site+"2")...); code != exitUsage || !strings.Contains(stderr, "other.json: not an answer of the NVD") {
		t.Errorf("another file: exit code %d, %s", code, stderr)
	}
}
