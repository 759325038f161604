package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/httplimit"
)

// clients knows who requests are from, by address, and tells upstreams.
type clients struct {
	ip       httplimit.ClientIP
	header   string   // the one that trusted proxies write, in canonical form
	identity []string // the identity headers that only they may set, in canonical form
}

func newClients(conf *Clients, identity []string) (clients, error) {
	trusted, unix, err := conf.trusted()
	if err != nil {
		return clients{}, err
	}
	c := clients{
		ip: httplimit.ClientIP{
			Trusted:        trusted,
			TrustUnix:      unix,
			TrustEverybody: conf.TrustEverybody,
			Header:         conf.Header,
			IPv6Prefix:     conf.IPv6Prefix,
		},
		header: "X-Forwarded-For",
	}
	if conf.Header != "" {
		c.header = http.CanonicalHeaderKey(conf.Header)
	}
	for _, name := range identity {
		c.identity = append(c.identity, http.CanonicalHeaderKey(name))
	}
	return c, c.ip.Validate()
}

// trusts reports whether r comes from a trusted proxy.
func (c *clients) trusts(r *http.Request) bool {
	_, trusted := c.client(r)
	return trusted
}

// client is the address that r counts against, invalid if there is none, and whether a trusted proxy says so.
func (c *clients) client(r *http.Request) (addr netip.Addr, trusted bool) {
	if len(c.ip.Trusted) == 0 && !c.ip.TrustUnix {
		return netip.Addr{}, false
	}
	addr, found := c.ip.Addr(r)
	switch found {
	case httplimit.FoundPeer:
		return addr, false
	case httplimit.FoundNone: // a proxy on a unix socket that names nobody is one nevertheless
		return addr, c.ip.TrustUnix && onUnix(r)
	}
	return addr, true
}

// rewrite tells the upstream who asks: what a trusted proxy said goes on with its address appended, what anybody
// else said of itself is replaced. Of the headers with addresses, a trusted proxy has said the configured one; what the others
// have may be the client's own words, and is replaced by what the configured one says.
func (c *clients) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out.Header
	client, trusted := c.client(in)
	for name := range out {
		// Upstreams that read headers as CGI does take X_Forwarded_For for X-Forwarded-For. No proxy writes it so.
		plain := name
		if strings.ContainsAny(name, "_.") {
			plain = http.CanonicalHeaderKey(strings.Map(dashed, name))
		}
		if c.reserved(plain) && (!trusted || plain != name) {
			delete(out, name)
		}
	}

	peer := peerAddr(in.RemoteAddr)
	var chain, host, proto, forwarded []string
	if trusted {
		host, proto = in.Header["X-Forwarded-Host"], in.Header["X-Forwarded-Proto"]
		named := ""
		if client.IsValid() {
			named = client.String()
		}
		switch {
		case c.header == "X-Forwarded-For":
			chain = in.Header["X-Forwarded-For"]
		case named != "" && named != peer:
			chain = []string{named}
		}
		if c.header == "Forwarded" {
			forwarded = in.Header["Forwarded"]
		}
		if c.header != "X-Real-Ip" && out["X-Real-Ip"] != nil {
			if delete(out, "X-Real-Ip"); named != "" {
				out["X-Real-Ip"] = []string{named}
			}
		}
	}
	if peer != "" {
		if len(chain) > 0 {
			out["X-Forwarded-For"] = []string{strings.Join(chain, ", ") + ", " + peer}
		} else {
			out["X-Forwarded-For"] = []string{peer}
		}
		if forwarded != nil {
			node := peer
			if strings.IndexByte(peer, ':') >= 0 {
				node = `"[` + peer + `]"`
			}
			out["Forwarded"] = []string{strings.Join(forwarded, ", ") + ", for=" + node}
		}
	} else if len(chain) > 0 {
		out["X-Forwarded-For"] = chain
	}
	if len(host) == 0 {
		host = []string{in.Host}
	}
	if len(proto) == 0 {
		proto = plainHTTP
		if in.TLS != nil {
			proto = overTLS
		}
	}
	out["X-Forwarded-Host"], out["X-Forwarded-Proto"] = host, proto
}

// Shared by all requests, which only replace header lines and never write into them.
var plainHTTP, overTLS = []string{"http"}, []string{"https"}

// reserved reports whether a header says who the client is, which only trusted proxies may.
func (c *clients) reserved(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", c.header:
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(c.identity, name)
}

func dashed(c rune) rune {
	if c == '_' || c == '.' {
		return '-'
	}
	return c
}

// peerAddr is the address of a peer without port and zone, or empty if it has none, as on a unix socket.
func peerAddr(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return ap.Addr().WithZone("").Unmap().String()
}
