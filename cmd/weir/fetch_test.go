package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/internal/redistest"
)

// strictServer admits units requests in any window, by when they arrive, and refuses the others.
type strictServer struct {
	units  int
	window time.Duration

	mu       sync.Mutex
	arrivals []time.Time
	refused  int
	served   map[string]int
}

func (s *strictServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	recent := 0
	for _, at := range s.arrivals {
		if now.Sub(at) < s.window {
			recent++
		}
	}
	if recent >= s.units {
		s.refused++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.arrivals = append(s.arrivals, now)
	if s.served == nil {
		s.served = map[string]int{}
	}
	s.served[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"path": %q}`, r.URL.Path)
}

// weirIn runs weir with arguments and returns its exit code and what it printed.
func weirIn(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestFetchStaysInsideTheLimit(t *testing.T) {
	s := &strictServer{units: 5, window: 300 * time.Millisecond}
	server := httptest.NewServer(s)
	defer server.Close()
	dir := t.TempDir()
	out, report := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "report.json")
	items := "# the list\n"
	for i := range 17 {
		items += fmt.Sprintf("item-%d  # number %d\n", i, i)
	}
	code, stdout, stderr := weirIn(t.Context(), items, "fetch", "--url", server.URL+"/v1/{id}", "--rate", "5/300ms", "--workers", "6",
		"--items", "-", "--out", out, "--report", report)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	if s.refused != 0 || len(s.served) != 17 {
		t.Errorf("%d refused, %d served", s.refused, len(s.served))
	}
	if !strings.Contains(stdout, "17 items: 17 changed, 0 same, 0 not modified, 0 unknown upstream, 0 not fetched; 17 requests, 0 refused") {
		t.Errorf("printed %q", stdout)
	}
	var rep batch.Report
	b, _ := os.ReadFile(report)
	if err := json.Unmarshal(b, &rep); err != nil || rep.Ledger.Requests != 17 || !rep.Written {
		t.Errorf("report %s: %v", b, err)
	}
	code, stdout, _ = weirIn(t.Context(), items, "fetch", "--url", server.URL+"/v1/{id}", "--rate", "5/300ms", "--items", "-", "--out", out)
	if code != exitOK || !strings.Contains(stdout, "17 same") {
		t.Errorf("the second time: exit %d, %s", code, stdout)
	}
}

func TestFetchVerdict(t *testing.T) {
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() && r.URL.Path == "/b" {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		fmt.Fprintf(w, `{"at": %d}`, time.Now().UnixNano())
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "results.jsonl")
	args := []string{"fetch", "--url", server.URL + "/{id}", "--expect-json=false", "--out", out, "a", "b", "c"}
	if code, stdout, stderr := weirIn(t.Context(), "", args...); code != exitOK {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	before, _ := os.ReadFile(out)
	down.Store(true)
	code, stdout, stderr := weirIn(t.Context(), "", args...)
	if code != exitFailure || !strings.Contains(stderr, "1 item not fetched for other reasons, over 0") || !strings.Contains(stdout, "not fetched: b: server: 501 Not Implemented") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if after, _ := os.ReadFile(out); !bytes.Equal(before, after) {
		t.Error("the results have changed")
	}
	if want := "what was fetched is in " + out + ".journal: --resume goes on with it"; !strings.Contains(stderr, want) {
		t.Errorf("%s\nwant %q", stderr, want)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	if code, stdout, stderr := weirIn(t.Context(), "", append(args, "--report", report, "--json")...); code != exitUsage || !strings.Contains(stderr, "--resume goes on") || stdout != "" {
		t.Errorf("beside a journal: exit %d, %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(report); err == nil {
		t.Error("a run that did not begin has written an account")
	}
	down.Store(false)
	if code, stdout, stderr := weirIn(t.Context(), "", append(args, "--resume")...); code != exitOK || !strings.Contains(stdout, "3 changed") {
		t.Errorf("resumed: exit %d\n%s%s", code, stdout, stderr)
	}
}

// TestFetchForbidden: where a provider refuses with 403 for its limit and for want of permission, the account tells them apart.
func TestFetchForbidden(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		if r.URL.Path == "/limited" {
			fmt.Fprint(w, `{"message": "API rate limit exceeded"}`)
		} else {
			fmt.Fprint(w, `{"message": "Resource not accessible by integration"}`)
		}
	}))
	defer server.Close()
	for item, want := range map[string]string{
		"private": "1 not fetched (denied 1); 1 request, 0 refused",
		"limited": "1 not fetched (rate_limited 1); 1 request, 1 refused",
	} {
		code, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", server.URL+"/{id}", "--profile", "github", "--item-timeout", "1s",
			"--out", filepath.Join(t.TempDir(), "out"), item)
		if code != exitFailure || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit %d\n%s%s\nwant %s", item, code, stdout, stderr, want)
		}
	}
}

func TestFetchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var seen atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) == 3 {
			cancel()
		}
		fmt.Fprint(w, `{}`)
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "results.jsonl")
	args := []string{"fetch", "--url", server.URL + "/{id}", "--out", out, "--workers", "1", "a", "b", "c", "d", "e"}
	code, stdout, stderr := weirIn(ctx, "", args...)
	if code != exitInterrupted || !strings.Contains(stderr, "can be resumed with --resume") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an interrupted run has written results")
	}
	if code, stdout, stderr := weirIn(t.Context(), "", append(args, "--resume")...); code != exitOK || !strings.Contains(stdout, "5 changed") {
		t.Errorf("resumed: exit %d\n%s%s", code, stdout, stderr)
	}
	if n := seen.Load(); n > 6 { // the third was under way when it was stopped
		t.Errorf("%d requests for 5 items", n)
	}
}

// TestFetchSaysHowToGoOn: what the verdict says can be done, can.
func TestFetchSaysHowToGoOn(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/html" {
			fmt.Fprint(w, "<html>")
			return
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a"}, exitFailure, "1 of"},
		{[]string{"a", "--resume"}, exitOK, ""},
		{[]string{"html"}, exitFailure, "--expect-json=false"},
		{[]string{"html", "--resume", "--expect-json=false"}, exitOK, ""},
	} {
		code, stdout, stderr := weirIn(t.Context(), "", append([]string{"fetch", "--url", server.URL + "/{id}", "--out", out}, c.args...)...)
		if c.want == "1 of" {
			c.want = "50.0 % of 2 requests were refused, over 30.0 %: nothing was written; all items are in " + out + ".journal"
		}
		if code != c.code || !strings.Contains(stderr, c.want) || c.want == "" && stderr != "" {
			t.Errorf("%v: exit %d\n%s%s\nwant %d, %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("%d requests for what was there already", asked.Load())
	}
}

// TestFetchTimes: a server that never answers costs no more than the flags say, and the account says which time was over.
func TestFetchTimes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	for _, c := range []struct{ flag, want string }{
		{"--timeout", "network: weir: no complete answer within 100ms"},
		{"--item-timeout", "gave_up: the time for one item was over"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		code, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", server.URL+"/{id}", c.flag, "100ms", "--out", out, "a")
		if code != exitFailure || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit %d\n%s%s\nwant %s", c.flag, code, stdout, stderr, c.want)
		}
		if _, err := os.Stat(out + ".journal"); err != nil {
			t.Errorf("the journal is not where it is said to be: %v", err)
		}
	}
}

// TestFetchShutOut: a server that will not have anybody for days is not asked for every item.
func TestFetchShutOut(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	args := []string{"fetch", "--url", server.URL + "/{id}", "--out", filepath.Join(t.TempDir(), "out"), "--workers", "1", "--max-hold", "1ms"}
	for i := range 50 {
		args = append(args, fmt.Sprint(i))
	}
	code, stdout, stderr := weirIn(t.Context(), "", args...)
	if code != exitFailure || asked.Load() != 3 || !strings.Contains(stdout, "50 not fetched (rate_limited 50)") || !strings.Contains(stdout, "given up, as 3 items") {
		t.Errorf("exit %d, %d requests\n%s%s", code, asked.Load(), stdout, stderr)
	}
}

// TestFetchWithoutItsStore: where the limit cannot be kept, nothing is sent.
func TestFetchWithoutItsStore(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", "http://127.0.0.1:1/{id}", "--store", "redis://user:s3cr3t@127.0.0.1:1/0?sentinel_password=s3cr3t",
		"--rate", "5/1s", "--out", filepath.Join(dir, "out"), "a")
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, "@127.0.0.1:1/0") || !strings.Contains(stderr, "nothing was sent") || strings.Contains(stderr, "s3cr3t") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}

func TestFetchKeepsSecrets(t *testing.T) {
	const secret = "s3cr3t-value"
	t.Setenv("WEIR_TEST_TOKEN", secret)
	file := filepath.Join(t.TempDir(), "key")
	os.WriteFile(file, []byte(secret+"\n"), 0o600)
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"), r.Header.Get("apiKey"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	dir := t.TempDir()
	code, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", strings.Replace(server.URL, "://", "://user:"+secret+"@", 1)+"/{id}?key="+secret+"&id={id}", "--out", filepath.Join(dir, "out"), "--report", filepath.Join(dir, "report"),
		"--header", "Authorization: env:WEIR_TEST_TOKEN", "--header", "apiKey: file:"+file, "a")
	if code != exitFailure || len(got) < 2 || got[0] != secret || got[1] != secret {
		t.Errorf("exit %d, sent %q", code, got)
	}
	all := stdout + stderr
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		b, _ := os.ReadFile(filepath.Join(dir, f.Name()))
		all += string(b)
	}
	if strings.Contains(all, secret) {
		t.Errorf("the secret is in what was printed or written:\n%s", all)
	}
	if !strings.Contains(all, "/{id}?key=…&id={id}") {
		t.Errorf("the report does not say what was fetched:\n%s", all)
	}
	for _, url := range []string{"http://user:" + secret + "@host/nothing", "ftp://user:" + secret + "@host/{id}", "http://" + secret + "@ho st/{id}"} {
		if _, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", url, "a"); strings.Contains(stdout+stderr, secret) || stderr == "" {
			t.Errorf("%s\n%s", stdout, stderr)
		}
	}
}

func TestFetchPlanAndUsage(t *testing.T) {
	code, stdout, _ := weirIn(t.Context(), strings.Repeat("x\n", 1), "fetch", "--url", "http://127.0.0.1:1/{id}", "--rate", "5/30s", "--plan", "--json", "--workers", "6", "--items", "-")
	var plan struct {
		Bound float64 `json:"bound_seconds"`
	}
	if code != exitOK || json.Unmarshal([]byte(stdout), &plan) != nil || plan.Bound != 1 {
		t.Errorf("exit %d: %s", code, stdout)
	}
	code, stdout, _ = weirIn(t.Context(), "", "fetch", "--url", "http://127.0.0.1:1/{id}", "--rate", "1/10s", "--guard", "5s", "--plan", "a", "b")
	if code != exitOK || !strings.Contains(stdout, "2 requests at 1 in 15s: at least 16s") {
		t.Errorf("with a guard: exit %d: %s", code, stdout)
	}
	for want, args := range map[string][]string{
		"needs {id}":             {"--url", "http://host/", "a"},
		"want http:// or":        {"--url", "host/{id}", "a"},
		"no items":               {"--url", "http://host/{id}"},
		"the period's unit":      {"--url", "http://host/{id}", "--rate", "7/fortnight", "a"},
		"none of github, nvd":    {"--url", "http://host/{id}", "--profile", "acme", "a"},
		"want 1 or more":         {"--url", "http://host/{id}", "--workers", "0", "a"},
		"want 0 to 1":            {"--url", "http://host/{id}", "--max-refused-share", "30", "a"},
		"the form is":            {"--url", "http://host/{id}", "--header", "secret", "a"},
		"'Name: value'":          {"--url", "http://host/{id}", "--header", "two words: x", "a"},
		"control characters":     {"--url", "http://host/{id}", "--header", "X: \x01", "a"},
		"nothing would ever be":  {"--url", "http://host/{id}", "--rate", "0/30s", "a"},
		"--latency -1s":          {"--url", "http://host/{id}", "--latency", "-1s", "a"},
		"--item-timeout -1s":     {"--url", "http://host/{id}", "--item-timeout", "-1s", "a"},
		"which is not there":     {"--url", "http://host/{id}", "--guard", "1s", "a"},
		"--out: stat nowhere":    {"--url", "http://host/{id}", "--out", "nowhere/out", "a"},
		"--report: stat nowhere": {"--url", "http://host/{id}", "--report", "nowhere/report", "a"},
		"a directory or a dev":   {"--url", "http://host/{id}", "--out", ".", "a"},
		"/dev/null is a dir":     {"--url", "http://host/{id}", "--report", os.DevNull, "a"},
		"for the results":        {"--url", "http://host/{id}", "--out", "same", "--report", "./same", "a"},
		"is not UTF-8":           {"--url", "http://host/{id}", "caf\xe9"},
		"behind a #":             {"--url", "http://host/#{id}", "a"},
		"the environment has no": {"--url", "http://host/{id}", "--header", "X: env:WEIR_TEST_NOWHERE", "a"},
		"no such file":           {"--url", "http://host/{id}", "--items", "nowhere.txt"},
		"--store":                {"--url", "http://host/{id}", "--store", "http://host", "a"},
	} {
		code, stdout, stderr := weirIn(t.Context(), "", append([]string{"fetch"}, args...)...)
		if code != exitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%v: exit %d, %q; want 2 and %q", args, code, stderr, want)
		}
	}
}

// TestFetchSharesOneLimit runs two fetches at once over one real Redis, against a server that counts both.
func TestFetchSharesOneLimit(t *testing.T) {
	url := redistest.Start(t).URL
	s := &strictServer{units: 5, window: 400 * time.Millisecond}
	server := httptest.NewServer(s)
	defer server.Close()
	var wg sync.WaitGroup
	for run := range 2 {
		args := []string{"fetch", "--url", server.URL + "/{id}", "--rate", "5/400ms", "--store", url, "--out", filepath.Join(t.TempDir(), "out")}
		for i := range 10 {
			args = append(args, fmt.Sprintf("run-%d-%d", run, i))
		}
		wg.Go(func() {
			if code, stdout, stderr := weirIn(context.Background(), "", args...); code != exitOK {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
		})
	}
	wg.Wait()
	if s.refused != 0 || len(s.served) != 20 {
		t.Errorf("%d refused, %d served", s.refused, len(s.served))
	}
}
