package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// idleBoard is the board of a Gateway that nobody serves: it is sampled when the test says so, at instants that the test makes up.
func idleBoard(t *testing.T, change func(*Config)) (*Gateway, *board) {
	t.Helper()
	cfg := trustLoopback(everything("http://127.0.0.1:1", []*weir.Limit{perHour("client", 5), perHour("other", 5)},
		Charge{Limit: "client"}, Charge{Limit: "other"}))
	cfg.Routes[0].Queue = &Queue{Length: 7}
	cfg.Admin = Admin{Address: "127.0.0.1:0"}
	if change != nil {
		change(cfg)
	}
	g, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g, g.board
}

// shown is the frame of the latest sample.
func (b *board) shown() *shownFrame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.show()
}

// Rates are by the time that has really passed, the past is bounded, and one that was not looked at is not made up.
func TestBoardOverTime(t *testing.T) {
	g, b := idleBoard(t, nil)
	now := time.Now()
	admitted := g.metrics.tally("client").admitted
	asked := func(n int) {
		admitted.Add(float64(n))
		for range n {
			g.metrics.latency.WithLabelValues("main").Observe(.0015)
		}
		g.site.Load().routes["/"].statuses.classes[2].Add(float64(n))
	}
	rates := func(want float64) {
		t.Helper()
		f := b.shown()
		if got := [...]float64{f.Limits[0].Now[0], f.Upstreams[0].Rate, f.Routes[0].Now[2]}; got != [...]float64{want, want, want} {
			t.Errorf("%v a second, want %v each", got, want)
		}
	}
	b.sample(now)
	asked(3)
	b.sample(now.Add(sampleEvery / 2)) // too early
	if b.samples != 1 {
		t.Errorf("%d samples", b.samples)
	}
	rates(0)
	now = now.Add(sampleEvery)
	b.sample(now)
	rates(3)
	asked(8)
	now = now.Add(2 * sampleEvery) // a late one
	b.sample(now)
	rates(4)
	for range 2 * keptSamples {
		now = now.Add(sampleEvery)
		b.sample(now)
	}
	if limit, upstream := len(b.limits["client"].past), len(b.upstreams["main"].past); limit != keptSamples || upstream != latencySpan+1 {
		t.Errorf("%d and %d samples are kept, want %d and %d", limit, upstream, keptSamples, latencySpan+1)
	}
	rates(0)
	asked(60)
	now = now.Add(time.Minute) // nobody looked: nobody knows when they came
	b.sample(now)
	if n := len(b.limits["client"].past); n != 0 {
		t.Errorf("a past of %d samples through a pause", n)
	}
	rates(0)
}

func TestBoardQuantiles(t *testing.T) {
	g, b := idleBoard(t, nil)
	now := time.Now()
	b.sample(now)
	latency := g.metrics.latency.WithLabelValues("main")
	for i := range 100 {
		latency.Observe([]float64{.002, .2}[i/90])
	}
	b.sample(now.Add(sampleEvery))
	if up := b.shown().Upstreams[0]; up.P50 < .001 || up.P50 > .0025 || up.P95 < .1 || up.P95 > .25 {
		t.Errorf("p50 %v, p95 %v", up.P50, up.P95)
	}
	for i := range latencySpan + 1 { // a minute later they are forgotten
		b.sample(now.Add(time.Duration(i+2) * sampleEvery))
	}
	if up := b.shown().Upstreams[0]; up.P50 >= 0 {
		t.Errorf("p50 %v of a minute without answers", up.P50)
	}
}

// What keys did is of five to ten minutes; what only one limit refuses is no use of another.
func TestBoardKeysOverTime(t *testing.T) {
	g, b := idleBoard(t, nil)
	now := b.turned
	b.sample(now)
	h := g.site.Load().heats["client"]
	l := perHour("client", 5)
	c := l.For("ip:203.0.113.1")
	h.count(&weir.Outcome{Limit: l}, &c, false) // another limit refused
	if f := b.shown(); len(f.Limits[0].Use) != 0 {
		t.Errorf("used %+v", f.Limits[0].Use)
	}
	h.count(&weir.Outcome{Limit: l}, &c, true)
	h.count(&weir.Outcome{Limit: l, After: 1}, &c, false)
	for _, step := range []struct {
		after time.Duration
		keys  int
	}{{topWindow - 1, 1}, {topWindow, 1}, {2*topWindow - 1, 1}, {2 * topWindow, 0}} {
		b.sample(now.Add(step.after))
		if f := b.shown(); len(f.Limits[0].Use) != step.keys || len(f.Limits[0].Refusals) != step.keys {
			t.Errorf("after %v: used %+v, refused %+v; want %d each", step.after, f.Limits[0].Use, f.Limits[0].Refusals, step.keys)
		}
		b.at = time.Time{} // so that the next sample is none too early
	}
}

// Holds that were set here are listed until they end, as many as fit; a key is found by its hash only where it is known.
func TestBoardHolds(t *testing.T) {
	g, b := idleBoard(t, nil)
	now := time.Now()
	b.sample(now)
	client, other := perHour("client", 5), perHour("other", 5)
	for i := range keptHolds + 44 {
		c := client.For(fmt.Sprint("user:", i))
		b.held(&c, now.Add(time.Hour))
	}
	every := other.Every()
	b.held(&every, now.Add(3*time.Hour))
	f := b.shown()
	if n := len(f.Holds); n != keptHolds || !f.Holds[n-1].Every || f.Holds[0].Hash != hashText(hashOf("user:45")) {
		t.Errorf("%d holds, %+v to %+v", n, f.Holds[0], f.Holds[n-1])
	}
	for _, h := range f.Holds {
		if h.Key != "" {
			t.Fatalf("a key is shown: %+v", h)
		}
	}
	g.site.Load().heats["client"].refusals.add("user:refused", 1)
	for _, k := range []struct {
		limit, key string
		known      bool
	}{
		{"client", "user:299", true}, {"client", "user:refused", true},
		{"other", "user:299", false}, {"other", "user:refused", false}, {"client", "user:0", false}, {"other", "", false}, {"none", "user:299", false},
	} {
		if key, ok := b.keyOf(k.limit, hashText(hashOf(k.key))); ok != k.known || ok && key != k.key {
			t.Errorf("%+v: found %q, %v", k, key, ok)
		}
	}
	b.sample(now.Add(2 * time.Hour))
	if f := b.shown(); len(f.Holds) != 1 || f.Holds[0].Limit != "other" {
		t.Errorf("an hour later: %+v", f.Holds)
	}
}

func TestBoardCountsLinesAndErrors(t *testing.T) {
	g, b := idleBoard(t, nil)
	b.sample(time.Now())
	g.site.Load().routes["/"].queue.waiting.Store(3)
	g.metrics.errors.Inc()
	if f := b.shown(); f.Routes[0].Waiting != 3 || f.Routes[0].Queue != 7 || f.Errors != 1 {
		t.Errorf("%+v, %v errors", f.Routes[0], f.Errors)
	}
}

// metricsOf is what a Gateway tells Prometheus.
func metricsOf(g *Gateway) string {
	w := httptest.NewRecorder()
	g.metrics.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestMetricsSayWhatHappened(t *testing.T) {
	g, _ := idleBoard(t, func(cfg *Config) {
		cfg.MaxCells = 1
		cfg.Routes[0].Queue = nil
	})
	has := func(when string, lines ...string) {
		t.Helper()
		text := "\n" + metricsOf(g)
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s: no %s in\n%s", when, line, text)
			}
		}
	}
	has("at first", `weir_reloads_total{outcome="applied"} 0`, `weir_reloads_total{outcome="refused"} 0`, "weir_ready 1", "weir_memory_overflow_total 0")
	statuses := g.site.Load().routes["/"].statuses
	for _, status := range []int{100, 204, 302, 404, 429, 499, 500, 599, 600, 999, 42} {
		statuses.count(status)
	}
	has("answers", `weir_requests_total{route="/",status="1xx"} 1`, `weir_requests_total{route="/",status="2xx"} 1`, `weir_requests_total{route="/",status="3xx"} 1`,
		`weir_requests_total{route="/",status="4xx"} 2`, `weir_requests_total{route="/",status="499"} 1`, `weir_requests_total{route="/",status="5xx"} 5`)
	l := perHour("client", 5)
	for i := range 2000 { // memory has room for fewer
		if _, err := g.limiter.Take(t.Context(), l.For(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if m := g.memory.Stats(); m.Overflowed == 0 || m.Overflowed == int64(m.Cells) {
		t.Fatalf("%+v tells nothing apart", m)
	} else {
		has("a full memory", fmt.Sprintf("weir_memory_overflow_total %v", m.Overflowed), fmt.Sprintf("weir_memory_cells %v", m.Cells))
	}
	g.draining.Store(true)
	has("draining", "weir_ready 0")
}

// A store that does not answer is counted where operators look, too.
func TestAdminWithoutAStore(t *testing.T) {
	cfg := everything("http://127.0.0.1:1", []*weir.Limit{perHour("client", 5)}, Charge{Limit: "client"})
	g, err := New(cfg, Options{Limiter: &weir.Limiter{Store: broken{}}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.AdminHandler().ServeHTTP(w, httptest.NewRequest("GET", "/limits/client/ip:203.0.113.1", nil))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "10.9.8.7") || !strings.Contains(metricsOf(g), "\nweir_store_errors_total 1\n") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Reset lifts what was held, from the dashboard's list too; and who was changed stands in the log as a hash.
func TestAdminResetLiftsAndLogs(t *testing.T) {
	var log journal
	cfg := everything("http://127.0.0.1:1", []*weir.Limit{perHour("client", 5)}, Charge{Limit: "client"})
	cfg.Admin = Admin{Address: "127.0.0.1:0"}
	g, err := New(cfg, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.AdminHandler())
	defer s.Close()
	const key = "/limits/client/ip:203.0.113.1"
	for _, step := range []struct {
		method, path string
		holds        int
	}{{"POST", key + "/hold?for=1h", 1}, {"DELETE", key, 0}} {
		if res, body := ask(t, step.method, s.URL+step.path); res.StatusCode != 204 {
			t.Fatalf("%s %s", res.Status, body)
		}
		if f := g.board.shown(); len(f.Holds) != step.holds {
			t.Errorf("%s %s: holds %+v", step.method, step.path, f.Holds)
		}
	}
	if !log.has("limit held") || !log.has("limit reset") || log.has("203.0.113.1") || !log.has(hashText(hashOf("ip:203.0.113.1"))) {
		t.Error(log.text.String())
	}
	for _, host := range []string{"evillocalhost", "localhost.evil.example"} {
		if res, _ := ask(t, "GET", s.URL+"/limits", "Host: "+host); res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: %s", host, res.Status)
		}
	}
	if res, _ := ask(t, "GET", s.URL+"/limits", "Host: weir.localhost"); res.StatusCode != 200 {
		t.Errorf("weir.localhost: %s", res.Status)
	}
}

// Since when the shared store is away is told as an instant: in seconds to Prometheus, in milliseconds to the dashboard.
func TestStoreThatIsAwayIsShown(t *testing.T) {
	before := time.Now().Add(-time.Millisecond)
	g, b := idleBoard(t, func(cfg *Config) {
		cfg.Store = "redis://127.0.0.1:1"
		cfg.Routes[0].Queue = nil
	})
	b.sample(time.Now())
	h := g.Handler()
	await(t, "the store to be given up", func() bool {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		return g.stores.guard.Stats().Down
	})
	f := b.shown()
	if since := time.UnixMilli(f.Store.Since); !f.Store.Down || since.Before(before) || since.After(time.Now()) {
		t.Errorf("%+v", f.Store)
	}
	text := metricsOf(g)
	for _, line := range []string{"weir_store_down 1", "weir_store_outages_total 1", "weir_store_full_total 0"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	_, since, _ := strings.Cut(text, "\nweir_store_down_since_timestamp_seconds ")
	since, _, _ = strings.Cut(since, "\n")
	seconds, err := strconv.ParseFloat(since, 64)
	if at := time.UnixMilli(int64(1000 * seconds)); err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("down since %s", since)
	}
}
