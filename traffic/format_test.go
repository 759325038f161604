package traffic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func describe(e *Event) string {
	return fmt.Sprintf("%s|%s|%s|%s|%s|%s|%d|%d|%v|%v", e.At.UTC().Format(time.RFC3339Nano), e.Client, e.User, e.Method, e.Host, e.Path, e.Status, e.Bytes, e.Took, e.Header)
}

func TestFormats(t *testing.T) {
	const custom = `$remote_addr - $remote_user [$time_local] $host "$request" $status $body_bytes_sent "$http_x_tenant" rt=$request_time uct="$upstream_connect_time"`
	for _, tt := range []struct{ format, line, want string }{
		{"common", `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
			"2000-10-10T20:55:36Z|127.0.0.1|frank|GET||/apache_pb.gif|200|2326|0s|[]"},
		{"common", `host.example - - [01/Mar/2024:00:00:00 +0530] "POST /a?b=c HTTP/1.1" 304 -`,
			"2024-02-29T18:30:00Z|host.example||POST||/a?b=c|304|0|0s|[]"},
		{"common", `1.1.1.1 - a b [01/Mar/2024:00:00:00 +0000] "GET /with blanks in it HTTP/1.1" 400 0 "more" "that" 0.1`,
			"2024-03-01T00:00:00Z|1.1.1.1|a b|GET||/with blanks in it|400|0|0s|[]"},
		{"common", `1.1.1.1 - - [01/Mar/2024:00:00:00 +0000] "GET /old" 200 1`,
			"2024-03-01T00:00:00Z|1.1.1.1||GET||/old|200|1|0s|[]"},
		{"combined", `2001:db8::1 - - [27/Nov/2026:08:00:00 +0100] "GET /q?x=\"y\" HTTP/2.0" 200 5 "https://ref.example/" "Agent \"quoted\" (x)"`,
			`2026-11-27T07:00:00Z|2001:db8::1||GET||/q?x="y"|200|5|0s|[{User-Agent Agent "quoted" (x)}]`},
		{"combined", `1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] "GET /\xE6\x97\xA5 HTTP/1.1" 200 5 "-" "-"`,
			"2026-11-27T08:00:00Z|1.1.1.1||GET||/日|200|5|0s|[]"},
		{"combined", `1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] "GET /x HTTP/1.1" 200 5 "C:\\\\" "a \\\" \" b"`,
			`2026-11-27T08:00:00Z|1.1.1.1||GET||/x|200|5|0s|[{User-Agent a \" " b}]`},
		{custom, `10.0.0.7 - ann [27/Nov/2026:08:00:00 +0000] shop.example "GET / HTTP/1.1" 200 612 "acme" rt=0.125 uct="0.001"`,
			"2026-11-27T08:00:00Z|10.0.0.7|ann|GET|shop.example|/|200|612|125ms|[{X-Tenant acme}]"},
		{`$msec ${remote_addr} $request_method $request_uri $status`, `1795766400.123 10.0.0.7 PUT /x 201`,
			"2026-11-27T08:00:00.123Z|10.0.0.7||PUT||/x|201|0|0s|[]"},
		{`$time_iso8601|$request`, `2026-11-27T08:00:00+01:00|GET / HTTP/1.1`,
			"2026-11-27T07:00:00Z|||GET||/|0|0|0s|[]"},
		{"json", `{"time_iso8601":"2026-11-27T08:00:00+00:00","remote_addr":"10.0.0.7","remote_user":"","request":"GET /a?b HTTP/1.1","status":"429","body_bytes_sent":"162","request_time":"0.003","http_x_tenant":"acme","http_user_agent":"x"}`,
			"2026-11-27T08:00:00Z|10.0.0.7||GET||/a?b|429|162|3ms|[{X-Tenant acme} {User-Agent x}]"},
		{"json", ` { "msec" : 1795766400.5, "client_ip":"10.0.0.8","method":"GET","uri":"/\u65e5\"","status":200,"bytes":7, "nested":{"uri":"/no","a":[1,{"b":"}"}]}, "yes":true, "none":null } `,
			"2026-11-27T08:00:00.5Z|10.0.0.8||GET||/日\"|200|7|0s|[]"},
		{"json", `{"time_local":"27/Nov/2026:08:00:00 +0000","msec":"1795766400.250","request":"GET / HTTP/1.1"}`,
			"2026-11-27T08:00:00.25Z|||GET||/|0|0|0s|[]"},
		{"json", `{"msec":"1795766400.250","uri":"/rewritten","request_uri":"/asked?x","method":"GET","time_local":"27/Nov/2026:08:00:00 +0000"}`,
			"2026-11-27T08:00:00.25Z|||GET||/asked?x|0|0|0s|[]"},
		{"caddy", `{"level":"info","ts":1795766400.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.1.1.1","remote_port":"41342","client_ip":"203.0.113.9","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/cart?x=1","headers":{"User-Agent":["curl/7.82.0"],"X-Tenant":["acme"],"Accept":["*/*"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"ann","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}`,
			"2026-11-27T08:00:00.5241024Z|203.0.113.9|ann|GET|shop.example|/cart?x=1|200|10900|929.675µs|[{User-Agent curl/7.82.0} {X-Tenant acme}]"},
		{"caddy", `{"ts":"2026-11-27T08:00:00.250Z","request":{"remote_ip":"10.1.1.1","method":"GET","uri":"/"},"duration":"1.5ms","status":404}`,
			"2026-11-27T08:00:00.25Z|10.1.1.1||GET||/|404|0|1.5ms|[]"},
	} {
		f, err := ParseFormat(tt.format, "x-tenant", "User-Agent")
		if err != nil {
			t.Errorf("%s: %v", tt.format, err)
			continue
		}
		var e Event
		if err := f.Parse(tt.line, &e); err != nil {
			t.Errorf("%s\n%v", tt.line, err)
		} else if got := describe(&e); got != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.line, got, tt.want)
		}
	}
}

func TestUnreadableLines(t *testing.T) {
	for _, tt := range []struct{ format, line, want string }{
		{"common", `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "\x16\x03\x01" 400 0`, `is no request`},
		{"common", `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 0`, `"-" is no request`},
		{"common", `127.0.0.1 - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1`, `is no time; the form is 10/Oct/2000:13:55:36 -0700`},
		{"common", `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" ok 1`, `"ok" is no status`},
		{"common", `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 -1`, `"-1" is no number of bytes`},
		{"combined", `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1`, `no " \"" after field 7`},
		{"common", `2026-11-27 error: upstream timed out`, `after field 3`},
		{`[$time_local] $request`, `x`, `does not begin with "["`},
		{`[$time_local] "$request" $status.`, `[10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200. more`, `" more" at the end`},
		{"json", `{"ts":1.7e9,"msg":"server started"}`, "no request"},
		{"json", `{"request":"GET / HTTP/1.1"}`, "no time"},
		{"json", `{"ts":1.7e9,"request":"GET / HTTP/1.1"`, "not a JSON object"},
		{"json", `[]`, "not a JSON object"},
		{"json", ``, "not a JSON object"},
	} {
		f, err := ParseFormat(tt.format)
		if err != nil {
			t.Fatal(err)
		}
		var e Event
		if err := f.Parse(tt.line, &e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.line, err, tt.want)
		}
	}
}

func TestFormatStringsThatCannotBeRead(t *testing.T) {
	for format, want := range map[string]string{
		"apache":                           "it takes one of auto, common, combined, json, caddy, or a format string",
		"$remote_addr $request":            "no time; it takes $time_local",
		"$time_local $status":              "no request; it takes $request",
		"$time_local$request":              "nothing between two variables",
		"${time_local $request":            "a brace that is not closed",
		"$time_local $ $request":           "a dollar sign without a name",
		"$time_local $request_method $uri": "",
	} {
		_, err := ParseFormat(format)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", format, err, want)
		}
	}
}

func TestDetect(t *testing.T) {
	for want, text := range map[string]string{
		"common":   "1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 1\ngarbage\n1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] \"GET / HT",
		"combined": "1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n",
		"json":     `{"ts":1.7e9,"request":{"method":"GET","uri":"/"}}`,
	} {
		if got := detect(text, nil).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// No line, whatever it is, makes a parser panic or an event without time and request.
func FuzzFormat(f *testing.F) {
	f.Add("combined", `1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] "GET /\x22 HTTP/1.1" 200 1 "-" "a\"b"`)
	f.Add("common", `1.1.1.1 - - [27/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 1`)
	f.Add("json", `{"ts":1.7e9,"request":{"method":"GET","uri":"/","headers":{"X-A":["b"]}},"a":"\u00e9","c":[{}]}`)
	f.Add(`$msec "$request" $http_x_a $request_time`, `1795766400.123 "GET /" b 0.1`)
	f.Fuzz(func(t *testing.T, format, line string) {
		p, err := ParseFormat(format, "X-A")
		if err != nil || p == nil {
			return
		}
		var e Event
		if p.Parse(line, &e) == nil && (e.At.IsZero() || e.Method == "" || e.Path == "" || e.Status < 0 || e.Bytes < 0 || e.Took < 0) {
			t.Fatalf("%q with %q is %s", line, format, describe(&e))
		}
	})
}

// Against encoding/json: what is valid reads the same.
func FuzzJSONMembers(f *testing.F) {
	f.Add(`{"a":"b\"\\\u00e9","n":-1.5e3,"t":true,"o":{"x":[1,"}"]},"l":[],"e":""}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return
		}
		got := map[string]member{}
		if err := eachMember(text, func(m member) error { got[m.name] = m; return nil }); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for name, raw := range want {
			m, ok := got[name]
			value := string(raw)
			if m.kind == '"' {
				if err := json.Unmarshal(raw, &value); err != nil {
					t.Fatal(err)
				}
				m.value = strings.ToValidUTF8(m.value, "\ufffd")
				value = strings.ToValidUTF8(value, "\ufffd")
			}
			if strings.ContainsRune(name, '\ufffd') { // names that are not UTF-8
				continue
			}
			if !ok || strings.Count(m.value, "\ufffd") == 0 && m.value != value {
				t.Fatalf("%q: %q is %q, want %q", text, name, m.value, value)
			}
		}
	})
}
