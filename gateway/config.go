// Package gateway is weir's reverse proxy: the configuration, and the server that runs on it.
package gateway

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// Config is a weir.yaml. The zero value of every field is its default.
type Config struct {
	Listen    []Listener           `yaml:"listen"`    // empty: one at :8080
	Admin     Admin                `yaml:"admin"`     //
	Clients   Clients              `yaml:"clients"`   // who a request is from, by address
	Identity  Identity             `yaml:"identity"`  // who it is from, by credential
	Upstreams map[string]*Upstream `yaml:"upstreams"` // by name; a route with none named takes the only one
	Limits    []*Limit             `yaml:"limits"`    //
	Defaults  []Charge             `yaml:"defaults"`  // charged on every route, before the route's own
	Routes    []*Route             `yaml:"routes"`    // a request that matches none gets 404, after the defaults are charged
	Headers   string               `yaml:"headers"`   // draft (default), draft-07, draft-06, legacy, none
	Shutdown  time.Duration        `yaml:"shutdown"`  // how long open requests may take after SIGTERM; 0: 30s
	MaxCells  int                  `yaml:"max_cells"` // keys that memory keeps; 0: 16,777,216
	Store     string               `yaml:"store"`     // memory (default), or a Redis that instances share: redis://host:6379/0, rediss://…, unix:///path
	OnError   redisstore.Policy    `yaml:"on_error"`  // while that Redis does not answer: local (default), allow, deny
	Replicas  int                  `yaml:"replicas"`  // instances that share it; 0: 1
	Redis     Redis                `yaml:"redis"`     // more on that Redis
	Tracing   Tracing              `yaml:"tracing"`   // spans of requests

	src *source // where its values were written; nil if they were not
}

// Limit is a limit, and where it is counted.
type Limit struct {
	weir.Limit `yaml:",inline"`

	Store   string             `yaml:"store"`    // memory: by each instance for itself; redis: together; leased: together, in portions that an instance has paid for. Empty: redis where the configuration has one
	OnError *redisstore.Policy `yaml:"on_error"` // instead of the configuration's
	Tag     string             `yaml:"tag"`      // the hash tag of its keys, which is their place in a Redis Cluster; the limits of one request, but leased ones, share one. Empty: weir
}

// Limits are limits in the form of a Config, each counted where the Config says.
func Limits(limits ...*weir.Limit) []*Limit {
	var all []*Limit
	for _, l := range limits {
		all = append(all, &Limit{Limit: *l})
	}
	return all
}

// Redis is how a shared store is used.
type Redis struct {
	Timeout    time.Duration `yaml:"timeout"`     // for a decision; 0: 50ms
	Prefix     string        `yaml:"prefix"`      // of all keys; empty: weir:
	SecretFile string        `yaml:"secret_file"` // keys the hashes that stand for clients; the same on all instances
}

// Tracing is where spans of requests go, by OpenTelemetry.
type Tracing struct {
	Endpoint string  `yaml:"otlp_endpoint"` // of a collector, OTLP over HTTP; empty: OTEL_EXPORTER_OTLP_ENDPOINT, and without that nothing is traced
	Share    float64 `yaml:"share"`         // of the requests that no trusted proxy has decided on; 0: OTEL_TRACES_SAMPLER, or all
}

// Listener is an address that clients connect to.
type Listener struct {
	Address string `yaml:"address"` // host:port, or unix:/path
	Cert    string `yaml:"cert"`    // PEM files; both or neither. With them HTTP/1.1 and HTTP/2 over TLS
	Key     string `yaml:"key"`
	H2C     bool   `yaml:"h2c"` // also HTTP/2 without TLS
}

// Admin is the listener for operators: dashboard, health, readiness, metrics, limits.
type Admin struct {
	Address   string `yaml:"address"`    // empty: 127.0.0.1:9090; "off": none
	ShowKeys  bool   `yaml:"show_keys"`  // the dashboard names keys, which name people; otherwise it shows their hashes, as logs do
	TokenFile string `yaml:"token_file"` // a bearer token that changes (DELETE, POST) need; without one they are refused unless the listener is on loopback
}

// Clients says how a client's address is found.
type Clients struct {
	TrustedProxies []string `yaml:"trusted_proxies"`                  // prefixes, addresses, or unix for the peers of unix sockets; none: the peer is the client
	Header         string   `yaml:"header"`                           // the one header those proxies write; empty: X-Forwarded-For
	IPv6Prefix     int      `yaml:"ipv6_prefix"`                      // bits of an IPv6 address that make one client; 0: 64
	TrustEverybody bool     `yaml:"i_know_that_everybody_is_trusted"` // allows 0.0.0.0/0 and ::/0 in TrustedProxies
}

// Identity says how a user is known. Several may be given; the first that finds one wins, in this order.
type Identity struct {
	APIKeys *APIKeys     `yaml:"api_keys"`
	JWT     *JWT         `yaml:"jwt"`
	Header  *TrustHeader `yaml:"header"`
}

// APIKeys knows users by keys of which a file holds the hashes.
type APIKeys struct {
	File   string `yaml:"file"`   // lines of: user, blanks, hex SHA-256 of the key; # begins a comment
	Header string `yaml:"header"` // empty: X-API-Key
}

// JWT knows users by a signed token in Authorization: Bearer.
type JWT struct {
	Algorithms []string `yaml:"algorithms"` // of HS256…, RS256…, ES256…; at least one
	KeyFile    string   `yaml:"key_file"`   // a PEM public key, or an HMAC secret
	JWKSFile   string   `yaml:"jwks_file"`  // instead of KeyFile
	Issuer     string   `yaml:"issuer"`     // checked if not empty
	Audience   string   `yaml:"audience"`   // checked if not empty
	Claim      string   `yaml:"claim"`      // the user; empty: sub
}

// TrustHeader knows users by a header that trusted proxies, and nobody else, may set.
type TrustHeader struct {
	Name string `yaml:"name"`
}

// Upstream is a server that requests are passed on to.
type Upstream struct {
	URL         string        `yaml:"url"`          // http or https, with an optional path that is put in front
	Timeout     time.Duration `yaml:"timeout"`      // to the first byte of the answer; 0: 30s; negative: none
	DialTimeout time.Duration `yaml:"dial_timeout"` // 0: 5s
	Concurrency int           `yaml:"concurrency"`  // requests at once; beyond it 503 at once; 0: no bound
	Retry       *Retry        `yaml:"retry"`        // nil: none
	Breaker     *Breaker      `yaml:"breaker"`      // nil: none
	PassHost    bool          `yaml:"pass_host"`    // send the client's Host instead of the URL's
}

// Retry repeats idempotent requests without a body that could not be answered: connection errors, 502, 503, 504.
type Retry struct {
	Attempts int           `yaml:"attempts"` // in all; 0: 2
	Budget   float64       `yaml:"budget"`   // retries as a share of requests; 0: 0.1
	Delay    time.Duration `yaml:"delay"`    // before the first retry, doubled with jitter; 0: 25ms
}

// Breaker stops asking an upstream that fails.
type Breaker struct {
	Failures int           `yaml:"failures"` // in a row (no answer, 502, 503, 504) open it; 0: 5
	Delay    time.Duration `yaml:"delay"`    // until one request probes; 0: 5s
}

// Route is what happens to the requests that match a pattern.
type Route struct {
	Pattern  string        `yaml:"pattern"`  // as net/http.ServeMux takes it: "POST /orders/{id}", "example.com/", "/"
	Upstream string        `yaml:"upstream"` // a name; empty: the only one
	Limits   []Charge      `yaml:"limits"`   //
	Queue    *Queue        `yaml:"queue"`    // nil: what the limits refuse is refused at once
	Timeout  time.Duration `yaml:"timeout"`  // instead of the upstream's
	Exempt   bool          `yaml:"exempt"`   // the defaults are not charged
}

// Charge is one limit on a route.
type Charge struct {
	Limit    string        `yaml:"limit"`     // a name
	Key      string        `yaml:"key"`       // client (default: user, else ip), user, ip, route, global, header:NAME, or several joined by +
	Cost     int64         `yaml:"cost"`      // 0: 1
	CostFrom string        `yaml:"cost_from"` // header:NAME, a header that trusted proxies write; else Cost
	Priority weir.Priority `yaml:"priority"`  // low, normal, high
	Shadow   bool          `yaml:"shadow"`    // report only, on this route
	Only     []int         `yaml:"only"`      // count only answers of these statuses: charged before, given back after
}

// Queue lets refused requests of a route wait in line, first come first served.
type Queue struct {
	Wait   time.Duration `yaml:"wait"`   // the longest; 0: 5s
	Length int           `yaml:"length"` // waiting at once; beyond it 429 at once; 0: 100
}
