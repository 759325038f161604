package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dead is an address where nobody listens.
func dead(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return "http://" + l.Addr().String()
}

func TestUpstreamFailures(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	slow := backend(t, func(w http.ResponseWriter, r *http.Request) { <-hang })
	rude := backend(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	for _, c := range []struct {
		name, url string
		timeout   time.Duration
		status    int
	}{
		{"nobody listens", dead(t), 0, 502},
		{"connection cut", rude, 0, 502},
		{"no answer in time", slow, 20 * time.Millisecond, 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := everything(c.url, nil)
			cfg.Routes[0].Timeout = c.timeout
			_, url := start(t, cfg)
			res, body := ask(t, "GET", url)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s", res.Status, body)
			}
			if strings.Contains(body, "127.0.0.1") {
				t.Errorf("the answer tells where the upstream is: %s", body)
			}
		})
	}
}

func TestUpstreamPathAndHost(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, r.RequestURI) })
	for _, pass := range []bool{false, true} {
		cfg := everything(up+"/base", nil)
		cfg.Upstreams["main"].PassHost = pass
		_, url := start(t, cfg)
		want := strings.TrimPrefix(up, "http://")
		if pass {
			want = "shop.example"
		}
		if _, body := ask(t, "GET", url+"/x%2fy?q=1", "Host: shop.example"); body != want+"/base/x%2fy?q=1" {
			t.Errorf("pass_host %v: %s, want %s/base/x%%2fy?q=1", pass, body, want)
		}
	}
}

func TestRetry(t *testing.T) {
	var asked atomic.Int64
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		bad, _ := strconv.ParseInt(r.Header.Get("X-Bad"), 10, 64)
		if n <= bad {
			status, _ := strconv.Atoi(r.Header.Get("X-Status"))
			w.WriteHeader(status)
		}
		fmt.Fprint(w, n)
	})
	cfg := everything(up, nil)
	cfg.Upstreams["main"].Retry = &Retry{Attempts: 3, Delay: time.Millisecond}
	_, url := start(t, cfg)
	for _, c := range []struct {
		name   string
		method string
		body   string
		bad    int // that many answers are bad
		with   int
		status int
		asked  int64
	}{
		{"good at once", "GET", "", 0, 503, 200, 1},
		{"good at last", "GET", "", 2, 503, 200, 3},
		{"bad all the time", "GET", "", 9, 502, 502, 3},
		{"delete is idempotent", "DELETE", "", 1, 504, 200, 2},
		{"post is not", "POST", "", 1, 503, 503, 1},
		{"a body is used up", "PUT", "x", 1, 503, 503, 1},
		{"500 would be 500 again", "GET", "", 1, 500, 500, 1},
	} {
		asked.Store(0)
		req, _ := http.NewRequest(c.method, url, strings.NewReader(c.body))
		req.Header.Set("X-Bad", strconv.Itoa(c.bad))
		req.Header.Set("X-Status", strconv.Itoa(c.with))
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || asked.Load() != c.asked {
			t.Errorf("%s: %s after asking %d times, want %d after %d", c.name, res.Status, asked.Load(), c.status, c.asked)
		}
		if string(body) != strconv.FormatInt(c.asked, 10) {
			t.Errorf("%s: the body %q is not that of the last answer", c.name, body)
		}
	}
}

// However many requests fail at once, retries stay a share of them.
func TestRetryBudget(t *testing.T) {
	const requests = 60
	var asked atomic.Int64
	all := make(chan struct{})
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == requests {
			close(all)
		}
		<-all
		w.WriteHeader(http.StatusServiceUnavailable)
	}), nil)
	cfg.Upstreams["main"].Retry = &Retry{Attempts: 2, Budget: 0.05, Delay: time.Millisecond}
	_, url := start(t, cfg)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			if res, _ := ask(t, "GET", url); res.StatusCode != 503 {
				t.Errorf("%s", res.Status)
			}
		})
	}
	wg.Wait()
	// How many retries are under way at one instant is bounded, not their sum; half is far from all.
	if retries := asked.Load() - requests; retries > requests/2 {
		t.Errorf("%d retries of %d requests", retries, requests)
	}
}

func TestBreaker(t *testing.T) {
	var asked, status atomic.Int64
	status.Store(502)
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(status.Load()))
	}), nil)
	cfg.Admin.Address = "127.0.0.1:0"
	cfg.Upstreams["main"].Breaker = &Breaker{Failures: 2, Delay: time.Hour}
	g, url := start(t, cfg)
	for _, c := range []struct{ status, asked int }{{502, 1}, {502, 2}, {503, 2}, {503, 2}} {
		res, _ := ask(t, "GET", url)
		if res.StatusCode != c.status || asked.Load() != int64(c.asked) {
			t.Fatalf("%s after asking %d times, want %d after %d", res.Status, asked.Load(), c.status, c.asked)
		}
		if retry := res.Header.Get("Retry-After"); (c.asked == 2 && c.status == 503) != (retry == "3600") {
			t.Errorf("%s with Retry-After %q", res.Status, retry)
		}
	}
	if res, body := ask(t, "GET", g.AdminURL()+"/readyz"); res.StatusCode != 503 || !strings.Contains(body, `"main":"open"`) {
		t.Errorf("readyz: %s %s", res.Status, body)
	}
	if _, text := ask(t, "GET", g.AdminURL()+"/metrics"); !strings.Contains(text, `weir_breaker_state{upstream="main"} 2`) {
		t.Error("metrics do not tell of the open breaker")
	}

	up := g.site.Load().upstreams["main"]
	up.breaker.HalfOpen()
	ask(t, "GET", url) // the probe fails
	if res, _ := ask(t, "GET", url); res.StatusCode != 503 || asked.Load() != 3 {
		t.Errorf("after a bad probe: %s, asked %d times", res.Status, asked.Load())
	}
	up.breaker.HalfOpen()
	status.Store(200)
	for range 3 {
		if res, _ := ask(t, "GET", url); res.StatusCode != 200 {
			t.Errorf("after a good probe: %s", res.Status)
		}
	}
}

// A request that the upstream cannot deal with is no sign that it is down: who finds one would close it to everybody.
func TestABadRequestCannotOpenTheBreaker(t *testing.T) {
	for _, status := range []int{500, 501, 505, 507, 511} {
		cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }), nil)
		cfg.Upstreams["main"].Breaker = &Breaker{Failures: 1, Delay: time.Hour}
		_, url := start(t, cfg)
		for range 3 {
			if res, _ := ask(t, "GET", url); res.StatusCode != status {
				t.Errorf("%d: got %s", status, res.Status)
			}
		}
	}
}

// Clients that hang up say nothing about the upstream, whether it is closed or probed.
func TestClientsCannotOpenTheBreaker(t *testing.T) {
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
	}), nil)
	cfg.Upstreams["main"].Breaker = &Breaker{Failures: 1, Delay: time.Hour}
	g, url := start(t, cfg)
	leave := func() {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", url+"/hang", nil)
		left := make(chan struct{})
		go func() { client.Do(req); close(left) }()
		await(t, "the request", func() bool { return g.open.Load() == 1 })
		cancel()
		<-left
		await(t, "the end", func() bool { return g.open.Load() == 0 })
	}
	breakOff := func() {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
		await(t, "the request", func() bool { return g.open.Load() == 1 })
		conn.Close()
		await(t, "the end", func() bool { return g.open.Load() == 0 })
	}
	garble := func() {
		if res, _, _ := raw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n"); res.StatusCode != 400 {
			t.Errorf("a garbled body: %s", res.Status)
		}
		await(t, "the end", func() bool { return g.open.Load() == 0 })
	}
	breaker := g.site.Load().upstreams["main"].breaker
	for name, misbehave := range map[string]func(){"leave": leave, "break off": breakOff, "garble": garble} {
		misbehave()
		if !breaker.IsClosed() {
			t.Fatalf("%s: the breaker is %v", name, breaker.State())
		}
		breaker.Open()
		breaker.HalfOpen()
		misbehave()
		if !breaker.IsHalfOpen() {
			t.Fatalf("%s: the breaker that is probed is %v", name, breaker.State())
		}
		if res, _ := ask(t, "GET", url); res.StatusCode != 200 || !breaker.IsClosed() {
			t.Fatalf("%s: the next probe got %s", name, res.Status)
		}
	}
}

func TestUpstreamConcurrency(t *testing.T) {
	arrived, hang := make(chan struct{}, 2), make(chan struct{})
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-hang
	}), nil)
	cfg.Upstreams["main"].Concurrency = 1
	g, url := start(t, cfg)
	var wg sync.WaitGroup
	wg.Go(func() { ask(t, "GET", url) })
	<-arrived
	if res, _ := ask(t, "GET", url); res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" {
		t.Errorf("second at once: %s", res.Status)
	}
	close(hang)
	wg.Wait()
	await(t, "the place", func() bool { return g.open.Load() == 0 })
	if res, _ := ask(t, "GET", url); res.StatusCode != 200 {
		t.Errorf("after the first: %s", res.Status)
	}
}
