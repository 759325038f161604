package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// events reads a stream of server-sent events.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
}

func openEvents(t *testing.T, admin string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", admin+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if h := res.Header; res.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s %v", res.Status, h)
	}
	s := bufio.NewScanner(res.Body)
	s.Buffer(nil, 8<<20)
	return &events{t, s}
}

// next reads the data of the next event, which must be of a kind.
func (e *events) next(kind string, into any) {
	e.t.Helper()
	for e.lines.Scan() {
		name, ok := strings.CutPrefix(e.lines.Text(), "event: ")
		if !ok {
			continue
		}
		e.lines.Scan()
		data, ok := strings.CutPrefix(e.lines.Text(), "data: ")
		if !ok || name != kind {
			e.t.Fatalf("event %s %q, want %s", name, e.lines.Text(), kind)
		}
		if err := json.Unmarshal([]byte(data), into); err != nil {
			e.t.Fatal(err, data)
		}
		return
	}
	e.t.Fatal("the stream ended: ", e.lines.Err())
}

// until reads frames until one is as wanted.
func (e *events) until(want func(*shownFrame) bool) *shownFrame {
	e.t.Helper()
	for {
		f := new(shownFrame)
		if e.next("frame", f); want(f) {
			return f
		}
	}
}

const adminToken = "0123456789abcdef0123456789abcdef"

// withDashboard is a Gateway with an admin listener and a token.
func withDashboard(t *testing.T, showKeys bool) (g *Gateway, url string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trial := perHour("trial", 1)
	trial.Shadow = true
	cfg := trustLoopback(everything(backend(t, hello), []*weir.Limit{perHour("client", 5), perHour("all", 100), trial},
		Charge{Limit: "client", Cost: 2}, Charge{Limit: "all", Key: "global"}, Charge{Limit: "trial", Key: "header:X-Tenant"}))
	cfg.Admin = Admin{Address: "127.0.0.1:0", TokenFile: token, ShowKeys: showKeys}
	return start(t, cfg)
}

func TestFramesSayWhatHappened(t *testing.T) {
	for _, clear := range []bool{true, false} {
		t.Run(fmt.Sprintf("show_keys=%v", clear), func(t *testing.T) {
			g, url := withDashboard(t, clear)
			e := openEvents(t, g.AdminURL())
			var past struct {
				Sample int
				Limits map[string][3][]float64
			}
			e.next("history", &past)
			if len(past.Limits) != 3 || past.Sample < 1 {
				t.Errorf("history %+v", past)
			}
			for range 3 {
				ask(t, "GET", url, "X-Forwarded-For: 203.0.113.1", "X-Tenant: a\u202eb<i>")
			}
			ask(t, "GET", url, "X-Forwarded-For: 203.0.113.2", "X-Tenant: other")
			f := e.until(func(f *shownFrame) bool { return f.Limits[0].Total == counts{3, 1, 0} })
			if f.Limits[1].Total != (counts{3, 0, 0}) || f.Limits[2].Total != (counts{2, 0, 2}) {
				t.Errorf("all %v, trial %v", f.Limits[1].Total, f.Limits[2].Total)
			}
			keys := func(list []shownKey) (out []string) {
				for _, k := range list {
					if (k.Key != "") != clear {
						t.Errorf("%+v", k)
					}
					name := map[string]string{
						hashText(hashOf("ip:203.0.113.1")): "one", hashText(hashOf("ip:203.0.113.2")): "two",
					}[k.Hash]
					if clear {
						name = k.Key
					}
					out = append(out, fmt.Sprintf("%s %d", name, k.Count))
				}
				return out
			}
			one, two := "one", "two"
			if clear {
				one, two = "ip:203.0.113.1", "ip:203.0.113.2"
			}
			if got := keys(f.Limits[0].Use); !slices.Equal(got, []string{one + " 4", two + " 2"}) {
				t.Errorf("used %q", got)
			}
			if got := keys(f.Limits[0].Refusals); !slices.Equal(got, []string{one + " 1"}) {
				t.Errorf("refused %q", got)
			}
			if len(f.Limits[1].Use) != 0 { // of one key there is no order
				t.Errorf("used %+v", f.Limits[1].Use)
			}
			if f.Upstreams[0].State != "closed" || f.Upstreams[0].P50 <= 0 || f.Upstreams[0].P95 < f.Upstreams[0].P50 {
				t.Errorf("%+v", f.Upstreams)
			}
			if f.Memory == nil || f.Memory.Cells == 0 || f.Store != nil || !f.Token || !f.Ready || f.Clear != clear || len(f.Routes) != 2 {
				t.Errorf("%+v", f)
			}
			next := e.until(func(n *shownFrame) bool { return n.Sample > f.Sample })
			if next.Now <= f.Now {
				t.Errorf("%d after %d", next.Now, f.Now)
			}
		})
	}
}

// Streams are few, and one ends when its client leaves or the gateway stops.
func TestStreamsAreBounded(t *testing.T) {
	g, _ := withDashboard(t, false)
	var open []*http.Response
	for range maxStreams {
		res, err := http.Get(g.AdminURL() + "/events")
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		open = append(open, res)
	}
	if res, _ := ask(t, "GET", g.AdminURL()+"/events"); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Fatalf("one more: %s", res.Status)
	}
	if n := g.board.streams.Load(); n != maxStreams {
		t.Errorf("%d streams", n)
	}
	open[0].Body.Close()
	for deadline := time.Now().Add(20 * time.Second); g.board.streams.Load() == maxStreams; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a stream does not end when its client leaves")
		}
	}
	if res, err := http.Get(g.AdminURL() + "/events"); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	} else {
		res.Body.Close()
	}
}

// What a page in a browser may do: change limits with the token, from this origin, and nothing else.
func TestDashboardChanges(t *testing.T) {
	g, url := withDashboard(t, false)
	admin := g.AdminURL()
	const bearer = "Authorization: Bearer " + adminToken
	const key = "/limits/client/ip:203.0.113.1"
	for _, c := range []struct {
		name   string
		method string
		path   string
		lines  []string
		status int
	}{
		{"the page", "POST", key + "/hold?for=1h", []string{bearer, "Origin: " + admin, "Sec-Fetch-Site: same-origin"}, 204},
		{"an old browser", "POST", key + "/hold?for=1h", []string{bearer, "Origin: " + admin}, 204},
		{"without the token", "POST", key + "/hold?for=0", []string{"Origin: " + admin, "Sec-Fetch-Site: same-origin"}, 401},
		{"a wrong token", "POST", key + "/hold?for=0", []string{"Authorization: Bearer x", "Origin: " + admin, "Sec-Fetch-Site: same-origin"}, 401},
		{"another site that has the token", "POST", key + "/hold?for=0", []string{bearer, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, 403},
		{"another port", "POST", key + "/hold?for=0", []string{bearer, "Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"}, 403},
		{"an old browser on another site", "POST", key + "/hold?for=0", []string{bearer, "Origin: http://evil.example"}, 403},
		{"an origin that does not say", "POST", key + "/hold?for=0", []string{bearer, "Origin: null"}, 403},
		{"typed into the address bar", "DELETE", key, []string{bearer, "Sec-Fetch-Site: none"}, 403},
		{"two origins", "POST", key + "/hold?for=0", []string{bearer, "Origin: " + admin, "Origin: http://evil.example"}, 403},
		{"a preflight", "OPTIONS", key + "/hold?for=0", []string{"Origin: http://evil.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"}, 405},
	} {
		res, body := ask(t, c.method, admin+c.path, c.lines...)
		if res.StatusCode != c.status {
			t.Errorf("%s: %s %s, want %d", c.name, res.Status, body, c.status)
		}
		if res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other origins may read", c.name)
		}
	}

	// Held keys are known by their hash, and after a release those that asked.
	hash := hashText(hashOf("ip:203.0.113.1"))
	byHash := "/limits/client/" + hash
	if res, _ := ask(t, "GET", url, "X-Forwarded-For: 203.0.113.1"); res.StatusCode != 429 {
		t.Fatal("held, and answered with", res.Status)
	}
	res, body := ask(t, "GET", admin+byHash+"?by=hash")
	if res.StatusCode != 200 || !strings.Contains(body, `"key":"`+hash+`"`) || !strings.Contains(body, `"allowed":false`) {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, body := ask(t, "POST", admin+byHash+"/hold?for=0&by=hash", bearer); res.StatusCode != 204 {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, _ := ask(t, "GET", url, "X-Forwarded-For: 203.0.113.1"); res.StatusCode != 200 {
		t.Error("released, and answered with", res.Status)
	}
	if res, body := ask(t, "DELETE", admin+byHash+"?by=hash", bearer); res.StatusCode != 204 {
		t.Errorf("%s %s", res.Status, body)
	}
	for _, unknown := range []string{"1", "ip:203.0.113.1", "-", strings.Repeat("f", 99)} {
		if res, _ := ask(t, "GET", admin+"/limits/client/"+unknown+"?by=hash"); res.StatusCode != 404 {
			t.Errorf("%s: %s", unknown, res.Status)
		}
	}
}

func TestPageIsLockedDown(t *testing.T) {
	g, _ := withDashboard(t, false)
	for path, kind := range map[string]string{"/": "text/html", "/dashboard.css": "text/css", "/dashboard.js": "text/javascript", "/icon.svg": "image/svg+xml"} {
		res, body := ask(t, "GET", g.AdminURL()+path)
		policy := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s %v", path, res.Status, res.Header)
		}
		if again, _ := ask(t, "GET", g.AdminURL()+path, "If-None-Match: "+res.Header.Get("ETag")); again.StatusCode != 304 {
			t.Errorf("%s again: %s", path, again.Status)
		}
		for _, no := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style=", "onclick=", "<script>", "localStorage", "https://", "//cdn"} {
			if strings.Contains(body, no) {
				t.Errorf("%s has %s", path, no)
			}
		}
	}
	cfg := everything("http://127.0.0.1:1", []*weir.Limit{perHour("all", 1)}, Charge{Limit: "all"})
	off, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if off.board != nil || off.site.Load().routes["/"].charges[0].heat != nil {
		t.Error("something is counted for a dashboard that nobody can open")
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{.1, .2, .4}
	for _, c := range []struct {
		q      float64
		counts []float64
		want   float64
	}{
		{.5, nil, -1},
		{.5, []float64{0, 0, 0, 0}, -1},
		{.5, []float64{10, 10, 10, 10}, .05},
		{.5, []float64{0, 10, 10, 10}, .15},
		{.95, []float64{0, 0, 100, 100}, .39},
		{.5, []float64{5, 5, 10, 10}, .1},
		{.95, []float64{0, 0, 0, 3}, .4},
		{1, []float64{1, 2, 3, 3}, .4},
	} {
		if got := quantile(c.q, bounds, c.counts); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v of %v: %v, want %v", c.q, c.counts, got, c.want)
		}
	}
}

// A reload keeps what was counted, and forgets limits that are gone.
func TestDashboardOverReloads(t *testing.T) {
	g, url := withDashboard(t, true)
	ask(t, "GET", url, "X-Forwarded-For: 203.0.113.1")
	cfg := *g.site.Load().config
	cfg.Limits = append(Limits(perHour("client", 7)), cfg.Limits[1])
	cfg.Routes = []*Route{{Pattern: "/", Limits: []Charge{{Limit: "client"}, {Limit: "all", Key: "global"}}}}
	if err := g.Reload(&cfg); err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", url, "X-Forwarded-For: 203.0.113.1")
	e := openEvents(t, g.AdminURL())
	e.next("history", new(any))
	f := e.until(func(f *shownFrame) bool { return len(f.Limits) == 2 && f.Limits[0].Total[0] == 2 })
	if len(f.Limits[0].Use) != 1 || f.Limits[0].Use[0].Count != 3 {
		t.Errorf("%+v", f.Limits[0])
	}
}
