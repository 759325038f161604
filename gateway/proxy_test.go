package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// patience is how long a test waits for what must happen. It only matters to tests that fail.
const patience = 20 * time.Second

func perHour(name string, units int64) *weir.Limit {
	return &weir.Limit{Name: name, Rate: weir.Rate{Units: units, Period: time.Hour}}
}

// everything is a Config of one route for all requests, with charges on limits.
func everything(upstream string, limits []*weir.Limit, charges ...Charge) *Config {
	return &Config{
		Listen:    []Listener{{Address: "127.0.0.1:0"}},
		Admin:     Admin{Address: adminOff},
		Upstreams: map[string]*Upstream{"main": {URL: upstream}},
		Limits:    Limits(limits...),
		Routes:    []*Route{{Pattern: "/", Limits: charges}},
	}
}

// trustLoopback makes the test itself a trusted proxy.
func trustLoopback(cfg *Config) *Config {
	cfg.Clients.TrustedProxies = []string{"127.0.0.1", "::1"}
	return cfg
}

// start serves cfg until the test ends.
func start(t *testing.T, cfg *Config, opts ...Options) (g *Gateway, url string) {
	t.Helper()
	g, stop := startStoppable(t, cfg, opts...)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error("Serve:", err)
		}
	})
	return g, g.URLs()[0]
}

func startStoppable(t *testing.T, cfg *Config, opts ...Options) (*Gateway, func() error) {
	t.Helper()
	if cfg.Shutdown == 0 {
		cfg.Shutdown = time.Second
	}
	g, err := New(cfg, append(opts, Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx) }()
	return g, func() error {
		cancel()
		return <-ended
	}
}

// backend is an upstream that answers as f does.
func backend(t testing.TB, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }

// ask sends a request with header lines given as "Name: value".
func ask(t *testing.T, method, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Add(name, value)
		}
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// client follows no redirects and uses no connection twice, so that it leaves none open.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       patience,
}

// raw sends text as it is and returns the status line and the rest of the answer.
func raw(t *testing.T, url, text string) (*http.Response, *bufio.Reader, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	go io.WriteString(conn, text)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	return res, r, conn
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			t.Fatal("waited in vain for: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestAdmittedThenRefused(t *testing.T) {
	_, url := start(t, everything(backend(t, hello), []*weir.Limit{perHour("client", 2), perHour("all", 100)},
		Charge{Limit: "all", Key: "global"}, Charge{Limit: "client"}))
	for i := range 2 {
		res, body := ask(t, "GET", url)
		if res.StatusCode != 200 || body != "hello" {
			t.Fatalf("request %d: %s %q", i+1, res.Status, body)
		}
		want := fmt.Sprintf(`"all";r=%d;t=`, 99-i)
		if got := res.Header.Get("RateLimit"); !strings.HasPrefix(got, want) || !strings.Contains(got, `"client";r=`) {
			t.Errorf("request %d: RateLimit: %s, want %s…", i+1, got, want)
		}
	}
	res, body := ask(t, "GET", url)
	if res.StatusCode != 429 {
		t.Fatalf("third request: %s", res.Status)
	}
	for name, want := range map[string]string{
		"Content-Type":     "application/problem+json",
		"Cache-Control":    "no-store",
		"Retry-After":      "1800",
		"RateLimit-Policy": `"client";q=2;w=3600`,
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil || !slices.Equal(problem.Violated, []string{"client"}) {
		t.Errorf("body %s: %v, want client violated", body, err)
	}
}

func TestUpstreamsOwnRateLimitStays(t *testing.T) {
	_, url := start(t, everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"inner";r=7;t=1`)
		w.WriteHeader(http.StatusEarlyHints)
	}), []*weir.Limit{perHour("client", 9)}, Charge{Limit: "client"}))
	res, _ := ask(t, "GET", url)
	lines := res.Header.Values("RateLimit")
	if len(lines) != 2 || lines[0] != `"inner";r=7;t=1` || !strings.HasPrefix(lines[1], `"client";r=8;`) {
		t.Errorf("RateLimit lines %q", lines)
	}
}

func TestRoutes(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("all", 1000), perHour("orders", 1), perHour("tenant", 1)})
	cfg.Defaults = []Charge{{Limit: "all", Key: "global"}}
	cfg.Routes = []*Route{
		{Pattern: "POST /orders/{id}", Limits: []Charge{{Limit: "orders", Key: "route"}}},
		{Pattern: "Shop.Example/", Limits: []Charge{{Limit: "tenant", Key: "header:X-Tenant+ip"}}},
		{Pattern: "/open/", Exempt: true},
		{Pattern: "GET /login"},
	}
	g, url := start(t, cfg)
	spent := int64(0)
	for _, c := range []struct {
		method, path string
		lines        []string
		status       int
		free         bool // the defaults are not charged
	}{
		{"POST", "/orders/1", nil, 200, false},
		{"POST", "/orders/2", nil, 429, true}, // one key for the route; all or nothing
		{"GET", "/orders/2", nil, 405, false},
		{"GET", "/nothing", nil, 404, false},
		{"GET", "/open/x", nil, 200, true},
		{"GET", "/open", nil, 307, true}, // to /open/
		{"GET", "//login", nil, 307, false},
		{"GET", "/login", nil, 200, false},
		{"GET", "/LOGIN", nil, 404, false},
		{"GET", "/login/", nil, 404, false},
		{"GET", "/login%2f", nil, 404, false},
		{"GET", "/x", []string{"Host: shop.example", "X-Tenant: a"}, 200, false},
		{"GET", "/x", []string{"Host: SHOP.example.:8080", "X-Tenant: a"}, 429, true},
		{"GET", "/x", []string{"Host: shop.example", "X-Tenant: b"}, 200, false},
		{"BREW", "/open/x", nil, 200, true},
		{"BREW", "/login", nil, 405, false},
	} {
		res, _ := ask(t, c.method, url+c.path, c.lines...)
		if res.StatusCode != c.status {
			t.Errorf("%s %s %v: %d, want %d", c.method, c.path, c.lines, res.StatusCode, c.status)
		}
		if !c.free {
			spent++
		}
		if left := remaining(t, g, "all", ""); left != 1000-spent {
			t.Fatalf("%s %s: %d left of all, want %d", c.method, c.path, left, 1000-spent)
		}
	}
}

func remaining(t *testing.T, g *Gateway, limit, key string) int64 {
	t.Helper()
	d, err := g.limiter.Peek(t.Context(), g.site.Load().limits[limit].For(key))
	if err != nil {
		t.Fatal(err)
	}
	return d.Outcomes()[0].Remaining
}

// Whatever an outsider sends is charged, and is never passed on as something else than was charged.
func TestHostileRequests(t *testing.T) {
	var passed atomic.Pointer[string]
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) { passed.Store(&r.RequestURI) }),
		[]*weir.Limit{perHour("all", 1000)})
	cfg.Defaults = []Charge{{Limit: "all", Key: "global"}}
	cfg.Routes = []*Route{{Pattern: "/public/"}, {Pattern: "/files/{name}"}}
	g, url := start(t, trustLoopback(cfg))
	spent := int64(0)
	for _, c := range []struct {
		request string // up to the headers
		status  int
		passed  string
		charged bool
	}{
		{"GET /public/..%2fadmin HTTP/1.1\r\nHost: x", 400, "", true},
		{"GET /public/%2e%2e/admin HTTP/1.1\r\nHost: x", 400, "", true},
		{"GET /public/..%5cadmin HTTP/1.1\r\nHost: x", 400, "", true},
		{"GET /public/..;x=1/admin HTTP/1.1\r\nHost: x", 400, "", true},
		{"GET /public/../admin HTTP/1.1\r\nHost: x", 404, "", true},
		{"GET /public/./x HTTP/1.1\r\nHost: x", 307, "", true},
		{"GET /public/a%2fb?x=1 HTTP/1.1\r\nHost: x", 200, "/public/a%2fb?x=1", true},
		{"GET /public/...%2f.well-known HTTP/1.1\r\nHost: x", 200, "/public/...%2f.well-known", true},
		{"GET /files/..%2f..%2fetc HTTP/1.1\r\nHost: x", 400, "", true},
		{"GET http://evil.example/public/x HTTP/1.1\r\nHost: x", 200, "/public/x", true},
		{"GET http:public HTTP/1.1\r\nHost: x", 404, "", true},
		{"GET * HTTP/1.1\r\nHost: x", 404, "", true},
		{"CONNECT internal:22 HTTP/1.1\r\nHost: internal:22", 405, "", true},
		{"CONNECT /public/x HTTP/1.1\r\nHost: x", 405, "", true},
		{"GET /public/\xff%ff HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: \xff\xfe", 200, "/public/%FF%FF", true},
		{"GET /public/x HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: " + strings.Repeat("1.2.3.4,", 10_000/2) + "1.2.3.4", 200, "/public/x", true},
		{"GET /public/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: \xff", 400, "", true}, // not the upstream's fault, as 502 would say
		{"GET /public/x HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100_000), 431, "", false},
		{"GET /public/x HTTP/1.1\r\nHost: x\r\nX : y", 400, "", false},
		{"GET /public/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked", 501, "", false},
	} {
		passed.Store(new(string))
		res, _, conn := raw(t, url, c.request+"\r\nConnection: close\r\n\r\n")
		conn.Close()
		name := c.request[:min(len(c.request), 60)]
		if res.StatusCode != c.status {
			t.Errorf("%q: %s, want %d", name, res.Status, c.status)
		}
		if got := *passed.Load(); got != c.passed {
			t.Errorf("%q: passed on as %q, want %q", name, got, c.passed)
		}
		if c.charged {
			spent++
		}
		if left := remaining(t, g, "all", ""); left != 1000-spent {
			t.Fatalf("%q: %d left, want %d", name, left, 1000-spent)
		}
	}
}

// What the client accepts is between it and the upstream: weir asks for no compression of its own, and undoes none.
func TestCompressionPassesThrough(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Encoding"] = []string{"gzip"}
		io.WriteString(w, "accepted: "+strings.Join(r.Header["Accept-Encoding"], ","))
	})
	_, url := start(t, everything(up, nil))
	for _, c := range []struct{ line, want string }{{"", "accepted: "}, {"Accept-Encoding: gzip, br\r\n", "accepted: gzip, br"}} {
		res, _, _ := raw(t, url, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+c.line+"\r\n")
		body, err := io.ReadAll(res.Body)
		if string(body) != c.want || err != nil || res.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%q: body %q, %v, encoding %q", c.line, body, err, res.Header.Get("Content-Encoding"))
		}
	}
}

func TestCostFromHeader(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("units", 100)}, Charge{Limit: "units", Key: "global", Cost: 2, CostFrom: "header:X-Cost"})
	trusting, url := start(t, trustLoopback(cfg))
	for _, c := range []struct {
		cost   string
		status int
		left   int64
	}{
		{"30", 200, 70}, {"", 200, 68}, {"0", 200, 68}, {"-1", 400, 68}, {"x", 400, 68},
		{"99999999999999999999999", 429, 68}, {"69", 429, 68}, {"68", 200, 0},
	} {
		var lines []string
		if c.cost != "" {
			lines = []string{"X-Cost: " + c.cost}
		}
		res, _ := ask(t, "GET", url, lines...)
		if left := remaining(t, trusting, "units", ""); res.StatusCode != c.status || left != c.left {
			t.Errorf("cost %q: %d and %d left, want %d and %d", c.cost, res.StatusCode, left, c.status, c.left)
		}
	}

	cfg = everything(backend(t, hello), []*weir.Limit{perHour("units", 100)}, Charge{Limit: "units", Key: "global", Cost: 2, CostFrom: "header:X-Cost"})
	g, url := start(t, cfg)
	ask(t, "GET", url, "X-Cost: 0")
	if left := remaining(t, g, "units", ""); left != 98 {
		t.Errorf("an outsider chose its cost: %d left, want 98", left)
	}
}

func TestOnly(t *testing.T) {
	answer := make(chan int, 1)
	hang := make(chan struct{})
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-hang
			return
		}
		w.WriteHeader(<-answer)
	}), []*weir.Limit{perHour("login", 2)}, Charge{Limit: "login", Key: "global", Only: []int{401, 403}})
	g, url := start(t, cfg)
	defer close(hang)

	for _, c := range []struct {
		status int
		left   int64
	}{{200, 2}, {401, 1}, {500, 1}, {200, 1}} {
		answer <- c.status
		ask(t, "POST", url)
		await(t, "the settlement", func() bool { return g.open.Load() == 0 })
		if left := remaining(t, g, "login", ""); left != c.left {
			t.Fatalf("after %d: %d left, want %d", c.status, left, c.left)
		}
	}

	// An answer that nobody waited for may have been one that counts.
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", url+"/hang", nil)
	left := make(chan error)
	go func() { _, err := client.Do(req); left <- err }()
	await(t, "the request", func() bool { return remaining(t, g, "login", "") == 0 })
	leave()
	<-left
	await(t, "the end of the request", func() bool { return g.open.Load() == 0 })
	if left := remaining(t, g, "login", ""); left != 0 {
		t.Errorf("%d left after a client left, want 0", left)
	}
	if res, _ := ask(t, "POST", url); res.StatusCode != 429 {
		t.Errorf("%s with nothing left", res.Status)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	hang := make(chan struct{})
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-hang
		}
	}), []*weir.Limit{{Name: "open", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 1, Period: time.Hour}}}, Charge{Limit: "open", Key: "global"})
	g, url := start(t, cfg)
	var wg sync.WaitGroup
	wg.Go(func() { ask(t, "GET", url+"/hang") })
	await(t, "the first request", func() bool { return remaining(t, g, "open", "") == 0 })
	if res, _ := ask(t, "GET", url); res.StatusCode != 429 {
		t.Errorf("second at once: %s", res.Status)
	}
	close(hang)
	wg.Wait()
	await(t, "the place", func() bool { return remaining(t, g, "open", "") == 1 })
	if res, _ := ask(t, "GET", url); res.StatusCode != 200 {
		t.Errorf("after the first: %s", res.Status)
	}
}

func TestShadow(t *testing.T) {
	l := perHour("strict", 1)
	cfg := everything(backend(t, hello), []*weir.Limit{l}, Charge{Limit: "strict", Key: "global", Shadow: true})
	cfg.Admin.Address = "127.0.0.1:0"
	g, url := start(t, cfg)
	for range 3 {
		if res, _ := ask(t, "GET", url); res.StatusCode != 200 || res.Header["Ratelimit"] != nil {
			t.Fatalf("%s with %v", res.Status, res.Header)
		}
	}
	_, text := ask(t, "GET", g.AdminURL()+"/metrics")
	for _, want := range []string{
		`weir_decisions_total{limit="strict",outcome="admitted"} 1`,
		`weir_decisions_total{limit="strict",outcome="shadow_refused"} 2`,
		`weir_decisions_total{limit="strict",outcome="refused"} 0`,
		`weir_requests_total{route="/",status="2xx"} 3`,
		`weir_memory_cells 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestStoreFailureIs503(t *testing.T) {
	lim := &weir.Limiter{Store: broken{}}
	_, url := start(t, everything(backend(t, hello), []*weir.Limit{perHour("client", 2)}, Charge{Limit: "client"}), Options{Limiter: lim})
	res, body := ask(t, "GET", url)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || strings.Contains(body, "10.9.8.7") {
		t.Errorf("%s %v %s", res.Status, res.Header, body)
	}
}

// broken is a Store out of reach.
type broken struct{}

func (broken) Apply(context.Context, *weir.Tx) error {
	return errors.New("dial tcp 10.9.8.7:6379: refused")
}

func TestLog(t *testing.T) {
	for _, keys := range []bool{false, true} {
		var log journal
		opts := Options{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), LogKeys: keys}
		_, url := start(t, everything(backend(t, hello), []*weir.Limit{perHour("client", 1)}, Charge{Limit: "client", Key: "ip"}), opts)
		ask(t, "GET", url)
		ask(t, "GET", url)
		await(t, "both lines", func() bool { return log.has("request admitted") && log.has("request refused") })
		for line := range strings.Lines(log.text.String()) {
			var got struct {
				Msg, Limit, Key, Route string
				Cost, Status           int
				Allowed                bool
				Retry                  time.Duration `json:"retry_after"`
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(got.Msg, "request ") {
				continue
			}
			allowed := got.Msg == "request admitted"
			if got.Limit != "client" || got.Cost != 1 || got.Route != "/" || got.Allowed != allowed ||
				allowed != (got.Status == 200) || !allowed && got.Retry != time.Hour || (got.Key == "ip:127.0.0.1") != keys || got.Key == "" {
				t.Errorf("log line %s", line)
			}
		}
	}
}
