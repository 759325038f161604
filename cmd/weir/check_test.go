package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/internal/redistest"
)

// runWith runs a command line and returns what came of it.
func runWith(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func config(t *testing.T, yaml string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	cleanYAML = `upstreams: {main: {url: "http://127.0.0.1:9000"}}
limits: [{name: client, rate: 100/m}]
routes: [{pattern: /, limits: [{limit: client}]}]
`
	warningYAML = `upstreams: {main: {url: "http://127.0.0.1:9000"}}
limits: [{name: client, rate: 100/m}, {name: spare, rate: 1/s}]
routes: [{pattern: /, limits: [{limit: client}]}]
`
	errorYAML = `upstreams: {main: {url: "http://127.0.0.1:9000"}}
limits: [{name: client, rate: 100/m}]
routes: [{pattern: /, limits: [{limit: client, key: "header:X-Key"}]}]
`
	invalidYAML = `upstreams: {main: {url: "http://127.0.0.1:9000"}}
limits: [{name: client, rate: 7/fortnight}]
routes: [{pattern: /, limits: [{limit: clients}]}]
headers: fancy
`
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, yaml string
		flags      []string
		code       int
		stdout     string // with FILE for the path
		stderr     string
	}{
		{"clean", cleanYAML, nil, 0, "FILE: no mistakes found\n", ""},
		{"clean, strict", cleanYAML, []string{"--strict"}, 0, "FILE: no mistakes found\n", ""},
		{"a warning", warningYAML, nil, 0,
			"FILE:2:39: warning: limits[1]: no route uses limit \"spare\"; name it in a route or in defaults, or take it out\n", ""},
		{"a warning, strict", warningYAML, []string{"--strict"}, 1,
			"FILE:2:39: warning: limits[1]: no route uses limit \"spare\"; name it in a route or in defaults, or take it out\n", ""},
		{"an error", errorYAML, nil, 1,
			"FILE:3:53: error: routes[0].limits[0].key: an outsider chooses the key \"header:X-Key\" and gets a fresh burst with each value; no other limit of routes[0] stands in the way; add a limit by client, ip or global\n", ""},
		{"invalid", invalidYAML, nil, 2, "",
			"FILE:2:31: limits[0].rate: \"7/fortnight\": the period's unit is none of ms, s, m, h, d; the form is units/period, as 600/m, 5/30s or 1000/24h\n" +
				"FILE:4:10: headers: \"fancy\" is none of draft, draft-07, draft-06, legacy, none\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := config(t, tt.yaml)
			code, stdout, stderr := runWith(t, "", append([]string{"check", "-c", path}, tt.flags...)...)
			stdout, stderr = strings.ReplaceAll(stdout, path, "FILE"), strings.ReplaceAll(stderr, path, "FILE")
			if code != tt.code || stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("got %d\n%s%s\nwant %d\n%s%s", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
		})
	}
}

func TestCheckAsJSON(t *testing.T) {
	for _, tt := range []struct {
		yaml               string
		code               int
		valid              bool
		problems, findings int
	}{
		{cleanYAML, 0, true, 0, 0},
		{errorYAML, 1, true, 0, 1},
		{invalidYAML, 2, false, 2, 0},
	} {
		code, stdout, stderr := runWith(t, "", "check", "--json", "-c", config(t, tt.yaml))
		var got struct {
			Valid    bool
			Problems []struct{ Field, Text string }
			Findings []gateway.Finding
		}
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || stderr != "" {
			t.Fatalf("%v: %s%s", err, stdout, stderr)
		}
		if code != tt.code || got.Valid != tt.valid || len(got.Problems) != tt.problems || len(got.Findings) != tt.findings || strings.Contains(stdout, "null") {
			t.Errorf("got %d %s", code, stdout)
		}
	}
}

func TestWrongArgumentsAreExitCode2AndPointToHelp(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "weir.yaml")
	for _, tt := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"chekc"}, "weir: unknown command \"chekc\"; did you mean check?\nRun 'weir --help' for the usage.\n"},
		{[]string{"serv"}, "weir: unknown command \"serv\"; did you mean serve?\n"},
		{[]string{"Serve"}, "weir: unknown command \"Serve\"; did you mean serve?\n"},
		{[]string{"protect"}, "weir: unknown command \"protect\"; there are check, demo, fetch, "},
		{[]string{"check", "--fast"}, "weir check: unknown flag: --fast\nRun 'weir check --help' for the usage.\n"},
		{[]string{"check", "--stirct"}, "weir check: unknown flag: --stirct; did you mean --strict?\n"},
		{[]string{"serve", "--limt", "client=1/s"}, "weir serve: unknown flag: --limt; did you mean --limit?\n"},
		{[]string{"serve", "-x"}, "weir serve: unknown shorthand flag: 'x' in -x\n"},
		{[]string{"check", "my.yaml"}, "weir check: unknown argument \"my.yaml\"; the file goes after -c: weir check -c my.yaml\n"},
		{[]string{"serve", "my.yaml"}, "weir serve: unknown argument \"my.yaml\"; the file goes after -c: weir serve -c my.yaml\n"},
		{[]string{"check", "-c", "a.yaml", "b.yaml"}, "weir check: unknown argument \"b.yaml\"; it takes flags only\n"},
		{[]string{"serve", "http://a"}, "weir serve: unknown argument \"http://a\"; the upstream goes after --upstream: weir serve --upstream http://a --limit 'client=100/m burst=20'\n"},
		{[]string{"check", "-c", missing}, missing + ": cannot be read: no such file or directory\n"},
		{[]string{"load", "http://a"}, "weir load: unknown argument \"http://a\"; it takes flags only\n"},
		{[]string{"hash-key"}, "weir hash-key: accepts 1 arg(s), received 0\nRun 'weir hash-key --help' for the usage.\n"},
		{[]string{"hash-key", "bob"}, "weir hash-key: a key of 0 bytes; "},
	} {
		code, stdout, stderr := runWith(t, "", tt.args...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, tt.stderr) {
			t.Errorf("%q: got %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{}, {"--help"}, {"check", "--help"}, {"--version"}, {"version"}} {
		code, stdout, stderr := runWith(t, "", args...)
		if code != 0 || !strings.HasPrefix(stdout, "weir ") && !strings.HasPrefix(stdout, "check ") || stderr != "" {
			t.Errorf("%q: got %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestHashKey(t *testing.T) {
	const key = "0123456789abcdefghijklmnopqrstuvwxyz"
	code, stdout, stderr := runWith(t, key+"\n", "hash-key", "alice")
	if want := "alice " + gateway.HashAPIKey(key) + "\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("got %d %q %q, want %q", code, stdout, stderr, want)
	}

	code, stdout, stderr = runWith(t, "", "hash-key", "--generate", "bob")
	_, made, _ := strings.Cut(strings.TrimSpace(stderr), ": ")
	if code != 0 || stdout != "bob "+gateway.HashAPIKey(made)+"\n" || len(made) < 40 {
		t.Errorf("got %d %q %q", code, stdout, stderr)
	}
	if _, _, again := runWith(t, "", "hash-key", "-g", "bob"); again == stderr {
		t.Error("the same key twice")
	}

	for _, tt := range []struct{ name, stdin, user string }{
		{"a short key", "secret\n", "alice"},
		{"no key", "", "alice"},
		{"two lines", key + "\n" + key + "\n", "alice"},
		{"a key that no header can carry", key + "é\n", "alice"},
		{"a user with a blank", key, "alice smith"},
		{"a user that is a comment", key, "#alice"},
	} {
		code, stdout, stderr := runWith(t, tt.stdin, "hash-key", tt.user)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, key) {
			t.Errorf("%s: got %d %q %q", tt.name, code, stdout, stderr)
		}
	}
}

func TestCheckConnect(t *testing.T) {
	connect := func(yaml string) (code int, stdout string) {
		code, stdout, stderr := runWith(t, "", "check", "--connect", "-c", config(t, yaml))
		if stderr != "" {
			t.Errorf("standard error: %s", stderr)
		}
		return code, stdout
	}
	if code, out := connect(cleanYAML); code != 0 || !strings.HasPrefix(out, "store memory: there is nothing to connect to\n") {
		t.Errorf("memory: got %d\n%s", code, out)
	}
	if code, out := connect(cleanYAML + "store: redis://:secret-word@127.0.0.1:1\n"); code != 1 || !strings.Contains(out, "connection refused") || strings.Contains(out, "secret-word") {
		t.Errorf("nobody there: got %d\n%s", code, out)
	}
	url := redistest.Start(t).URL
	if code, out := connect(cleanYAML + "store: " + url + "\n"); code != 0 || !strings.HasPrefix(out, "store "+url+" decides, in ") {
		t.Errorf("a store that is well: got %d\n%s", code, out)
	}
}
