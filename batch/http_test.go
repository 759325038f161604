package batch

import (
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestHostileServers: whatever a server does ends in a column with a reason, in bounded memory and time.
func TestHostileServers(t *testing.T) {
	zeros := make([]byte, 1<<20)
	for _, c := range []struct {
		name   string
		serve  http.HandlerFunc
		column Column
		reason Reason
	}{
		{"an answer", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id": "x"}`)
		}, Changed, ""},
		{"JSON of no declared type", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, `{"id": "x"}`)
		}, Changed, ""},
		{"no such item", http.NotFound, Unknown, ""},
		{"no such item any more", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(410) }, Unknown, ""},
		{"refused", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "99999999999999999999")
			w.WriteHeader(429)
		}, NotFetched, RateLimited},
		{"no permission", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) }, NotFetched, Denied},
		{"broken", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, NotFetched, Server},
		{"an odd status", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, NotFetched, Server},
		{"304 without a condition", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(304) }, NotFetched, Parse},
		{"an endless body", func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		}, NotFetched, TooLarge},
		{"a gzip bomb", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1000 {
				if _, err := z.Write(zeros); err != nil {
					return
				}
			}
		}, NotFetched, TooLarge},
		{"HTML with 200", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "<html>Request forbidden by administrative rules</html>")
		}, NotFetched, Parse},
		{"HTML that calls itself JSON", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "<html></html>")
		}, NotFetched, Parse},
		{"truncated JSON", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id": "x", "list": [1, 2`)
		}, NotFetched, Parse},
		{"a body shorter than said", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"id": "x"}`)
		}, NotFetched, Network},
		{"a reset in the middle", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id": `)
			w.(http.Flusher).Flush()
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		}, NotFetched, Network},
		{"a redirect without end", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, NotFetched, Network},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.serve)
			defer server.Close()
			h := &HTTP{URL: server.URL + "/{id}", JSON: true, MaxBody: 3 << 20}
			run := &Run{Items: []string{"x"}, Fetch: h.Fetch, Thresholds: Thresholds{NotFetched: 1}}
			rep, err := run.Do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l := rep.Ledger
			got := map[Column]int{Changed: l.Changed, Unknown: l.Unknown, NotFetched: l.NotFetched}
			if got[c.column] != 1 || c.reason != "" && l.Reasons[c.reason] != 1 {
				t.Errorf("%v (%+v)", &l, rep.NotFetched)
			}
		})
	}
}

// TestSlowLoris: a server that sends its answer byte by byte costs no more than the time of one item.
func TestSlowLoris(t *testing.T) {
	stop := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{"))
		w.(http.Flusher).Flush()
		<-stop
	}))
	defer server.Close()
	defer close(stop)
	h := &HTTP{URL: server.URL + "/{id}", JSON: true}
	run := &Run{Items: []string{"x"}, Fetch: h.Fetch, Timeout: 100 * time.Millisecond, Thresholds: Thresholds{NotFetched: 1}}
	rep, err := run.Do(t.Context())
	if err != nil || rep.Ledger.Reasons[GaveUp] != 1 {
		t.Errorf("%v, %v", err, &rep.Ledger)
	}
}

func TestNoSecretFollowsToAnotherHost(t *testing.T) {
	var seen http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		fmt.Fprint(w, "elsewhere")
	}))
	defer other.Close()
	var key string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("apiKey")
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/here", http.StatusFound)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()
	h := &HTTP{URL: server.URL + "/{id}?key=secret", Header: http.Header{"Apikey": {"secret"}, "Authorization": {"Bearer secret"}}}
	h.Fetch(t.Context(), "b", Before{})
	if ref := seen.Get("Referer"); ref != "" {
		t.Errorf("the other host was told of %s", ref)
	}
	res := h.Fetch(t.Context(), "a", Before{})
	if res.Column != Changed || key != "secret" {
		t.Errorf("%+v; the host itself saw the key %q after its own redirect", res, key)
	}
	if seen == nil {
		t.Error("the other host was not asked")
	}
	for name, values := range seen {
		if strings.Contains(strings.Join(values, ""), "secret") {
			t.Errorf("%s: %v went to another host", name, values)
		}
	}
}

// TestNoSecretLeavesTLS: a redirect to the same host by another scheme is one to another host.
func TestNoSecretLeavesTLS(t *testing.T) {
	h := &HTTP{Header: http.Header{"Apikey": {"secret"}, "Authorization": {"secret"}}}
	request := func(url string) *http.Request {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range h.Header {
			r.Header[name] = values
		}
		return r
	}
	home := request("https://api.example/a")
	for url, kept := range map[string]bool{"https://api.example/b": true, "http://api.example/b": false, "https://api.example:8443/b": false} {
		r := request(url)
		if err := h.client().CheckRedirect(r, []*http.Request{home}); err != nil {
			t.Fatal(err)
		}
		if got := len(r.Header) > 0; got != kept {
			t.Errorf("%s: the header is %v", url, r.Header)
		}
	}
}

func TestConditionalRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "content")
	}))
	defer server.Close()
	out := t.TempDir() + "/results.jsonl"
	for i, want := range []Ledger{{Items: 1, Changed: 1}, {Items: 1, NotModified: 1}, {Items: 1, NotModified: 1}} {
		h := &HTTP{URL: server.URL + "/{id}"}
		rep, err := (&Run{Items: []string{"x"}, Fetch: h.Fetch, Out: out}).Do(t.Context())
		if err != nil || rep.Ledger.String() != want.String() {
			t.Errorf("run %d: %v, %v; want %v", i, err, &rep.Ledger, &want)
		}
		if r := records(t, out)["x"]; r.Data == nil || *r.Data.Text != "content" || r.ETag != `"v1"` {
			t.Errorf("run %d: %+v", i, r)
		}
	}
}

func TestItemsAreEscaped(t *testing.T) {
	h := &HTTP{URL: "http://host/v1/{id}/x?q={id}"}
	if got, want := h.url("../a b?&%/ü"), "http://host/v1/..%2Fa%20b%3F&%25%2F%C3%BC/x?q=..%2Fa+b%3F%26%25%2F%C3%BC"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDotsAreNoItems: servers and clients take . and .. out of a path, whether escaped or not; what is left is another item's.
func TestDotsAreNoItems(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked++ }))
	defer server.Close()
	for _, path := range []string{"/v1/{id}", "/v1/{id}/x", "/{id}?q={id}"} {
		for _, id := range []string{".", ".."} {
			h := &HTTP{URL: server.URL + path}
			if res := h.Fetch(t.Context(), id, Before{}); res.Reason != Parse || asked != 0 {
				t.Errorf("%s with %s: %+v", path, id, res)
			}
		}
	}
	for _, path := range []string{"/v1/{id}.json", "/?q={id}"} {
		h := &HTTP{URL: server.URL + path}
		if res := h.Fetch(t.Context(), "..", Before{}); res.Column != Changed {
			t.Errorf("%s: %+v", path, res)
		}
	}
}

func TestMeter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(429) }))
	defer server.Close()
	ctx, counter := WithTally(context.Background())
	client := &http.Client{Transport: &Meter{}}
	for range 3 {
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if got := counter.read(); got.Requests != 3 || got.Refusals != 3 {
		t.Errorf("counted %+v", got)
	}
}
