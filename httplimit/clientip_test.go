package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// request is one as the server sees it, with the lines of a header.
func request(peer, header string, lines ...string) *http.Request {
	r := &http.Request{Method: "GET", RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func prefixes(t testing.TB, text ...string) []netip.Prefix {
	t.Helper()
	p, err := ParsePrefixes(text...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// vector is a case of the client address rules.
type vector struct {
	ID     int    `json:"id"`
	Peer   string `json:"peer"`
	Client string `json:"client"`
	Why    string `json:"why"`
	Header *struct {
		Name  string   `json:"name"`
		Lines []string `json:"lines"`
	} `json:"header"`
}

func TestClientIPVectors(t *testing.T) {
	const file = "../../shared/data/client-ip-vectors.json"
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not there", file)
	}
	var vectors struct {
		Trusted []string `json:"trusted"`
		Vectors []vector `json:"vectors"`
	}
	if err == nil {
		err = json.Unmarshal(data, &vectors)
	}
	if err != nil || len(vectors.Vectors) == 0 {
		t.Fatalf("%s: %v, %d vectors", file, err, len(vectors.Vectors))
	}
	ip := ClientIP{Trusted: prefixes(t, vectors.Trusted...)}
	for _, v := range vectors.Vectors {
		r := request(net.JoinHostPort(v.Peer, "40000"), "")
		ip.Header = ""
		if v.Header != nil {
			ip.Header = v.Header.Name
			r.Header[http.CanonicalHeaderKey(v.Header.Name)] = v.Header.Lines
		}
		if got, _ := ip.Addr(r); got.String() != v.Client {
			t.Errorf("vector %d (%s): client %v, want %s", v.ID, v.Why, got, v.Client)
		}
	}
}

func TestClientIP(t *testing.T) {
	const none = "invalid IP"
	ip := ClientIP{Trusted: prefixes(t, "10.0.0.0/8", "203.0.113.0/24", "2001:db8:ffff::/48")}
	far := strings.Repeat("1.1.1.1, ", 10_000)
	proxies := strings.Repeat("10.1.1.1, ", 40)
	for _, c := range []struct {
		why, header, peer string
		lines             []string
		want              string
		found             Found
	}{
		{"no proxy", "", "198.51.100.7:1", []string{"1.1.1.1"}, "198.51.100.7", FoundPeer},
		{"peer without port", "", "198.51.100.7", nil, "198.51.100.7", FoundPeer},
		{"peer with zone", "", "[fe80::1%eth0]:1", nil, "fe80::1", FoundPeer},
		{"unix socket", "", "@", []string{"1.1.1.1"}, none, FoundNone},
		{"no peer", "", "", []string{"1.1.1.1"}, none, FoundNone},
		{"peer 0.0.0.0", "", "0.0.0.0:1", nil, none, FoundNone},
		{"header missing", "", "10.0.0.1:1", nil, "10.0.0.1", FoundProxy},
		{"header empty", "", "10.0.0.1:1", []string{"", " , ,"}, "10.0.0.1", FoundProxy},
		{"only proxies", "", "10.0.0.1:1", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1", FoundProxy},
		{"empty elements", "", "10.0.0.1:1", []string{"198.51.100.7,\t, ", ""}, "198.51.100.7", FoundHeader},
		{"garbage after a proxy", "", "10.0.0.1:1", []string{"198.51.100.7, x, 10.2.2.2"}, "10.2.2.2", FoundInvalid},
		{"invalid UTF-8", "", "10.0.0.1:1", []string{"\xff\xfe"}, "10.0.0.1", FoundInvalid},
		{"other header", "X-Real-IP", "10.0.0.1:1", nil, "10.0.0.1", FoundProxy},
		{"single header", "x-real-ip", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7", FoundHeader},
		{"port too large", "", "10.0.0.1:1", []string{"198.51.100.7:65536"}, "10.0.0.1", FoundInvalid},
		{"port missing", "", "10.0.0.1:1", []string{"198.51.100.7:"}, "10.0.0.1", FoundInvalid},
		{"v4 in brackets", "", "10.0.0.1:1", []string{"[198.51.100.7]"}, "10.0.0.1", FoundInvalid},
		{"bracket open", "", "10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1", FoundInvalid},
		{"10,000 hops to the left", "", "10.0.0.1:1", []string{far + "198.51.100.7"}, "198.51.100.7", FoundHeader},
		{"too many proxies", "", "10.0.0.1:1", []string{"198.51.100.7, " + proxies + "10.2.2.2"}, "10.1.1.1", FoundInvalid},
		{"too many commas", "", "10.0.0.1:1", []string{"198.51.100.7" + strings.Repeat(",", 100)}, "10.0.0.1", FoundInvalid},
		{"100 kB in one element", "", "10.0.0.1:1", []string{strings.Repeat("1", 100<<10)}, "10.0.0.1", FoundInvalid},
		{"100 kB of spaces", "", "10.0.0.1:1", []string{"198.51.100.7," + strings.Repeat(" ", 100<<10)}, "10.0.0.1", FoundInvalid},
		{"10 kB over two lines", "", "10.0.0.1:1", []string{"198.51.100.7" + strings.Repeat(" ", 5000), strings.Repeat(" ", 5000)}, "10.0.0.1", FoundInvalid},

		{"pairs", "Forwarded", "10.0.0.1:1", []string{`proto=http;FOR="198.51.100.7:80";by=_me`}, "198.51.100.7", FoundHeader},
		{"space around pairs", "Forwarded", "10.0.0.1:1", []string{`for=198.51.100.7 ; proto=https`}, "198.51.100.7", FoundHeader},
		{"comma in a string", "Forwarded", "10.0.0.1:1", []string{`for=198.51.100.7;ext="a,for=1.1.1.1;\", \\"`}, "198.51.100.7", FoundHeader},
		{"hidden port", "Forwarded", "10.0.0.1:1", []string{`for="198.51.100.7:_x1"`}, "198.51.100.7", FoundHeader},
		{"two for", "Forwarded", "10.0.0.1:1", []string{"for=198.51.100.7;for=1.1.1.1"}, "10.0.0.1", FoundInvalid},
		{"hidden", "Forwarded", "10.0.0.1:1", []string{"for=198.51.100.7, for=_hidden"}, "10.0.0.1", FoundInvalid},
		{"unknown", "Forwarded", "10.0.0.1:1", []string{"for=unknown, for=203.0.113.5"}, "203.0.113.5", FoundInvalid},
		{"v6 without quotes", "Forwarded", "10.0.0.1:1", []string{"for=[2001:db8::1]"}, "10.0.0.1", FoundInvalid},
		{"v6 without brackets", "Forwarded", "10.0.0.1:1", []string{`for="2001:db8::1"`}, "10.0.0.1", FoundInvalid},
		{"no name", "Forwarded", "10.0.0.1:1", []string{"198.51.100.7"}, "10.0.0.1", FoundInvalid},
		{"text after the string", "Forwarded", "10.0.0.1:1", []string{`for="198.51.100.7"x`}, "10.0.0.1", FoundInvalid},
		{"open quote by the client", "Forwarded", "10.0.0.1:1", []string{`for="1.1.1.1, for="[2001:db8::1]:4711"`}, "2001:db8::1", FoundHeader},
		{"open quote on the client's line", "Forwarded", "10.0.0.1:1", []string{`for="`, "for=198.51.100.7"}, "198.51.100.7", FoundHeader},
		{"escaped quote by the client", "Forwarded", "10.0.0.1:1", []string{`x="\", for=198.51.100.7`}, "198.51.100.7", FoundHeader},
	} {
		ip.Header = c.header
		header := c.header
		if header == "" {
			header = "X-Forwarded-For"
		}
		if got, found := ip.Addr(request(c.peer, header, c.lines...)); got.String() != c.want || found != c.found {
			t.Errorf("%s: client %v, found %d; want %s, found %d", c.why, got, found, c.want, c.found)
		}
	}
}

// A header is read by its exact name only.
func TestClientIPOtherSpelling(t *testing.T) {
	ip := ClientIP{Trusted: prefixes(t, "10.0.0.1")}
	r := request("10.0.0.1:1", "X_Forwarded_For", "1.1.1.1")
	r.Header["X-Real-Ip"] = []string{"1.1.1.1"}
	r.Header["Forwarded"] = []string{"for=1.1.1.1"}
	r.Trailer = http.Header{"X-Forwarded-For": {"1.1.1.1"}}
	if got, _ := ip.Addr(r); got.String() != "10.0.0.1" {
		t.Errorf("client %v, want the proxy", got)
	}
}

func TestClientIPUnix(t *testing.T) {
	r := request("@", "X-Forwarded-For", "198.51.100.7")
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "/run/x", Net: "unix"})))
	if got, found := (ClientIP{TrustUnix: true}).Addr(r); got.String() != "198.51.100.7" || found != FoundHeader {
		t.Errorf("trusted unix peer: client %v, found %d", got, found)
	}
	r.Header.Del("X-Forwarded-For")
	if got, found := (ClientIP{TrustUnix: true}).Addr(r); got.IsValid() || found != FoundNone {
		t.Errorf("trusted unix peer without header: client %v, found %d; want none", got, found)
	}
	if key := (ClientIP{TrustUnix: true}).Key(r); key != "" {
		t.Errorf("key %q without an address", key)
	}
	tcp := request("@", "X-Forwarded-For", "198.51.100.7") // no unix listener says so
	if got, _ := (ClientIP{TrustUnix: true}).Addr(tcp); got.IsValid() {
		t.Errorf("peer %q that is not on a unix socket was trusted: %v", tcp.RemoteAddr, got)
	}
}

func TestClientIPKey(t *testing.T) {
	for _, c := range []struct {
		ip         ClientIP
		peer, want string
	}{
		{ClientIP{}, "198.51.100.7:1", "ip:198.51.100.7"},
		{ClientIP{}, "[::ffff:198.51.100.7]:1", "ip:198.51.100.7"},
		{ClientIP{IPv4Prefix: 24}, "198.51.100.7:1", "ip:198.51.100.0/24"},
		{ClientIP{}, "[2001:db8:1:2:3:4:5:6]:1", "ip:2001:db8:1:2::/64"},
		{ClientIP{IPv6Prefix: 48}, "[2001:db8:1:2::3]:1", "ip:2001:db8:1::/48"},
		{ClientIP{IPv6Prefix: 128}, "[2001:db8:1:2::3]:1", "ip:2001:db8:1:2::3"},
		{ClientIP{}, "[fe80::1%eth0]:1", "ip:fe80::/64"},
		{ClientIP{}, "@", ""},
		{ClientIP{}, "", ""},
	} {
		if got := c.ip.Key(request(c.peer, "")); got != c.want {
			t.Errorf("peer %s: key %q, want %q", c.peer, got, c.want)
		}
	}
}

func TestClientIPValidate(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		ip   ClientIP
		want string // part of the error; empty: none
	}{
		{ClientIP{}, ""},
		{ClientIP{Trusted: []netip.Prefix{p("10.0.0.0/8"), p("::1/128")}}, ""},
		{ClientIP{Trusted: []netip.Prefix{p("::ffff:10.0.0.0/104")}}, ""},
		{ClientIP{Trusted: []netip.Prefix{p("0.0.0.0/0")}}, "trusts everybody"},
		{ClientIP{Trusted: []netip.Prefix{p("::/0")}}, "trusts everybody"},
		{ClientIP{Trusted: []netip.Prefix{p("::ffff:0.0.0.0/96")}}, "trusts everybody"},
		{ClientIP{Trusted: []netip.Prefix{p("::/0")}, TrustEverybody: true}, ""},
		{ClientIP{Trusted: []netip.Prefix{p("10.1.2.3/8")}}, "10.0.0.0/8 is the network, 10.1.2.3/32 the one address"},
		{ClientIP{Trusted: []netip.Prefix{p("::ffff:10.0.0.0/90")}}, "write the IPv4 prefix"},
		{ClientIP{Trusted: []netip.Prefix{{}}}, "not a prefix"},
		{ClientIP{IPv6Prefix: 129}, "IPv6 prefix of 129 bits"},
		{ClientIP{IPv4Prefix: -1}, "IPv4 prefix of -1 bits"},
		{ClientIP{Header: "X-Forwarded-For, X-Real-IP"}, "one header"},
	} {
		switch err := c.ip.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.ip, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: error %v, want %q", c.ip, err, c.want)
		}
	}
	mapped := ClientIP{Trusted: []netip.Prefix{p("::ffff:10.0.0.0/104")}}
	if got, _ := mapped.Addr(request("10.0.0.1:1", "X-Forwarded-For", "198.51.100.7")); got.String() != "198.51.100.7" {
		t.Errorf("mapped prefix does not trust 10.0.0.1: client %v", got)
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := ParsePrefixes("10.0.0.0/8", "192.0.2.1", "::ffff:192.0.2.0/120", "2001:db8::1", "::ffff:192.0.2.9")
	want := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("192.0.2.9/32"),
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("prefix %d: %v, want %v", i, got[i], want[i])
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "proxies", "fe80::1%eth0", "10.0.0.0/8 "} {
		if _, err := ParsePrefixes(bad); err == nil || !strings.Contains(err.Error(), "the form is 10.0.0.0/8") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// What comes out is the peer, a trusted proxy, or an address of the header; never anything else, and never a panic.
func FuzzClientIP(f *testing.F) {
	f.Add("10.0.0.1:1", "1.2.3.4, 198.51.100.7", "203.0.113.5", false)
	f.Add("10.0.0.1:1", `for="[2001:db8::1]:80";by=_x, for=10.1.1.1`, `for=unknown`, true)
	f.Add("10.0.0.1:1", `for="a\", for=10.1.1.1`, `x="\\", for=9.9.9.9`, true)
	f.Add("@", "1.1.1.1", "", false)
	trusted := prefixes(f, "10.0.0.0/8", "203.0.113.0/24", "2001:db8:ffff::/48")
	f.Fuzz(func(t *testing.T, peer, one, two string, forwarded bool) {
		ip := ClientIP{Trusted: trusted}
		header := "X-Forwarded-For"
		if forwarded {
			ip.Header, header = "Forwarded", "Forwarded"
		}
		r := &http.Request{RemoteAddr: peer, Header: http.Header{header: {one, two}}}
		addr, found := ip.Addr(r)
		if addr.IsValid() == (found == FoundNone) || addr.IsUnspecified() || addr.Is4In6() || addr.Zone() != "" {
			t.Fatalf("address %v, found %d", addr, found)
		}
		direct, _ := parseHop(peer)
		switch found {
		case FoundPeer:
			if addr != direct || ip.trusts(addr) {
				t.Fatalf("peer %q gave %v", peer, addr)
			}
		case FoundProxy, FoundInvalid:
			if !ip.trusts(addr) {
				t.Fatalf("%v is no proxy", addr)
			}
		case FoundHeader:
			if ip.trusts(addr) || !ip.trusts(direct) {
				t.Fatalf("%v came from a header, of peer %q", addr, peer)
			}
			// It does not depend on anything the client could have put further left.
			for _, left := range []string{`for="`, "x,", `\"`, `for=7.7.7.7, `, `"`} {
				more := &http.Request{RemoteAddr: peer, Header: http.Header{header: {left, one, two}}}
				if again, _ := ip.Addr(more); again != addr {
					t.Fatalf("with the line %q further left: %v, was %v", left, again, addr)
				}
				more.Header[header] = []string{left + "," + one, two}
				if again, _ := ip.Addr(more); again != addr {
					t.Fatalf("with %q further left: %v, was %v", left, again, addr)
				}
			}
		}
	})
}

// An element that is read is read the same when its for is all there is.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{`for=192.0.2.1`, `For="[2001:db8::1]:4711";proto=http`, `by=x;for=_h`, `for="a\"b"`, `;;for=1.1.1.1;`, `for="1.2.3.4:_p"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		addr, ok := parseForwarded(s)
		if !ok {
			return
		}
		if !addr.IsValid() || !strings.Contains(strings.ToLower(s), "for=") {
			t.Fatalf("%q gave %v", s, addr)
		}
		node := addr.String()
		if addr.Is6() {
			node = `"[` + node + `]"`
		}
		if again, ok := parseForwarded("for=" + node); !ok || again != addr {
			t.Fatalf("%q gave %v, for=%s %v %v", s, addr, node, again, ok)
		}
	})
}
