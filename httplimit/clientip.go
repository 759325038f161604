package httplimit

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// ClientIP finds a client's address. The zero ClientIP takes the peer of the connection, and no header. With trusted
// proxies it reads what they wrote, from the nearest proxy on: the first address that is not a trusted proxy is
// the client. What stands further left was written by the client, and is not looked at.
type ClientIP struct {
	// Trusted are the addresses of the proxies whose Header is believed. None: the peer is the client.
	Trusted []netip.Prefix

	// TrustUnix believes the Header of peers on a unix socket, which have no address.
	TrustUnix bool

	// TrustEverybody lets Validate accept prefixes of all addresses. Then every client chooses its own address.
	TrustEverybody bool

	// Header is the one header that the trusted proxies write: X-Forwarded-For (empty), Forwarded (RFC 7239), or one
	// with an address or a list of them, as X-Real-IP. No other is read.
	Header string

	// IPv6Prefix is how many bits of an IPv6 address make one client; zero means 64, the least that a
	// subscriber gets. IPv4Prefix is the same for IPv4; zero means 32.
	IPv6Prefix, IPv4Prefix int
}

// Found says how an address was found.
type Found int8

const (
	FoundNone    Found = iota // no address: the peer is on a unix socket, or unknown
	FoundPeer                 // the peer, which is not a trusted proxy
	FoundHeader               // in the header, written by a trusted proxy
	FoundProxy                // a trusted proxy, the first of the way: the header names no other, or is missing
	FoundInvalid              // a trusted proxy, the last before something in the header that is no address
)

// What one request may make us read of a header.
const (
	maxHops        = 32
	maxHeaderBytes = 8 << 10
)

// Key is the key of the client's network, "ip:203.0.113.9" or "ip:2001:db8:1:2::/64". It is empty if there is no
// address. A client behind a proxy whose header is missing or broken has the proxy's key: one shared by all
// such clients.
func (c ClientIP) Key(r *http.Request) string {
	addr, _ := c.Addr(r)
	if !addr.IsValid() {
		return ""
	}
	bits, full := c.IPv4Prefix, 32
	if addr.Is6() {
		bits, full = c.IPv6Prefix, 128
		if bits <= 0 {
			bits = 64
		}
	}
	var few [64]byte
	b := append(few[:0], "ip:"...)
	if bits <= 0 || bits >= full {
		return string(addr.AppendTo(b))
	}
	p, _ := addr.Prefix(bits)
	return string(p.AppendTo(b))
}

// Addr is the client's address, without zone, and as IPv4 where it is IPv4 mapped into IPv6. It is the zero Addr with
// FoundNone, and only then.
func (c ClientIP) Addr(r *http.Request) (netip.Addr, Found) {
	peer, ok := parseHop(r.RemoteAddr)
	switch {
	case !ok && !(c.TrustUnix && onUnix(r)):
		return netip.Addr{}, FoundNone
	case ok && !c.trusts(peer):
		return peer, FoundPeer
	}
	name := "X-Forwarded-For"
	if c.Header != "" {
		name = http.CanonicalHeaderKey(c.Header)
	}
	addr, found := c.walk(peer, r.Header[name], name == "Forwarded")
	if !addr.IsValid() {
		found = FoundNone
	}
	return addr, found
}

// walk goes from the peer, which is trusted, through the lines of the header, right to left.
func (c *ClientIP) walk(peer netip.Addr, lines []string, forwarded bool) (netip.Addr, Found) {
	last, found := peer, FoundProxy
	hops, bytes := 0, 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var hop string
			if hops++; hops > maxHops {
				return last, FoundInvalid
			}
			hop, rest, more = lastElement(rest, maxHeaderBytes-bytes, forwarded)
			if bytes += len(hop) + 1; bytes > maxHeaderBytes {
				return last, FoundInvalid
			}
			if hop = trim(hop); hop == "" {
				continue
			}
			addr, ok := netip.Addr{}, false
			if forwarded {
				addr, ok = parseForwarded(hop)
			} else {
				addr, ok = parseHop(hop)
			}
			if !ok {
				return last, FoundInvalid
			}
			if !c.trusts(addr) {
				return addr, FoundHeader
			}
			last = addr
		}
	}
	return last, found
}

func (c *ClientIP) trusts(addr netip.Addr) bool {
	for _, p := range c.Trusted {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Validate says what is wrong with c.
func (c ClientIP) Validate() error {
	for _, p := range c.Trusted {
		if err := c.check(p); err != nil {
			return fmt.Errorf("weir: trusted proxies %v: %w", p, err)
		}
	}
	if c.IPv6Prefix < 0 || c.IPv6Prefix > 128 {
		return fmt.Errorf("weir: IPv6 prefix of %d bits; it takes 1 to 128, or 0 for 64", c.IPv6Prefix)
	}
	if c.IPv4Prefix < 0 || c.IPv4Prefix > 32 {
		return fmt.Errorf("weir: IPv4 prefix of %d bits; it takes 1 to 32, or 0 for 32", c.IPv4Prefix)
	}
	if !isToken(c.Header) && c.Header != "" {
		return fmt.Errorf("weir: client address header %.70q; it takes the name of one header", c.Header)
	}
	return nil
}

func (c *ClientIP) check(p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("not a prefix; the form is 10.0.0.0/8 or 2001:db8::/32")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return fmt.Errorf("IPv4 mapped into IPv6 with less than 96 bits; write the IPv4 prefix")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Masked() != p {
		return fmt.Errorf("address bits after the prefix; %v is the network, %v the one address", p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	if p.Bits() == 0 && !c.TrustEverybody {
		return fmt.Errorf("trusts everybody, so that each client chooses its own address; list the proxies")
	}
	return nil
}

// ParsePrefixes reads prefixes for ClientIP.Trusted, as "10.0.0.0/8", or "192.0.2.1" for one address. IPv4 mapped into IPv6
// becomes IPv4.
func ParsePrefixes(text ...string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(text))
	for _, s := range text {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil || a.Zone() != "" {
				return nil, fmt.Errorf("weir: trusted proxies %.60q: not a prefix; the form is 10.0.0.0/8 or 2001:db8::/32", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// onUnix reports whether r came in over a unix socket.
func onUnix(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && strings.HasPrefix(a.Network(), "unix")
}

// parseHop reads an address as proxies write it: v4, v4:port, v6, [v6] or [v6]:port.
func parseHop(s string) (netip.Addr, bool) {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host, port = s[1:end], s[end+1:]
		if strings.IndexByte(host, ':') < 0 || port != "" && !isPort(port) {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i+1:], ':') < 0 {
		host, port = s[:i], s[i:]
		if !isPort(port) {
			return netip.Addr{}, false
		}
	}
	return parseAddr(host)
}

// parseAddr reads a bare address and makes it canonical.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	addr = addr.WithZone("").Unmap()
	return addr, !addr.IsUnspecified()
}

// isPort reports whether s is a colon and a port.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	n, _ := strconv.Atoi(s[1:])
	return n <= 65535
}

// trim drops the optional whitespace of a list element.
func trim(s string) string { return strings.Trim(s, " \t") }
