package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-go/weir"
)

func TestAdminLimits(t *testing.T) {
	cfg := trustLoopback(everything(backend(t, hello), []*weir.Limit{perHour("client", 2), perHour("all", 100)},
		Charge{Limit: "client"}, Charge{Limit: "all", Key: "global"}))
	cfg.Admin.Address = "127.0.0.1:0"
	g, url := start(t, cfg)
	admin := g.AdminURL()
	v4, v6 := "X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 2001:db8::1"
	request := func(from string, want int) {
		t.Helper()
		if res, _ := ask(t, "GET", url, from); res.StatusCode != want {
			t.Fatalf("%s: %s, want %d", from, res.Status, want)
		}
	}
	change := func(method, path string, want int) {
		t.Helper()
		if res, body := ask(t, method, admin+path); res.StatusCode != want {
			t.Fatalf("%s %s: %s %s, want %d", method, path, res.Status, body, want)
		}
	}
	type state struct {
		Limit, Key          string
		Allowed             bool
		Remaining, Capacity int64
		RetryAfter          float64 `json:"retry_after"`
		Held                float64
	}
	peek := func(path string) (s state) {
		t.Helper()
		res, body := ask(t, "GET", admin+path)
		if err := json.Unmarshal([]byte(body), &s); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %s %s", path, res.Status, body)
		}
		return s
	}

	request(v4, 200)
	request(v4, 200)
	request(v4, 429)
	request(v6, 200)
	if s := peek("/limits/client/ip:203.0.113.9"); s.Allowed || s.Remaining != 0 || s.Capacity != 2 || s.RetryAfter < 1790 || s.RetryAfter > 1800 || s.Held != 0 || s.Key != "ip:203.0.113.9" {
		t.Errorf("%+v", s)
	}
	if s := peek("/limits/client/ip:2001:db8::%2F64"); !s.Allowed || s.Remaining != 1 {
		t.Errorf("%+v", s)
	}
	if s := peek("/limits/all/"); s.Remaining != 97 {
		t.Errorf("%+v", s)
	}

	change("DELETE", "/limits/client/ip:203.0.113.9", 204)
	request(v4, 200)
	change("POST", "/limits/client/ip:203.0.113.9/hold?for=1h", 204)
	request(v4, 429)
	if s := peek("/limits/client/ip:203.0.113.9"); s.Held < 3590 || s.Held > 3600 || s.Allowed {
		t.Errorf("held: %+v", s)
	}
	request(v6, 200)
	change("POST", "/limits/client/ip:203.0.113.9/hold?for=0", 204)
	request(v4, 200)
	change("POST", "/limits/all/hold?for=10m", 204)
	request("X-Forwarded-For: 198.51.100.1", 429)
	change("POST", "/limits/all/hold?for=0", 204)
	request("X-Forwarded-For: 198.51.100.1", 200)

	for path, want := range map[string]int{
		"/limits/client/ip:203.0.113.9/hold": 400, "/limits/client/x/hold": 400, "/limits/client/ip:203.0.113.9/hold?for=-1s": 400, "/limits/client/ip:203.0.113.9/hold?for=soon": 400,
		"/limits/client/ip:203.0.113.9/hold?for=100000h": 400, "/limits/none/hold?for=1s": 404, "/limits/client": 405,
	} {
		change("POST", path, want)
	}
	change("PUT", "/limits/client/x", 405)
	change("DELETE", "/limits/none/x", 404)

	if res, body := ask(t, "GET", admin+"/limits"); res.StatusCode != 200 || body !=
		`{"limits":[{"name":"client","algorithm":"token-bucket","rate":"2/h","capacity":2},{"name":"all","algorithm":"token-bucket","rate":"100/h","capacity":100}]}`+"\n" {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, body := ask(t, "GET", admin+"/healthz"); res.StatusCode != 200 || body != `{"status":"ok"}`+"\n" {
		t.Errorf("%s %s", res.Status, body)
	}
}

// A key that no request can have would be held, reset and shown without anybody noticing.
func TestAdminRefusesKeysThatNobodyHas(t *testing.T) {
	limits := []*weir.Limit{perHour("client", 9), perHour("ip", 9), perHour("user", 9), perHour("route", 9), perHour("tenant", 9),
		perHour("both", 9), perHour("all", 9), perHour("two", 9), perHour("unused", 9)}
	charges := []Charge{{Limit: "client"}, {Limit: "ip", Key: "ip"}, {Limit: "user", Key: "user"}, {Limit: "route", Key: "route"},
		{Limit: "tenant", Key: "header:X-Tenant"}, {Limit: "both", Key: "ip+route"}, {Limit: "all", Key: "global"}, {Limit: "two", Key: "global"}, {Limit: "two", Key: "ip"}}
	cfg := trustLoopback(everything("http://127.0.0.1:1", limits, charges...))
	cfg.Identity.Header = &TrustHeader{Name: "X-User"}
	anonymous := trustLoopback(everything("http://127.0.0.1:1", limits, charges...))
	anonymous.Clients.IPv6Prefix = 56

	const only = " begin with \"ip:\""
	for _, c := range []struct {
		config     *Config
		limit, key string
		detail     string // after keys of limit …; empty: a request can have it
	}{
		{cfg, "client", "127.0.0.1", ` begin with "user:" or "ip:"; did you mean "ip:127.0.0.1"?`},
		{cfg, "client", "alice", ` begin with "user:" or "ip:"; did you mean "user:alice"?`},
		{cfg, "client", "", ` begin with "user:" or "ip:"`},
		{cfg, "client", "ip:127.0.0.1", ""},
		{cfg, "client", "user:alice/x", ""},
		{cfg, "client", "ip:2001:db8::1", ` begin with "user:" or "ip:"; did you mean "ip:2001:db8::/64"?`},
		{cfg, "client", "2001:DB8::1", ` begin with "user:" or "ip:"; did you mean "ip:2001:db8::/64"?`},
		{cfg, "client", "ip:2001:db8::/64", ""},
		{cfg, "client", "ip:::ffff:192.0.2.1", ` begin with "user:" or "ip:"; did you mean "ip:192.0.2.1"?`},
		{cfg, "client", "ip:localhost", ` begin with "user:" or "ip:" and an address, and "localhost" is none`},
		{anonymous, "client", "127.0.0.1", only + `; did you mean "ip:127.0.0.1"?`},
		{anonymous, "client", "user:alice", only},
		{anonymous, "client", "ip:2001:db8::/64", only + `; did you mean "ip:2001:db8::/56"?`},
		{cfg, "ip", "user:alice", only},
		{cfg, "user", "ip:127.0.0.1", ` begin with "user:"`},
		{cfg, "user", "", ""}, // all that have none
		{cfg, "route", "/", ` are "route:/"; did you mean "route:/"?`},
		{cfg, "route", "route:/", ""},
		{cfg, "tenant", "acme", ` begin with "header:X-Tenant:"; did you mean "header:X-Tenant:acme"?`},
		{cfg, "tenant", "header:X-Tenant:acme", ""},
		{cfg, "tenant", "header:X-Tenant=00ff", ""},
		{cfg, "both", "ip:127.0.0.1", ` are those of ip and route, each with its length in front, as "14:ip:203.0.113.77:route:/"`},
		{cfg, "both", "12:ip:127.0.0.17:route:/", ""},
		{cfg, "both", "12:ip:127.0.0.17:route:/x", ` are those of ip and route, each with its length in front, as "14:ip:203.0.113.77:route:/"`},
		{cfg, "both", "99:ip:127.0.0.1", ` are those of ip and route, each with its length in front, as "14:ip:203.0.113.77:route:/"`},
		{cfg, "all", "", ""},
		{cfg, "all", "x", " are one, the empty one"},
		{cfg, "two", "", ""},
		{cfg, "two", "x", " are one, the empty one or begin with \"ip:\""},
		{cfg, "unused", "x", ""},
	} {
		g, err := New(c.config, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(g.AdminHandler())
		path := s.URL + "/limits/" + c.limit + "/" + url.PathEscape(c.key)
		status, want := 200, ""
		if c.detail != "" {
			status, want = 400, `keys of limit "`+c.limit+`"`+c.detail
		}
		requests := map[string]string{"GET": path, "DELETE": path}
		if strings.Trim(c.key, "/") != "" { // the mux has other ideas of these
			requests["POST"] = path + "/hold?for=10m"
		}
		for method, to := range requests {
			res, body := ask(t, method, to)
			var problem struct{ Detail string }
			if err := json.Unmarshal([]byte(body), &problem); err != nil && res.StatusCode != 204 {
				t.Errorf("%v: %s", err, body)
			}
			if res.StatusCode&^4 != status || problem.Detail != want {
				t.Errorf("%s %s %q: %s %s, want %d %s", method, c.limit, c.key, res.Status, problem.Detail, status, want)
			}
		}
		s.Close()
	}
}

func TestAdminLimit(t *testing.T) {
	g, err := New(everything("http://127.0.0.1:1", []*weir.Limit{perHour("client", 2), perHour("all", 3)}, Charge{Limit: "client"}, Charge{Limit: "all", Key: "global"}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.AdminHandler())
	defer s.Close()
	for path, want := range map[string]string{
		"/limits/client": `200 {"name":"client","algorithm":"token-bucket","rate":"2/h","capacity":2}`,
		"/limits/all":    `200 {"limit":"all","key":"","allowed":true,"remaining":3,"capacity":3,"retry_after":0,"held":0}`,
		"/limits/none":   `404 {"type":"about:blank","title":"Not Found","status":404,"detail":"no limit of this name; GET /limits lists them"}`,
	} {
		if res, body := ask(t, "GET", s.URL+path); strconv.Itoa(res.StatusCode)+" "+body != want+"\n" {
			t.Errorf("%s: %s %s, want %s", path, res.Status, body, want)
		}
	}
}

func TestAdminAccess(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const reset = "/limits/all/x"
	for _, c := range []struct {
		name     string
		token    bool
		loopback bool
		method   string
		path     string
		lines    []string
		status   int
	}{
		{"loopback changes", false, true, "DELETE", reset, nil, 204},
		{"others do not", false, false, "DELETE", reset, nil, 403},
		{"others look", false, false, "GET", reset, nil, 200},
		{"a token is wanted on loopback too", true, true, "DELETE", reset, nil, 401},
		{"the token", true, false, "DELETE", reset, []string{"Authorization: Bearer " + secret}, 204},
		{"the scheme in other letters", true, false, "DELETE", reset, []string{"Authorization: bearer " + secret}, 204},
		{"another token", true, false, "DELETE", reset, []string{"Authorization: Bearer x" + secret}, 401},
		{"another scheme", true, false, "DELETE", reset, []string{"Authorization: Basic " + secret}, 401},
		{"an empty token", true, false, "DELETE", reset, []string{"Authorization: Bearer "}, 401},
		{"looking takes none", true, false, "GET", reset, nil, 200},
		{"a page of another site", false, true, "POST", "/limits/all/hold?for=1s", []string{"Origin: http://evil.example"}, 403},
		{"a page of this site", false, true, "POST", "/limits/all/hold?for=1s", []string{"Sec-Fetch-Site: same-origin"}, 403},
		{"a rebound name", false, true, "GET", "/limits", []string{"Host: evil.example:9090"}, 421},
		{"localhost", false, true, "GET", "/limits", []string{"Host: localhost:9090"}, 200},
		{"an address", false, true, "GET", "/limits", []string{"Host: [::1]:9090"}, 200},
		{"a name elsewhere", false, false, "GET", "/limits", []string{"Host: weir.example:9090"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := everything("http://127.0.0.1:1", []*weir.Limit{perHour("all", 9)})
			if c.token {
				cfg.Admin.TokenFile = token
			}
			g, err := New(cfg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			h := g.AdminHandler()
			if !c.loopback { // httptest only listens there
				h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					g.AdminHandler().ServeHTTP(w, r.WithContext(t.Context()))
				})
			}
			s := httptest.NewServer(h)
			defer s.Close()
			res, body := ask(t, c.method, s.URL+c.path, c.lines...)
			if res.StatusCode != c.status {
				t.Errorf("%s %s, want %d", res.Status, body, c.status)
			}
			if c.status >= 400 && res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("an error as %s: %s", res.Header.Get("Content-Type"), body)
			}
		})
	}
}

func TestMetricsHaveNoLabelsFromRequests(t *testing.T) {
	cfg := trustLoopback(everything(backend(t, hello), []*weir.Limit{perHour("client", 2)}, Charge{Limit: "client"}))
	cfg.Routes[0].Pattern = "/known/"
	cfg.Admin.Address = "127.0.0.1:0"
	g, url := start(t, cfg)
	series := func() int {
		_, text := ask(t, "GET", g.AdminURL()+"/metrics")
		return strings.Count(text, "\n")
	}
	before := series()
	for _, path := range []string{"/known/evil", "/known/x/y", "/unknown", "/known"} {
		ask(t, "GET", url+path, "X-Forwarded-For: 203.0.113.1", "Host: evil.example")
		ask(t, "EVIL", url+path, "X-Forwarded-For: 203.0.113.2")
	}
	await(t, "the end of the requests", func() bool { return g.open.Load() == 0 })
	if after := series(); after != before {
		t.Errorf("%d lines of metrics became %d", before, after)
	}
}
