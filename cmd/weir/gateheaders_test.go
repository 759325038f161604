package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func gateHeadersOf(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"gate-headers"}, args...), strings.NewReader(input), &out, &errs)
	return code, out.String(), errs.String()
}

func TestGateHeadersExplains(t *testing.T) {
	for _, test := range []struct {
		name, input string
		args        []string
		want        []string // in the text
	}{
		{"refused", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\n\r\nslow down", nil,
			[]string{"429 Too Many Requests", "Stop every worker", "for 30s (Retry-After)"}},
		{"http/2", "HTTP/2 429 \nretry-after: 30\n\n", nil, []string{"for 30s (Retry-After)"}},
		{"the last answer counts", "HTTP/1.1 302 Found\nLocation: /x\n\nHTTP/1.1 100 Continue\n\nHTTP/2 200\nratelimit: \"d\";r=5;t=50\n\n{}", nil,
			[]string{"200 OK", "A request every 10s", "d ", "requests"}},
		{"a redirect with a page", "HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n<html>moved</html>\r\nHTTP/1.1 429 X\r\nRetry-After: 7\r\n\r\nslow down\r\nHTTP/1.1 200 OK\r\n", nil,
			[]string{"for 7s (Retry-After)"}},
		{"a byte order mark", "\ufeffHTTP/2 429\r\nretry-after: 7\r\n", nil, []string{"for 7s (Retry-After)"}},
		{"absurd", "HTTP/2 429\nretry-after: 99999999999999999999\n\n", nil, []string{"a wait of 106751 days", "give this request up"}},
		{"curl -v", "*   Trying\n> GET / HTTP/1.1\n> Host: x\n>\n* Request sent\n< HTTP/1.1 503 Service Unavailable\n< Retry-After: Sun, 06 Nov 1994 08:49:47 GMT\n* noise\n< Date: Sun, 06 Nov 1994 08:49:37 GMT\n< \nbody", nil,
			[]string{"503", "for 10s (Retry-After)"}},
		{"too long", "HTTP/2 429\nretry-after: 86400\n\n", nil, []string{"24h0m0s", "more than the 10m0s", "give this request up"}},
		{"silent", "HTTP/2 429\n\n", nil, []string{"without a word on how long"}},
		{"used up", "HTTP/2 200\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 12\n\n", nil, []string{"not now", "for 12s"}},
		{"bytes", "HTTP/2 200\nratelimit-policy: \"b\";q=9;qu=\"content-bytes\"\nratelimit: \"b\";r=0;t=9\n\n", nil, []string{"Go on.", "content-bytes"}},
		{"malformed", "HTTP/2 429\nratelimit: \"b\";r=0;t=9,\n\n", nil, []string{"malformed, ignored as a whole"}},
		{"a bad key", "HTTP/2 404\nmessage: Invalid apiKey.\n\n", []string{"--profile", "nvd"}, []string{"The caller is wrong", "Invalid apiKey."}},
		{"a permission is no rate", "HTTP/2 403\n\n{\"message\":\"Resource not accessible\"}", []string{"--profile", "github"}, []string{"same answer"}},
		{"a secondary limit is", "HTTP/2 403\n\n{\"message\":\"You have exceeded a secondary rate limit\"}", []string{"--profile", "github"}, []string{"Refused for the rate"}},
		{"a header alone", "Retry-After: 7\n", []string{"--status", "429"}, []string{"for 7s"}},
		{"at a time", "HTTP/2 429\nx-ratelimit-reset: 1796068860\n\n", []string{"--at", "2026-11-30T20:00:00Z"}, []string{"for 1m0s (X-Ratelimit-Reset)"}},
		{"a terminal is safe", "HTTP/2 429\nratelimit-reason: \x1b[2J\n\n", nil, []string{"?[2J"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := gateHeadersOf(t, test.input, test.args...)
			if code != exitOK {
				t.Fatalf("exit %d: %s", code, errs)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "\x1b") {
				t.Errorf("an escape sequence came through:\n%q", out)
			}
			code, out, _ = gateHeadersOf(t, test.input, append(test.args, "--json")...)
			var report answerReport
			if err := json.Unmarshal([]byte(strings.ReplaceAll(out, `"advice"`, `"-"`)), &report); code != exitOK || err != nil || report.Explanation == "" {
				t.Errorf("exit %d, %v:\n%s", code, err, out)
			}
		})
	}
}

func TestGateHeadersReadsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answer.txt")
	if err := os.WriteFile(file, []byte("HTTP/2 429\nretry-after: 3\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := gateHeadersOf(t, "", file); code != exitOK || !strings.Contains(out, "for 3s") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if code, _, _ := gateHeadersOf(t, "", file+"x"); code != exitUsage {
		t.Errorf("a file that is not there: exit %d", code)
	}
}

func TestGateHeadersRefuses(t *testing.T) {
	for _, test := range []struct {
		input string
		args  []string
		code  int
		want  string
	}{
		{"", nil, exitFailure, "no answer found"},
		{"<html>", nil, exitFailure, "no answer found"},
		{"HTTP/2 429\nwhat is this\n\n", nil, exitFailure, `line 2, "what is this"`},
		{"HTTP/2 429\n\n", []string{"--profile", "x"}, exitUsage, "none of github"},
		{"HTTP/2 429\n\n", []string{"--at", "noon"}, exitUsage, "not a time"},
		{"HTTP/2 429\n\n", []string{"--max-hold", "-1s"}, exitUsage, "want 0 or more"},
		{"HTTP/2 429\n\n", []string{"--status", "7"}, exitUsage, "status 7"},
	} {
		code, _, errs := gateHeadersOf(t, test.input, test.args...)
		if code != test.code || !strings.Contains(errs, test.want) {
			t.Errorf("%q %v: exit %d, %q; want %d and %q", test.input, test.args, code, errs, test.code, test.want)
		}
	}
}

func FuzzReadDump(f *testing.F) {
	f.Add("HTTP/1.1 302 Found\nLocation: /x\n\nHTTP/2 429\nretry-after: 3\n\nbody", 0)
	f.Add("< HTTP/1.1 429\n< A: b\n*x\n<\n", 0)
	f.Add("Retry-After: 3", 429)
	f.Fuzz(func(t *testing.T, s string, status int) {
		d, err := readDump(strings.NewReader(s), status)
		if err == nil && (d.header == nil || len(d.body) > maxDumpBody) {
			t.Fatalf("%+v", d)
		}
	})
}
