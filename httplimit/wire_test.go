package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// Streaming, hijacking and copying work through a handler that looks at answers.
func TestWritersPassThrough(t *testing.T) {
	l := &weir.Limit{Name: "l", Rate: rate(t, "100/h")}
	counted := make(chan int, 10)
	h := &Handler{
		Rules: []Rule{{Limit: l, Only: func(status int) bool { counted <- status; return true }}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/stream":
				io.WriteString(w, "one\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done() // the client has read it, and leaves
			case "/control":
				io.WriteString(w, "one\n")
				c := http.NewResponseController(w)
				if err := errors.Join(c.Flush(), c.SetWriteDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex()); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			case "/upgrade":
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello\n")
			case "/copy":
				w.WriteHeader(http.StatusTeapot)
				if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied")); n != 6 || err != nil {
					t.Error(n, err)
				}
			}
		}),
	}
	url := serve(t, h)
	for _, path := range []string{"/stream", "/control"} {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", url+path, nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "one\n" {
			t.Errorf("%s: %q, %v", path, line, err)
		}
		cancel()
		resp.Body.Close()
		if s := <-counted; s != 200 {
			t.Errorf("%s counted as %d", path, s)
		}
	}
	if raw := exchange(t, url, "GET /upgrade HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"); !strings.HasSuffix(raw, "hello\n") || <-counted != 101 {
		t.Errorf("upgrade: %s", raw)
	}
	if a := ask(t, "GET", url+"/copy"); a.status != 418 || a.body != "copied" || <-counted != 418 {
		t.Errorf("copy: %+v", a)
	}
	// What the ResponseWriter inside cannot do is not claimed: nobody can hijack HTTP/2.
	s := httptest.NewUnstartedServer(&Handler{Rules: h.Rules, Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hijack := w.(http.Hijacker)
		_, flush := w.(http.Flusher)
		fmt.Fprint(w, r.Proto, " hijack ", hijack, " flush ", flush)
	})})
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "HTTP/2.0 hijack false flush true" || <-counted != 200 {
		t.Errorf("HTTP/2: %s", body)
	}
	var inner struct{ http.ResponseWriter }
	w := (&recorder{inner: inner}).writer()
	if _, is := w.(http.Flusher); is {
		t.Error("claims to be a Flusher")
	}
	if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("flush: %v", err)
	}
}

// exchange sends raw bytes and reads until the server closes.
func exchange(t testing.TB, url, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, request)
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// However a path is written, it is limited as the route that serves it; and what no route serves is limited too.
func TestSpellingsOfAPath(t *testing.T) {
	l := &weir.Limit{Name: "route", Rate: rate(t, "2/h")}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", ok)
	url := serve(t, &Handler{Next: mux, Rules: []Rule{{Limit: l, Key: RouteOf(mux)}}})
	for _, c := range []struct {
		targets []string
		want    []string
	}{
		{[]string{"/login", "http://other.example/login", "/%6cogin?x", "/login?y"}, []string{"200", "200", "429", "429"}},
		{[]string{"/LOGIN", "/login%2f", "/login/", "/..%2flogin"}, []string{"404", "404", "429", "429"}},
	} {
		for i, target := range c.targets {
			raw := exchange(t, url, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(raw, "HTTP/1.1 "+c.want[i]) {
				t.Errorf("%s: %.40q, want %s", target, raw, c.want[i])
			}
		}
	}
}

// Headers that an attacker fills do not cost much, and do not pass.
func TestHugeHeaders(t *testing.T) {
	l := &weir.Limit{Name: "tenant", Rate: rate(t, "1/h")}
	ip := ClientIP{Trusted: prefixes(t, "127.0.0.0/8")}
	url := serve(t, &Handler{Next: http.HandlerFunc(ok), Rules: []Rule{{Limit: l, Key: Join(ip.Key, Header("X-Tenant"))}}})
	long := "X-Tenant: " + strings.Repeat("x", 100<<10)
	hops := "X-Forwarded-For: " + strings.Repeat("127.0.0.1,", 10_000)
	for i, want := range []int{200, 429} {
		if a := ask(t, "GET", url, long, hops); a.status != want {
			t.Errorf("request %d: %d, want %d", i, a.status, want)
		}
	}
	for i, want := range []int{200, 429} {
		raw := exchange(t, url, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Tenant: \xff\xfe\r\n\r\n")
		if !strings.HasPrefix(raw, "HTTP/1.1 "+strconv.Itoa(want)) {
			t.Errorf("invalid UTF-8, request %d: %.60q, want %d", i, raw, want)
		}
	}
}
