package gateway

import (
	"context"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/weir-go/weir"
)

func TestForwardedHeaders(t *testing.T) {
	headers := make(chan http.Header, 1)
	up := backend(t, func(w http.ResponseWriter, r *http.Request) { headers <- r.Header })
	for _, c := range []struct {
		name    string
		trusted bool
		header  string // that trusted proxies write
		send    []string
		want    map[string][]string
	}{
		{
			name: "from an outsider everything is replaced",
			send: []string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "Forwarded: for=6.6.6.6",
				"X-Real-IP: 6.6.6.6", "X_Forwarded_For: 6.6.6.6", "X-Forwarded-Port: 1", "X-User: admin", "X_User: admin", "Authorization: Bearer t"},
			want: map[string][]string{"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"gw"}, "X-Forwarded-Proto": {"http"},
				"Forwarded": nil, "X-Real-Ip": nil, "X_forwarded_for": nil, "X-Forwarded-Port": nil, "X-User": nil, "X_user": nil,
				"Authorization": {"Bearer t"}},
		},
		{
			name: "from a trusted proxy it goes on", trusted: true,
			send: []string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: shop", "X-Forwarded-Proto: https",
				"Forwarded: for=203.0.113.9", "X_Forwarded_For: 6.6.6.6", "X-User: 42", "X.User: 43"},
			want: map[string][]string{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 127.0.0.1"}, "X-Forwarded-Host": {"shop"},
				"X-Forwarded-Proto": {"https"}, "Forwarded": nil, "X_forwarded_for": nil, "X-User": {"42"}, "X.user": nil},
		},
		{
			name: "Forwarded goes on where proxies write it", trusted: true, header: "Forwarded",
			send: []string{`Forwarded: for="[2001:db8::1]";proto=https`},
			want: map[string][]string{"Forwarded": {`for="[2001:db8::1]";proto=https, for=127.0.0.1`},
				"X-Forwarded-For": {"2001:db8::1, 127.0.0.1"}},
		},
		{
			name: "what the trusted proxy does not write is not believed", trusted: true, header: "X-Real-IP",
			send: []string{"X-Real-IP: 203.0.113.9", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6"},
			want: map[string][]string{"X-Real-Ip": {"203.0.113.9"}, "X-Forwarded-For": {"203.0.113.9, 127.0.0.1"}, "Forwarded": nil},
		},
		{
			name: "X-Real-IP says who X-Forwarded-For names", trusted: true,
			send: []string{"X-Forwarded-For: 6.6.6.6, 203.0.113.9", "X-Real-IP: 6.6.6.6"},
			want: map[string][]string{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 127.0.0.1"}, "X-Real-Ip": {"203.0.113.9"}},
		},
		{
			name: "a trusted proxy that names nobody is the client", trusted: true, header: "CF-Connecting-IP",
			send: []string{"X-Forwarded-For: 6.6.6.6", "X-Real-IP: 6.6.6.6"},
			want: map[string][]string{"X-Forwarded-For": {"127.0.0.1"}, "X-Real-Ip": {"127.0.0.1"}},
		},
		{
			name: "headers of this connection end here",
			send: []string{"Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: timeout=5", "Proxy-Connection: x", "Proxy-Authorization: Basic x", "Te: gzip", "X-Stays: 1"},
			want: map[string][]string{"Connection": nil, "X-Hop": nil, "Keep-Alive": nil, "Proxy-Connection": nil,
				"Proxy-Authorization": nil, "Te": nil, "X-Stays": {"1"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := trustLoopback(everything(up, nil))
			if c.trusted {
				cfg.Clients.Header = c.header
			} else {
				cfg.Clients.TrustedProxies = []string{"192.0.2.0/24"}
			}
			cfg.Identity.Header = &TrustHeader{Name: "X-User"}
			_, url := start(t, cfg)
			ask(t, "GET", url, append(c.send, "Host: gw")...)
			got := <-headers
			for name, want := range c.want {
				if !slices.Equal(got[name], want) {
					t.Errorf("%s: %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestClientsByAddressAndUser(t *testing.T) {
	cfg := trustLoopback(everything(backend(t, hello), []*weir.Limit{perHour("client", 2)}, Charge{Limit: "client"}))
	cfg.Identity.Header = &TrustHeader{Name: "X-User"}
	g, url := start(t, cfg)
	ask(t, "GET", url, "X-Forwarded-For: 6.6.6.6, 203.0.113.9")
	ask(t, "GET", url, "X-Forwarded-For: 2001:db8:0:1::7", "X-User: 42")
	for key, want := range map[string]int64{"ip:203.0.113.9": 1, "ip:6.6.6.6": 2, "user:42": 1, "ip:2001:db8:0:1::/64": 2, "ip:127.0.0.1": 2} {
		if got := remaining(t, g, "client", key); got != want {
			t.Errorf("%s has %d left, want %d", key, got, want)
		}
	}
}

// A proxy on a unix socket may name the user and no address; the upstream hears of the user as the limits do.
func TestUserFromATrustedUnixSocket(t *testing.T) {
	users := make(chan []string, 1)
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) { users <- r.Header["X-User"] }),
		[]*weir.Limit{perHour("client", 2)}, Charge{Limit: "client"})
	socket := t.TempDir() + "/weir.sock"
	cfg.Listen = []Listener{{Address: "unix:" + socket}}
	cfg.Clients.TrustedProxies = []string{"unix"}
	cfg.Identity.Header = &TrustHeader{Name: "X-User"}
	g, _ := start(t, cfg)
	req, _ := http.NewRequest("GET", "http://gw/", nil)
	req.Header.Set("X-User", "42")
	res, err := onSocket(socket).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := <-users; !slices.Equal(got, []string{"42"}) {
		t.Errorf("the upstream hears of user %q, want 42", got)
	}
	if left := remaining(t, g, "client", "user:42"); left != 1 {
		t.Errorf("user:42 has %d left, want 1", left)
	}
}

// onSocket is a client that connects to a unix socket, whatever the URL says.
func onSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

func TestUnixSocketPeersShareOneKey(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("client", 2)}, Charge{Limit: "client"})
	socket := t.TempDir() + "/weir.sock"
	cfg.Listen = []Listener{{Address: "unix:" + socket}}
	start(t, cfg)
	c := onSocket(socket)
	for i, want := range []int{200, 200, 429} {
		res, err := c.Get("http://gw/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("request %d: %s, want %d", i+1, res.Status, want)
		}
	}
}
