package gateway

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
	"github.com/weir-go/weir/redisstore"
)

// Severity says how bad a Finding is.
type Severity string

const (
	SeverityError   Severity = "error"   // the configuration does not do what it says, or lets outsiders pass
	SeverityWarning Severity = "warning" // it may be meant
)

// Finding is something in a valid configuration that is probably a mistake.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`   // from 1; 0: not from a file
	Column   int      `json:"column,omitempty"` // from 1; 0: not from a file
	Field    string   `json:"field"`
	Fault    string   `json:"fault"` // what is wrong
	Fix      string   `json:"fix"`   // what to do about it
}

// String is one line: file:line:column: severity: field: fault; fix.
func (f Finding) String() string {
	return strictyaml.Where(f.File, strictyaml.Place{Line: f.Line, Column: f.Column}, "") + string(f.Severity) + ": " + f.Field + ": " + f.Fault + "; " + f.Fix
}

// Lint looks at a configuration that Validate has nothing against, and finds what is probably a mistake, sorted by place. A
// clean configuration has no findings.
func Lint(c *Config) []Finding {
	l := &linter{c: c}
	l.trust()
	l.admin()
	l.upstreams()
	l.replicas()
	l.limits()
	l.routes()
	l.unmatched()
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.found
}

type linter struct {
	c     *Config
	found []Finding
}

func (l *linter) add(severity Severity, field, fix, fault string, args ...any) {
	f := Finding{Severity: severity, Field: field, Fix: fix, Fault: words.OneLine(fmt.Sprintf(fault, args...))}
	if src := l.c.src; src != nil {
		at := src.Place(field)
		f.File, f.Line, f.Column = src.file, at.Line, at.Column
	}
	l.found = append(l.found, f)
}

func (l *linter) bad(field, fix, fault string, args ...any) {
	l.add(SeverityError, field, fix, fault, args...)
}

func (l *linter) odd(field, fix, fault string, args ...any) {
	l.add(SeverityWarning, field, fix, fault, args...)
}

// trust looks at whom the configuration believes.
func (l *linter) trust() {
	c := &l.c.Clients
	const field = "clients.trusted_proxies"
	prefixes, unix, _ := c.trusted()
	everybody := false
	for i, text := range c.TrustedProxies {
		p, err := parsePrefix(text)
		if err != nil {
			continue
		}
		switch least := map[bool]int{true: 8, false: 16}[p.Addr().Is4()]; {
		case p.Bits() == 0:
			everybody = true
			l.odd(strictyaml.Item(field, i), "name the proxies, unless nobody else can connect",
				"trusts everybody, so that each client chooses its own address and its limits with it")
		case p.Bits() < least:
			l.bad(strictyaml.Item(field, i), "name the proxies' own networks",
				"%s trusts 2^%d addresses, most of which are strangers", words.Quoted(text), p.Addr().BitLen()-p.Bits())
		}
	}
	if c.TrustEverybody && !everybody {
		l.odd("clients.i_know_that_everybody_is_trusted", "take it out", "allows 0.0.0.0/0 and ::/0, which trusted_proxies does not have")
	}
	if len(prefixes) == 0 && !unix && c.Header != "" {
		l.bad("clients.header", "name the proxies that write it in clients.trusted_proxies, or take it out",
			"%s is never read: it counts only from trusted proxies, and there are none", c.Header)
	}
	switch {
	case c.IPv6Prefix > 64:
		l.bad("clients.ipv6_prefix", "use 64 or less", "a subscriber has a /64 at least, and so 2^%d clients of %d bits, each with limits of its own", c.IPv6Prefix-64, c.IPv6Prefix)
	case c.IPv6Prefix > 0 && c.IPv6Prefix < 48:
		l.odd("clients.ipv6_prefix", "use 48 to 64", "many customers of a provider share %d bits, and so one client's limits", c.IPv6Prefix)
	}
	l.listenOnUnix(unix)
}

// listenOnUnix finds unix sockets whose peers, which have no address, would all be one client.
func (l *linter) listenOnUnix(trusted bool) {
	for i := range l.c.Listen {
		if strings.HasPrefix(l.c.Listen[i].Address, "unix:") && !trusted {
			l.odd(strictyaml.Item("listen", i)+".address", "where a proxy connects to it, add unix to clients.trusted_proxies",
				"peers on a unix socket have no address, so that they share the limits of one client")
		}
	}
}

func (l *linter) admin() {
	a := &l.c.Admin
	if a.address() == adminOff {
		if a.TokenFile != "" {
			l.odd("admin.token_file", "take one of them out", "a token for a listener that is off")
		}
		return
	}
	if !onLoopbackAddress(a.address()) && a.TokenFile == "" {
		l.bad("admin.address", "listen on 127.0.0.1, or give admin.token_file",
			"%s is open to others without a token: they can read limits and metrics, and operators cannot change anything", a.Address)
	}
}

func (l *linter) upstreams() {
	used := map[string]bool{}
	for _, r := range l.c.Routes {
		used[l.c.upstreamOf(r)] = true
	}
	for _, name := range sortedKeys(l.c.Upstreams) {
		u, field := l.c.Upstreams[name], strictyaml.Child("upstreams", name)
		if !used[name] {
			l.odd(field, "name it in a route, or take it out", "no route goes to it")
		}
		if address := l.ownAddress(u.URL); address != "" {
			l.bad(field+".url", "give the address of the server behind", "%s is where weir itself listens (%s), so that it would ask itself", u.URL, address)
		}
		if r := u.Retry; r != nil && r.Attempts == 1 {
			l.odd(field+".retry.attempts", "give 2 or more, or take retry out", "one attempt in all is no retry")
		}
	}
}

// replicas finds limits that each instance would hold alone while the shared store does not answer, without a word on how many there are.
func (l *linter) replicas() {
	if !l.c.shared() || l.c.Replicas != 0 {
		return
	}
	for _, limit := range l.c.Limits {
		if l.c.storeOf(limit) != storeMemory && l.c.policyOf(limit) == redisstore.Local {
			l.odd("store", "say how many instances share it with replicas, even if it is 1",
				"while it does not answer, each instance admits all of the limit %s, and not its part", words.Quoted(limit.Name))
			return
		}
	}
}

// upstreamOf is the name of the upstream that a route goes to.
func (c *Config) upstreamOf(r *Route) string {
	if r.Upstream == "" && len(c.Upstreams) == 1 {
		return sortedKeys(c.Upstreams)[0]
	}
	return r.Upstream
}

// ownAddress is the address of ours that a URL leads to, or "".
func (l *linter) ownAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addresses := []string{l.c.Admin.address()}
	for _, own := range l.c.listeners() {
		addresses = append(addresses, own.Address)
	}
	for _, address := range addresses {
		host, p, err := net.SplitHostPort(address)
		if err == nil && p == port && p != "0" && (strings.EqualFold(host, u.Hostname()) || loopback(u.Hostname()) && (host == "" || loopback(host) || unspecified(host))) {
			return address
		}
	}
	return ""
}

// onLoopbackAddress reports whether nobody from another machine can connect to an address.
func onLoopbackAddress(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopback(host)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}
