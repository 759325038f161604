package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/strictyaml"
)

// site is a Config made ready to run: whatever a request needs is found here and shared by all. It does not change; a
// reload puts another in its place.
type site struct {
	config    *Config
	limits    map[string]*weir.Limit
	confs     map[string]*Limit
	upstreams map[string]*upstream
	routes    map[string]*route // by the pattern in mux
	mux       *http.ServeMux    // of *route, to match only
	unmatched *route            // what requests without a route are charged
	clients   clients
	identity  *Identifier
	form      httplimit.Form
	certs     map[string]*tls.Certificate // by the address of their listener
	token     *[sha256.Size]byte          // hash of the admin token; nil: none
	both      sync.Map                    // [2]*route to the *route that charges both
	heats     map[string]*heat            // by limit; none without an admin listener
	lines     map[[2]string]*fewLines     // by the limit, or the route, that they are about
}

// route is a Route, ready to run.
type route struct {
	name     string // the pattern, as the configuration has it; none for requests without a route
	charges  []charge
	defaults int  // how many of the charges, the first ones, are the defaults
	settles  bool // something may have to be given back after the answer
	queue    *queue
	upstream *upstream
	proxy    *httputil.ReverseProxy
	statuses *statuses
	full     *fewLines // of the queue, where there is one
}

// ServeHTTP is never called: it makes a route what a ServeMux can find.
func (*route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// charge is a Charge, ready to run.
type charge struct {
	limit      *weir.Limit
	key        []keyPart
	cost       int64
	costHeader string // empty: cost
	priority   weir.Priority
	only       []int
	settles    bool
	tally      tally
	lines      *fewLines // of the limit
	heat       *heat     // nil: nobody asks which keys use the most, or there is only one
}

// keyPart is a KeyPart, ready to run.
type keyPart struct {
	KeyPart
	header httplimit.KeyFunc // of KeyHeader
	route  string            // of KeyRoute: the key
}

// compile makes cfg, which has passed Validate, ready to run. What old has and cfg does not change stays: connections,
// breakers, queues. Errors come from files that have changed since, and are *ConfigErrors.
func (g *Gateway) compile(cfg *Config, old *site) (*site, error) {
	s := &site{
		config:    cfg,
		limits:    make(map[string]*weir.Limit),
		confs:     make(map[string]*Limit),
		upstreams: make(map[string]*upstream),
		routes:    make(map[string]*route),
		mux:       http.NewServeMux(),
		certs:     make(map[string]*tls.Certificate),
		heats:     make(map[string]*heat),
		lines:     make(map[[2]string]*fewLines),
	}
	if old != nil {
		for _, l := range cfg.Limits {
			if id := [2]string{"limit", l.Name}; old.lines[id] != nil {
				s.lines[id] = old.lines[id]
			}
		}
		for _, r := range cfg.Routes {
			if id := [2]string{"route", r.Pattern}; old.lines[id] != nil {
				s.lines[id] = old.lines[id]
			}
		}
	}
	if err := s.form.UnmarshalText([]byte(cfg.Headers)); err != nil {
		return nil, fault("headers", err)
	}
	var err error
	if s.identity, err = NewIdentifier(cfg); err != nil {
		return nil, err
	}
	if s.clients, err = newClients(&cfg.Clients, s.identity.StripHeaders()); err != nil {
		return nil, fault("clients", err)
	}
	for i := range cfg.Listen {
		l := &cfg.Listen[i]
		if l.Cert == "" {
			continue
		}
		pair, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			return nil, fault(strictyaml.Item("listen", i), err)
		}
		s.certs[l.Address] = &pair
	}
	token, err := cfg.Admin.Token()
	if err != nil {
		return nil, fault("admin.token_file", err)
	}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		s.token = &sum
	}
	for _, l := range cfg.Limits {
		s.limits[l.Name], s.confs[l.Name] = &l.Limit, l
		switch {
		case g.board == nil:
		case old != nil && old.heats[l.Name] != nil:
			s.heats[l.Name] = old.heats[l.Name]
		default:
			s.heats[l.Name] = new(heat)
		}
	}
	for _, name := range sortedKeys(cfg.Upstreams) {
		conf := cfg.Upstreams[name]
		if old != nil && old.upstreams[name] != nil && old.upstreams[name].same(conf) {
			s.upstreams[name] = old.upstreams[name]
			continue
		}
		up, err := newUpstream(name, conf, g.metrics.latency.WithLabelValues(name), g.breakerChanged)
		if err != nil {
			return nil, fault(strictyaml.Child("upstreams", name)+".url", err)
		}
		s.upstreams[name] = up
	}
	s.unmatched = newRoute(g, noRoute, g.charges(s, noRoute, cfg.Defaults))
	for i, conf := range cfg.Routes {
		if err := g.addRoute(s, strictyaml.Item("routes", i), conf, old); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// noRoute is the name, in metrics and logs, of what has no route. No pattern is written so.
const noRoute = "none"

func newRoute(g *Gateway, name string, charges []charge) *route {
	return &route{
		name:     name,
		charges:  charges,
		settles:  slices.ContainsFunc(charges, func(c charge) bool { return c.settles }),
		statuses: g.metrics.statuses(name),
	}
}

// addRoute makes a route ready and puts it into the mux.
func (g *Gateway) addRoute(s *site, field string, conf *Route, old *site) (err error) {
	charges, defaults := g.charges(s, conf.Pattern, conf.Limits), 0
	if !conf.Exempt {
		first := g.charges(s, conf.Pattern, s.config.Defaults)
		charges, defaults = append(first, charges...), len(first)
	}
	r := newRoute(g, conf.Pattern, charges)
	r.defaults = defaults
	if r.queue = newQueue(conf.Queue); r.queue != nil && old != nil {
		if was := old.routes[matchable(conf.Pattern)]; was != nil && was.queue != nil &&
			was.queue.wait == r.queue.wait && was.queue.length == r.queue.length {
			r.queue = was.queue // with those that wait in it
		}
	}
	if r.queue != nil {
		r.full = g.linesAbout(s, "route", conf.Pattern)
	}
	name := conf.Upstream
	if name == "" { // the only one
		name = sortedKeys(s.upstreams)[0]
	}
	r.upstream = s.upstreams[name]
	r.proxy = g.newProxy(s, r.upstream, conf)

	defer func() {
		if p := recover(); p != nil { // how ServeMux speaks of bad patterns
			err = fault(field+".pattern", fmt.Errorf("%v", p))
		}
	}()
	pattern := matchable(conf.Pattern)
	s.mux.Handle(pattern, r)
	s.routes[pattern] = r
	return nil
}

// charges makes the charges of a route ready.
func (g *Gateway) charges(s *site, route string, confs []Charge) []charge {
	all := make([]charge, 0, len(confs))
	for i := range confs {
		conf := &confs[i]
		l := s.limits[conf.Limit]
		if conf.Shadow && !l.Shadow { // of the same name, and so with the same cells
			shadow := *l
			shadow.Shadow = true
			l = &shadow
		}
		parts, _ := ParseKey(conf.Key) // Validate has
		key := make([]keyPart, len(parts))
		for j, p := range parts {
			key[j].KeyPart = p
			switch p.Kind {
			case KeyHeader:
				key[j].header = httplimit.Header(p.Header)
			case KeyRoute:
				key[j].route = "route:" + route
			}
		}
		hot := s.heats[l.Name]
		if len(parts) == 1 && parts[0].Kind == KeyGlobal {
			hot = nil
		}
		all = append(all, charge{
			limit:      l,
			key:        key,
			cost:       conf.units(),
			costHeader: conf.CostHeader(),
			priority:   conf.Priority,
			only:       conf.Only,
			settles:    len(conf.Only) > 0 || l.Algorithm == weir.Concurrency,
			tally:      g.metrics.tally(l.Name),
			lines:      g.linesAbout(s, "limit", l.Name),
			heat:       hot,
		})
	}
	return all
}

// linesAbout bounds the lines about refusals of a limit, or of a route's queue.
func (g *Gateway) linesAbout(s *site, what, name string) *fewLines {
	id := [2]string{what, name}
	if s.lines[id] == nil {
		s.lines[id] = &fewLines{log: g.log, level: slog.LevelInfo, text: "requests refused, not logged one by one", about: slog.String(what, name)}
	}
	return s.lines[id]
}

// fault is what is wrong with one field.
func fault(field string, err error) error {
	return &ConfigError{Problems: []Problem{{Field: field, Text: err.Error(), Err: err}}}
}

// matchable is a pattern with its host in lower case, as the hosts of requests are matched.
func matchable(pattern string) string {
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 {
		return pattern
	}
	host := strings.LastIndexAny(pattern[:slash], " \t") + 1
	return pattern[:host] + strings.ToLower(pattern[host:slash]) + pattern[slash:]
}

// match finds the route of r. If there is none, or if ServeMux sends the client to another spelling of the
// path, answer is what ServeMux would answer; in the second case the route is that of the other spelling.
func (s *site) match(r *http.Request) (found *route, answer http.Handler) {
	m := r
	if host := canonicalHost(r.Host); host != r.Host {
		other := *r
		other.Host = host
		m = &other
	}
	h, pattern := s.mux.Handler(m)
	found, ok := h.(*route)
	if !ok {
		if found = s.routes[pattern]; found == nil {
			found = s.unmatched
		}
		return found, h
	}
	if loose, differs := loosePath(r.URL); differs {
		other := *m
		other.URL = &url.URL{Path: loose}
		if _, pattern := s.mux.Handler(&other); s.routes[pattern] != nil && s.routes[pattern] != found {
			found = s.charging(found, s.routes[pattern])
		}
	}
	return found, nil
}

// loosePath is a path as the most careless upstream could read it: with encoded slashes and backslashes as separators,
// and without parameters, empty segments and a slash at the end. It may differ from how ServeMux reads it; with most paths it
// does not.
func loosePath(u *url.URL) (loose string, differs bool) {
	p := u.Path
	if u.RawPath == "" && (len(p) < 2 || p[len(p)-1] != '/') && strings.IndexByte(p, ';') < 0 && strings.IndexByte(p, '\\') < 0 {
		return p, false
	}
	var b strings.Builder
	parameter := false
	for i := range len(p) {
		switch c := p[i]; c {
		case '/', '\\':
			parameter = false
			b.WriteByte('/')
		case ';':
			parameter = true
		default:
			if !parameter {
				b.WriteByte(c)
			}
		}
	}
	return path.Clean("/" + b.String()), true
}

// charging is a route that also charges what another one does: the request is r's to us, and could be the other's to the
// upstream. Otherwise an encoded slash would lead around a route's limits.
func (s *site) charging(r, other *route) *route {
	pair := [2]*route{r, other}
	if both, ok := s.both.Load(pair); ok {
		return both.(*route)
	}
	more := other.charges
	if r.defaults > 0 {
		more = more[other.defaults:]
	}
	both := *r
	both.charges = slices.Concat(r.charges, more)
	both.settles = r.settles || other.settles
	actual, _ := s.both.LoadOrStore(pair, &both)
	return actual.(*route)
}

// canonicalHost is a Host in lower case and without the dot of a fully qualified name, which may stand before a port.
func canonicalHost(host string) string {
	lower := strings.ToLower(host) // host itself if it has no upper case
	name, port := lower, ""
	if i := strings.LastIndexByte(lower, ':'); i >= 0 && strings.IndexByte(lower[i:], ']') < 0 {
		name, port = lower[:i], lower[i:]
	}
	if trimmed, ok := strings.CutSuffix(name, "."); ok {
		return trimmed + port
	}
	return lower
}

// wellFormed reports whether the target of r is one that we and every upstream read alike: a path from the root
// without segments that climb, in whatever way those are hidden from us: as %2e%2e, behind an encoded slash or a
// backslash, or with a parameter. ServeMux cleans those that are not hidden.
func wellFormed(r *http.Request) bool {
	path := r.URL.Path
	if r.URL.Opaque != "" || path != "" && path[0] != '/' {
		return false
	}
	for path != "" {
		var segment string
		end := strings.IndexAny(path, `/\`)
		if end < 0 {
			segment, path = path, ""
		} else {
			segment, path = path[:end], path[end+1:]
		}
		if len(segment) == 0 || segment[0] != '.' {
			continue
		}
		if i := strings.IndexByte(segment, ';'); i >= 0 {
			segment = segment[:i]
		}
		if segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// user is the verified user of a request, or empty.
func (s *site) user(r *http.Request) string {
	user, _, _ := s.identity.Identify(r)
	return user
}

// keyOf writes the key of a charge for the request of x.
func (c *charge) keyOf(x *exchange) string {
	if len(c.key) == 1 {
		return x.part(&c.key[0])
	}
	// As httplimit.Join does, so that different parts never make the same key.
	var few [128]byte
	b := few[:0]
	for i := range c.key {
		k := x.part(&c.key[i])
		b = strconv.AppendInt(b, int64(len(k)), 10)
		b = append(b, ':')
		b = append(b, k...)
	}
	return string(b)
}
