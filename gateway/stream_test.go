package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

func TestServerSentEventsArriveBeforeTheEnd(t *testing.T) {
	more := make(chan string)
	_, url := start(t, everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for event := range more {
			fmt.Fprintf(w, "data: %s\n\n", event)
			w.(http.Flusher).Flush()
		}
	}), nil))
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for _, event := range []string{"one", "two", "three"} {
		more <- event
		line, err := in.ReadString('\n')
		if err != nil || line != "data: "+event+"\n" {
			t.Fatalf("got %q, %v while the answer goes on, want %s", line, err, event)
		}
		in.ReadString('\n')
	}
	close(more)
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// A body reaches the upstream while the client is still sending it: the client sends each part only when the upstream has
// told it that it has the part before.
func TestRequestBodiesAreNotBuffered(t *testing.T) {
	got := make(chan string)
	_, url := start(t, everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 5)
		for {
			n, err := io.ReadFull(r.Body, part)
			if n > 0 {
				got <- string(part[:n])
			}
			if err != nil {
				return
			}
		}
	}), nil))
	body, send := io.Pipe()
	done := make(chan error, 1)
	go func() {
		res, err := client.Post(url, "text/plain", body)
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	for _, part := range []string{"part1", "part2", "part3"} {
		io.WriteString(send, part)
		select {
		case have := <-got:
			if have != part {
				t.Fatalf("got %q, want %q", have, part)
			}
		case <-time.After(patience):
			t.Fatalf("%s did not arrive while the body went on", part)
		}
	}
	send.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTunnel(t *testing.T) {
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") != "Upgrade" || r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, rw, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(conn, "echo "+line)
		}
	}), []*weir.Limit{{Name: "tunnels", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 1, Period: time.Hour}}},
		Charge{Limit: "tunnels", Key: "global"})
	g, url := start(t, cfg)
	const upgrade = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
	res, in, conn := raw(t, url, upgrade)
	if res.StatusCode != 101 || res.Header.Get("Sec-WebSocket-Accept") != "x" || !strings.Contains(res.Header.Get("RateLimit"), "tunnels") {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	for i := range 3 {
		fmt.Fprintf(conn, "message %d\n", i)
		if line, err := in.ReadString('\n'); err != nil || line != fmt.Sprintf("echo message %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if res, _, _ := raw(t, url, upgrade); res.StatusCode != 429 {
		t.Errorf("a second tunnel: %s, want 429 while the first is open", res.Status)
	}
	conn.Close()
	await(t, "the tunnel's place", func() bool { return remaining(t, g, "tunnels", "") == 1 })
	await(t, "the tunnel's end", func() bool { return g.open.Load() == 0 })
}

func TestAnswerCutOffByTheUpstreamIsCutOff(t *testing.T) {
	g, url := start(t, everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), []*weir.Limit{perHour("client", 5)}, Charge{Limit: "client"}))
	res, err := client.Get(url)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("half an answer passed for a whole one")
	}
	await(t, "the end of the request", func() bool { return g.open.Load() == 0 })
}

// writeCert writes a self-signed certificate and its key.
func writeCert(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	replaceFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	replaceFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return cert, key
}

// replaceFile writes a file as careful writers do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestHTTP2(t *testing.T) {
	cert, key := writeCert(t, t.TempDir(), "gw")
	for _, c := range []struct {
		name      string
		listener  Listener
		unframed  bool // HTTP/1.1
		wantProto string
	}{
		{"over TLS", Listener{Cert: cert, Key: key}, false, "HTTP/2.0"},
		{"HTTP/1.1 over TLS", Listener{Cert: cert, Key: key}, true, "HTTP/1.1"},
		{"without TLS", Listener{H2C: true}, false, "HTTP/2.0"},
		{"HTTP/1.1 on h2c", Listener{H2C: true}, true, "HTTP/1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
			}), []*weir.Limit{perHour("client", 1)}, Charge{Limit: "client"})
			c.listener.Address = "127.0.0.1:0"
			cfg.Listen = []Listener{c.listener}
			_, url := start(t, cfg)
			protocols := new(http.Protocols)
			protocols.SetHTTP1(c.unframed)
			protocols.SetHTTP2(!c.unframed)
			protocols.SetUnencryptedHTTP2(!c.unframed)
			transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			for _, want := range []int{200, 429} {
				res, err := (&http.Client{Transport: transport, Timeout: patience}).Get(url)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != want || res.Proto != c.wantProto {
					t.Errorf("%s %s, want %s %d", res.Proto, res.Status, c.wantProto, want)
				}
				if scheme, _, _ := strings.Cut(url, ":"); want == 200 && string(body) != scheme {
					t.Errorf("the upstream was told %q, want %s", body, scheme)
				}
			}
		})
	}
}

func TestGracefulShutdown(t *testing.T) {
	release := make(chan struct{})
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, "done")
	}), nil)
	cfg.Admin.Address = "127.0.0.1:0"
	cfg.Shutdown = patience
	g, stop := startStoppable(t, cfg)
	url, admin := g.URLs()[0], g.AdminURL()
	if res, _ := ask(t, "GET", admin+"/readyz"); res.StatusCode != 200 {
		t.Errorf("ready: %s", res.Status)
	}
	answer := make(chan string)
	go func() {
		_, body := ask(t, "GET", url)
		answer <- body
	}()
	await(t, "the request", func() bool { return g.open.Load() == 1 })
	ended := make(chan error)
	go func() { ended <- stop() }()
	await(t, "readiness to end", func() bool {
		res, _ := ask(t, "GET", admin+"/readyz")
		return res.StatusCode == 503
	})
	await(t, "the listener to close", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	if body := <-answer; body != "done" {
		t.Errorf("the open request got %q", body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownCutsOffInTheEnd(t *testing.T) {
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), nil)
	cfg.Shutdown = 50 * time.Millisecond
	g, stop := startStoppable(t, cfg)
	failed := make(chan error)
	go func() {
		_, err := client.Get(g.URLs()[0])
		failed <- err
	}()
	await(t, "the request", func() bool { return g.open.Load() == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a request that was cut off got an answer")
	}
}

func TestListenerInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := everything("http://127.0.0.1:1", nil)
	cfg.Listen = []Listener{{Address: "127.0.0.1:0"}, {Address: taken.Addr().String()}}
	g, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("gateway: listen[1].address: listen on %v: bind: address already in use", taken.Addr())
	if err := g.Serve(context.Background()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if len(g.URLs()) != 0 {
		t.Errorf("still listening on %v", g.URLs())
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	cfg := everything(backend(t, hello), nil)
	cfg.Listen = []Listener{{Address: "unix:" + path}}
	g, _ := start(t, cfg)

	second, err := New(g.site.Load().config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Listen(); err == nil {
		t.Error("took the socket of a running server")
	}
}
