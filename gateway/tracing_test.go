package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir"
)

// traced serves cfg and keeps its spans, which are there once stop has returned.
func traced(t *testing.T, cfg *Config) (url string, stop func() tracetest.SpanStubs) {
	t.Helper()
	cfg.Tracing.Endpoint = "http://127.0.0.1:1" // nobody is there
	g, end := startStoppable(t, cfg)
	kept := tracetest.NewInMemoryExporter()
	g.tracing.provider.RegisterSpanProcessor(keeping{sdk.NewSimpleSpanProcessor(kept)})
	return g.URLs()[0], func() tracetest.SpanStubs {
		if err := end(); err != nil {
			t.Error(err)
		}
		return kept.GetSpans()
	}
}

// keeping does not forget spans when it is shut down.
type keeping struct{ sdk.SpanProcessor }

func (keeping) Shutdown(context.Context) error { return nil }

func TestSpansSayTheDecision(t *testing.T) {
	cfg := trustLoopback(everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Traceparent"))
	}), []*weir.Limit{perHour("client", 1), perHour("trial", 1)}, Charge{Limit: "client"}, Charge{Limit: "trial", Shadow: true, Key: "global"}))
	cfg.Routes[0].Pattern = "GET /orders/{id}"
	cfg.Routes = append(cfg.Routes, &Route{Pattern: "/free/", Exempt: true})
	url, stop := traced(t, cfg)

	const client = "X-Forwarded-For: 203.0.113.7"
	const parent = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	_, told := ask(t, "GET", url+"/orders/17?token=secret", client, "Traceparent: "+parent)
	if !strings.HasPrefix(told, "00-0102030405060708090a0b0c0d0e0f10-") || told == parent {
		t.Errorf("the upstream is told of %q", told)
	}
	ask(t, "GET", url+"/orders/18?token=secret", client)
	ask(t, "BREW", url+"/free/x", client)

	var got []string
	for _, s := range stop() {
		line := fmt.Sprintf("%v %s", s.SpanKind, s.Name)
		for _, kv := range s.Attributes {
			if strings.HasPrefix(string(kv.Key), "weir.") && kv.Key != "weir.key" && kv.Key != "weir.retry_after" || kv.Key == "http.response.status_code" {
				line += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
			}
			if text := kv.Value.String(); strings.Contains(text, "203.0.113.7") || strings.Contains(text, "secret") || strings.Contains(text, "127.0.0.1") && kv.Key != "server.address" && kv.Key != "url.full" {
				t.Errorf("%s: %s is %s", s.Name, kv.Key, text)
			}
			if kv.Key == "weir.retry_after" && (kv.Value.AsFloat64() < 3590 || kv.Value.AsFloat64() > 3600) {
				t.Errorf("%s: %v", s.Name, kv.Value.String())
			}
			if kv.Key == "weir.key" && kv.Value.AsString() != hashText(hashOf("ip:203.0.113.7")) {
				t.Errorf("%s: key %v", s.Name, kv.Value.String())
			}
		}
		got = append(got, line)
	}
	want := []string{
		"client HTTP GET http.response.status_code=200",
		`server GET /orders/{id} weir.outcome=admitted weir.limits=["client","trial"] http.response.status_code=200`,
		`server GET /orders/{id} weir.outcome=refused weir.limit=client weir.limits=["client","trial"] weir.shadow=["trial"] http.response.status_code=429`,
		"client HTTP BREW http.response.status_code=200",
		"server HTTP /free/ weir.outcome=unlimited http.response.status_code=200",
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("got %q\nwant %q", got, want)
			break
		}
	}
}

// Who is no trusted proxy does not decide what is traced, nor into whose trace it goes.
func TestStrangersTracesAreOnlyLinked(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("all", 9)}, Charge{Limit: "all"})
	url, stop := traced(t, cfg)
	ask(t, "GET", url, "Traceparent: 00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01")
	all := stop()
	server := all[len(all)-1]
	theirs := trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	if server.SpanContext.TraceID() == theirs || len(server.Links) != 1 || server.Links[0].SpanContext.TraceID() != theirs {
		t.Errorf("%+v", server)
	}
}

func TestStoreFailureInASpan(t *testing.T) {
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("all", 9)}, Charge{Limit: "all", CostFrom: "header:X-Cost"})
	url, stop := traced(t, trustLoopback(cfg))
	if res, _ := ask(t, "GET", url, "X-Cost: many"); res.StatusCode < 400 {
		t.Fatal(res.Status)
	}
	s := stop()[0]
	if !slices.ContainsFunc(s.Attributes, func(kv attribute.KeyValue) bool { return kv.Key == "weir.outcome" && kv.Value.AsString() == "error" }) {
		t.Errorf("%+v", s.Attributes)
	}
}

// A collector gets the spans by OTLP over HTTP, the last ones when the gateway stops.
func TestSpansReachACollector(t *testing.T) {
	var mu sync.Mutex
	var names []string
	var service string
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		data, _ := io.ReadAll(body)
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, kv := range rs.Resource.Attributes {
				if kv.Key == "service.name" {
					service = kv.Value.GetStringValue()
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					if s.Kind == spans.Span_SPAN_KIND_SERVER {
						names = append(names, s.Name)
					}
				}
			}
		}
	}))
	defer to.Close()
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("all", 1)}, Charge{Limit: "all"})
	cfg.Tracing.Endpoint = to.URL
	g, stop := startStoppable(t, cfg)
	ask(t, "GET", g.URLs()[0])
	ask(t, "GET", g.URLs()[0])
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(names, []string{"GET /", "GET /"}) || service != "weir" {
		t.Errorf("%q of %q", names, service)
	}
}

// A collector that is not there costs a line in the log, and no request.
func TestNoCollector(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	cfg := everything(backend(t, hello), []*weir.Limit{perHour("all", 9)}, Charge{Limit: "all"})
	cfg.Tracing.Endpoint = "http://127.0.0.1:1"
	g, stop := startStoppable(t, cfg, Options{Logger: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))})
	if res, _ := ask(t, "GET", g.URLs()[0]); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "traces are not taken"); n != 1 {
		t.Errorf("%d lines in %s", n, log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTunnelsAreTracedToo(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, line)
	})
	url, stop := traced(t, everything(up, []*weir.Limit{perHour("all", 9)}, Charge{Limit: "all"}))
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	tunnel := res.Body.(io.ReadWriteCloser)
	io.WriteString(tunnel, "hello\n")
	if got, err := io.ReadAll(tunnel); string(got) != "hello\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	tunnel.Close()
	if s := stop(); len(s) != 2 {
		t.Errorf("%d spans", len(s))
	}
}

func TestWithoutTracingNothingIsWrapped(t *testing.T) {
	for _, name := range []string{envTraces, envAll} {
		t.Setenv(name, "")
	}
	g, err := New(everything("http://127.0.0.1:1", nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, plain := g.Handler().(http.HandlerFunc); !plain || g.tracing != nil {
		t.Errorf("the handler is a %T", g.Handler())
	}
	if _, plain := g.site.Load().routes["/"].proxy.Transport.(*guard).transport.(*http.Transport); !plain {
		t.Error("the transport is wrapped")
	}
}

func TestWhereTracesGo(t *testing.T) {
	for _, c := range []struct {
		conf string
		env  map[string]string
		want string
	}{
		{"", nil, ""},
		{"http://c:4318", nil, "http://c:4318/v1/traces"},
		{"http://c:4318/", nil, "http://c:4318/v1/traces"},
		{"https://c/own/path", nil, "https://c/own/path"},
		{"", map[string]string{envAll: "http://c:4318"}, "http://c:4318/v1/traces"},
		{"", map[string]string{envAll: "http://c:4318/base"}, "http://c:4318/base/v1/traces"},
		{"", map[string]string{envAll: "http://c:4318", envTraces: "http://d/exact"}, "http://d/exact"},
		{"http://c:4318", map[string]string{envTraces: "http://d/exact"}, "http://c:4318/v1/traces"},
		{"http://c:4318", map[string]string{envDisabled: "true"}, ""},
	} {
		conf := Tracing{Endpoint: c.conf}
		if got := conf.from(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%q with %v: %q, want %q", c.conf, c.env, got, c.want)
		}
	}
	for _, bad := range []Tracing{{Endpoint: "c:4318"}, {Endpoint: "http://user:pw@c"}, {Share: 1.1}, {Share: -1}} {
		cfg := everything("http://127.0.0.1:1", nil)
		cfg.Tracing = bad
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "tracing.") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
