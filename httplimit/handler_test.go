package httplimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
