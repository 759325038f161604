package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/words"
)

// tracing makes spans of requests, and of what upstreams are asked, by OpenTelemetry. A Gateway without it has none of its wrappers.
//
// Spans have the attributes of OpenTelemetry's conventions for HTTP, and weir's:
//
//	weir.outcome      admitted, refused, error (no decision could be made), or unlimited
//	weir.limits       the limits that were charged
//	weir.limit        the limit that refuses the longest, if one does
//	weir.key          the key that it refuses, hashed as in the log
//	weir.retry_after  seconds that the refusal tells the client to wait
//	weir.shadow       shadow limits that would have refused
//
// Addresses of clients are hashed too, for they are keys, and URLs are without their query, which may have secrets.
type tracing struct {
	provider  *sdk.TracerProvider
	endpoint  string
	telling   propagation.TextMapPropagator
	exporting atomic.Bool
}

// The environment variables that turn tracing on where the configuration does not; the rest of OTEL_… is read by
// OpenTelemetry itself.
const (
	envTraces   = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envAll      = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envDisabled = "OTEL_SDK_DISABLED"
)

// tracesPath is where a collector takes traces by OTLP over HTTP.
const tracesPath = "/v1/traces"

// from is where traces go to; empty: nowhere.
func (t *Tracing) from(env func(string) string) string {
	if strings.EqualFold(env(envDisabled), "true") {
		return ""
	}
	endpoint := t.Endpoint
	if endpoint == "" {
		if exact := env(envTraces); exact != "" {
			return exact
		}
		endpoint = env(envAll)
	}
	if endpoint == "" {
		return ""
	}
	if u, err := url.Parse(endpoint); err == nil && (t.Endpoint == "" || strings.Trim(u.Path, "/") == "") {
		return u.JoinPath(tracesPath).String()
	}
	return endpoint
}

// newTracing is tracing as the configuration and the environment have it, or nil. It exports nothing before export.
func newTracing(conf *Tracing) *tracing {
	endpoint := conf.from(os.Getenv)
	if endpoint == "" {
		return nil
	}
	about := resource.NewSchemaless(attribute.String("service.name", "weir"))
	if own, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK()); err == nil {
		if both, err := resource.Merge(about, own); err == nil { // OTEL_SERVICE_NAME wins
			about = both
		}
	}
	options := []sdk.TracerProviderOption{sdk.WithResource(about), sdk.WithSpanProcessor(discreet{})}
	if conf.Share > 0 { // else OTEL_TRACES_SAMPLER, or all
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(conf.Share))))
	}
	return &tracing{provider: sdk.NewTracerProvider(options...), endpoint: endpoint, telling: propagation.TraceContext{}}
}

// export begins to send spans. Until then, and where the collector is behind, they are dropped: no request waits for it.
func (t *tracing) export(ctx context.Context, log *slog.Logger) error {
	if !t.exporting.CompareAndSwap(false, true) {
		return nil
	}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(t.endpoint))
	if err != nil {
		return err
	}
	t.provider.RegisterSpanProcessor(sdk.NewBatchSpanProcessor(&exporter{SpanExporter: to, log: log}))
	return nil
}

// stop sends what is left, if that does not take long.
func (t *tracing) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	t.provider.Shutdown(ctx)
}

// exporter logs when spans begin to get lost, and when they arrive again.
type exporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed bool // the processor exports one batch after the other
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failed:
		e.log.Warn("traces are not taken", "err", words.OneLine(err.Error()))
	case err == nil && e.failed:
		e.log.Info("traces are taken again")
	}
	e.failed = err != nil
	return nil // it is told
}

// handler makes a span of each request. What a client says of a trace counts if the client is a trusted proxy; the trace of anybody
// else is only linked to, so that nobody outside decides what is recorded.
func (t *tracing) handler(g *Gateway, next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, "weir", t.options(
		otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return !g.site.Load().clients.trusts(r) }))...)
}

// transport makes a span of each request to an upstream, and tells the upstream of it.
func (t *tracing) transport(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(withoutQuery{next}, t.options()...)
}

// withoutQuery hides the query in the span of a request to an upstream. otelhttp has set it by then, and not when the span began.
type withoutQuery struct{ http.RoundTripper }

func (t withoutQuery) RoundTrip(req *http.Request) (*http.Response, error) {
	u := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
	trace.SpanFromContext(req.Context()).SetAttributes(attribute.String("url.full", u.String()))
	return t.RoundTripper.RoundTrip(req)
}

func (t *tracing) options(more ...otelhttp.Option) []otelhttp.Option {
	return append(more, otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(t.telling), otelhttp.WithMeterProvider(noop.NewMeterProvider()))
}

// trace adds the decision on a request to its span. A nil refusal: it was admitted.
func (x *exchange) trace(f *httplimit.Refusal) {
	span := trace.SpanFromContext(x.r.Context())
	if !span.IsRecording() {
		return
	}
	span.SetName(spanName(x.r.Method, x.route.name))
	outcome := "admitted"
	switch {
	case f == nil && len(x.route.charges) == 0:
		outcome = "unlimited"
	case f != nil && f.Err != nil:
		outcome = "error"
	case f != nil:
		outcome = "refused"
	}
	attributes := append(make([]attribute.KeyValue, 0, 8), attribute.String("http.route", x.route.name), attribute.String("weir.outcome", outcome))
	if f != nil {
		if after := f.RetryAfter(); after > 0 {
			attributes = append(attributes, attribute.Float64("weir.retry_after", after.Seconds()))
		}
	}
	var limits, shadows []string
	for i := range x.charges {
		limits = append(limits, x.charges[i].Limit.Name)
	}
	if f == nil || f.Err == nil {
		for _, o := range x.decision.Outcomes() {
			if o.Limit.Shadow && o.Refused() {
				shadows = append(shadows, o.Limit.Name)
			}
		}
		if i := x.worst(); f != nil && i >= 0 {
			c := &x.charges[i]
			attributes = append(attributes, attribute.String("weir.limit", c.Limit.Name), attribute.String("weir.key", hashText(hashOf(c.Key))))
		}
	}
	if limits != nil {
		attributes = append(attributes, attribute.StringSlice("weir.limits", limits))
	}
	if shadows != nil {
		attributes = append(attributes, attribute.StringSlice("weir.shadow", shadows))
	}
	span.SetAttributes(attributes...)
}

// spanName is the method and the route's pattern. Clients can invent methods, but not names of spans.
func spanName(method, pattern string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
	default:
		method = "HTTP"
	}
	if _, after, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(after, " \t")
	}
	return method + " " + pattern
}

// discreet is a processor of spans that hides what names people when a span begins.
type discreet struct{}

func (discreet) OnStart(_ context.Context, s sdk.ReadWriteSpan) {
	for _, kv := range s.Attributes() {
		switch kv.Key {
		case "client.address", "network.peer.address":
			s.SetAttributes(kv.Key.String(hashText(hashOf("ip:" + kv.Value.AsString()))))
		}
	}
}

func (discreet) OnEnd(sdk.ReadOnlySpan)           {}
func (discreet) Shutdown(context.Context) error   { return nil }
func (discreet) ForceFlush(context.Context) error { return nil }

// tracing says what is wrong with a Tracing.
func (k *checker) tracing() {
	t := &k.c.Tracing
	if t.Endpoint != "" {
		if why := badURL(t.Endpoint); why != "" {
			k.add("tracing.otlp_endpoint", "%s", why)
		}
	}
	if !(t.Share >= 0 && t.Share <= 1) {
		k.add("tracing.share", "%v; it takes a share of requests, from 0 to 1; 0 is the default", t.Share)
	}
}
