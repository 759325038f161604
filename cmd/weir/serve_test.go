package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is standard output or error of a weir that runs beside the test.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// url waits for the line that begins so, and returns what follows.
func (o *output) url(t *testing.T, beginning string) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
		if _, rest, ok := strings.Cut(o.String(), beginning); ok {
			if url, _, whole := strings.Cut(rest, "\n"); whole {
				return url
			}
		}
	}
	t.Fatalf("no line %q in:\n%s", beginning, o)
	return ""
}

func TestServe(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer backend.Close()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(`listen: [{address: "127.0.0.1:0"}]
admin: {address: "127.0.0.1:0"}
upstreams: {main: {url: "`+backend.URL+`"}}
limits: [{name: client, rate: 2/h}]
routes: [{pattern: /, limits: [{limit: client}]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"without a file": {"serve", "--upstream", backend.URL, "--limit", "client=100/h burst=2", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
		"with a file":    {"serve", "-c", file, "--log-format", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr output
			ctx, stop := context.WithCancel(t.Context())
			code := make(chan int)
			go func() { code <- run(ctx, args, strings.NewReader(""), &stdout, &stderr) }()
			url, admin := stdout.url(t, "weir: serving on "), stdout.url(t, "weir: admin on ")
			for i, want := range []int{200, 200, 429} {
				res, err := http.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("request %d: %s, want %d", i+1, res.Status, want)
				}
			}
			res, err := http.Get(admin + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != 200 {
				t.Errorf("readyz: %s", res.Status)
			}
			http.DefaultClient.CloseIdleConnections()
			stop()
			if c := <-code; c != exitOK {
				t.Errorf("exit code %d:\n%s", c, &stderr)
			}
			if log := stderr.String(); !strings.Contains(log, "request refused") || strings.Contains(log, "ip:127") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

func TestServeDoesNotStart(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("upstreams: {main: {url: \"http://127.0.0.1:1\"}}\nlimits: [{name: a, rate: 7/fortnight}]\nroutes: [{pattern: /, limits: [{limit: b}]}]\nnonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := config(t, cleanYAML+"admin: {address: off}\nlisten: [{address: \""+taken.Addr().String()+"\"}]\n")
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string // one line each
	}{
		{"a bad file", []string{"-c", bad}, exitUsage, []string{"bad.yaml:2:", "bad.yaml:4:"}},
		{"no file", []string{"-c", bad + ".not"}, exitUsage, []string{"no such file"}},
		{"nothing to serve", nil, exitUsage, []string{"give -c FILE, or --upstream URL"}},
		{"no limit", []string{"--upstream", "http://127.0.0.1:1"}, exitUsage,
			[]string{"weir serve: no --limit: everything would pass; add one, as --limit 'client=100/m burst=20'\nRun 'weir serve --help' for the usage.\n"}},
		{"both", []string{"-c", bad, "--upstream", "http://127.0.0.1:1"}, exitUsage, []string{"without a file"}},
		{"a bad limit", []string{"--upstream", "http://127.0.0.1:1", "--limit", "client=7/fortnight"}, exitUsage, []string{"--limit"}},
		{"a bad upstream", []string{"--upstream", "nowhere", "--limit", "client=1/s"}, exitUsage, []string{"--upstream"}},
		{"a bad admin address", []string{"--upstream", "http://127.0.0.1:1", "--admin", "9090", "--limit", "client=1/s"}, exitUsage, []string{"admin.address"}},
		{"a bad log format", []string{"--upstream", "http://127.0.0.1:1", "--log-format", "xml", "--limit", "client=1/s"}, exitUsage, []string{"--log-format"}},
		{"an address in use", []string{"--upstream", "http://127.0.0.1:1", "--limit", "client=1/s", "--listen", taken.Addr().String(), "--admin", "off"}, exitFailure,
			[]string{"weir serve: listen on " + taken.Addr().String() + ": bind: address already in use: give another address with --listen, or stop what has this one\n"}},
		{"an admin address in use", []string{"--upstream", "http://127.0.0.1:1", "--limit", "client=1/s", "--listen", "127.0.0.1:0", "--admin", taken.Addr().String()}, exitFailure,
			[]string{": give another address with --admin, or"}},
		{"an address of a file in use", []string{"-c", busy}, exitFailure, []string{": give another address with listen[0].address, or"}},
		{"an address of nobody here", []string{"--upstream", "http://127.0.0.1:1", "--limit", "client=1/s", "--listen", "unix:/no/such/place", "--admin", "off"}, exitFailure,
			[]string{"weir serve: listen on unix:/no/such/place: bind: no such file or directory: the address comes from --listen\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr output
			code := run(t.Context(), append([]string{"serve"}, c.args...), strings.NewReader(""), &stdout, &stderr)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, part := range c.says {
				if !strings.Contains(stderr.String(), part) {
					t.Errorf("no %q in:\n%s", part, &stderr)
				}
			}
			if stdout.String() != "" {
				t.Errorf("it says: %s", &stdout)
			}
		})
	}
}
