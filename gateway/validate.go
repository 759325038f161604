package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
)

// Validate says everything that is wrong with c at once, as a [*ConfigError], or nil. It reads the files that c names. Load and Parse have
// called it; a Config built in Go has not been checked before.
func (c *Config) Validate() error { return c.check().err() }

// check is Validate. Of fields that could not be read it says nothing more.
func (c *Config) check() problems {
	k := &checker{c: c}
	if !k.isBroken("") {
		k.listeners()
		k.admin()
		k.clients()
		k.identity()
		k.upstreams()
		k.limits()
		k.charges("defaults", c.Defaults)
		k.routes()
		k.rest()
	}
	return k.ps
}

// checker collects what is wrong with a Config.
type checker struct {
	c  *Config
	ps problems
}

// add notes a fault, unless the field could not be read in the first place.
func (k *checker) add(field, format string, args ...any) {
	k.addErr(field, nil, format, args...)
}

func (k *checker) addErr(field string, cause error, format string, args ...any) {
	if k.isBroken(field) {
		return
	}
	p := Problem{Field: field, Text: words.OneLine(fmt.Sprintf(format, args...)), Err: cause}
	if src := k.c.src; src != nil {
		at := src.Place(field)
		p.File, p.Line, p.Column = src.file, at.Line, at.Column
	}
	k.ps = append(k.ps, p)
}

// isBroken reports whether a field, or one around it, could not be read.
func (k *checker) isBroken(field string) bool { return k.c.src != nil && k.c.src.Broken(field) }

// anyBroken reports whether anything in a field could not be read, so that it may lack names.
func (k *checker) anyBroken(field string) bool { return k.c.src != nil && k.c.src.AnyBroken(field) }

func (k *checker) listeners() {
	seen := map[string]string{}
	for i := range k.c.Listen {
		l, field := &k.c.Listen[i], strictyaml.Item("listen", i)
		if why := badAddress(l.Address); why != "" {
			k.add(field+".address", "%s", why)
		} else if first, twice := seen[l.Address]; twice && !strings.HasSuffix(l.Address, ":0") {
			k.add(field+".address", "%s is the address of %s too", words.Quoted(l.Address), first)
		} else {
			seen[l.Address] = field
		}
		switch {
		case l.Cert != "" && l.Key == "":
			k.add(field+".cert", "a certificate without its key; give key too, or leave both out")
		case l.Cert == "" && l.Key != "":
			k.add(field+".key", "a key without its certificate; give cert too, or leave both out")
		case l.Cert != "" && l.H2C:
			k.add(field+".h2c", "h2c is HTTP/2 without TLS, and here is a certificate; with TLS, HTTP/2 is on by itself")
		}
		if l.Cert != "" && l.Key != "" {
			k.keyPair(l, field)
		}
	}
	if a := k.c.Admin.Address; a != "" && seen[a] != "" && !strings.HasSuffix(a, ":0") {
		k.add("admin.address", "%s is the address of %s too", words.Quoted(a), seen[a])
	}
}

func (k *checker) keyPair(l *Listener, field string) {
	const most = 1 << 20
	cert, err := readFile(l.Cert, most)
	if err != nil {
		k.addErr(field+".cert", err, "%v", err)
	}
	key, err2 := readFile(l.Key, most)
	if err2 != nil {
		k.addErr(field+".key", err2, "%v", err2)
	}
	if err == nil && err2 == nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			k.addErr(field+".cert", err, "no certificate and its key, in PEM: %s", strings.TrimPrefix(err.Error(), "tls: "))
		}
	}
}

// badAddress says what is wrong with an address to listen on, or "".
func badAddress(address string) string {
	const form = "the form is host:port, :port or unix:/path"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		switch {
		case path == "":
			return fmt.Sprintf("%s: no path; %s", words.Quoted(address), form)
		case len(path) > 103:
			return fmt.Sprintf("%s: a path of %d bytes; a socket's takes up to 103", words.Quoted(address), len(path))
		}
		return ""
	}
	if address == "" {
		return "no address; " + form
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if _, err := strconv.ParseUint(address, 10, 16); err == nil {
			return fmt.Sprintf("%s: no colon; for a port on every interface write :%s", words.Quoted(address), address)
		}
		return fmt.Sprintf("%s: no address; %s", words.Quoted(address), form)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("%s: the port is no number from 0 to 65535; %s", words.Quoted(address), form)
	}
	if strings.ContainsAny(host, " /@?#\"") {
		return fmt.Sprintf("%s: no host; %s", words.Quoted(address), form)
	}
	return ""
}

// minToken is the length of the shortest admin token that is accepted, in bytes.
const minToken = 16

func (k *checker) admin() {
	a := &k.c.Admin
	if a.Address != "" && a.Address != "off" {
		if why := badAddress(a.Address); why != "" {
			k.add("admin.address", "%s, or off", why)
		}
	}
	if _, err := a.Token(); err != nil {
		k.addErr("admin.token_file", err, "%v", err)
	}
}

// Token reads the token from TokenFile; it is "" if there is none.
func (a *Admin) Token() (string, error) {
	if a.TokenFile == "" {
		return "", nil
	}
	data, err := readFile(a.TokenFile, 4096)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken {
		return "", fmt.Errorf("%s has a token of %d bytes; it takes %d or more, as from: openssl rand -hex 32", words.Quoted(a.TokenFile), len(token), minToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s has more than one token of printable ASCII", words.Quoted(a.TokenFile))
	}
	return token, nil
}

func (k *checker) clients() {
	c := &k.c.Clients
	for i, text := range c.TrustedProxies {
		if text == unixPeers {
			continue
		}
		prefix, err := parsePrefix(text)
		field := strictyaml.Item("clients.trusted_proxies", i)
		switch {
		case err != nil:
			k.add(field, "%v", err)
		case prefix.Bits() == 0 && !c.TrustEverybody:
			k.add(field, "%s trusts everybody to say who they are; name the proxies, or set i_know_that_everybody_is_trusted: true", words.Quoted(text))
		}
	}
	if c.Header != "" && !isToken(c.Header) {
		k.add("clients.header", "%s is no header name", words.Quoted(c.Header))
	} else if slices.Contains(neverArrives, http.CanonicalHeaderKey(c.Header)) {
		k.add("clients.header", "%s is no header that says who a client is", words.Quoted(c.Header))
	}
	if c.IPv6Prefix < 0 || c.IPv6Prefix > 128 {
		k.add("clients.ipv6_prefix", "%d; it takes the bits of an address, 1 to 128, or 0 for 64", c.IPv6Prefix)
	}
}

// neverArrives are headers that net/http takes out of a request, or that end at each hop (RFC 9110, section 7.6.1).
var neverArrives = []string{
	"Host", "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// trusted reads TrustedProxies. The error is the first of them that is wrong.
func (c *Clients) trusted() (prefixes []netip.Prefix, unix bool, err error) {
	for _, text := range c.TrustedProxies {
		if text == unixPeers {
			unix = true
			continue
		}
		p, err := parsePrefix(text)
		if err != nil {
			return nil, false, fmt.Errorf("gateway: clients.trusted_proxies: %w", err)
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, unix || len(prefixes) > 0, nil
}

// unixPeers in TrustedProxies are whoever connects to a unix socket: who may do that is up to the file's owner. They are
// trusted too where any proxy is; the word is for where there is no other.
const unixPeers = "unix"

// parsePrefix reads a prefix or an address. It refuses what looks like one thing and matches another: bits beyond the prefix, IPv4 in
// the clothes of IPv6, and zones.
func parsePrefix(text string) (netip.Prefix, error) {
	const form = "the form is 10.0.0.0/8, 2001:db8::/32, one address, or unix for the peers of unix sockets"
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%s is no prefix; %s", words.Quoted(text), form)
		}
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s has a zone, which no client shows; %s", words.Quoted(text), form)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() {
		v4 := ""
		if p.Bits() >= 96 {
			v4 = fmt.Sprintf("; write %v", netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked())
		}
		return netip.Prefix{}, fmt.Errorf("%s is IPv4 written as IPv6, which matches nothing%s", words.Quoted(text), v4)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits beyond the prefix; write %v, or %v for the one address", words.Quoted(text), p.Masked(), p.Addr())
	}
	return p, nil
}

func (k *checker) upstreams() {
	if len(k.c.Upstreams) == 0 {
		k.add("upstreams", "none; give one, as main: {url: http://127.0.0.1:9000}")
	}
	for _, name := range sortedKeys(k.c.Upstreams) {
		u, field := k.c.Upstreams[name], strictyaml.Child("upstreams", name)
		if why := badName(name); why != "" {
			k.add(field, "%s", why)
		}
		if u == nil {
			k.add(field, "nothing in it; it takes at least url")
			continue
		}
		if why := badURL(u.URL); why != "" {
			k.add(field+".url", "%s", why)
		}
		k.positive(field+".dial_timeout", u.DialTimeout)
		k.count(field+".concurrency", u.Concurrency)
		if r := u.Retry; r != nil {
			k.count(field+".retry.attempts", r.Attempts)
			k.positive(field+".retry.delay", r.Delay)
			if !(r.Budget >= 0 && r.Budget <= 1) {
				k.add(field+".retry.budget", "%v; it takes a share, 0 to 1", r.Budget)
			}
		}
		if b := u.Breaker; b != nil {
			k.count(field+".breaker.failures", b.Failures)
			k.positive(field+".breaker.delay", b.Delay)
		}
	}
}

// badName says what is wrong with a name that is seen in metrics and logs, by the rule for the names of limits.
func badName(name string) string {
	if err := (&weir.Limit{Name: name, Rate: weir.Rate{Units: 1, Period: time.Second}}).Validate(); err != nil {
		return fact(err)
	}
	return ""
}

// fact is the text of an error of package weir about a limit, without the limit's name.
func fact(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error()
	}
	return err.Error()
}

func badURL(text string) string {
	const form = "the form is http://host:port or https://host/path"
	if text == "" {
		return "no URL; " + form
	}
	u, err := url.Parse(text)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return fmt.Sprintf("%s: %v; %s", words.Quoted(text), err, form)
	}
	why := ""
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		why = "neither http nor https"
	case u.Hostname() == "":
		why = "no host"
	case u.User != nil:
		return "a user in the URL, which would end up in logs; " + form
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		why = "a query or fragment"
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			why = "the port is no number from 1 to 65535"
		}
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s; %s", words.Quoted(text), why, form)
}

func (k *checker) limits() {
	first := map[string]string{}
	for i, l := range k.c.Limits {
		field := strictyaml.Item("limits", i)
		if l == nil {
			k.add(field, "nothing in it; it takes at least name and rate")
			continue
		}
		k.limit(field, &l.Limit)
		k.limitStore(field, l)
		if l.Name == "" {
			continue
		}
		if other, twice := first[l.Name]; twice {
			k.add(field+".name", "%s is the name of %s too", words.Quoted(l.Name), other)
		} else {
			first[l.Name] = field
		}
	}
}

// limit checks l a field at a time, each on top of those that are right, so that the fault is found in its own field.
func (k *checker) limit(field string, l *weir.Limit) {
	if why := badName(l.Name); why != "" {
		k.add(field+".name", "%s", why)
	}
	try := weir.Limit{Name: "x", Algorithm: l.Algorithm, Rate: l.Rate}
	if l.Rate.Units == 0 && l.Rate.Period > 0 {
		k.add(field+".rate", "%v admits nothing; it takes 1 unit or more, as 600/m", l.Rate)
		return
	}
	if _, err := l.Algorithm.MarshalText(); err != nil {
		k.add(field+".algorithm", "%s", words.Fact(err, field+".algorithm"))
		return
	}
	noBurst := try.Validate()
	try.Burst = l.Burst
	withBurst := try.Validate()
	if withBurst != nil { // a burst of its own can also be what makes a rate fit
		at := ".rate"
		if noBurst == nil || l.Burst < 0 {
			at = ".burst"
		}
		k.addErr(field+at, withBurst, "%s", strings.TrimPrefix(fact(withBurst), "burst "))
		return
	}
	try.Headroom = l.Headroom
	if err := try.Validate(); err != nil {
		k.addErr(field+".headroom", err, "%s", strings.TrimPrefix(fact(err), "headroom "))
	}
}

// headerForms are the values of Config.Headers.
var headerForms = []string{"draft", "draft-07", "draft-06", "legacy", "none"}

func (k *checker) rest() {
	if h := k.c.Headers; h != "" && !slices.Contains(headerForms, h) {
		k.add("headers", "%s is none of %s", words.Quoted(h), strings.Join(headerForms, ", "))
	}
	k.positive("shutdown", k.c.Shutdown)
	k.count("max_cells", k.c.MaxCells)
	k.store()
	k.tracing()
}

// positive refuses a negative time.
func (k *checker) positive(field string, d time.Duration) {
	if d < 0 {
		k.add(field, "%v; it takes a time from now on, or 0 for the default", d)
	}
}

// count refuses a negative number.
func (k *checker) count(field string, n int) {
	if n < 0 {
		k.add(field, "%d; it takes 1 or more, or 0 for the default", n)
	}
}
