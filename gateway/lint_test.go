package gateway

import (
	"log/slog"
	"strings"
	"testing"
)

// clean is a configuration in which nothing is found.
const clean = `clients: {trusted_proxies: [10.0.0.0/8]}
identity: {header: {name: X-User}}
upstreams:
  main: {url: "http://127.0.0.1:9000"}
limits:
  - {name: global, rate: 1000/s, headroom: 100}
  - {name: client, rate: 100/m, burst: 20}
  - {name: shaped, rate: 10/s, algorithm: leaky-bucket}
defaults:
  - {limit: global, key: global}
routes:
  - {pattern: /, limits: [{limit: client}]}
  - {pattern: /hooks, limits: [{limit: client, key: user, priority: normal}]}
  - {pattern: /vip, exempt: true, limits: [{limit: global, key: global, priority: high}]}
  - {pattern: /export, limits: [{limit: shaped, key: global}], queue: {}}
`

func TestLint(t *testing.T) {
	tests := []struct {
		name     string
		old, new string   // what is replaced in clean, and by what
		want     []string // the findings, as severity: field: the beginning of the fault
	}{
		{"nothing", "", "", nil},

		{"trust in everybody", "{trusted_proxies: [10.0.0.0/8]}", "{trusted_proxies: [0.0.0.0/0], i_know_that_everybody_is_trusted: true}", []string{
			"warning: clients.trusted_proxies[0]: trusts everybody"}},
		{"trust in everybody, in two halves", "10.0.0.0/8", "0.0.0.0/1, 128.0.0.0/1", []string{
			`error: clients.trusted_proxies[0]: "0.0.0.0/1" trusts 2^31 addresses`,
			`error: clients.trusted_proxies[1]: "128.0.0.0/1" trusts 2^31 addresses`}},
		{"a flag for nothing", "[10.0.0.0/8]", "[10.0.0.0/8], i_know_that_everybody_is_trusted: true", []string{
			"warning: clients.i_know_that_everybody_is_trusted: allows 0.0.0.0/0 and ::/0, which"}},
		{"a header that is never read", "clients: {trusted_proxies: [10.0.0.0/8]}\nidentity: {header: {name: X-User}}\n", "clients: {header: X-Forwarded-For}\n", []string{
			"error: clients.header: X-Forwarded-For is never read",
			"error: routes[1].limits[0].key: no user is ever known without identity"}},
		{"a client for each address of a subscriber", "[10.0.0.0/8]", "[10.0.0.0/8], ipv6_prefix: 128", []string{
			"error: clients.ipv6_prefix: a subscriber has a /64 at least, and so 2^64 clients"}},
		{"a client for many subscribers", "[10.0.0.0/8]", "[10.0.0.0/8], ipv6_prefix: 32", []string{
			"warning: clients.ipv6_prefix: many customers"}},
		{"peers without an address", "clients: {trusted_proxies: [10.0.0.0/8]}\nidentity: {header: {name: X-User}}\n", "listen: [{address: 'unix:/run/weir'}]\nidentity: {api_keys: {file: testdata/keys.txt}}\n", []string{
			"warning: listen[0].address: peers on a unix socket have no address"}},

		{"a share of nobody knows how many", "upstreams:", "store: redis://127.0.0.1:6379\nupstreams:", []string{
			"warning: store: while it does not answer, each instance admits all of the limit"}},
		{"a share of one", "upstreams:", "store: redis://127.0.0.1:6379\nreplicas: 1\nupstreams:", nil},
		{"no shares", "upstreams:", "store: redis://127.0.0.1:6379\non_error: deny\nupstreams:", nil},
		{"an open admin listener", "upstreams:", "admin: {address: ':9090'}\nupstreams:", []string{
			"error: admin.address: :9090 is open to others without a token"}},
		{"an admin listener on loopback", "upstreams:", "admin: {address: '[::1]:9090'}\nupstreams:", nil},
		{"no admin listener", "upstreams:", "admin: {address: off}\nupstreams:", nil},

		{"an upstream that is weir", "127.0.0.1:9000", "localhost:8080", []string{
			"error: upstreams.main.url: http://localhost:8080 is where weir itself listens (:8080)"}},
		{"an upstream that is weir's admin", "127.0.0.1:9000", "127.0.0.1:9090", []string{
			"error: upstreams.main.url: http://127.0.0.1:9090 is where weir itself listens (127.0.0.1:9090)"}},

		{"a limit nobody uses", "defaults:", "  - {name: spare, rate: 1/s}\ndefaults:", []string{
			`warning: limits[3]: no route uses limit "spare"`}},
		{"headroom for nobody", ", priority: high", "", []string{
			"warning: limits[0].headroom: 100 units that only high priority may take"}},
		{"priority without headroom", ", headroom: 100", "", []string{
			"warning: routes[2].limits[0].priority: priority high means nothing on a limit without headroom"}},
		{"a slow limit", "100/m, burst: 20", "100/30d, burst: 100", []string{
			"warning: limits[1]: a busy key is remembered for 720h0m0s, so that 6 new keys a second fill max_cells (16777216)"}},
		{"a slow limit with few units at once", "100/m, burst: 20", "1000/d, burst: 20", nil},
		{"a long log", "100/m, burst: 20", "50000/m, algorithm: sliding-log", []string{
			"warning: limits[1]: sliding-log remembers each unit, up to 781 kB a key"}},
		{"a shadow of a cost that never fits", "{limit: client}", "{limit: client, shadow: true, cost: 21}", []string{
			`error: routes[0].limits[0].cost: 21 units, where limit "client" has at most 20 at once`}},
		{"API keys instead of proxies", "clients: {trusted_proxies: [10.0.0.0/8]}\nidentity: {header: {name: X-User}}\n", "identity: {api_keys: {file: testdata/keys.txt}}\n", nil},
		{"a cost by a header that never arrives", "{limit: client}", "{limit: client, cost_from: 'header:transfer-encoding'}", []string{
			"error: routes[0].limits[0].cost_from: Transfer-Encoding never arrives"}},
		{"a key by a header that never arrives", "{limit: client}", "{limit: client, key: 'ip+header:host'}", []string{
			"error: routes[0].limits[0].key: Host never arrives"}},

		{"a key that an outsider chooses, beside a limit for all", "{limit: client}", "{limit: client, key: 'header:X-Key'}", nil},
		{"a key that an outsider chooses", "{pattern: /, ", "{pattern: /, exempt: true, limits: [{limit: client, key: 'client+header:X-Key'}]}\n  - {pattern: /b, ", []string{
			`warning: routes[0].limits[0].key: an outsider chooses the key "client+header:X-Key" and gets a fresh burst with each value, unless a trusted proxy`}},

		{"a route without limits", "{pattern: /, ", "{pattern: /free, exempt: true}\n  - {pattern: /, ", nil},
		{"only shadows", "exempt: true, limits: [{limit: global, key: global, priority: high}]", "exempt: true, limits: [{limit: global, key: global, priority: high, shadow: true}]", []string{
			"warning: routes[2]: only shadow limits"}},
		{"a slip in a method", "{pattern: /hooks, ", "{pattern: GTE /hooks, ", []string{
			"warning: routes[1].pattern: GTE is none of the usual methods; write GET, if that is meant"}},
		{"an odd method", "{pattern: /hooks, ", "{pattern: FROBNICATE /hooks, ", []string{
			"warning: routes[1].pattern: FROBNICATE is none of the usual methods; see whether"}},
		{"methods of others", "{pattern: /hooks, ", "{pattern: PROPFIND /hooks, ", nil},
		{"the other method", "{pattern: /hooks, ", "{pattern: /hooks, exempt: true}\n  - {pattern: POST /hooks, ", []string{
			`warning: routes[2].pattern: GET on the same path goes to routes[1] ("/hooks"), which has no limit`}},
		{"a method in lower case", "/hooks", "get /hooks", []string{
			"error: routes[1].pattern: no request has the method get"}},
		{"a host with a port", "/hooks", "example.com:8080/hooks", []string{
			`error: routes[1].pattern: hosts are matched without their port, so that "example.com:8080" matches nothing`}},
		{"a host in upper case", "/hooks", "'GET Example.COM/hooks/{id}/{rest...}'", nil},
		{"a query", "/hooks", "/hooks?id=", []string{
			"error: routes[1].pattern: a path ends before ? and #"}},
		{"CONNECT", "/hooks", "CONNECT /hooks", []string{
			"error: routes[1].pattern: a reverse proxy gets no CONNECT requests"}},
		{"the same limit twice, too much in all", "{limit: client}", "{limit: client, cost: 11}, {limit: client, cost: 10}", []string{
			`error: routes[0]: 2 charges of together 21 units on limit "client", which has at most 20 at once`}},
		{"the same limit twice", "{limit: client}", "{limit: global, key: global}", []string{
			`warning: routes[0]: 2 charges on limit "global" with one key`}},
		{"a queue before a bucket", "limits: [{limit: client}]", "limits: [{limit: client}], queue: {}", []string{
			"warning: routes[0].queue: a queue shapes traffic in front of a leaky bucket"}},
		{"a queue longer than the timeout", "queue: {}", "queue: {wait: 3s}, timeout: 2s", []string{
			"warning: routes[3].queue.wait: requests wait up to 3s for an answer that may take 2s"}},
		{"a queue of nothing", "limits: [{limit: shaped, key: global}], queue: {}", "exempt: true, limits: [{limit: shaped, key: global, shadow: true}], queue: {}", []string{
			"warning: routes[3]: only shadow limits",
			"warning: routes[3].queue: nothing is refused on this route"}},
		{"unmatched requests are free", "defaults:\n  - {limit: global, key: global}\nroutes:\n  - {pattern: /, ", "routes:\n  - {pattern: /a, ", []string{
			"warning: routes: requests that match no route get 404 without being charged",
			"warning: routes[2].exempt: exempt from defaults, and there are none"}},
		{"no limit at all", "defaults:\n  - {limit: global, key: global}\nroutes:\n", "routes:\n  - {pattern: /free}\n", []string{
			"warning: routes[0]: no limit at all",
			"warning: routes[3].exempt: exempt from defaults, and there are none"}},
		{"only some answers of a concurrency limit", "rate: 100/m, burst: 20}", "rate: 100/m, algorithm: concurrency}", nil},
		{"a retry that is none", `9000"`, `9000", retry: {attempts: 1}`, []string{
			"warning: upstreams.main.retry.attempts: one attempt in all"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			yaml := clean
			if tt.old != "" {
				if yaml = strings.Replace(clean, tt.old, tt.new, 1); yaml == clean {
					t.Fatalf("%q is not in it", tt.old)
				}
			}
			c, err := Parse("weir.yaml", []byte(yaml))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Lint(c) {
				got = append(got, f.String())
				if f.Line == 0 || f.Fix == "" {
					t.Errorf("no place or no fix: %s", f)
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			for i, g := range got {
				if !strings.Contains(g, ": "+tt.want[i]) {
					t.Errorf("got %s\nwant %s", g, tt.want[i])
				}
			}
		})
	}
}

func TestLintFindsWhatOnlyNamesAndProxiesShow(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(`upstreams:
  main: {url: "http://127.0.0.1:9000"}
  spare: {url: "http://127.0.0.1:9001"}
limits:
  - {name: client, rate: 100/m}
routes:
  - {pattern: /, upstream: main, limits: [{limit: client, key: 'header:X-Key', cost_from: 'header:X-Cost'}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"weir.yaml:3:10: warning: upstreams.spare: no route goes to it; name it in a route, or take it out",
		`weir.yaml:7:64: error: routes[0].limits[0].key: an outsider chooses the key "header:X-Key" and gets a fresh burst with each value; no other limit of routes[0] stands in the way; add a limit by client, ip or global`,
		"weir.yaml:7:91: error: routes[0].limits[0].cost_from: X-Cost is never read: it counts only from trusted proxies, and there are none; name the proxies that write it in clients.trusted_proxies, or take it out",
	}
	got := Lint(c)
	for i, f := range got {
		if i >= len(want) || f.String() != want[i] {
			t.Errorf("got %s", f)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d, want %q", len(got), want)
	}
}

func TestAFindingIsOneLineWithPlaceFaultAndFix(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(strings.Replace(valid, "limits:\n", "limits:\n  - {name: spare, rate: 1/s}\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	got := Lint(c)
	want := `weir.yaml:4:5: warning: limits[0]: no route uses limit "spare"; name it in a route or in defaults, or take it out`
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	q, err := Quick("http://127.0.0.1:8080", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want = `error: upstreams.upstream.url: http://127.0.0.1:8080 is where weir itself listens (:8080), so that it would ask itself; give the address of the server behind`
	if got := Lint(q); len(got) == 0 || got[0].String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// Findings about a configuration that is not from a file have no line.
func TestFindingsInTheLog(t *testing.T) {
	inFile, err := Parse("weir.yaml", []byte("upstreams: {main: {url: 'http://127.0.0.1:1'}}\nroutes: [{pattern: /}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*Config{"line=2": inFile, "": everything("http://127.0.0.1:1", nil)} {
		var log journal
		if _, err := New(cfg, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
		if !log.has("probably a mistake") || !log.has(name) || log.has("line=") != (name != "") {
			t.Errorf("want %q in\n%s", name, log.text.String())
		}
	}
}
