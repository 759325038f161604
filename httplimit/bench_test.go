package httplimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// response is a ResponseWriter that costs what the one of net/http does: a new header map.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(p []byte) (int, error) { return len(p), nil }

func BenchmarkHandler(b *testing.B) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		io.WriteString(w, "ok\n")
	})
	many := weir.Rate{Units: 1e9, Period: time.Minute}
	global := &weir.Limit{Name: "global", Rate: many}
	client := &weir.Limit{Name: "client", Rate: many}
	full := &weir.Limit{Name: "full", Rate: weir.Rate{Units: 1, Period: 24 * time.Hour}}
	login := &weir.Limit{Name: "login", Rate: many}
	key := FirstOf(User, ClientIP{}.Key)
	failed := func(status int) bool { return status == 401 }
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"limits=none", ok},
		{"limits=1", &Handler{Next: ok, Rules: []Rule{{Limit: client, Key: key}}}},
		{"limits=2", &Handler{Next: ok, Rules: []Rule{{Limit: global}, {Limit: client, Key: key}}}},
		{"limits=2/form=legacy", &Handler{Next: ok, Form: FormLegacy, Rules: []Rule{{Limit: global}, {Limit: client, Key: key}}}},
		{"limits=2/form=none", &Handler{Next: ok, Form: FormNone, Rules: []Rule{{Limit: global}, {Limit: client, Key: key}}}},
		{"limits=2/only=401", &Handler{Next: ok, Rules: []Rule{{Limit: global}, {Limit: login, Key: key, Only: failed}}}},
		{"limits=2/refused", &Handler{Next: ok, Rules: []Rule{{Limit: global}, {Limit: full, Key: key}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/orders", nil)
			r.RemoteAddr = "198.51.100.7:40000"
			b.ReportAllocs()
			for b.Loop() {
				var w response
				c.h.ServeHTTP(&w, r)
			}
		})
	}
}

func BenchmarkClientIP(b *testing.B) {
	ip := ClientIP{Trusted: prefixes(b, "10.0.0.0/8", "203.0.113.0/24")}
	for _, c := range []struct {
		name, header, value string
	}{
		{"header=none", "", ""},
		{"header=x-forwarded-for", "X-Forwarded-For", "198.51.100.7, 203.0.113.5"},
		{"header=forwarded", "Forwarded", `for="[2001:db8:1:2::3]:4711";proto=https, for=203.0.113.5`},
	} {
		b.Run(c.name, func(b *testing.B) {
			ip.Header = c.header
			r := request("10.0.0.1:40000", "X")
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			b.ReportAllocs()
			for b.Loop() {
				ip.Key(r)
			}
		})
	}
}
