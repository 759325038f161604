package httplimit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request over loopback. The lines are "Name: value".
func ask(t testing.TB, method, url string, lines ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// serve is h on loopback. Its limits are per hour or day, so that nothing comes back while a test runs.
func serve(t testing.TB, h *Handler) string {
	t.Helper()
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // panics are on purpose
	t.Cleanup(s.Close)
	return s.URL
}

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served\n") }

// problem is the body of a refusal.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail"`
	Violated  []string `json:"violated-policies"`
	Retryable *bool    `json:"retryable"`
}

func readProblem(t testing.TB, a answer) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" || p.Status != a.status {
		t.Fatalf("%v: status %d, %s, body %s", err, a.status, a.header.Get("Content-Type"), a.body)
	}
	return p
}

func TestHandler(t *testing.T) {
	global := &weir.Limit{Name: "global", Rate: rate(t, "1000/h")}
	client := &weir.Limit{Name: "client", Algorithm: weir.FixedWindow, Rate: rate(t, "2/1d")}
	shadow := &weir.Limit{Name: "shadow", Rate: rate(t, "1/h"), Shadow: true}
	key := Header("X-Client")
	var lim weir.Limiter
	url := serve(t, &Handler{
		Limiter: &lim, Next: http.HandlerFunc(ok),
		Rules: []Rule{{Limit: global}, {Limit: shadow}, {Limit: client, Key: key}},
	})

	for i := range 2 {
		a := ask(t, "GET", url, "X-Client: alice")
		if a.status != 200 || a.body != "served\n" {
			t.Fatalf("request %d: %d %s", i, a.status, a.body)
		}
		want := fmt.Sprintf(`"global";r=%d;t=`, 999-i)
		if got := a.header.Get("RateLimit"); !strings.HasPrefix(got, want) || !strings.Contains(got, fmt.Sprintf(`, "client";r=%d;t=`, 1-i)) {
			t.Errorf("request %d: RateLimit %s", i, got)
		}
		if got := a.header.Get("RateLimit-Policy"); got != `"global";q=1000;w=3600, "client";q=2;w=86400` {
			t.Errorf("request %d: RateLimit-Policy %s", i, got)
		}
	}

	a := ask(t, "GET", url, "X-Client: alice")
	if a.status != 429 || a.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("third request: %d, %v", a.status, a.header)
	}
	retry, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || retry < 1 || retry > 86400 {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	if got := a.header.Values("RateLimit"); len(got) != 1 || got[0] != fmt.Sprintf(`"client";r=0;t=%d`, retry) {
		t.Errorf("RateLimit %q with Retry-After %d", got, retry)
	}
	p := readProblem(t, a)
	if p.Type != ProblemQuotaExceeded || len(p.Violated) != 1 || p.Violated[0] != "client" || p.Retryable != nil || !strings.Contains(p.Detail, strconv.Itoa(retry)) {
		t.Errorf("problem %+v", p)
	}
	for _, secret := range []string{"alice", "127.0.0.1", "shadow", "global"} {
		if all := a.body + fmt.Sprint(a.header); strings.Contains(all, secret) {
			t.Errorf("the refusal tells of %s: %s", secret, all)
		}
	}

	// The refusal has charged nothing, and another client has its own units.
	if d := take(t, &lim, global.For("").Costing(0)); d.Outcomes()[0].Remaining != 998 {
		t.Errorf("global has %d units left after a refusal, want 998", d.Outcomes()[0].Remaining)
	}
	if a := ask(t, "GET", url, "X-Client: bob"); a.status != 200 {
		t.Errorf("bob: %d", a.status)
	}

	// Without identity requests share; they do not pass.
	for i, want := range []int{200, 200, 429} {
		if a := ask(t, "GET", url); a.status != want {
			t.Errorf("request %d without X-Client: %d, want %d", i, a.status, want)
		}
	}
	if a := ask(t, "HEAD", url); a.status != 429 || a.body != "" || a.header.Get("Retry-After") == "" {
		t.Errorf("HEAD: %+v", a)
	}
}

func TestWhenAndPriority(t *testing.T) {
	lane := &weir.Limit{Name: "lane", Rate: rate(t, "10/h"), Headroom: 2}
	url := serve(t, &Handler{Next: http.HandlerFunc(ok), Rules: []Rule{{
		Limit: lane,
		When:  func(r *http.Request) bool { return r.URL.Path != "/free" },
		Priority: func(r *http.Request) weir.Priority {
			return map[string]weir.Priority{"/order": weir.High, "/report": weir.Low}[r.URL.Path]
		},
	}}})
	got := map[string]int{}
	for _, path := range []string{"/report", "/read", "/order", "/free"} {
		for range 20 {
			a := ask(t, "GET", url+path)
			if a.status == 200 {
				got[path]++
			}
			if path == "/free" && a.header.Get("RateLimit") != "" {
				t.Errorf("%s has RateLimit %s", path, a.header.Get("RateLimit"))
			}
		}
	}
	for path, want := range map[string]int{"/report": 6, "/read": 2, "/order": 2, "/free": 20} {
		if got[path] != want {
			t.Errorf("%s: %d of 20 served, want %d", path, got[path], want)
		}
	}
}

func TestCost(t *testing.T) {
	l := &weir.Limit{Name: "units", Rate: rate(t, "100/h"), Headroom: 10}
	var lim weir.Limiter
	url := serve(t, &Handler{Limiter: &lim, Next: http.HandlerFunc(ok), Rules: []Rule{{Limit: l, Cost: func(r *http.Request) (int64, error) {
		if r.URL.Path == "/body" {
			_, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("12345")), 4))
			return 1, err
		}
		return strconv.ParseInt(r.URL.Path[1:], 10, 64)
	}}}})
	for _, c := range []struct {
		path   string
		status int
		detail string
		left   int64
	}{
		{"/30", 200, "", 60},
		{"/0", 200, "", 60},
		{"/x", 400, "The cost of the request cannot be determined.", 60},
		{"/-1", 400, "The cost of the request cannot be determined.", 60},
		{"/body", 413, "The request is too large for its cost to be determined.", 60},
		{"/91", 429, "Limit units: cost 91 exceeds capacity 90.", 60},
		{"/9223372036854775807", 429, "Limit units: cost 4503599627370496 exceeds capacity 90.", 60},
		{"/61", 429, "Try again in ", 60},
		{"/60", 200, "", 0},
	} {
		a := ask(t, "GET", url+c.path)
		if a.status != c.status {
			t.Errorf("%s: status %d, want %d", c.path, a.status, c.status)
			continue
		}
		if a.status != 200 {
			p := readProblem(t, a)
			if !strings.HasPrefix(p.Detail, c.detail) {
				t.Errorf("%s: detail %q, want %q", c.path, p.Detail, c.detail)
			}
			never := strings.Contains(c.detail, "exceeds")
			if retry := a.header.Get("Retry-After"); (retry != "") != (c.status == 429 && !never) {
				t.Errorf("%s: Retry-After %q", c.path, retry)
			}
			if never != (p.Retryable != nil && !*p.Retryable) {
				t.Errorf("%s: body %s", c.path, a.body)
			}
		}
		if d := take(t, &lim, l.For("").Costing(0)); d.Outcomes()[0].Remaining != c.left {
			t.Errorf("%s: %d left, want %d", c.path, d.Outcomes()[0].Remaining, c.left)
		}
	}
}

// broken is a Store that cannot decide.
type broken struct{ err error }

func (b broken) Apply(context.Context, *weir.Tx) error { return b.err }

func TestStoreFails(t *testing.T) {
	var log bytes.Buffer
	l := &weir.Limit{Name: "client", Rate: rate(t, "1/h")}
	var seen error
	url := serve(t, &Handler{
		Limiter: &weir.Limiter{Store: broken{errors.New("no route to 10.1.2.3")}},
		Rules:   []Rule{{Limit: l}},
		Next:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served without a decision") }),
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		Observe: func(_ *http.Request, d weir.Decision, err error) { seen = err },
	})
	a := ask(t, "GET", url)
	p := readProblem(t, a)
	if a.status != 503 || a.header.Get("Retry-After") != "1" || a.header.Get("Cache-Control") != "no-store" || p.Type != "about:blank" || p.Title != "Service Unavailable" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a.header.Get("RateLimit") != "" || strings.Contains(a.body, "10.1.2.3") {
		t.Errorf("the answer tells what it cannot know, or must not: %v %s", a.header, a.body)
	}
	if seen == nil || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "no route to 10.1.2.3") {
		t.Errorf("observed %v, logged %s", seen, log.String())
	}
}

// A login that counts failures only.
func TestOnly(t *testing.T) {
	login := &weir.Limit{Name: "login", Rate: rate(t, "3/h")}
	url := serve(t, &Handler{
		Rules: []Rule{{Limit: login, Key: ClientIP{}.Key, Only: func(status int) bool { return status == 401 || status == 500 }}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/wrong":
				w.WriteHeader(http.StatusEarlyHints) // no answer yet
				w.WriteHeader(http.StatusUnauthorized)
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/silent":
			default:
				w.WriteHeader(http.StatusOK)
				w.WriteHeader(http.StatusUnauthorized) // too late to count
			}
		}),
	})
	for i := range 10 {
		for _, path := range []string{"/right", "/silent"} {
			if a := ask(t, "GET", url+path); a.status != 200 || !strings.HasPrefix(a.header.Get("RateLimit"), `"login";r=2;`) {
				t.Fatalf("%s %d: %d, RateLimit %s", path, i, a.status, a.header.Get("RateLimit"))
			}
		}
	}
	if _, err := http.Post(url+"/panic", "", nil); err == nil { // a GET would be sent again
		t.Error("the panic did not reach the server")
	}
	for i, want := range []int{401, 401, 429} {
		if a := ask(t, "GET", url+"/wrong"); a.status != want {
			t.Errorf("wrong %d: %d, want %d", i, a.status, want)
		}
	}
	if a := ask(t, "GET", url+"/right"); a.status != 429 {
		t.Errorf("right password after too many wrong ones: %d, want 429", a.status)
	}
}

// However many guesses come at once, no more than the limit are looked at.
func TestOnlyAtOnce(t *testing.T) {
	login := &weir.Limit{Name: "login", Rate: rate(t, "3/h")}
	var mu sync.Mutex
	looked, gate := 0, make(chan struct{})
	url := serve(t, &Handler{
		Rules: []Rule{{Limit: login, Only: func(status int) bool { return status == 401 }}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			looked++
			mu.Unlock()
			<-gate
			w.WriteHeader(401)
		}),
	})
	var wg sync.WaitGroup
	statuses := make(chan int, 20)
	for range 20 {
		wg.Go(func() { statuses <- ask(t, "GET", url).status })
	}
	for range 17 {
		if s := <-statuses; s != 429 {
			t.Errorf("answered %d while three guesses are open", s)
		}
	}
	close(gate)
	wg.Wait()
	if looked != 3 {
		t.Errorf("%d guesses were looked at, want 3", looked)
	}
}

// A concurrency unit comes back when the handler returns, or panics, and not before; a shadow one that was never
// taken does not.
func TestConcurrency(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "2/h")}
	total := &weir.Limit{Name: "total", Rate: rate(t, "1000/h")}
	started, gate := make(chan struct{}, 2), make(chan struct{})
	var lim weir.Limiter
	url := serve(t, &Handler{
		Limiter: &lim,
		Rules:   []Rule{{Limit: total}, {Limit: open}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, wraps := w.(interface{ Unwrap() http.ResponseWriter }); wraps {
				t.Error("the ResponseWriter is wrapped though no answer is looked at")
			}
			switch r.URL.Path {
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/slow":
				started <- struct{}{}
				<-gate
			}
		}),
	})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { ask(t, "GET", url+"/slow") })
		<-started
	}
	a := ask(t, "GET", url)
	if p := readProblem(t, a); a.status != 429 || a.header.Get("Retry-After") != "1" || p.Violated[0] != "open" {
		t.Errorf("a third at once: %d %v %s", a.status, a.header, a.body)
	}
	if got := a.header.Get("RateLimit"); got != `"open";r=0` {
		t.Errorf("RateLimit %s", got)
	}
	close(gate)
	wg.Wait()
	for range 5 {
		http.Post(url+"/panic", "", nil)
	}
	if a := ask(t, "GET", url); a.status != 200 {
		t.Errorf("after all have ended: %d", a.status)
	}
	if d := take(t, &lim, open.For("").Costing(0), total.For("").Costing(0)); d.Outcomes()[0].Remaining != 2 || d.Outcomes()[1].Remaining != 1000-8 {
		t.Errorf("left: %d open, %d total; want 2, %d", d.Outcomes()[0].Remaining, d.Outcomes()[1].Remaining, 1000-8)
	}
}

// distant is a Store that, as one behind a network does, stops when its caller has.
type distant struct{ weir.Store }

func (s distant) Apply(ctx context.Context, tx *weir.Tx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, tx)
}

// A client that leaves does not keep its unit.
func TestConcurrencyClientLeaves(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "1/h")}
	lim := weir.Limiter{Store: distant{&weir.Memory{}}}
	h := &Handler{Limiter: &lim, Rules: []Rule{{Limit: open}}}
	ctx, leave := context.WithCancel(context.Background())
	h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leave() })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if d := take(t, &lim, open.For("").Costing(0)); d.Outcomes()[0].Remaining != 1 {
		t.Error("the unit has not come back")
	}
}

// A shadow limit that would have refused has taken nothing, and nothing is given back: here it would be the unit of
// another request of the same microsecond.
func TestConcurrencyShadow(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "1/h"), Shadow: true}
	lim := (&clock{now: noon}).limiter()
	take(t, lim, open.For(""))
	h := &Handler{Limiter: lim, Rules: []Rule{{Limit: open}}, Next: http.HandlerFunc(ok)}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if d := take(t, lim, open.For("").Costing(0)); w.Code != 200 || d.Outcomes()[0].Remaining != 0 {
		t.Errorf("status %d, %d units left; want 200, 0", w.Code, d.Outcomes()[0].Remaining)
	}
}

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

func TestMiddleware(t *testing.T) {
	l := &weir.Limit{Name: "shared", Rate: rate(t, "2/h")}
	h := &Handler{Rules: []Rule{{Limit: l}}}
	one, two := h.Middleware(http.HandlerFunc(ok)), h.Middleware(http.HandlerFunc(ok))
	for i, next := range []http.Handler{one, two, one, h} {
		w := httptest.NewRecorder()
		next.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if want := []int{200, 200, 429, 429}[i]; w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
}

// What was meant for another answer is taken away from a refusal, what an outer limit says stays.
func TestRefusalHeaders(t *testing.T) {
	outer := &weir.Limit{Name: "outer", Rate: rate(t, "10/h")}
	inner := &weir.Limit{Name: "inner", Rate: rate(t, "0/h")}
	h := &Handler{ExposeCORS: true, Rules: []Rule{{Limit: outer}}, Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"ETag", "Last-Modified", "Expires", "Surrogate-Control", "CDN-Cache-Control", "Content-Encoding", "Content-Length"} {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Cache-Control", "public, max-age=600")
		w.Header().Set("Vary", "Origin")
		(&Handler{Rules: []Rule{{Limit: inner}}}).ServeHTTP(w, r)
	})}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	want := http.Header{
		"Cache-Control":                 {"no-store"},
		"Content-Type":                  {"application/problem+json"},
		"Ratelimit":                     {`"outer";r=9;t=3240`, `"inner";r=0`},
		"Ratelimit-Policy":              {`"outer";q=10;w=3600`, `"inner";q=0;w=3600`},
		"Vary":                          {"Origin"},
		"Access-Control-Expose-Headers": {"RateLimit, RateLimit-Policy, Retry-After"},
	}
	if w.Code != 429 || fmt.Sprint(w.Header()) != fmt.Sprint(want) {
		t.Errorf("%d\n got %v\nwant %v", w.Code, w.Header(), want)
	}
	if p := readProblem(t, answer{w.Code, w.Header(), w.Body.String()}); p.Detail != "Limit inner never admits this request." {
		t.Errorf("detail %q", p.Detail)
	}
}

func TestHooks(t *testing.T) {
	l := &weir.Limit{Name: "client", Rate: rate(t, "1/h")}
	shadow := &weir.Limit{Name: "shadow", Rate: rate(t, "1/h"), Shadow: true}
	var log bytes.Buffer
	var seen []bool
	h := &Handler{
		Rules:   []Rule{{Limit: shadow}, {Limit: l, Key: Header("X-Client")}},
		Next:    http.HandlerFunc(ok),
		Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(_ *http.Request, d weir.Decision, err error) { seen = append(seen, d.Allowed && err == nil) },
		Refuse: func(w http.ResponseWriter, r *http.Request, f *Refusal) {
			f.WriteHeaders(w.Header())
			w.WriteHeader(f.Status())
			fmt.Fprintf(w, "come back in %v", f.RetryAfter())
		},
		Jitter: time.Hour,
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Client", "alice")
	waits := map[string]bool{}
	for i := range 20 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if i == 0 {
			continue
		}
		retry, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		waits[w.Header().Get("Retry-After")] = true
		if want := "come back in " + (time.Duration(retry) * time.Second).String(); w.Code != 429 || w.Body.String() != want {
			t.Fatalf("%d %q, want %q", w.Code, w.Body.String(), want)
		}
		// 3600 s have to pass, less what has passed since the first request.
		if retry < 3590 || retry > 7200 {
			t.Errorf("Retry-After %d with a jitter of an hour", retry)
		}
	}
	if len(waits) < 2 {
		t.Errorf("all refused clients are sent back at once: %v", waits)
	}
	if len(seen) != 20 || !seen[0] || seen[1] {
		t.Errorf("observed %v", seen)
	}
	text := log.String()
	for _, part := range []string{"request refused", "limit=client", "allowed=false", "retry_after=", "cost=1", "key=", `msg="request would be refused" limit=shadow`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not logged: %.300s", part, text)
		}
	}
	if strings.Contains(text, "alice") {
		t.Error("the key is logged as it is")
	}
}

// A Take that waits makes a queue of a Handler.
func TestTakeThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &weir.Limit{Name: "queue", Algorithm: weir.LeakyBucket, Rate: rate(t, "1/s")}
		var lim weir.Limiter
		h := &Handler{
			Limiter: &lim, Rules: []Rule{{Limit: l}}, Next: http.HandlerFunc(ok),
			Take: func(ctx context.Context, c ...weir.Charge) (weir.Decision, error) {
				ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
				defer cancel()
				return lim.Wait(ctx, c...)
			},
		}
		start := time.Now()
		var mu sync.Mutex
		got := map[string]int{}
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(w.Code, " after ", time.Since(start).Round(time.Second), ", Retry-After ", w.Header().Get("Retry-After"))]++
				if w.Code == 429 {
					if p := readProblem(t, answer{w.Code, w.Header(), w.Body.String()}); len(p.Violated) != 1 || p.Violated[0] != "queue" {
						t.Errorf("problem %+v", p)
					}
				}
			})
			synctest.Wait() // they come one after the other, in no time
		}
		wg.Wait()
		want := map[string]int{
			"200 after 0s, Retry-After ": 1, "200 after 1s, Retry-After ": 1, "200 after 2s, Retry-After ": 1,
			"429 after 0s, Retry-After 3": 3,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A Take that has waited in vain until its own deadline refuses. Without a refusal to tell of, it could not decide.
func TestTakeGivesUp(t *testing.T) {
	l := &weir.Limit{Name: "queue", Rate: rate(t, "1/h")}
	lim := (&clock{now: noon}).limiter()
	take(t, lim, l.For(""))
	refused := take(t, lim, l.For(""))
	for _, c := range []struct {
		d      weir.Decision
		err    error
		status int
		retry  string
	}{
		{refused, context.DeadlineExceeded, 429, "3600"},
		{refused, nil, 429, "3600"},
		{refused, &weir.LimitedError{Limit: "queue", RetryAfter: 3 * time.Hour}, 429, "10800"},
		{weir.Decision{}, &weir.LimitedError{Limit: "queue", Never: true}, 429, ""},
		{weir.Decision{}, context.DeadlineExceeded, 503, "1"},
		{weir.Decision{}, context.Canceled, 503, "1"},
	} {
		h := &Handler{Rules: []Rule{{Limit: l}}, Take: func(context.Context, ...weir.Charge) (weir.Decision, error) { return c.d, c.err }}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retry {
			t.Errorf("%v: %d, Retry-After %q; want %d, %q: %s", c.err, w.Code, w.Header().Get("Retry-After"), c.status, c.retry, w.Body)
		}
	}
}

func TestValidate(t *testing.T) {
	a := &weir.Limit{Name: "a", Rate: rate(t, "1/s")}
	shadow := *a
	shadow.Shadow = true
	for _, c := range []struct {
		h    *Handler
		want string
	}{
		{&Handler{}, ""},
		{&Handler{Rules: []Rule{{Limit: a}, {Limit: &shadow}}}, ""},
		{&Handler{Rules: []Rule{{Limit: a}, {}}}, "rule 2: weir: charge without a limit"},
		{&Handler{Rules: []Rule{{Limit: &weir.Limit{Name: "a"}}}}, "no rate"},
		{&Handler{Rules: []Rule{{Limit: a}, {Limit: &weir.Limit{Name: "a", Rate: rate(t, "2/s")}}}}, `limit "a": two limits of this name`},
		{&Handler{Jitter: -1}, "jitter -1ns"},
		{&Handler{Form: 9}, "Form(9)"},
	} {
		switch err := c.h.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%v", err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// away is a Store's error that says when it may be back.
type away time.Duration

func (away) Error() string         { return "away" }
func (a away) Wait() time.Duration { return time.Duration(a) }

// TestUndecidedSaysWhen: a 503 asks back when the Store does, and not before a second.
func TestUndecidedSaysWhen(t *testing.T) {
	for want, err := range map[string]error{
		"1": errors.New("dial: refused"),
		"3": fmt.Errorf("store: %w", away(2500*time.Millisecond)),
		// Not at once, whatever it says.
		"1 ": away(0),
	} {
		w := httptest.NewRecorder()
		(&Refusal{Err: err}).Write(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("Retry-After"); w.Code != 503 || got != strings.TrimSpace(want) {
			t.Errorf("%v: %d, Retry-After %s, want %s", err, w.Code, got, want)
		}
	}
}
