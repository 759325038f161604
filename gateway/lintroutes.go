package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
)

// charged is a charge on a route, or by default, and where it stands.
type charged struct {
	*Charge
	field string
	limit *weir.Limit
	key   []KeyPart
}

// enforced reports whether the charge can refuse anything.
func (c *charged) enforced() bool { return !c.Shadow && !c.limit.Shadow }

// by reports whether the key has a part of a kind.
func (c *charged) by(kind KeyKind) bool {
	return slices.ContainsFunc(c.key, func(p KeyPart) bool { return p.Kind == kind })
}

// bounded reports whether a client cannot have as many keys as it likes.
func (c *charged) bounded() bool { return !c.by(KeyHeader) }

func (l *linter) charged(field string, charges []Charge) []charged {
	var all []charged
	for i := range charges {
		c := &charges[i]
		key, _ := ParseKey(c.Key)
		if limit := l.c.Limit(c.Limit); limit != nil {
			all = append(all, charged{Charge: c, field: strictyaml.Item(field, i), limit: limit, key: key})
		}
	}
	return all
}

// every is each charge of the configuration once.
func (l *linter) every() []charged {
	all := l.charged("defaults", l.c.Defaults)
	for i, r := range l.c.Routes {
		all = append(all, l.charged(strictyaml.Item("routes", i)+".limits", r.Limits)...)
	}
	return all
}

// on is every charge on a route, the defaults first.
func (l *linter) on(i int) []charged {
	r := l.c.Routes[i]
	own := l.charged(strictyaml.Item("routes", i)+".limits", r.Limits)
	if r.Exempt {
		return own
	}
	return append(l.charged("defaults", l.c.Defaults), own...)
}

// slowKeys is how many new keys a second a server must be able to take without filling its memory.
const slowKeys = 200

func (l *linter) limits() {
	every := l.every()
	for i, limit := range l.c.Limits {
		field := strictyaml.Item("limits", i)
		var uses []charged
		for _, c := range every {
			if c.limit == &limit.Limit {
				uses = append(uses, c)
			}
		}
		if len(uses) == 0 {
			l.odd(field, "name it in a route or in defaults, or take it out", "no route uses limit %s", words.Quoted(limit.Name))
			continue
		}
		ranked := slices.ContainsFunc(uses, func(c charged) bool { return c.Priority != weir.Normal })
		if limit.Headroom > 0 && !ranked {
			l.odd(field+".headroom", "give some charge priority: high, or take headroom out",
				"%d units that only high priority may take, and no charge has it", limit.Headroom)
		}
		if slices.ContainsFunc(uses, func(c charged) bool { return !c.by(KeyGlobal) }) {
			l.memory(field, &limit.Limit)
		}
	}
	for _, c := range every {
		l.charge(&c)
	}
}

// memory finds limits whose keys are remembered for so long, or cost so much, that a flood of clients fills the memory.
func (l *linter) memory(field string, limit *weir.Limit) {
	cells := l.c.MaxCells
	if cells == 0 {
		cells = defaultMaxCells
	}
	switch limit.Algorithm {
	case weir.SlidingLog, weir.Concurrency:
		const entry, most = 16, 64 << 10
		if bytes := limit.Rate.Units * entry; bytes > most {
			l.odd(field, "use sliding-window, which keeps three numbers a key", "%v remembers each unit, up to %d kB a key", limit.Algorithm, bytes>>10)
		}
	}
	kept := remembered(limit)
	if kept > time.Duration(cells/slowKeys)*time.Second {
		l.odd(field, "use a smaller burst or a shorter period, or raise max_cells (about 40 bytes each)",
			"a busy key is remembered for %v, so that %d new keys a second fill max_cells (%d), and further ones share one key",
			kept.Round(time.Second), max(1, int64(float64(cells)/kept.Seconds())), cells)
	}
}

const defaultMaxCells = 1 << 24 // of weir.Memory

// remembered is how long a key is not at rest after it has spent all it has.
func remembered(l *weir.Limit) time.Duration {
	switch l.Algorithm {
	case weir.TokenBucket, weir.GCRA:
		return time.Duration(min(float64(l.Rate.Period)/float64(l.Rate.Units)*float64(l.Capacity()), 1<<62))
	case weir.SlidingWindow:
		return 2 * l.Rate.Period
	case weir.LeakyBucket:
		return l.Rate.Period / time.Duration(l.Rate.Units)
	}
	return l.Rate.Period
}

// charge looks at a charge by itself.
func (l *linter) charge(c *charged) {
	if c.Priority != weir.Normal && c.limit.Headroom == 0 {
		l.odd(c.field+".priority", fmt.Sprintf("give limit %s a headroom, the units that normal charges leave untouched", words.Quoted(c.limit.Name)),
			"priority %v means nothing on a limit without headroom", c.Priority)
	}
	if c.Shadow && c.limit.Shadow {
		l.odd(c.field+".shadow", "take one of them out", "the limit is a shadow already")
	}
	if !c.enforced() && c.units() > spendable(c.limit, c.Priority) {
		l.bad(c.field+".cost", "give the limit a larger burst or rate before it is enforced",
			"%d units, where limit %s has at most %d at once: it would refuse everything", c.units(), words.Quoted(c.limit.Name), spendable(c.limit, c.Priority))
	}
	proxies, unix, _ := l.c.Clients.trusted()
	if c.CostFrom != "" && len(proxies) == 0 && !unix {
		l.bad(c.field+".cost_from", "name the proxies that write it in clients.trusted_proxies, or take it out",
			"%s is never read: it counts only from trusted proxies, and there are none", c.CostHeader())
	}
	names := []string{c.CostHeader()}
	for _, p := range c.key {
		names = append(names, p.Header)
	}
	for i, name := range names {
		if name != "" && l.swallowed(name) {
			field := c.field + ".key"
			if i == 0 {
				field = c.field + ".cost_from"
			}
			l.bad(field, "use a header that clients or proxies send", "%s never arrives: it belongs to the connection, or is not written like that", name)
		}
	}
	if c.by(KeyUser) && l.c.Identity == (Identity{}) {
		l.bad(c.field+".key", "say in identity how users are known, or use client",
			"no user is ever known without identity, so that all share one key")
	}
	if len(c.Only) > 0 && c.limit.Algorithm == weir.Concurrency {
		l.odd(c.field+".only", "take only out", "a concurrency limit gets every unit back after the answer, whatever its status")
	}
}

// swallowed reports whether a header cannot be in a request as a key or a cost is taken from it.
func (l *linter) swallowed(name string) bool {
	return slices.Contains(neverArrives, name) || textproto.CanonicalMIMEHeaderKey(name) != name
}

func (l *linter) routes() {
	mux := http.NewServeMux()
	for _, r := range l.c.Routes {
		register(mux, r.Pattern)
	}
	for i, r := range l.c.Routes {
		field, charges := strictyaml.Item("routes", i), l.on(i)
		l.pattern(field, mux, r)
		l.open(field, r, charges)
		l.chosen(field, charges)
		l.sums(field, charges)
		if r.Queue != nil {
			l.queue(field, r, charges)
		}
		if why := l.twin(mux, r, charges); why != "" {
			l.odd(field+".pattern", "give the pattern without a method, or limit the other route as well", "%s", why)
		}
	}
}

// pattern finds patterns that no request matches, by asking the mux for one that is made to.
func (l *linter) pattern(field string, mux *http.ServeMux, r *Route) {
	method, host, path := splitPattern(r.Pattern)
	at, fix := field+".pattern", "change the pattern, or take the route out"
	switch name, _, hasPort := strings.Cut(host, ":"); {
	case method != strings.ToUpper(method):
		l.bad(at, "write "+strings.ToUpper(method), "no request has the method %s: methods are in upper case", method)
	case method == http.MethodConnect:
		l.bad(at, fix, "a reverse proxy gets no CONNECT requests")
	case hasPort:
		l.bad(at, "write "+name, "hosts are matched without their port, so that %s matches nothing", words.Quoted(host))
	case strings.HasSuffix(host, "."):
		l.bad(at, "take the dot out", "hosts are matched without the dot at the end")
	case strings.ContainsAny(path, "?#"):
		l.bad(at, "end the pattern before it", "a path ends before ? and #, so that this part matches nothing")
	default:
		if got := matched(mux, method, host, path); got != matchable(r.Pattern) {
			l.bad(at, fix, "no request reaches it; %s takes them", words.Quoted(got))
		} else if method != "" && !slices.Contains(methods, method) {
			fix := "see whether it is meant"
			if near := words.Nearest(method, methods); near != "" {
				fix = "write " + near + ", if that is meant"
			}
			l.odd(at, fix, "%s is none of the usual methods", method)
		}
	}
}

// methods are those in use: of HTTP (RFC 9110, RFC 5789), of WebDAV and what builds on it (RFC 4918, RFC 3253, RFC 5323, RFC 4791), and PURGE of caches.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PURGE",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "MKCALENDAR", "LINK", "UNLINK",
}

// splitPattern takes a valid pattern apart.
func splitPattern(pattern string) (method, host, path string) {
	rest := pattern
	if m, r, ok := strings.Cut(pattern, " "); ok {
		method, rest = m, strings.TrimLeft(r, " \t")
	} else if m, r, ok := strings.Cut(pattern, "\t"); ok {
		method, rest = m, strings.TrimLeft(r, " \t")
	}
	slash := max(0, strings.IndexByte(rest, '/'))
	return method, strings.ToLower(rest[:slash]), rest[slash:]
}

// matched is the pattern that the mux finds for a request that fits a path of a pattern, with its wildcards filled in.
func matched(mux *http.ServeMux, method, host, path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s == "{$}" {
			segments[i] = ""
		} else if strings.HasPrefix(s, "{") {
			segments[i] = "some-segment-of-a-path"
		}
	}
	path = strings.Join(segments, "/")
	u, err := url.ParseRequestURI(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	_, pattern := mux.Handler(&http.Request{Method: cmp.Or(method, http.MethodGet), Host: host, URL: u})
	return pattern
}

// open finds routes on which nothing is ever refused.
func (l *linter) open(field string, r *Route, charges []charged) {
	switch {
	case len(charges) == 0 && r.Exempt && len(l.c.Defaults) > 0:
		// Said in so many words.
	case len(charges) == 0:
		l.odd(field, "give it limits, or defaults to all; if it is meant, give defaults and exempt: true here", "no limit at all")
	case !slices.ContainsFunc(charges, func(c charged) bool { return c.enforced() }):
		l.odd(field, "take shadow out where it is time", "only shadow limits, so that nothing is refused")
	}
	if r.Exempt && len(l.c.Defaults) == 0 {
		l.odd(field+".exempt", "take it out", "exempt from defaults, and there are none")
	}
}

// chosen finds keys that an outsider chooses, with nothing else in the way.
func (l *linter) chosen(field string, charges []charged) {
	if slices.ContainsFunc(charges, func(c charged) bool { return c.enforced() && c.bounded() }) {
		return
	}
	for _, c := range charges {
		if !c.enforced() || c.bounded() {
			continue
		}
		severity, unless := SeverityError, ""
		if len(l.c.Clients.TrustedProxies) > 0 {
			severity, unless = SeverityWarning, ", unless a trusted proxy overwrites the header"
		}
		l.add(severity, c.field+".key", "add a limit by client, ip or global",
			"an outsider chooses the key %s and gets a fresh burst with each value%s; no other limit of %s stands in the way", words.Quoted(c.Key), unless, field)
	}
}

// sums finds several charges on one key that together are more than it ever has.
func (l *linter) sums(field string, charges []charged) {
	for i, c := range charges {
		var total int64
		least, first, n := spendable(c.limit, c.Priority), i, 0
		for j, o := range charges {
			if o.limit == c.limit && slices.Equal(o.key, c.key) {
				total, least, first, n = total+o.units(), min(least, spendable(o.limit, o.Priority)), min(first, j), n+1
			}
		}
		if n > 1 && first == i && c.enforced() && total > least {
			l.bad(field, "charge it once, or give the limit more units", "%d charges of together %d units on limit %s, which has at most %d at once", n, total, words.Quoted(c.limit.Name), least)
		} else if n > 1 && first == i {
			l.odd(field, "charge it once, with the sum as its cost", "%d charges on limit %s with one key, in defaults and here", n, words.Quoted(c.limit.Name))
		}
	}
}

func (l *linter) queue(field string, r *Route, charges []charged) {
	at := field + ".queue"
	enforced := slices.DeleteFunc(slices.Clone(charges), func(c charged) bool { return !c.enforced() })
	if len(enforced) == 0 {
		l.odd(at, "take it out, or enforce a limit", "nothing is refused on this route, so that nothing waits")
		return
	}
	if !slices.ContainsFunc(enforced, func(c charged) bool { return c.limit.Algorithm == weir.LeakyBucket }) {
		l.odd(at, "use a limit with algorithm: leaky-bucket", "a queue shapes traffic in front of a leaky bucket; before other limits it lets requests through in bursts and holds up clients that are over their limit")
	}
	wait := cmp.Or(r.Queue.Wait, defaultQueueWait)
	timeout := r.Timeout
	if u := l.c.Upstreams[l.c.upstreamOf(r)]; timeout == 0 && u != nil {
		timeout = u.Timeout
	}
	if timeout = cmp.Or(timeout, defaultTimeout); timeout > 0 && wait > timeout {
		l.odd(at+".wait", "wait for less, or give the route a longer timeout", "requests wait up to %v for an answer that may take %v: clients leave before", wait, timeout)
	}
}

// twin says by which other method the path of a limited route goes around its limits, or "".
func (l *linter) twin(mux *http.ServeMux, r *Route, charges []charged) string {
	method, host, path := splitPattern(r.Pattern)
	if method == "" || !slices.ContainsFunc(charges, func(c charged) bool { return c.enforced() }) {
		return ""
	}
	for _, other := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if other == method {
			continue
		}
		pattern := matched(mux, other, host, path)
		for i, o := range l.c.Routes {
			if matchable(o.Pattern) == pattern && !slices.ContainsFunc(l.on(i), func(c charged) bool { return c.enforced() }) {
				return fmt.Sprintf("%s on the same path goes to %s (%s), which has no limit", other, strictyaml.Item("routes", i), words.Quoted(o.Pattern))
			}
		}
	}
	return ""
}

// unmatched finds that requests without a route cost nothing.
func (l *linter) unmatched() {
	if len(l.c.Defaults) > 0 {
		return
	}
	for _, r := range l.c.Routes {
		if matchable(r.Pattern) == "/" {
			return
		}
	}
	l.odd("routes", "give a route with pattern: /, or defaults, as - limit: NAME", "requests that match no route get 404 without being charged, so that looking for paths is free")
}
