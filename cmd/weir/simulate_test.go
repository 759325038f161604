package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/traffic"
)

// A configuration with something of everything that decides what a request is charged.
const everything = `
admin: {address: "off"}
clients: {trusted_proxies: [10.0.0.0/8]}
identity: {header: {name: X-User}}
upstreams: {shop: {url: "%s"}}
limits:
  - {name: global, rate: 40/s, burst: 60, headroom: 10}
  - {name: client, rate: 90/m, burst: 12}
  - {name: gcra, rate: 60/m, burst: 10, algorithm: gcra}
  - {name: fixed, rate: 30/10s, algorithm: fixed-window}
  - {name: sliding, rate: 30/10s, algorithm: sliding-window}
  - {name: login, rate: 4/30s, algorithm: sliding-log}
  - {name: tenant, rate: 100/m, shadow: true}
  - {name: open, rate: 3/m, algorithm: concurrency}
  - {name: drip, rate: 2/s, algorithm: leaky-bucket}
defaults:
  - {limit: global, key: global}
  - {limit: client}
routes:
  - {pattern: /}
  - pattern: POST /orders
    exempt: true
    limits: [{limit: global, key: global, priority: high}, {limit: client, cost: 2, cost_from: "header:X-Cost"}]
  - {pattern: GET /items/, limits: [{limit: gcra, key: ip+route}, {limit: fixed, key: user}, {limit: tenant, key: "header:X-Tenant"}]}
  - {pattern: GET /search, limits: [{limit: sliding, key: ip, priority: low}, {limit: open, key: global}]}
  - {pattern: /login, limits: [{limit: login, key: ip, only: [401, 403]}]}
  - {pattern: shop.example/drip, limits: [{limit: drip, key: global, shadow: true}, {limit: fixed}]}
`

// The simulation decides as the proxy does, request by request: same requests, same instants, one over HTTP with the clock of
// the world, one in virtual time.
func TestSimulationEqualsProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Status"))
		w.WriteHeader(status)
	}))
	defer upstream.Close()
	upstream.Config.SetKeepAlivesEnabled(false) // an open connection would keep a bubble's time from passing
	text := []byte(fmt.Sprintf(everything, upstream.URL))
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			live, err := gateway.Parse("weir.yaml", text)
			if err != nil {
				t.Fatal(err)
			}
			g, err := gateway.New(live, gateway.Options{})
			if err != nil {
				t.Fatal(err)
			}
			simulated, _ := gateway.Parse("weir.yaml", text)
			policy, err := policyOf("weir.yaml", simulated)
			if err != nil {
				t.Fatal(err)
			}
			var decided *weir.Decision
			sim := &traffic.Simulation{Policy: policy, Decided: func(_ *traffic.Event, _ []weir.Charge, d *weir.Decision) {
				one := *d
				decided = &one
			}}
			random := rand.New(rand.NewPCG(seed, 5))
			refused := 0
			for n := range 1500 {
				if random.IntN(4) > 0 {
					time.Sleep(time.Duration(random.Int64N(int64(120*time.Millisecond))) / time.Microsecond * time.Microsecond)
				}
				e, raw := anyRequest(random)
				e.At = time.Now()
				r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
				if err != nil {
					t.Fatal(err)
				}
				r.RemoteAddr = "[" + e.Client + "]:1"
				if !strings.Contains(e.Client, ":") {
					r.RemoteAddr = e.Client + ":1"
				}
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, r)
				decided = nil
				if err := sim.Add(&e); err != nil {
					t.Fatal(err)
				}
				if decided == nil {
					t.Fatalf("seed %d, request %d, %s: no decision, and status %d", seed, n, raw, w.Code)
				}
				if got := w.Code != http.StatusTooManyRequests; got != decided.Allowed {
					t.Fatalf("seed %d, request %d, %s: proxy %v (%d), simulation %v", seed, n, raw, got, w.Code, decided.Allowed)
				}
				if decided.Allowed {
					continue
				}
				refused++
				want := ""
				if !decided.Never {
					want = fmt.Sprint(max(1, int64((decided.RetryAfter+time.Second-1)/time.Second)))
				}
				if got := w.Header().Get("Retry-After"); got != want {
					t.Fatalf("seed %d, request %d, %s: Retry-After %q, the simulation says %q", seed, n, raw, got, want)
				}
			}
			if refused < 150 || refused > 1350 {
				t.Errorf("seed %d: %d of 1500 refused, too few or too many to test anything", seed, refused)
			}
			r, err := sim.Result(context.Background())
			if err != nil || r.Refused != int64(refused) {
				t.Errorf("seed %d: the result says %d refused, want %d (%v)", seed, r.Refused, refused, err)
			}
		})
	}
}

// anyRequest is one request as a log has it, and as it was sent.
func anyRequest(random *rand.Rand) (traffic.Event, string) {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	e := traffic.Event{
		Client: pick("192.0.2.1", "192.0.2.2", "10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"),
		Host:   pick("shop.example", "SHOP.example.", "other.example:8080"),
		Method: pick("GET", "GET", "POST"),
		Path:   pick("/", "/orders", "/orders", "/items/1", "/items/2?x=y", "/items//3", "/search?q=%C3%A9", "/login", "/login", "/drip", "/%6frders", "/a%2Fb", "/items/4;v=1"),
		Status: []int{200, 200, 401, 404, 500}[random.IntN(5)],
	}
	header := func(name, value string) { e.Header = append(e.Header, traffic.Field{Name: name, Value: value}) }
	if random.IntN(2) == 0 {
		header("X-Forwarded-For", pick("203.0.113.5", "203.0.113.6, 10.0.0.2", "nonsense", "::ffff:203.0.113.5"))
	}
	if random.IntN(3) == 0 {
		header("X-Tenant", pick("acme", "initech"))
	}
	if random.IntN(4) == 0 {
		header("X-Cost", pick("3", "0", "500"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nX-Status: %d\r\n", e.Method, e.Path, e.Host, e.Status)
	if e.Client == "10.0.0.1" && random.IntN(2) == 0 { // who signed in is in the log, and known to the proxy by a header
		e.User = pick("ann", "bob")
		fmt.Fprintf(&b, "X-User: %s\r\n", e.User)
	}
	for _, f := range e.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	return e, b.String() + "\r\n"
}

func weirCommand(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// accessLog is two clients for a minute: one asks once in ten seconds, the other once a second.
func accessLog() string {
	var b strings.Builder
	at := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for s := range 60 {
		stamp := at.Add(time.Duration(s) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		if s%10 == 0 {
			fmt.Fprintf(&b, "192.0.2.1 - - [%s] \"GET /slow HTTP/1.1\" 200 10\n", stamp)
		}
		fmt.Fprintf(&b, "192.0.2.2 - - [%s] \"GET /fast HTTP/1.1\" 200 10\n", stamp)
		if s == 30 {
			b.WriteString("2026/11/27 08:00:30 [error] upstream timed out\n")
		}
	}
	return b.String()
}

func TestSimulateLog(t *testing.T) {
	code, out, errs := weirCommand(t, accessLog(), "simulate", "--limit", "client=10/m burst=10", "-")
	if code != 0 || errs != "" {
		t.Fatalf("code %d, %s", code, errs)
	}
	for _, want := range []string{
		"the limits: 66 requests, 2026-11-27 08:00:00Z to 2026-11-27 08:00:59Z",
		"refused 41 (62.1 %), most in the minute of 2026-11-27 08:00:00Z: 41 of 66",
		"refused 41 of 66 (62.1 %), 1 of 2 keys (50.0 %)",
		"p50 6, p99 60, most 60 (ip:192.0.2.2 at 2026-11-27 08:00:00Z)",
		"  by each algorithm, as the only limit:\n", "* token-bucket", "  sliding-log", "\nwrongly               otherwise than by an exact log of what this algorithm had let through till then",
		"note: 1 of 67 lines could not be read (1.49 %), and count nowhere else.",
		`note: standard input:36: no " [" after field 3: "2026/11/27 08:00:30 [error] upstream timed out"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestSimulateJSON(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(log, []byte(accessLog()), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := weirCommand(t, "", "simulate", "--limit", "client=10/m", "--suggest", "0%", "--hash", "--json", "--fail-over", "50%", log)
	if code != exitFailure {
		t.Fatalf("code %d, %s", code, errs)
	}
	var r traffic.SimulationReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	l := r.Results[0].Limits[0]
	if strings.Contains(out, "192.0.2.") || strings.Contains(out, "upstream timed out") || l.TopAsked[0].Key[:4] != "ip:#" {
		t.Errorf("a key is shown: %+v", l.TopAsked)
	}
	if s := l.Suggested; s == nil || !s.Found || s.Refused != 0 {
		t.Errorf("suggested %+v", s)
	}
	if len(l.Algorithms) != 6 || r.Log.Unreadable != 1 || len(r.Verdicts) != 1 || r.Verdicts[0].OK {
		t.Errorf("%+v", r)
	}
}

// Orders survive Black Friday, since the example keeps room for them; without that they do not.
func TestSimulateBlackFriday(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	args := []string{"simulate", "--scenario", "../../examples/blackfriday.yaml", "--no-compare"}
	code, out, errs := weirCommand(t, "", append(args, "-c", "../../examples/shop.yaml", "--html", page)...)
	if code != 0 || errs != "" {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	const agreed = "greed by M. Sato (marketing) and K. Berger (shop platform) on 2026-10-01"
	if strings.Contains(out, "wrongly") {
		t.Error("a legend without a table")
	}
	if !strings.Contains(out, agreed) || !strings.Contains(out, "yes  orders survive: 0 % of ") ||
		!strings.Contains(out, "  after a refusal somebody came back ") || !strings.Contains(out, "note: 70% of the refused, all but the runaway, come back") {
		t.Errorf("got\n%s", out)
	}
	html, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(html, []byte(agreed)) || !bytes.Contains(html, []byte("orders</b> survive")) {
		t.Errorf("the page: %v, %d bytes", err, len(html))
	}

	shop, err := os.ReadFile("../../examples/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flat := filepath.Join(t.TempDir(), "flat.yaml")
	text := strings.NewReplacer("headroom: 150", "headroom: 0").Replace(string(shop))
	if err := os.WriteFile(flat, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ = weirCommand(t, "", append(args, "-c", flat)...)
	if code != exitFailure || !strings.Contains(out, "NO   orders do not survive") || !strings.Contains(out, "were served only when they came back") {
		t.Errorf("without headroom: code %d\n%s", code, out)
	}
}

// TestSimulateReturns: the algorithms are compared without those who come back, and the line above their table says so.
func TestSimulateReturns(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "rush.yaml")
	text := "name: rush\nduration: 1m\nload: {normal: 20/s}\nclasses:\n  - {name: a, request: GET /, share: 100%}\nclients: {count: 3, returns: {share: 100%, wait: 10m}}\n"
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := weirCommand(t, "", "simulate", "--limit", "client=60/m", "--scenario", scenario)
	came := regexp.MustCompile(`refused \S+ of (\S+) [^\n]*\n[^\n]*\n(?:[^*]*\n)?  by each algorithm, as the only limit, without those who come back after a refusal \((\S+) requests, not the (\S+) above\):\n`).FindStringSubmatch(out)
	if code != 0 || came == nil || came[1] != came[3] || !strings.Contains(out, ": "+came[2]+" requests, ") {
		t.Errorf("code %d, %q: %s\n%s", code, came, errs, out)
	}
}

// A limit whose key the log does not tell is not one for all without a word.
func TestSimulateSaysWhatTheLogDoesNot(t *testing.T) {
	config := filepath.Join(t.TempDir(), "weir.yaml")
	text := `
clients: {trusted_proxies: [10.0.0.0/8]}
identity: {header: {name: X-User}}
upstreams: {a: {url: "http://127.0.0.1:1"}}
limits: [{name: apps, rate: 5/m}, {name: people, rate: 5/m}, {name: either, rate: 5/m}, {name: work, rate: 5/m}]
defaults: [{limit: apps, key: "header:X-API-Key"}, {limit: people, key: user}, {limit: either}]
routes: [{pattern: /, limits: [{limit: work, key: global, cost_from: "header:X-Cost"}]}]
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		apps    = `note: The limit "apps" counts by the header X-Api-Key, which no request of the log has`
		people  = `note: The limit "people" counts by user, and no request of the log has one: all are counted as one.`
		either  = `note: The limit "either" counts by user and else by address, and no request of the log has a user`
		work    = `note: The limit "work" takes costs from the header X-Cost, which no request of the log has`
		address = `note: 1 request has no client's address: the limit "either" counts what has none as one client.`
	)
	for _, tt := range []struct {
		name, line string
		want, not  []string
	}{
		{"nothing", `{"ts":1795766400.5,"method":"GET","uri":"/"}`, []string{apps, people, either, work, address}, nil},
		{"all", `{"ts":1795766400.5,"remote_addr":"192.0.2.1","user":"ann","method":"GET","uri":"/","http_x_api_key":"k","http_x_cost":"2"}`,
			nil, []string{"note: The limit", "no client's address"}},
	} {
		code, out, errs := weirCommand(t, tt.line+"\n", "simulate", "-c", config, "-")
		if code != 0 {
			t.Fatalf("%s: code %d, %s", tt.name, code, errs)
		}
		for _, want := range tt.want {
			if strings.Count(out, want) != 1 {
				t.Errorf("%s: want once %q in\n%s", tt.name, want, out)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(out, not) {
				t.Errorf("%s: %q in\n%s", tt.name, not, out)
			}
		}
	}
}

// What is not simulated is said.
func TestSimulateSaysWhatIsNotForeseen(t *testing.T) {
	config := filepath.Join(t.TempDir(), "weir.yaml")
	for _, queue := range []string{"", ", queue: {wait: 1s}"} {
		text := "upstreams: {a: {url: http://127.0.0.1:1}}\nlimits: [{name: client, rate: 2/m}]\nroutes: [{pattern: /, limits: [{limit: client}]" + queue + "}]\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, _ := weirCommand(t, accessLog(), "simulate", "-c", config, "--no-compare", "-")
		if !strings.Contains(out, "note: Each refused request is refused once: clients that come back") || strings.Contains(out, "note: Queues of routes are not waited in") != (queue != "") {
			t.Errorf("queue %q:\n%s", queue, out)
		}
	}
}

// A log that breaks off is simulated as far as it goes; that it broke off is in the results, and the command fails.
func TestSimulateLogThatBreaksOff(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(accessLog()))
	z.Close()
	log := filepath.Join(t.TempDir(), "access.log.gz")
	if err := os.WriteFile(log, b.Bytes()[:b.Len()-8], 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := weirCommand(t, "", "simulate", "--limit", "client=10/m", log)
	if code != exitFailure || !strings.Contains(errs, log+":68: breaks off") || !strings.Contains(out, "refused 41 (62.1 %)") ||
		!strings.Contains(out, "note: "+log+":68: breaks off: unexpected EOF") {
		t.Errorf("code %d, %s\n%s", code, errs, out)
	}
}

// Lists are lists in JSON, for jq.
func TestSimulateJSONHasNoNull(t *testing.T) {
	_, out, _ := weirCommand(t, accessLog(), "simulate", "--limit", "client=10/m", "--json", "--no-compare", "-")
	if strings.Contains(out, "null") {
		t.Error(out)
	}
}

// Two configurations on the same log, in the JSON format of Caddy.
func TestSimulateSideBySide(t *testing.T) {
	dir := t.TempDir()
	strict, loose := filepath.Join(dir, "strict.yaml"), filepath.Join(dir, "loose.yaml")
	for path, rate := range map[string]string{strict: "2/m", loose: "9/m"} {
		text := "upstreams: {a: {url: http://127.0.0.1:1}}\nlimits: [{name: client, rate: " + rate + "}]\nroutes: [{pattern: GET /x, limits: [{limit: client}]}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := ""
	for i := range 5 {
		log += fmt.Sprintf(`{"ts":1795766400.%d,"request":{"client_ip":"192.0.2.1","method":"GET","host":"a","uri":"/x"},"status":200}`+"\n", i)
	}
	log += `{"ts":1795766401,"request":{"client_ip":"192.0.2.1","method":"GET","host":"a","uri":"/elsewhere"},"status":404}`
	code, out, errs := weirCommand(t, log, "simulate", "-c", strict, "-c", loose, "--fail-over", "10%", "--no-compare", "-")
	if code != exitFailure || errs != "" {
		t.Errorf("code %d, %s", code, errs)
	}
	for _, want := range []string{
		"NO   GET /x under " + strict + " do not survive: 60.0 % of 5 refused, at most 10%",
		"yes  GET /x under " + loose + " survive: 0 % of 5 refused, at most 10%",
		"yes  none under " + loose,
		"1 request meets no limit. (" + strict + ")",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestSimulateUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nduration: soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "nothing to simulate"},
		{"x.log", 2, "no limits"},
		{"--limit client=5/m --config weir.yaml x.log", 2, "--limit is for simulating without a file"},
		{"--limit client=5 x.log", 2, "no slash"},
		{"--limit client=5/m --scenario " + bad + " x.log", 2, "a scenario or logs, not both"},
		{"--limit client=5/m --scenario " + bad, 2, bad + `:2:11: duration: "soon": no duration; the form is a number and a unit`},
		{"--limit client=5/m --scenario nowhere.yaml", 2, "nowhere.yaml"},
		{"--limit client=5/m --format apache x.log", 2, "--format: format \"apache\"; it takes one of"},
		{"--limit client=5/m --suggest 5 x.log", 2, "\"5\" is no share"},
		{"--limit client=5/m --suggest lots x.log", 2, "is no share"},
		{"--limit client=5/m --fail-over 200% x.log", 2, "is no share"},
		{"--limit client=5/m --top -3 x.log", 2, "--top takes 1 or more"},
		{"--limit client=5/m --disorder -3s x.log", 2, "--disorder and --took no negative time"},
		{"--limit client=5/m --html no/such/page.html x.log", 2, "--html: no/such/page.html: no such file"},
		{"--limit client=5/m nowhere.log", 2, "nowhere.log: no such file"},
		{"--limit client=5/m -", 1, "no request in 0 lines"},
	} {
		code, _, errs := weirCommand(t, "", append([]string{"simulate"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: code %d, %s; want %d, %s", tt.args, code, errs, tt.code, tt.want)
		}
	}
}
