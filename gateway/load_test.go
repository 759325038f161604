package gateway

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// valid is a configuration with nothing wrong, for tests to spoil. Its lines are 1 to 6.
const valid = `upstreams:
  main: {url: "http://127.0.0.1:9000"}
limits:
  - {name: client, rate: 100/m, burst: 20}
routes:
  - {pattern: /, limits: [{limit: client}]}
`

// Each configuration and everything that is said about it.
func TestParseSaysWhatIsWrong(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       []string
	}{
		{"empty file", "", []string{
			`weir.yaml:1:1: empty; a configuration has at least upstreams and routes`}},
		{"only a comment", "# to do\n", []string{
			`weir.yaml:1:1: empty; a configuration has at least upstreams and routes`}},
		{"not YAML", "upstreams: [\n", []string{
			`weir.yaml:1:12: not YAML: sequence end token ']' not found: "upstreams: ["`}},
		{"tabs", "upstreams:\n\tmain: {}\n", []string{
			`weir.yaml:2:1: not YAML: found character '\t' that cannot start any token: "\tmain: {}"; lines are indented with blanks, not tabs`}},
		{"two documents", valid + "---\n" + valid, []string{
			`weir.yaml:8:1: a second document; a configuration is one`}},
		{"a list", "- a\n", []string{
			`weir.yaml:1:1: a list; it takes a mapping with listen, admin, clients, identity, upstreams, limits, defaults, routes, headers, shutdown, max_cells, store, on_error, replicas, redis and tracing`}},
		{"not text", valid + "headers: \"\x00\"\n", []string{
			`weir.yaml:7:1: the character '\x00', which is no text`}},
		{"not UTF-8", valid + "headers: \xff\n", []string{
			`weir.yaml:7:1: not UTF-8 text`}},
		{"brackets without end", strings.Repeat("[", 5000), []string{
			`weir.yaml:1:1: over 1000 brackets are open here`}},
		{"a merge", "upstreams: &u\n  main: {url: http://h}\nlimits:\n  - &l {name: a, rate: 1/s}\n  - {<<: *l, name: b}\nroutes: [{pattern: /, limits: [{limit: a}]}]\n", []string{
			`weir.yaml:5:6: limits[1]: a merge (<<) as a name; a name is text`}},
		{"an alias of nothing", strings.Replace(valid, "rate: 100/m", "rate: *r", 1), []string{
			`weir.yaml:4:26: limits[0].rate: *r stands for nothing; &r comes before it and not around it`}},
		{"an alias of itself", "routes: &r [*r]\n" + strings.Replace(valid, "routes:", "defaults:", 1), nil},
		{"nothing is said of what could not be read", "upstreams: {main: {url: [http://h]}}\nlimits: [{name: a, rate: x}]\nroutes: [{pattern: /, limits: [{limit: b}]}]\n", []string{
			`weir.yaml:1:25: upstreams.main.url: a list; it takes text, in quotes where it begins with { [ * & ! | > % @ or contains ': ' or ' #'`,
			`weir.yaml:2:26: limits[0].rate: "x": no slash; the form is units/period, as 600/m, 5/30s or 1000/24h`}},

		{"unknown field", valid + "limit: []\n", []string{
			`weir.yaml:7:1: limit: unknown field; did you mean limits?`}},
		{"unknown field in a list", strings.Replace(valid, "burst: 20", "brust: 20", 1), []string{
			`weir.yaml:4:33: limits[0].brust: unknown field; did you mean burst?`}},
		{"unknown field like no other", strings.Replace(valid, "pattern: /", "pattern: /, colour: red", 1), []string{
			`weir.yaml:6:18: routes[0].colour: unknown field; it takes pattern, upstream, limits, queue, timeout and exempt`}},
		{"field given twice", valid + "routes: []\n", []string{
			`weir.yaml:7:1: routes: given twice, first on line 5`}},
		{"several at once, by line", "headers: fancy\nshutdown: 5\nmax_cells: -1\n" + valid, []string{
			`weir.yaml:1:10: headers: "fancy" is none of draft, draft-07, draft-06, legacy, none`,
			`weir.yaml:2:11: shutdown: "5": no unit; the form is a number and a unit, as 30s, 1m30s or 250ms`,
			`weir.yaml:3:12: max_cells: -1; it takes 1 or more, or 0 for the default`}},

		{"period of a fortnight", strings.Replace(valid, "100/m", "7/fortnight", 1), []string{
			`weir.yaml:4:26: limits[0].rate: "7/fortnight": the period's unit is none of ms, s, m, h, d; the form is units/period, as 600/m, 5/30s or 1000/24h`}},
		{"rate 0", strings.Replace(valid, "100/m", "0/m", 1), []string{
			`weir.yaml:4:26: limits[0].rate: 0/m admits nothing; it takes 1 unit or more, as 600/m`}},
		{"rate 0 without a burst, which no cost fits", strings.Replace(valid, "rate: 100/m, burst: 20", "rate: 0/m", 1), []string{
			`weir.yaml:4:26: limits[0].rate: 0/m admits nothing; it takes 1 unit or more, as 600/m`}},
		{"no rate", strings.Replace(valid, "rate: 100/m, ", "", 1), []string{
			`weir.yaml:4:5: limits[0].rate: no rate; give one, as 600/m`}},
		{"a rate without a slash", strings.Replace(valid, "100/m", "100", 1), []string{
			`weir.yaml:4:26: limits[0].rate: "100": no slash; the form is units/period, as 600/m, 5/30s or 1000/24h`}},
		{"negative burst", strings.Replace(valid, "burst: 20", "burst: -20", 1), []string{
			`weir.yaml:4:40: limits[0].burst: -20; it takes 0 or more`}},
		{"a burst in words", strings.Replace(valid, "burst: 20", "burst: many", 1), []string{
			`weir.yaml:4:40: limits[0].burst: the text "many"; it takes a whole number, as 20`}},
		{"a burst that is eight or ten", strings.Replace(valid, "burst: 20", "burst: 010", 1), []string{
			`weir.yaml:4:40: limits[0].burst: 010; it takes a whole number, as 20`}},
		{"a burst too large", strings.Replace(valid, "burst: 20", "burst: 99999999999999999999", 1), []string{
			`weir.yaml:4:40: limits[0].burst: 99999999999999999999 is too large`}},
		{"a burst for a window", strings.Replace(valid, "burst: 20", "burst: 20, algorithm: fixed-window", 1), []string{
			`weir.yaml:4:40: limits[0].burst: 20 with fixed-window; its units at once are those of the rate, so leave burst out`}},
		{"headroom of half", strings.Replace(valid, "burst: 20", "burst: 20, headroom: 10", 1), []string{
			`weir.yaml:4:54: limits[0].headroom: 10 of 20 units; low charges leave it twice, so it takes less than half`}},
		{"algorithm", strings.Replace(valid, "burst: 20", "algorithm: tokens", 1), []string{
			`weir.yaml:4:44: limits[0].algorithm: "tokens" is none of token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-log, concurrency`}},
		{"two limits of one name", strings.Replace(valid, "routes:", "  - {name: client, rate: 1/s}\nroutes:", 1), []string{
			`weir.yaml:5:12: limits[1].name: "client" is the name of limits[0] too`}},
		{"a name with a space", strings.Replace(valid, "name: client", "name: a b", 1), []string{
			`weir.yaml:4:12: limits[0].name: name with the character " "; it takes printable ASCII without spaces, quotes and backslashes`,
			`weir.yaml:6:35: routes[0].limits[0].limit: no limit is called "client"; there are a b`}},

		{"no upstream", strings.Replace(valid, `  main: {url: "http://127.0.0.1:9000"}`, "  {}", 1), []string{
			`weir.yaml:2:3: upstreams: none; give one, as main: {url: http://127.0.0.1:9000}`}},
		{"upstream without URL", strings.Replace(valid, `{url: "http://127.0.0.1:9000"}`, "{}", 1), []string{
			`weir.yaml:2:9: upstreams.main.url: no URL; the form is http://host:port or https://host/path`}},
		{"upstream with nothing", strings.Replace(valid, `{url: "http://127.0.0.1:9000"}`, "", 1), []string{
			`weir.yaml:2:3: upstreams.main: nothing in it; it takes a mapping with url, timeout, dial_timeout, concurrency, retry, breaker and pass_host`}},
		{"upstream without scheme", strings.Replace(valid, "http://127.0.0.1:9000", "127.0.0.1:9000", 1), []string{
			`weir.yaml:2:15: upstreams.main.url: "127.0.0.1:9000": first path segment in URL cannot contain colon; the form is http://host:port or https://host/path`}},
		{"upstream with a password", strings.Replace(valid, "http://", "http://me:secret@", 1), []string{
			`weir.yaml:2:15: upstreams.main.url: a user in the URL, which would end up in logs; the form is http://host:port or https://host/path`}},
		{"retry and breaker", strings.Replace(valid, `9000"`, `9000", retry: {attempts: -1, budget: 7, delay: -1s}, breaker: {failures: no}`, 1), []string{
			`weir.yaml:2:58: upstreams.main.retry.attempts: -1; it takes 1 or more, or 0 for the default`,
			`weir.yaml:2:70: upstreams.main.retry.budget: 7; it takes a share, 0 to 1`,
			`weir.yaml:2:80: upstreams.main.retry.delay: -1s; it takes a time from now on, or 0 for the default`,
			`weir.yaml:2:106: upstreams.main.breaker.failures: the text "no"; it takes a whole number, as 20`}},
		{"breaker with nothing", strings.Replace(valid, `9000"`, `9000", breaker: `, 1), []string{
			`weir.yaml:2:40: upstreams.main.breaker: nothing in it; write {} for its defaults, or leave it out`}},

		{"no route", strings.SplitAfter(valid, "routes:")[0] + " []\n", []string{
			`weir.yaml:5:9: routes: none, so that everything would get 404; give one, as - pattern: /`}},
		{"route without pattern", strings.Replace(valid, "pattern: /, ", "", 1), []string{
			`weir.yaml:6:5: routes[0].pattern: no pattern; the form is that of Go's net/http, as "/", "GET /orders/{id}" or "example.com/"`}},
		{"route to a missing limit", strings.Replace(valid, "limit: client", "limit: cleint", 1), []string{
			`weir.yaml:6:35: routes[0].limits[0].limit: no limit is called "cleint"; did you mean client?`}},
		{"route to a missing upstream", strings.Replace(valid, "pattern: /", "pattern: /, upstream: backend", 1), []string{
			`weir.yaml:6:28: routes[0].upstream: no upstream is called "backend"; there are main`}},
		{"route to one of two upstreams", strings.Replace(valid, "limits:\n", "  b: {url: http://h}\nlimits:\n", 1), []string{
			`weir.yaml:7:5: routes[0].upstream: no name, where there is more than one upstream; it takes one of b and main`}},
		{"a pattern that is none", strings.Replace(valid, "pattern: /", "pattern: 'GET /{x'", 1), []string{
			`weir.yaml:6:15: routes[0].pattern: "GET /{x": at offset 5: bad wildcard segment (must end with '}'); the form is that of Go's net/http, as "/", "GET /orders/{id}" or "example.com/"`}},
		{"two routes of one pattern", valid + "  - {pattern: /}\n", []string{
			`weir.yaml:7:15: routes[1].pattern: "/" is the pattern of routes[0] too`}},
		{"two routes for the same requests", valid + "  - {pattern: '/a/{x}'}\n  - {pattern: '/a/{y}'}\n", []string{
			`weir.yaml:8:15: routes[2].pattern: "/a/{y}" conflicts with "/a/{x}" of routes[1]: /a/{y} matches the same requests as /a/{x}`}},
		{"two routes that cross", valid + "  - {pattern: '/a/{x}'}\n  - {pattern: '/{y}/b'}\n", []string{
			`weir.yaml:8:15: routes[2].pattern: "/{y}/b" conflicts with "/a/{x}" of routes[1]: /{y}/b and /a/{x} both match some paths, like "/a/b", and neither is more specific`}},
		{"cost over the burst", strings.Replace(valid, "limit: client", "limit: client, cost: 21", 1), []string{
			`weir.yaml:6:49: routes[0].limits[0].cost: 21 units, where limit "client" has at most 20 at once for priority normal, so that nothing would ever pass; give the limit a burst of 21 or more`}},
		{"cost over what its priority has", strings.NewReplacer("burst: 20", "burst: 20, headroom: 5", "limit: client", "limit: client, cost: 11, priority: low").Replace(valid), []string{
			`weir.yaml:6:49: routes[0].limits[0].cost: 11 units, where limit "client" has at most 10 at once for priority low, so that nothing would ever pass; give the limit a burst of 21 or more`}},
		{"negative cost", strings.Replace(valid, "limit: client", "limit: client, cost: -1", 1), []string{
			`weir.yaml:6:49: routes[0].limits[0].cost: -1; it takes 1 or more, or 0 for 1`}},
		{"a key that is none", strings.Replace(valid, "limit: client", "limit: client, key: client+cookie", 1), []string{
			`weir.yaml:6:48: routes[0].limits[0].key: "client+cookie": "cookie" is no key; the form is client, user, ip, route, global or header:NAME, or several joined by +`}},
		{"a key by a header that is none", strings.Replace(valid, "limit: client", "limit: client, key: 'header:X Y'", 1), []string{
			`weir.yaml:6:48: routes[0].limits[0].key: "header:X Y": "X Y" is no header name; the form is client, user, ip, route, global or header:NAME, or several joined by +`}},
		{"cost, priority and statuses", strings.Replace(valid, "limit: client", "limit: client, cost_from: X-Cost, priority: top, only: [200, 42]", 1), []string{
			`weir.yaml:6:54: routes[0].limits[0].cost_from: "X-Cost"; the form is header:NAME`,
			`weir.yaml:6:72: routes[0].limits[0].priority: "top" is none of low, normal, high`,
			`weir.yaml:6:89: routes[0].limits[0].only[1]: 42 is no status of an answer; it takes 101, or 200 to 599`}},
		{"defaults are checked too", valid + "defaults: [{limit: none}]\n", []string{
			`weir.yaml:7:20: defaults[0].limit: no limit is called "none"; there are client`}},
		{"queue", strings.Replace(valid, "pattern: /", "pattern: /, queue: {wait: -1s, length: -1}", 1), []string{
			`weir.yaml:6:32: routes[0].queue.wait: -1s; it takes a time from now on, or 0 for the default`,
			`weir.yaml:6:45: routes[0].queue.length: -1; it takes 1 or more, or 0 for the default`}},

		{"a port alone", valid + "listen: [{address: 8080}]\n", []string{
			`weir.yaml:7:20: listen[0].address: "8080": no colon; for a port on every interface write :8080`}},
		{"a port too high", valid + "listen: [{address: ':70000'}]\n", []string{
			`weir.yaml:7:20: listen[0].address: ":70000": the port is no number from 0 to 65535; the form is host:port, :port or unix:/path`}},
		{"an address twice", valid + "listen: [{address: ':80'}, {address: ':80'}]\nadmin: {address: ':80'}\n", []string{
			`weir.yaml:7:38: listen[1].address: ":80" is the address of listen[0] too`,
			`weir.yaml:8:18: admin.address: ":80" is the address of listen[0] too`}},
		{"a certificate without key", valid + "listen: [{address: ':80', cert: a.pem}]\n", []string{
			`weir.yaml:7:33: listen[0].cert: a certificate without its key; give key too, or leave both out`}},
		{"h2c with TLS", valid + "listen: [{address: ':80', cert: no-such.pem, key: no-such.key, h2c: true}]\n", []string{
			`weir.yaml:7:33: listen[0].cert: "no-such.pem" cannot be read: no such file or directory`,
			`weir.yaml:7:51: listen[0].key: "no-such.key" cannot be read: no such file or directory`,
			`weir.yaml:7:69: listen[0].h2c: h2c is HTTP/2 without TLS, and here is a certificate; with TLS, HTTP/2 is on by itself`}},
		{"a token file that is not there", valid + "admin: {token_file: no-such.token}\n", []string{
			`weir.yaml:7:21: admin.token_file: "no-such.token" cannot be read: no such file or directory`}},
		{"a token file that is a directory", valid + "admin: {token_file: testdata/..}\n", []string{
			`weir.yaml:7:21: admin.token_file: "." cannot be read: not an ordinary file`}},

		{"prefixes", valid + "clients:\n  trusted_proxies:\n  - 10.0.0.1/8\n  - 10.0.0.0/33\n  - ::ffff:10.0.0.0/104\n  - fe80::1%eth0\n  - ::/0\n  - load-balancer\n", []string{
			`weir.yaml:9:5: clients.trusted_proxies[0]: "10.0.0.1/8" has bits beyond the prefix; write 10.0.0.0/8, or 10.0.0.1 for the one address`,
			`weir.yaml:10:5: clients.trusted_proxies[1]: "10.0.0.0/33" is no prefix; the form is 10.0.0.0/8, 2001:db8::/32, one address, or unix for the peers of unix sockets`,
			`weir.yaml:11:5: clients.trusted_proxies[2]: "::ffff:10.0.0.0/104" is IPv4 written as IPv6, which matches nothing; write 10.0.0.0/8`,
			`weir.yaml:12:5: clients.trusted_proxies[3]: "fe80::1%eth0" has a zone, which no client shows; the form is 10.0.0.0/8, 2001:db8::/32, one address, or unix for the peers of unix sockets`,
			`weir.yaml:13:5: clients.trusted_proxies[4]: "::/0" trusts everybody to say who they are; name the proxies, or set i_know_that_everybody_is_trusted: true`,
			`weir.yaml:14:5: clients.trusted_proxies[5]: "load-balancer" is no prefix; the form is 10.0.0.0/8, 2001:db8::/32, one address, or unix for the peers of unix sockets`}},
		{"client header and prefix", valid + "clients: {header: X Real, ipv6_prefix: 129}\n", []string{
			`weir.yaml:7:19: clients.header: "X Real" is no header name`,
			`weir.yaml:7:40: clients.ipv6_prefix: 129; it takes the bits of an address, 1 to 128, or 0 for 64`}},
		{"an identity header without proxies", valid + "identity: {header: {name: X-User}}\n", []string{
			`weir.yaml:7:20: identity.header: believed only from trusted proxies, and clients.trusted_proxies names none`}},
		{"an identity header that means something else", valid + "clients: {trusted_proxies: [10.0.0.0/8]}\nidentity: {header: {name: host}}\n", []string{
			`weir.yaml:8:27: identity.header.name: "host" cannot carry a user; it takes a header of its own, as X-User`}},
		{"API keys", valid + "identity: {api_keys: {file: no-such.keys, header: connection}}\n", []string{
			`weir.yaml:7:29: identity.api_keys.file: "no-such.keys" cannot be read: no such file or directory`,
			`weir.yaml:7:51: identity.api_keys.header: "connection" cannot carry a key; it takes the name of a header, as X-API-Key`}},
		{"JWT", valid + "identity: {jwt: {algorithms: [none, RS256]}}\n", []string{
			`weir.yaml:7:17: identity.jwt: no key; it takes a key_file or a jwks_file`,
			`weir.yaml:7:31: identity.jwt.algorithms[0]: "none" is none of ES256, ES384, ES512, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512`}},
		{"JWT without algorithms", valid + "identity: {jwt: {key_file: x}}\n", []string{
			`weir.yaml:7:17: identity.jwt.algorithms: none; it takes those that the tokens are signed with, as [RS256], and no other is accepted`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("weir.yaml", []byte(tt.yaml))
			if err == nil {
				t.Fatal("nothing is said against it")
			}
			if tt.want == nil {
				return // that it ends is enough
			}
			if got, want := err.Error(), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestParseReadsEveryField(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(`
listen: [{address: "unix:/run/weir.sock"}, {address: ":8080", h2c: true}]
admin: {address: off}
clients: {trusted_proxies: [10.0.0.0/8, 192.0.2.1, unix], header: X-Real-IP, ipv6_prefix: 56, i_know_that_everybody_is_trusted: true}
identity: {header: {name: X-User}}
upstreams:
  a: &a
    url: https://example.com/v1
    timeout: -1s
    dial_timeout: 1m30s
    concurrency: 7
    retry: {attempts: 3, budget: 0.25, delay: 1ms}
    breaker: {}
    pass_host: true
  b: *a
limits:
- {name: x, rate: 5/30s, burst: 9, algorithm: gcra, headroom: 2, shadow: true}
- {name: "1", rate: "10/s"}
defaults: [{limit: x, key: global}]
routes:
- pattern: GET example.com/{id}
  upstream: b
  timeout: 250ms
  exempt: true
  queue: {wait: 1s, length: 3}
  limits: [{limit: 1, key: ip+header:X-Tenant, cost: 2, cost_from: "header:x-cost", priority: high, shadow: true, only: [401, 101]}]
headers: draft-07
shutdown: 5s
max_cells: 1000
`))
	if err != nil {
		t.Fatal(err)
	}
	upstream := func() *Upstream {
		return &Upstream{
			URL: "https://example.com/v1", Timeout: -time.Second, DialTimeout: 90 * time.Second, Concurrency: 7,
			Retry: &Retry{Attempts: 3, Budget: 0.25, Delay: time.Millisecond}, Breaker: &Breaker{}, PassHost: true,
		}
	}
	want := &Config{
		Listen:    []Listener{{Address: "unix:/run/weir.sock"}, {Address: ":8080", H2C: true}},
		Admin:     Admin{Address: "off"},
		Clients:   Clients{TrustedProxies: []string{"10.0.0.0/8", "192.0.2.1", "unix"}, Header: "X-Real-IP", IPv6Prefix: 56, TrustEverybody: true},
		Identity:  Identity{Header: &TrustHeader{Name: "X-User"}},
		Upstreams: map[string]*Upstream{"a": upstream(), "b": upstream()},
		Limits: Limits(
			&weir.Limit{Name: "x", Rate: weir.Rate{Units: 5, Period: 30 * time.Second}, Burst: 9, Algorithm: weir.GCRA, Headroom: 2, Shadow: true},
			&weir.Limit{Name: "1", Rate: weir.Rate{Units: 10, Period: time.Second}},
		),
		Defaults: []Charge{{Limit: "x", Key: "global"}},
		Routes: []*Route{{
			Pattern: "GET example.com/{id}", Upstream: "b", Timeout: 250 * time.Millisecond, Exempt: true,
			Queue: &Queue{Wait: time.Second, Length: 3},
			Limits: []Charge{{
				Limit: "1", Key: "ip+header:X-Tenant", Cost: 2, CostFrom: "header:x-cost", Priority: weir.High, Shadow: true, Only: []int{401, 101},
			}},
		}},
		Headers:  "draft-07",
		Shutdown: 5 * time.Second,
		MaxCells: 1000,
	}
	want.src = c.src
	for _, l := range want.Limits { // compiled, as Validate does
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.Limits) != len(want.Limits) {
		t.Fatalf("got %d limits, want %d", len(c.Limits), len(want.Limits))
	}
	for i, l := range c.Limits {
		got, want := *l, *want.Limits[i]
		if got.Name != want.Name || got.Rate != want.Rate || got.Burst != want.Burst || got.Algorithm != want.Algorithm || got.Headroom != want.Headroom || got.Shadow != want.Shadow {
			t.Errorf("limit %d: got %+v, want %+v", i, got, want)
		}
	}
	c.Limits, want.Limits = nil, nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
	if key, _ := ParseKey(c.Routes[0].Limits[0].Key); !reflect.DeepEqual(key, []KeyPart{{Kind: KeyIP}, {Kind: KeyHeader, Header: "X-Tenant"}}) {
		t.Errorf("key: got %v", key)
	}
	if got := c.Routes[0].Limits[0].CostHeader(); got != "X-Cost" {
		t.Errorf("cost header: got %q", got)
	}
}

func TestAConfigurationBuiltInGoIsCheckedAlike(t *testing.T) {
	c := &Config{
		Upstreams: map[string]*Upstream{"main": nil},
		Limits:    []*Limit{nil, {Limit: weir.Limit{Name: "a", Algorithm: 99, Rate: weir.Rate{Units: 1, Period: time.Second}}}},
		Routes:    []*Route{nil, {Pattern: "/", Limits: []Charge{{Limit: "a", Priority: 7, Cost: math.MaxInt64}}}},
	}
	want := `limits[0]: nothing in it; it takes at least name and rate
limits[1].algorithm: Algorithm(99) is not an algorithm
routes[0]: nothing in it; it takes at least pattern
routes[1].limits[0].priority: Priority(7) is none of low, normal, high`
	got := c.Validate()
	if got == nil || !strings.HasSuffix(got.Error(), want) || !strings.HasPrefix(got.Error(), "upstreams.main: nothing in it") {
		t.Errorf("got\n%v\nwant\n%s", got, want)
	}
	var ce *ConfigError
	if !errors.As(got, &ce) || len(ce.Problems) != 5 {
		t.Errorf("got %T", got)
	}
}

func TestAnUnreadableFileSaysWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	_, err := Load(path)
	if want := path + ": cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	var p *Problem
	if !errors.As(err, &p) || p.File != path {
		t.Errorf("%v has no Problem", err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil || !strings.HasSuffix(err.Error(), "not an ordinary file") {
		t.Errorf("a directory: got %v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxConfig+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasSuffix(err.Error(), "over 1048576 bytes") {
		t.Errorf("a large file: got %v", err)
	}
}

func TestFileNamesAreTakenFromTheDirectoryOfTheFile(t *testing.T) {
	dir := t.TempDir()
	cert, key := pairPEM(t)
	write(t, filepath.Join(dir, "weir.crt"), cert)
	write(t, filepath.Join(dir, "weir.key"), key)
	write(t, filepath.Join(dir, "token"), "0123456789abcdef\n")
	path := filepath.Join(dir, "weir.yaml")
	write(t, path, valid+"listen: [{address: ':8443', cert: weir.crt, key: ./weir.key}]\nadmin: {token_file: token}\n")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "token"), filepath.Join(dir, "weir.crt"), filepath.Join(dir, "weir.key")}
	if got := c.Files(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if token, err := c.Admin.Token(); err != nil || token != "0123456789abcdef" {
		t.Errorf("token: got %q, %v", token, err)
	}

	write(t, filepath.Join(dir, "token"), "short")
	_, other := pairPEM(t)
	write(t, filepath.Join(dir, "weir.key"), other)
	_, err = Load(path)
	want = []string{
		":7:35: listen[0].cert: no certificate and its key, in PEM: private key does not match public key",
		" has a token of 5 bytes; it takes 16 or more, as from: openssl rand -hex 32",
	}
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got\n%v\nwant in it\n%s", err, w)
		}
	}
}

func TestTheExampleIsCleanAndComplete(t *testing.T) {
	const path = "../examples/weir.yaml"
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Lint(c) {
		t.Error(f)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range allFields(reflect.TypeFor[Config](), map[reflect.Type]bool{}) {
		if !regexp.MustCompile(`(?m)[\s{#-]` + name + `:`).Match(text) {
			t.Errorf("the example has no %s", name)
		}
	}
}

// allFields are the names of all fields of a type and of those in it.
func allFields(t reflect.Type, seen map[reflect.Type]bool) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return allFields(t.Elem(), seen)
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[weir.Rate]() || seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			if !f.Anonymous {
				names = append(names, cmp.Or(f.Tag.Get("yaml"), strings.ToLower(f.Name)))
			}
			names = append(names, allFields(f.Type, seen)...)
		}
	}
	return names
}

func TestQuick(t *testing.T) {
	c, err := Quick("http://127.0.0.1:9000", []string{"client=100/m burst=20", "global=5000/s algorithm=gcra headroom=50", "t=1/s key=header:X-T+ip shadow"}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	want := []Charge{{Limit: "client", Key: "client"}, {Limit: "global", Key: "global"}, {Limit: "t", Key: "header:X-T+ip"}}
	if got := c.Routes[0].Limits; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if l := c.Limits[1]; l.Algorithm != weir.GCRA || l.Headroom != 50 || l.Rate.Units != 5000 || l.Shadow || !c.Limits[2].Shadow || c.Limits[0].Burst != 20 {
		t.Errorf("got %+v", c.Limits)
	}

	_, err = Quick("localhost:9000", []string{"client", "a=7/fortnight", "a=1/s burst=x", "a=1/s", "a=2/s", "b=0/s", "c=1/s burst=-1", "d=1/s key=cookie", "e=1/s fast", "f=1/s shadow shadow", "g=1/s algorithm=", "h h=1/s", ""}, "8080")
	form := "; the form is name=rate [burst=N] [algorithm=A] [headroom=N] [key=K] [shadow], as client=100/m burst=20"
	lines := []string{
		`--listen: "8080": no colon; for a port on every interface write :8080`,
		`--upstream: "localhost:9000": neither http nor https; the form is http://host:port or https://host/path`,
		`--limit: "client": "client" is not name=rate` + form,
		`--limit: "a=7/fortnight": "7/fortnight": the period's unit is none of ms, s, m, h, d; the form is units/period, as 600/m, 5/30s or 1000/24h`,
		`--limit: "a=1/s burst=x": "burst=x" is no whole number` + form,
		`--limit: "a=2/s": a second limit called "a"`,
		`--limit: "b=0/s": 0/s admits nothing; it takes 1 unit or more, as 600/m` + form,
		`--limit: "c=1/s burst=-1": "burst=-1" is no whole number` + form,
		`--limit: "d=1/s key=cookie": key "cookie"; the form is client, user, ip, route, global or header:NAME, or several joined by +` + form,
		`--limit: "e=1/s fast": "fast" is no option` + form,
		`--limit: "f=1/s shadow shadow": "shadow" twice` + form,
		`--limit: "g=1/s algorithm=": "" is none of token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-log, concurrency` + form,
		`--limit: "h h=1/s": "h" is not name=rate` + form,
		`--limit: "": no limit` + form,
	}
	if got := fmt.Sprint(err); got != strings.Join(lines, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(lines, "\n"))
	}
}

// oneFault is what each line of a ConfigError of Parse looks like.
var oneFault = regexp.MustCompile(`^fuzz\.yaml:[1-9][0-9]*:[1-9][0-9]*: [^\x00-\x1f\x7f]+$`)

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	if example, err := os.ReadFile("../examples/weir.yaml"); err == nil {
		f.Add(example)
	}
	for _, s := range []string{"routes: &r [*r]", "a: !!str b", "? a\n: b", "upstreams: {\"a.b[\\\"\": }", "limits:\n - {rate: .nan, burst: .inf}", "a: |\n  b\n", "- - - -", "%YAML 1.2\n---\n", "a: 'é\n\n\u2028'"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "file") || strings.Contains(string(data), "cert") {
			return // this is no test of the file system
		}
		c, err := Parse("fuzz.yaml", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !oneFault.MatchString(line) {
					t.Errorf("%q", line)
				}
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("valid, and then not: %v", err)
		}
		for _, f := range Lint(c) {
			if f.Line == 0 || f.Fault == "" || f.Fix == "" || strings.Contains(f.String(), "\n") {
				t.Errorf("finding %q", f)
			}
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"client=100/m burst=20", "global=5/30s algorithm=gcra headroom=1 key=ip+route shadow", "=1/s", "a=1/s  burst=007"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, key, err := ParseLimit(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%q", err)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		again := fmt.Sprintf("%s=%v burst=%d algorithm=%v headroom=%d key=%s", l.Name, l.Rate, l.Burst, l.Algorithm, l.Headroom, key)
		if l.Shadow {
			again += " shadow"
		}
		if l2, key2, err := ParseLimit(again); err != nil || l2.Name != l.Name || l2.Rate != l.Rate || l2.Burst != l.Burst || l2.Algorithm != l.Algorithm || l2.Headroom != l.Headroom || l2.Shadow != l.Shadow || key2 != key {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, l, again, l2, err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pairPEM is a certificate and its key.
func pairPEM(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
