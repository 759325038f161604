package gateway

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir"
)

// loginBesideEverything has a strict route beside a lax one, the place where spellings of a path matter.
func loginBesideEverything(up string) *Config {
	cfg := everything(up, []*weir.Limit{perHour("all", 1000), perHour("login", 1), perHour("files", 1000)})
	cfg.Defaults = []Charge{{Limit: "all", Key: "global"}}
	cfg.Routes = []*Route{
		{Pattern: "/login", Limits: []Charge{{Limit: "login", Key: "route"}}},
		{Pattern: "/files/", Limits: []Charge{{Limit: "files", Key: "global"}}},
		{Pattern: "/"},
	}
	return cfg
}

// A route's limits count whatever an upstream could take for a request of the route.
func TestSpellingsOfAPath(t *testing.T) {
	g, url := start(t, loginBesideEverything(backend(t, hello)))
	for i, c := range []struct {
		path   string
		status int
	}{
		{"/login", 200},
		{"/login", 429}, {"/%6cogin", 429}, {"/login/", 429}, {"/login%2f", 429}, {"/%2flogin", 429}, {"/%5clogin", 429},
		{"/login;a=1", 429}, {"/login;a=1/", 429}, {"/;x/login", 429}, {"/x%2f..%2flogin", 429}, {"/files%2f..%2flogin", 429},
		{"//login", 429},
		{"/login2", 200}, {"/x/login", 200}, {"/x%2flogin", 200}, {"/logi;n", 200}, {"/LOGIN", 200}, {"/files/login", 200},
	} {
		res, _ := ask(t, "GET", url+c.path)
		if res.StatusCode != c.status {
			t.Errorf("request %d, %s: %s, want %d", i+1, c.path, res.Status, c.status)
		}
	}
	if left := remaining(t, g, "all", ""); left != 1000-7 {
		t.Errorf("%d left of all, want %d: the defaults are charged once", left, 1000-7)
	}
	ask(t, "GET", url+"/files%2fx")
	if left := remaining(t, g, "files", ""); left != 1000-2 {
		t.Errorf("%d left of files, want %d", left, 1000-2)
	}
}

// FuzzTarget holds what is charged for a target, and passed on, against careless upstreams: those that decode before they
// split, take backslashes for slashes, and drop parameters and what is empty.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{
		"/", "/login", "/login%2f", "/%2flogin", "/files/..%2flogin", "/files/%2e%2e/login", "/;/login", "/login;/", "/a%5c..%5clogin",
		"//login", "/files/a//b", "/files/./x", "/%252flogin", "http://x/login", "http:login", "*", "/files/%00", "/\xff",
	} {
		f.Add(s)
	}
	g, err := New(loginBesideEverything("http://127.0.0.1:1"), Options{})
	if err != nil {
		f.Fatal(err)
	}
	s := g.site.Load()
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{Method: "GET", URL: u, Host: "x", RequestURI: target}
		found, answer := s.match(r)
		if answer != nil || !wellFormed(r) {
			return // it is not passed on
		}
		charged := func(limit string) bool {
			return slices.ContainsFunc(found.charges, func(c charge) bool { return c.limit.Name == limit })
		}
		sent := u.EscapedPath()
		for _, read := range []func(string) string{
			unescaped, func(s string) string { return unescaped(backslashes(s)) }, func(s string) string { return backslashes(unescaped(s)) },
			func(s string) string { return parameters(unescaped(s)) }, func(s string) string { return unescaped(parameters(s)) },
			func(s string) string { return parameters(backslashes(unescaped(s))) },
		} {
			got := read(sent)
			if slices.Contains(strings.Split(backslashes(got), "/"), "..") {
				t.Errorf("%q is passed on, and climbs as %q", target, got)
			}
			switch got = path.Clean("/" + got); {
			case got == "/login" && !charged("login"):
				t.Errorf("%q, read as %q, is not charged on login", target, got)
			case strings.HasPrefix(got, "/files/") && !charged("files"):
				t.Errorf("%q, read as %q, is not charged on files", target, got)
			}
		}
		n := 0
		for _, c := range found.charges {
			if c.limit.Name == "all" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is charged %d times on the default", target, n)
		}
	})
}

func unescaped(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return plain
}

func backslashes(s string) string { return strings.ReplaceAll(s, `\`, "/") }

func parameters(s string) string {
	segments := strings.Split(s, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

func TestCanonicalHost(t *testing.T) {
	for host, want := range map[string]string{
		"example.com": "example.com", "Example.COM": "example.com", "example.com.": "example.com", "example.com.:80": "example.com:80",
		"EXAMPLE.com:8080": "example.com:8080", "[2001:DB8::1]:80": "[2001:db8::1]:80", "[::1]": "[::1]", "": "", ".": "",
	} {
		if got := canonicalHost(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

func TestMatchable(t *testing.T) {
	for pattern, want := range map[string]string{
		"/Orders": "/Orders", "GET /Orders": "GET /Orders", "Shop.Example/X": "shop.example/X", "POST  Shop.Example/X": "POST  shop.example/X",
	} {
		if got := matchable(pattern); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}
