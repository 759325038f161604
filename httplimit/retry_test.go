package httplimit

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// script is a server that gives one answer after the other, the last one for ever.
type script struct {
	mu    sync.Mutex
	steps []step
	at    []time.Duration // when each request came, since the first
	seen  []string        // bodies
	begin time.Time
}

type step struct {
	status int
	header http.Header
	err    error
	body   io.Reader // nil is "ok"
	takes  time.Duration
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	s.mu.Lock()
	if s.begin.IsZero() {
		s.begin = time.Now()
	}
	st := s.steps[min(len(s.at), len(s.steps)-1)]
	s.at, s.seen = append(s.at, time.Since(s.begin)), append(s.seen, body)
	s.mu.Unlock()
	if err := pass(r.Context(), func() time.Duration { return st.takes }); err != nil {
		return nil, err
	}
	if st.err != nil {
		return nil, st.err
	}
	resp := respond(r, st.status, st.header.Clone(), "ok")
	if st.body != nil {
		resp.Body, resp.ContentLength = io.NopCloser(st.body), -1
	}
	return resp, nil
}

var errReset = errors.New("connection reset by peer")

// TestRetry is one line a story: what the server does, and what comes of it.
func TestRetry(t *testing.T) {
	bad, good, reset := step{status: 500}, step{status: 200}, step{err: errReset}
	wait := step{status: 503, header: http.Header{"Retry-After": {"20"}}}
	limited := step{status: 429, header: http.Header{"Retry-After": {"20"}}}
	get := func() *http.Request { r, _ := http.NewRequest("GET", "https://api.example/", nil); return r }
	post := func() *http.Request {
		r, _ := http.NewRequest("POST", "https://api.example/", strings.NewReader("order"))
		return r
	}
	keyed := func() *http.Request { r := post(); r.Header.Set("Idempotency-Key", "1"); return r }
	for _, test := range []struct {
		name   string
		retry  *Retry
		r      *http.Request
		steps  []step
		status int // 0 is an error
		sent   int
		least  time.Duration // that it takes
		most   time.Duration
	}{
		{"good", &Retry{}, get(), []step{good}, 200, 1, 0, 0},
		{"bad then good", &Retry{}, get(), []step{bad, good}, 200, 2, 0, 500 * time.Millisecond},
		{"reset then good", &Retry{}, get(), []step{reset, bad, good}, 200, 3, 0, 1500 * time.Millisecond},
		{"bad for ever", &Retry{}, get(), []step{bad}, 500, 4, 0, 3500 * time.Millisecond},
		{"bad for ever, twice", &Retry{Attempts: 2}, get(), []step{bad}, 500, 2, 0, 500 * time.Millisecond},
		{"reset for ever", &Retry{}, get(), []step{reset}, 0, 4, 0, 3500 * time.Millisecond},
		{"the last answer counts", &Retry{Attempts: 2}, get(), []step{reset, bad}, 500, 2, 0, 500 * time.Millisecond},
		{"Retry-After comes first", &Retry{}, get(), []step{wait, good}, 200, 2, 20 * time.Second, 22 * time.Second},
		{"refusals", &Retry{}, get(), []step{limited, limited, limited, limited, limited, good}, 200, 6, 100 * time.Second, 106 * time.Second},
		{"refusals for ever", &Retry{Refusals: 3}, get(), []step{limited}, 429, 4, 60 * time.Second, 64 * time.Second},
		{"refusals without a time grow", &Retry{Refusals: 4}, get(), []step{{status: 429}}, 429, 5, 15 * time.Second, 16 * time.Second},
		{"no retries", nil, get(), []step{bad, good}, 500, 1, 0, 0},
		{"not found is an answer", &Retry{}, get(), []step{{status: 404}, good}, 404, 1, 0, 0},
		{"wrong is wrong", &Retry{}, get(), []step{{status: 400}, good}, 400, 1, 0, 0},
		{"post", &Retry{}, post(), []step{bad, good}, 500, 1, 0, 0},
		{"post refused", &Retry{}, post(), []step{limited, good}, 429, 1, 0, 0},
		{"post, all", &Retry{All: true}, post(), []step{bad, good}, 200, 2, 0, 500 * time.Millisecond},
		{"post with a key", &Retry{}, keyed(), []step{bad, good}, 200, 2, 0, 500 * time.Millisecond},
		{"total", &Retry{Total: 30 * time.Second}, get(), []step{wait}, 503, 2, 20 * time.Second, 22 * time.Second},
		{"total, server errors", &Retry{Total: time.Second, Attempts: 1000, Budget: -1, Base: 100 * time.Millisecond}, get(), []step{bad}, 500, 0, 0, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: test.steps}
				rt := &Transport{Base: s, Retry: test.retry}
				begin := time.Now()
				resp, err := rt.RoundTrip(test.r)
				took := time.Since(begin)
				switch {
				case test.status == 0:
					if !errors.Is(err, errReset) {
						t.Fatalf("%v, %v", resp, err)
					}
				case err != nil || resp.StatusCode != test.status:
					t.Fatalf("%v, %v; want %d", resp, err, test.status)
				default:
					if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
						t.Errorf("body %q, %v", b, err)
					}
					resp.Body.Close()
				}
				if test.sent > 0 && len(s.at) != test.sent {
					t.Errorf("sent %d times, want %d: %v", len(s.at), test.sent, s.at)
				}
				if took < test.least || took > test.most {
					t.Errorf("took %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

// TestBodiesAreSentAgain: each attempt sends the whole body, wherever it is from.
func TestBodiesAreSentAgain(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	for _, test := range []struct {
		name string
		body func() io.Reader
		max  int64
		sent int
	}{
		{"with GetBody", func() io.Reader { return strings.NewReader(text) }, 10, 3},
		{"a stream", func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, 0, 3},
		{"a stream of just the size", func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, 1000, 3},
		{"a stream that is too long to keep", func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, 999, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{steps: []step{{status: 500}, {err: errReset}, {status: 200}}}
			rt := &Transport{Base: s, Retry: &Retry{BufferBody: test.max}}
			r, _ := http.NewRequest("PUT", "https://api.example/", test.body())
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if len(s.seen) != test.sent {
				t.Errorf("%s: sent %d times, want %d", test.name, len(s.seen), test.sent)
			}
			for i, b := range s.seen {
				if b != text {
					t.Errorf("%s: attempt %d sent %d bytes, want %d", test.name, i+1, len(b), len(text))
				}
			}
		})
	}
}

// TestBudget: a server in trouble gets few requests more than it would without retries, and retries come back with time and success.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}}}
		rt := &Transport{Base: s, Retry: &Retry{Base: time.Nanosecond, Budget: 10}}
		ask := func() int {
			before := len(s.at)
			r, _ := http.NewRequest("GET", "https://api.example/", nil)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return len(s.at) - before
		}
		for range 100 {
			ask()
		}
		if len(s.at) > 111 {
			t.Errorf("100 requests were sent %d times with a budget of 10", len(s.at))
		}
		time.Sleep(2 * time.Second)
		if n := ask(); n != 3 {
			t.Errorf("after 2 s a request was sent %d times, want 3", n)
		}
		s.steps = []step{{status: 200}}
		s.at = nil
		for range 10 {
			ask()
		}
		s.steps = []step{{status: 500}}
		if n := ask(); n != 3 {
			t.Errorf("after 10 successes a request was sent %d times, want 3", n)
		}
	})
}

func TestTimeoutOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 200, takes: time.Minute}, {status: 200}}}
		rt := &Transport{Base: s, Timeout: 5 * time.Second, Retry: &Retry{}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		begin := time.Now()
		resp, err := rt.RoundTrip(r)
		if err != nil || len(s.at) != 2 || time.Since(begin) > 6*time.Second {
			t.Errorf("%v, %v after %v", resp, err, time.Since(begin))
		}
		rt = &Transport{Base: &script{steps: s.steps[:1]}, Timeout: 5 * time.Second}
		_, err = rt.RoundTrip(r)
		var late *TimeoutError
		if !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%v", err)
		}
	})
}

// TestWaitingIsNoTimeout: the time at the gate does not count.
func TestWaitingIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &Transport{Base: &server{work: time.Second}, Timeout: 2 * time.Second, Gates: []Gate{{Limit: window(1, time.Minute)}}}
		if _, good := fetchAll(t, rt, 5, 5); good != 5 {
			t.Errorf("%d of 5", good)
		}
	})
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 502}}}
		rt := &Transport{Base: s, Breaker: &Breaker{Failures: 3, Delay: 10 * time.Second}, Gates: []Gate{{Limit: window(100, time.Minute)}}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		ask := func() error {
			resp, err := rt.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		for range 3 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		var open *BreakerError
		if err := ask(); !errors.As(err, &open) || open.RetryAfter != 10*time.Second || len(s.at) != 3 {
			t.Fatalf("after three failures: %v, sent %d times", err, len(s.at))
		}
		other, _ := http.NewRequest("GET", "https://other.example/", nil)
		if _, err := rt.RoundTrip(other); err != nil {
			t.Errorf("another host: %v", err)
		}
		if d, err := rt.own.Peek(t.Context(), rt.Gates[0].Limit.For(Host(r))); err != nil || d.Outcomes()[0].Remaining != 97 {
			t.Errorf("an open breaker spends units: %+v, %v", d.Outcomes(), err)
		}
		time.Sleep(11 * time.Second)
		s.steps = []step{{status: 429}, {status: 200}}
		s.at = nil
		for range 3 {
			if err := ask(); err != nil {
				t.Errorf("once it is well again: %v", err)
			}
		}
	})
}

// TestHedge: the faster of two answers counts, the other is let go, and both pass the gate.
func TestHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 200, takes: 10 * time.Second}, {status: 200, takes: time.Second}}}
		limit := window(2, time.Minute)
		rt := &Transport{Base: s, Hedge: &Hedge{After: 2 * time.Second}, Gates: []Gate{{Limit: limit}}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		begin := time.Now()
		resp, err := rt.RoundTrip(r)
		if err != nil || time.Since(begin) != 3*time.Second {
			t.Fatalf("%v, %v after %v", resp, err, time.Since(begin))
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
			t.Errorf("body %q, %v", b, err)
		}
		resp.Body.Close()
		synctest.Wait()
		if d, _ := rt.own.Peek(t.Context(), limit.For(Host(r))); d.Allowed {
			t.Error("the second request has not passed the gate")
		}
		// No unit to spare, no second request.
		time.Sleep(2 * time.Minute)
		rt.own.Take(t.Context(), limit.For(Host(r)))
		s.steps, s.at = []step{{status: 200, takes: 5 * time.Second}}, nil
		begin = time.Now()
		if resp, err = rt.RoundTrip(r); err != nil || time.Since(begin) != 5*time.Second || len(s.at) != 1 {
			t.Errorf("%v after %v, sent %d times", err, time.Since(begin), len(s.at))
		}
		resp.Body.Close()
	})
}

func TestFallback(t *testing.T) {
	for _, st := range []step{{status: 500}, {err: errReset}, {status: 429}} {
		synctest.Test(t, func(t *testing.T) {
			rt := &Transport{
				Base: &script{steps: []step{st}}, Retry: &Retry{Refusals: 1},
				Fallback: func(r *http.Request, resp *http.Response, err error) (*http.Response, error) {
					if resp != nil {
						resp.Body.Close()
					}
					return respond(r, 200, nil, "from the cupboard"), nil
				},
			}
			r, _ := http.NewRequest("GET", "https://api.example/", nil)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(resp.Body); string(b) != "from the cupboard" {
				t.Errorf("%q", b)
			}
		})
	}
}

// TestObserve: what a progress line needs, in order.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		rt := &Transport{
			Base:  &script{steps: []step{{status: 200}, {status: 429, header: http.Header{"Retry-After": {"30"}}}, {status: 500}, {status: 200}}},
			Gates: []Gate{{Limit: window(1, time.Minute), Guard: -1}},
			Retry: &Retry{},
			Observe: func(e Event) {
				line := fmt.Sprint(e.Kind, " ", e.Attempt)
				if e.Limit != "" {
					line += fmt.Sprint(" ", e.Limit, " closed=", e.Closed)
				}
				if e.Kind == Answered {
					line += fmt.Sprint(" ", e.Answer.Status)
				}
				got = append(got, line)
			},
		}
		fetchAll(t, rt, 2, 1)
		want := "sent 1, answered 1 200, waiting 1 api closed=false, sent 1, answered 1 429 after held 0, retrying 1, waiting 2 api closed=false, sent 2, answered 2 500, retrying 2, waiting 3 api closed=false, sent 3, answered 3 200"
		want = strings.Replace(want, "answered 1 429 after held 0", "held 0, answered 1 429", 1)
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("got  %s\nwant %s", s, want)
		}
	})
}

// The rest is over real connections.

func client(rt *Transport) *http.Client {
	if rt.Base == nil {
		rt.Base = &http.Transport{}
	}
	return &http.Client{Transport: rt}
}

// flaky is a handler that misbehaves on the first requests.
func flaky(t *testing.T, times int, bad, good http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if int(n.Add(1)) <= times {
			bad(w, r)
			return
		}
		good(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &n
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

var quick = &Retry{Base: time.Millisecond}

// TestBrokenBodies: an answer that breaks off is tried again where reading it is part of the attempt, and never passes for a
// whole one.
func TestBrokenBodies(t *testing.T) {
	halfway := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "half of")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	chunk := func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half of")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	hang := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half of")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, bad := range map[string]http.HandlerFunc{"length": halfway, "chunks": chunk, "hang": hang} {
		t.Run(name, func(t *testing.T) {
			s, n := flaky(t, 2, bad, say("all of it"))
			timeout := 10 * time.Second
			if name == "hang" {
				timeout = 100 * time.Millisecond
			}
			resp, err := client(&Transport{ReadBody: 1 << 20, Retry: quick, Timeout: timeout}).Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != "all of it" || err != nil || n.Load() != 3 {
				t.Errorf("%q, %v after %d requests", b, err, n.Load())
			}

			s, _ = flaky(t, 1000, bad, say(""))
			_, err = client(&Transport{ReadBody: 1 << 20, Retry: quick, Timeout: timeout}).Get(s.URL)
			var body *BodyError
			var late *TimeoutError
			if !errors.As(err, &body) && !errors.As(err, &late) {
				t.Errorf("for ever: %v", err)
			}
		})
	}
}

// TestHugeBodies: an endless body and a gzip bomb cost no more than ReadBody.
func TestHugeBodies(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 32<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for range 100 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(zipped.Bytes())
	}
	for name, h := range map[string]http.HandlerFunc{"endless": endless, "bomb": bomb} {
		s, n := flaky(t, 0, nil, h)
		_, err := client(&Transport{ReadBody: 1 << 20, Retry: quick}).Get(s.URL)
		var body *BodyError
		if !errors.Is(err, ErrBodyTooLarge) || !errors.As(err, &body) || body.Read != 1<<20 || n.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, n.Load())
		}
	}
	// A refusal is one whatever page comes with it.
	s, n := flaky(t, 2, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		endless(w, r)
	}, say("well"))
	if _, err := client(&Transport{ReadBody: 1 << 10, Retry: quick}).Get(s.URL); err != nil || n.Load() != 3 {
		t.Errorf("an endless page with a 500: %v after %d requests", err, n.Load())
	}
	s, _ = flaky(t, 0, nil, say("12345"))
	for most, ok := range map[int64]bool{4: false, 5: true, 6: true} {
		resp, err := client(&Transport{ReadBody: most}).Get(s.URL)
		if (err == nil) != ok {
			t.Errorf("5 bytes with ReadBody %d: %v", most, err)
		}
		if err == nil && resp.ContentLength != 5 {
			t.Errorf("length %d", resp.ContentLength)
		}
	}
}

// TestCheck: an HTML page with 200 is no answer to a question for JSON.
func TestCheck(t *testing.T) {
	s, n := flaky(t, 2, say("<html>Just a moment…"), say(`{"ok":true}`))
	rt := &Transport{ReadBody: 1 << 20, Retry: quick, Check: func(_ *http.Response, body []byte) error {
		if !bytes.HasPrefix(body, []byte("{")) {
			return errors.New("not JSON")
		}
		return nil
	}}
	resp, err := client(rt).Get(s.URL)
	if err != nil || n.Load() != 3 {
		t.Fatalf("%v after %d requests", err, n.Load())
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != `{"ok":true}` {
		t.Errorf("%q", b)
	}
	s, _ = flaky(t, 1000, say("<html>"), nil)
	if _, err = client(rt).Get(s.URL); err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("%v", err)
	}
}

// TestRedirectsPassTheGate: each hop is charged to its own host, and no secret goes to another one.
func TestRedirectsPassTheGate(t *testing.T) {
	var got http.Header
	end := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer end.Close()
	elsewhere := strings.Replace(end.URL, "127.0.0.1", "localhost", 1)
	begin := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusFound))
	defer begin.Close()

	limit := &weir.Limit{Name: "host", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 10, Period: time.Hour}}
	rt := &Transport{Gates: []Gate{{Limit: limit}}}
	c := client(rt)
	c.CheckRedirect = StripOnRedirect("ApiKey")
	r, _ := http.NewRequest("GET", begin.URL+"/?key=secret", nil)
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("ApiKey", "secret")
	r.Header.Set("Accept", "text/plain")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got.Get("Authorization") != "" || got.Get("ApiKey") != "" || got.Get("Referer") != "" || got.Get("Accept") == "" {
		t.Errorf("the other host got %v", got)
	}
	for _, u := range []string{begin.URL, elsewhere} {
		r, _ := http.NewRequest("GET", u, nil)
		d, err := rt.own.Peek(context.Background(), limit.For(Host(r)))
		if err != nil || d.Outcomes()[0].Remaining != 9 {
			t.Errorf("%s has %d units left, want 9", u, d.Outcomes()[0].Remaining)
		}
	}
	// Within a host it stays.
	same := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		got = r.Header
	}))
	defer same.Close()
	r, _ = http.NewRequest("GET", same.URL+"/", nil)
	r.Header.Set("ApiKey", "secret")
	if resp, err = c.Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got.Get("ApiKey") != "secret" {
		t.Errorf("the same host got %v", got)
	}
}

// TestConnectionsAreReused: letting go of attempts does not cost their connections.
func TestConnectionsAreReused(t *testing.T) {
	var conns sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, true)
		if r.URL.Query().Has("bad") {
			w.WriteHeader(500)
		}
		io.WriteString(w, "text")
	}))
	defer s.Close()
	c := client(&Transport{Retry: quick, Timeout: time.Minute})
	for i := range 10 {
		url := s.URL
		if i%3 == 0 {
			url += "?bad"
		}
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "text" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		resp.Body.Close()
	}
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}
