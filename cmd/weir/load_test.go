package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/traffic"
)

// shop is the proxy of weir serve with one limit a client, in front of a server that does nothing.
func shop(t *testing.T, rate string) *httptest.Server {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(backend.Close)
	r, err := weir.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(&gateway.Config{
		Clients:   gateway.Clients{TrustedProxies: []string{"127.0.0.0/8"}},
		Upstreams: map[string]*gateway.Upstream{"shop": {URL: backend.URL}},
		Limits:    gateway.Limits(&weir.Limit{Name: "client", Rate: r}),
		Routes:    []*gateway.Route{{Pattern: "/", Limits: []gateway.Charge{{Limit: "client", Key: "ip"}}}},
	}, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return server
}

func loadJSON(t *testing.T, stdout string) (r loadReport) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	for _, c := range append(r.Classes, r.Total) {
		if c.Due != c.Sent+c.OverCeiling+c.OverOpen+c.TooLate+c.Cut || c.Sent != c.Served+c.Refused+c.Failed+c.Other+c.Unanswered {
			t.Errorf("%s does not add up: %+v", c.Name, c)
		}
		if p := c.Promises; p.Followed != p.Kept+p.Taken+p.Unclear+p.Broken+p.Lost+p.Open {
			t.Errorf("%s does not add up: %+v", c.Name, p)
		}
	}
	return r
}

// Against the proxy itself: with 5 an hour for a client, 5 of each are served.
func TestLoadAtOneRate(t *testing.T) {
	server := shop(t, "5/h")
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL+"/a?b=c", "--rate", "200/s", "--for", "500ms",
		"--ceiling", "1000/s", "--clients", "10", "--json")
	r := loadJSON(t, stdout)
	if code != exitOK || stderr != "" || r.Total.Due != 100 || r.Total.Served != 50 || r.Total.Refused != 50 || r.Ended != "complete" {
		t.Errorf("exit %d, %s, %+v; want 50 of 100 served", code, stderr, r.Total)
	}
	if p := r.Total.Promises; p.Given != 50 || p.TooLong != 50 {
		t.Errorf("%+v; want 50 told to come back much later", p)
	}
	if r.Classes[0].Name != "GET /a" || r.Total.ServedIn.P50 <= 0 || r.Total.ServedIn.P999 < r.Total.ServedIn.P99 {
		t.Errorf("%+v", r.Classes[0])
	}
}

// Retry-After of the proxy is honest, by its own limits: nobody who obeys is let down.
func TestLoadFindsTheProxyHonest(t *testing.T) {
	server := shop(t, "10/s")
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL, "--rate", "150/s", "--for", "1500ms", "--ceiling", "500/s",
		"--clients", "3", "--per-client")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "yes: Retry-After can be believed") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

func TestLoadFindsALiar(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 5 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	page := filepath.Join(t.TempDir(), "load.html")
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL, "--rate", "50/s", "--for", "500ms", "--ceiling", "100/s",
		"--linger", "2s", "--html", page)
	if code != exitFailure || !strings.Contains(stdout, "NO: Retry-After cannot be believed") || !strings.Contains(stderr, "the verdict is no") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	text := pageText(t, page)
	for _, want := range []string{"Load test: " + server.URL, "cannot be believed", "25 requests sent", "Is Retry-After true?"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
}

// pageText is what a page says.
func pageText(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := html.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "style" {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

const rushYAML = `
name: Rush
agreed: {by: the shop, on: 2026-10-01}
duration: 10m
load: {normal: 100/s, peak: 300/s}
classes:
  - {name: orders, request: POST /orders, body: "{}", share: 50%%, refused_at_most: %s}
  - {name: broken, request: GET /broken, share: 50%%}
clients: {count: 2000, users: 50%%}
`

func TestLoadPlaysAScenario(t *testing.T) {
	server := shop(t, "1/h")
	for _, tt := range []struct {
		most string
		code int
		says string
	}{
		{"100%", exitOK, "yes: orders served as agreed: of "},
		{"0%", exitFailure, "NO: orders not served as agreed: of "},
	} {
		scenario := filepath.Join(t.TempDir(), "rush.yaml")
		if err := os.WriteFile(scenario, fmt.Appendf(nil, rushYAML, tt.most), 0o600); err != nil {
			t.Fatal(err)
		}
		page := filepath.Join(t.TempDir(), "load.html")
		args := []string{"load", "--url", server.URL, "--scenario", scenario, "--for", "1s", "--share", "50%", "--ceiling", "1000/s", "--html", page}
		code, stdout, stderr := weirIn(t.Context(), "", args...)
		if code != tt.code || !strings.Contains(stdout, tt.says) || !strings.Contains(stdout, "Rush, 10m0s played in 1s, 50% of it") ||
			!strings.Contains(stdout, "agreed by the shop on 2026-10-01") {
			t.Errorf("at most %s: exit %d\n%s%s", tt.most, code, stdout, stderr)
		}
		if text := pageText(t, page); !strings.Contains(text, "agreed by the shop") || !strings.Contains(text, "served as agreed: of ") {
			t.Errorf("the page says %s", text)
		}
	}
	// 300/s between quarters of the time and 100/s else are 200 a second in the mean, of which the half is sent.
	scenario := filepath.Join(t.TempDir(), "rush.yaml")
	if err := os.WriteFile(scenario, fmt.Appendf(nil, rushYAML, "100%"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := weirIn(t.Context(), "", "load", "--url", server.URL, "--scenario", scenario, "--for", "2s", "--share", "50%", "--ceiling", "1000/s", "--json")
	r := loadJSON(t, stdout)
	if n := r.Total.Due; n < 130 || n > 270 { // five deviations
		t.Errorf("%d requests, want about 200", n)
	}
	if r.Classes[1].Failed == 0 || r.Classes[1].Failed+r.Classes[1].Refused != r.Classes[1].Sent {
		t.Errorf("of a path that fails: %+v", r.Classes[1])
	}
}

// TestLoadHasTheRunawayApart: its requests, with the body of its class, are no part of the others'.
func TestLoadHasTheRunawayApart(t *testing.T) {
	var bodies, runaway atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 2 {
			bodies.Add(1)
		}
		if strings.Contains(r.Header.Get("X-Forwarded-For"), traffic.RunawayClient) {
			runaway.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	scenario := filepath.Join(t.TempDir(), "rush.yaml")
	text := `
name: Rush
duration: 10m
load: {normal: 100/s, peak: 100/s}
classes: [{name: orders, request: POST /orders, body: "{}", share: 100%, refused_at_most: 0%}]
clients: {count: 20, runaway: {class: orders, rate: 50/s, at: 0s}}
`
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL, "--scenario", scenario, "--for", "1s", "--ceiling", "1000/s", "--json")
	if code != exitOK {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	r := loadJSON(t, stdout)
	if len(r.Classes) != 2 || r.Classes[0].Refused != 0 || r.Classes[1].Name != traffic.RunawayClass || r.Classes[1].Sent == 0 ||
		r.Classes[1].Sent != r.Classes[1].Refused || r.Classes[1].Sent != runaway.Load() || r.Total.Sent != bodies.Load() {
		t.Errorf("%d of the runaway, %d with a body: %+v", runaway.Load(), bodies.Load(), r.Classes)
	}
}

func TestLoadTellsWhoItIs(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Header.Get("X-Api-Key")+" "+r.Header.Get("X-Who")+" "+r.Header.Get("X-Secret")+r.Header.Get("X-Forwarded-For")]++
	}))
	defer server.Close()
	keys := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(keys, []byte("# keys\nuser-1 abc\nuser-3\tdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOAD_SECRET", "s3cret")
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL, "--rate", "90/s", "--for", "100ms", "--ceiling", "100/s", "--clients", "3",
		"--identify", "X-API-Key: {key}", "--identify", "X-Who: {user}/{client}", "--keys", keys, "--header", "X-Secret: env:LOAD_SECRET")
	if code != exitOK || strings.Contains(stdout+stderr, "s3cret") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	want := map[string]int{"abc user-1/198.18.0.1 s3cret": 3, " user-2/198.18.0.2 s3cret": 3, "def user-3/198.18.0.3 s3cret": 3}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("the server saw %v, want %v", seen, want)
	}
}

func TestLoadStopsAndReports(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	code, stdout, stderr := weirIn(ctx, "", "load", "--url", server.URL, "--rate", "100/s", "--for", "5m", "--ceiling", "100/s", "--json")
	r := loadJSON(t, stdout)
	if code != exitInterrupted || r.Ended != "interrupted" || r.Total.Sent == 0 || !strings.Contains(stderr, "load: interrupted after ") {
		t.Errorf("exit %d, %s, %+v", code, stderr, r.Total)
	}
}

func TestLoadWithoutAServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	code, stdout, stderr := weirIn(t.Context(), "", "load", "--url", server.URL, "--rate", "20/s", "--for", "200ms", "--ceiling", "100/s")
	if code != exitFailure || !strings.Contains(stderr, "nothing was answered: connection refused") || !strings.Contains(stdout, "4 requests without an answer: connection refused.") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

// What is wrong with the arguments ends with 2 and a reason, before anything is sent.
func TestLoadRefusesArguments(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	secret := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(secret, []byte("user-1 s3cret key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rush := filepath.Join(t.TempDir(), "rush.yaml")
	if err := os.WriteFile(rush, fmt.Appendf(nil, rushYAML, "1%"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "odd.yaml")
	if err := os.WriteFile(odd, []byte("name: x\nduraton: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rate := []string{"--rate", "10/s", "--for", "100ms", "--ceiling", "100/s"}
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"no URL", rate, "no --url"},
		{"no ceiling", []string{"--url", server.URL, "--rate", "10/s"}, "no --ceiling"},
		{"an odd ceiling", []string{"--url", server.URL, "--rate", "10/s", "--ceiling", "many"}, "--ceiling: weir: rate"},
		{"nothing to send", []string{"--url", server.URL, "--ceiling", "10/s"}, "either --scenario or --rate"},
		{"two things to send", append([]string{"--url", server.URL, "--scenario", rush}, rate...), "either --scenario or --rate"},
		{"another machine", append([]string{"--url", "http://192.0.2.1:" + port}, rate...), "--allow-host 192.0.2.1"},
		{"a name", append([]string{"--url", "http://shop.example:" + port, "--allow-host", "example"}, rate...), "--allow-host shop.example"},
		{"a password in the URL", append([]string{"--url", "http://a:s3cret@127.0.0.1:" + port}, rate...), "weir load: drive: URL"},
		{"another scheme", append([]string{"--url", "ftp://127.0.0.1"}, rate...), "the form is http"},
		{"over the ceiling", []string{"--url", server.URL, "--rate", "101/s", "--ceiling", "100/s"}, "over the ceiling of 100/s"},
		{"a peak over the ceiling", []string{"--url", server.URL, "--scenario", rush, "--for", "1s", "--ceiling", "200/s"}, "peak of 300 requests a second is over the ceiling of 200/s: raise it, or send a part: --share 60%"},
		{"too long", []string{"--url", server.URL, "--scenario", rush, "--ceiling", "500/s", "--max-time", "1m"}, "is longer than --max-time"},
		{"too many", append([]string{"--url", server.URL, "--max-requests", "1"}, "--rate", "10/s", "--ceiling", "10/s"), "more than --max-requests 1"},
		{"slower than the scenario", []string{"--url", server.URL, "--scenario", rush, "--for", "11m", "--ceiling", "500/s"}, "longer than the scenario"},
		{"no scenario there", []string{"--url", server.URL, "--scenario", rush + "x", "--ceiling", "500/s"}, "no such file"},
		{"an odd scenario", []string{"--url", server.URL, "--scenario", odd, "--ceiling", "500/s"}, "odd.yaml:2:"},
		{"an odd share", []string{"--url", server.URL, "--scenario", rush, "--share", "0%", "--ceiling", "500/s"}, "--share"},
		{"an odd method", append([]string{"--url", server.URL, "--method", "get me"}, rate...), "--method"},
		{"no clients", append([]string{"--url", server.URL, "--clients", "0"}, rate...), "--clients"},
		{"all the same client", append([]string{"--url", server.URL, "--identify", "X: y"}, rate...), "says the same of all"},
		{"no keys", append([]string{"--url", server.URL, "--identify", "X: {key}"}, rate...), "with --keys"},
		{"odd keys", append([]string{"--url", server.URL, "--keys", secret}, rate...), "keys.txt:1"},
		{"an odd header", append([]string{"--url", server.URL, "--header", "s3cret"}, rate...), "--header: the form"},
		{"nowhere to write", append([]string{"--url", server.URL, "--html", filepath.Join(rush, "x")}, rate...), "--html"},
		{"no time", append([]string{"--url", server.URL, "--timeout", "0s"}, rate...), "--timeout"},
	} {
		code, stdout, stderr := weirIn(t.Context(), "", append([]string{"load"}, tt.args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.says) || strings.Contains(stderr, "s3cret") {
			t.Errorf("%s: exit %d, %s%s; want 2 and %q", tt.name, code, stdout, stderr, tt.says)
		}
	}
	if n := arrived.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	// With the host named it is sent to: here by a name of this machine, which without that is none.
	u, _ := url.Parse(server.URL)
	if code, _, stderr := weirIn(t.Context(), "", append([]string{"load", "--url", "http://localhost:" + u.Port(), "--allow-host", "localhost"}, rate...)...); code != exitOK || arrived.Load() != 1 {
		t.Errorf("with --allow-host: exit %d, %s, %d arrived", code, stderr, arrived.Load())
	}
}
