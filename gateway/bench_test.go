package gateway

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// BenchmarkProxy compares, over loopback and through the same transport, a bare httputil.ReverseProxy, the gateway with
// three limits on that admit everything, and the gateway refusing. Clients and upstream are in this process. Clients, and the
// upstream called bytes, read and write bytes and parse next to nothing, so that the proxy is most of what is measured.
func BenchmarkProxy(b *testing.B) {
	b.Run("upstream=bytes", func(b *testing.B) { benchmarkProxy(b, leanBackend(b)) })
	b.Run("upstream=http", func(b *testing.B) {
		benchmarkProxy(b, backend(b, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"order": "17"}`)
		}))
	})
}

func benchmarkProxy(b *testing.B, up string) {
	target, err := url.Parse(up)
	if err != nil {
		b.Fatal(err)
	}
	wide := weir.Rate{Units: 1_000_000_000, Period: time.Minute}
	config := func(client weir.Rate) *Config {
		cfg := everything(up, []*weir.Limit{
			{Name: "global", Rate: wide}, {Name: "client", Rate: client}, {Name: "route", Rate: wide},
		}, Charge{Limit: "client"}, Charge{Limit: "route", Key: "ip+route"})
		cfg.Defaults = []Charge{{Limit: "global", Key: "global"}}
		return cfg
	}
	serving := func(cfg *Config) *Gateway {
		g, err := New(cfg, Options{Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			b.Fatal(err)
		}
		return g
	}
	open := serving(config(wide))
	bare := &httputil.ReverseProxy{
		Transport:  open.site.Load().routes["/"].proxy.Transport.(*guard).transport,
		BufferPool: &buffers,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.SetXForwarded()
		},
	}
	b.Run("proxy=none/limits=0/answer=429", func(b *testing.B) { // what net/http and the client take by themselves
		drive(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(429) }), "429")
	})
	b.Run("proxy=bare/limits=0/answer=200", func(b *testing.B) { drive(b, bare, "200") })
	b.Run("proxy=weir/limits=3/answer=200", func(b *testing.B) { drive(b, open.Handler(), "200") })
	b.Run("proxy=weir/limits=3/dashboard=on/answer=200", func(b *testing.B) {
		cfg := config(wide)
		cfg.Admin = Admin{}
		g := serving(cfg)
		go g.board.run(b.Context())
		drive(b, g.Handler(), "200")
	})
	shut := serving(config(weir.Rate{Units: 1, Period: 24 * time.Hour}))
	first := httptest.NewRequest("GET", "/", nil)
	first.RemoteAddr = "127.0.0.1:1"
	shut.Handler().ServeHTTP(httptest.NewRecorder(), first)
	b.Run("proxy=weir/limits=3/answer=429", func(b *testing.B) { drive(b, shut.Handler(), "429") })
}

// drive asks h, served over loopback, as fast as it answers. cpu-ns/op is what the whole process spent, which a busy machine
// disturbs less than time.
func drive(b *testing.B, h http.Handler, status string) {
	s := httptest.NewServer(h)
	defer s.Close()
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		request := []byte("GET /orders/17 HTTP/1.1\r\nHost: shop.example\r\nAccept: application/json\r\nUser-Agent: bench/1\r\nAuthorization: Bearer x\r\n\r\n")
		in := bufio.NewReader(conn)
		for pb.Next() {
			conn.Write(request)
			if got, err := skipResponse(in); err != nil || got != status {
				b.Errorf("%s %v, want %s", got, err, status)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// skipResponse reads a response with a Content-Length and returns its status.
func skipResponse(r *bufio.Reader) (status string, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	status = string(line[9:12])
	length := 0
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return status, err
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(textproto.TrimString(string(value)))
		}
	}
	_, err = r.Discard(length)
	return status, err
}

// leanBackend answers everything with the same bytes.
func leanBackend(b *testing.B) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"order\": \"17\"}")
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) == 2 {
						conn.Write(answer)
					}
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// cpu is the time that this process has had of the processors, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
