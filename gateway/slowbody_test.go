package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestASlowBodyPassesAndASilentOneDoesNot has a minute pass in no time, on a connection that is a pipe.
func TestASlowBodyPassesAndASilentOneDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan string, 1)
		client := pipeTo(t, cutOffSlow(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			ended <- fmt.Sprintf("%s %v", body, err)
			if wait := r.URL.Query().Get("wait"); wait != "" {
				d, _ := time.ParseDuration(wait)
				select {
				case <-time.After(d):
				case <-r.Context().Done():
					t.Errorf("a request that waits for its answer was ended: %v", context.Cause(r.Context()))
				}
			}
		}), bodyPause))
		answers := bufio.NewReader(client)
		answered := func() {
			t.Helper()
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != 200 {
				t.Errorf("status %d", res.StatusCode)
			}
		}

		// Ten bytes, 59 s apart, and an answer that takes ten minutes.
		io.WriteString(client, "POST /?wait=10m HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
		for range 10 {
			time.Sleep(bodyPause - time.Second)
			io.WriteString(client, ".")
		}
		if got := <-ended; got != ".......... <nil>" {
			t.Errorf("a slow body: %s", got)
		}
		answered()

		// A request without a body on the same connection, whose answer takes as long.
		io.WriteString(client, "GET /?wait=10m HTTP/1.1\r\nHost: h\r\n\r\n")
		<-ended
		answered()

		// A body that stops.
		io.WriteString(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n.....")
		stopped := time.Now()
		if got := <-ended; !strings.HasPrefix(got, "..... ") || !strings.Contains(got, "i/o timeout") {
			t.Errorf("a silent body: %s", got)
		}
		if took := time.Since(stopped); took != bodyPause {
			t.Errorf("it was waited for %v, want %v", took, bodyPause)
		}
		client.Close()
	})
}

// pipeTo is a connection to a server of h.
func pipeTo(t *testing.T, h http.Handler) net.Conn {
	client, server := net.Pipe()
	s := http.Server{Handler: h}
	l := &oneConn{conn: server, closed: make(chan struct{})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return client
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestABodyThatStopsIs408: the client is told, the connection ends, and the upstream's breaker does not hear of it.
func TestABodyThatStopsIs408(t *testing.T) {
	cfg := everything(backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), nil)
	cfg.Upstreams["main"].Breaker = &Breaker{Failures: 1}
	g, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(cutOffSlow(g.Handler(), 50*time.Millisecond))
	t.Cleanup(s.Close)
	for range 3 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n.....")
		all, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 408 ") || !strings.Contains(string(all), "Connection: close") {
			t.Fatalf("%v\n%s", err, all)
		}
	}
}
