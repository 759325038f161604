package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/redisstore"
)

const (
	// statusClientGone stands in metrics and logs for a client that left before it was answered.
	statusClientGone = 499

	// busyRetry is when to ask again where an upstream has as many requests as it takes.
	busyRetry = time.Second

	// settleTimeout bounds how long giving units back may hold up the end of an answer.
	settleTimeout = time.Second

	// mostCost bounds what a header can ask for: more than any limit holds, and small enough to be added up.
	mostCost = 1 << 52
)

// exchange is one request and its answer. It is the ResponseWriter that the proxy writes to, so that it sees the status and
// adds our header fields to those of the upstream.
type exchange struct {
	g     *Gateway
	site  *site
	route *route
	w     http.ResponseWriter
	r     *http.Request

	charges  []weir.Charge
	few      [4]weir.Charge
	decision weir.Decision
	limited  bool // the decision is one, and admits

	status   int  // of the answer; 0: none yet
	known    bool // the status is the upstream's own, or the upstream was not asked
	asked    bool // the answer comes from the upstream unless we say otherwise
	ip, user struct {
		key   string
		found bool
	}
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// serve is the proxy: it finds the route of a request, charges its limits, and passes it on.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	x.g, x.site, x.w, x.r = g, g.site.Load(), w, r
	g.open.Add(1)
	defer x.end() // also if the proxy breaks off an answer, which is a panic
	x.run()
}

// run charges first and works afterwards, so that requests sent all at once, or in odd spellings, or that are not
// answered, count like any other.
func (x *exchange) run() {
	var answer http.Handler
	if x.r.Method == http.MethodConnect {
		x.route = x.site.unmatched
	} else {
		x.route, answer = x.site.match(x.r)
	}
	if !x.admit() {
		return
	}
	x.known = true
	switch {
	case x.r.Method == http.MethodConnect:
		writeProblem(x, http.StatusMethodNotAllowed, "this is no forward proxy")
	case x.route == x.site.unmatched:
		writeUnmatched(x, x.r, answer)
	case answer != nil:
		answer.ServeHTTP(x, x.r)
	case !wellFormed(x.r):
		writeProblem(x, http.StatusBadRequest, "the path climbs, or is not a path")
	case !printable(x.r.Header.Get("Upgrade")): // ReverseProxy would blame the upstream
		writeProblem(x, http.StatusBadRequest, "the protocol to upgrade to is not printable ASCII")
	default:
		x.pass()
	}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// pass passes the request on to its upstream.
func (x *exchange) pass() {
	up := x.route.upstream
	if !up.acquire() {
		x.unavailable(busyRetry, "the upstream has as many requests as it takes")
		return
	}
	defer up.release()
	x.known = false
	x.asked = true
	x.route.proxy.ServeHTTP(x, x.r)
}

// admit charges the limits of the route. If they refuse, or cannot be asked, it answers.
func (x *exchange) admit() bool {
	rt := x.route
	if len(rt.charges) == 0 {
		x.traced(nil)
		return true
	}
	x.charges = x.few[:0]
	if err := x.charge(); err != nil {
		x.refuse(&httplimit.Refusal{Err: err})
		return false
	}
	ctx, err := x.r.Context(), error(nil)
	if rt.queue != nil {
		x.decision, err = rt.queue.take(ctx, x.g.limiter, x.charges)
	} else {
		x.decision, err = x.g.limiter.Take(ctx, x.charges...)
	}
	if err != nil {
		if ctx.Err() != nil {
			x.abandon()
			return false
		}
		x.g.metrics.errors.Inc()
		x.logStoreFailure(err)
		x.refuse(&httplimit.Refusal{Err: err})
		return false
	}
	out := x.decision.Outcomes()
	for i := range out {
		c := &rt.charges[i]
		c.tally.count(&out[i], x.decision.Allowed)
		if c.heat != nil {
			c.heat.count(&out[i], &x.charges[i], x.decision.Allowed)
		}
	}
	if x.decision.Allowed {
		x.limited = true
		x.traced(nil)
		return true
	}
	x.refuse(&httplimit.Refusal{Decision: x.decision, Charges: x.charges})
	return false
}

func (x *exchange) refuse(f *httplimit.Refusal) {
	f.Form = x.site.form
	x.status = f.Status()
	if f.Err == nil {
		x.logRefusal(f)
	}
	x.traced(f)
	f.Write(x.w, x.r)
}

// traced adds the decision to the request's span, if spans are made.
func (x *exchange) traced(f *httplimit.Refusal) {
	if x.g.tracing != nil {
		x.trace(f)
	}
}

// costOf is what a charge costs this request.
func (c *charge) costOf(x *exchange) (int64, error) {
	if c.costHeader == "" {
		return c.cost, nil
	}
	lines := x.r.Header[c.costHeader]
	if len(lines) == 0 || !x.site.clients.trusts(x.r) {
		return c.cost, nil
	}
	n, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < 0 {
		return 0, &httplimit.CostError{Limit: c.limit.Name, Err: fmt.Errorf("header %s is no number of units", c.costHeader)}
	}
	return min(n, mostCost), nil
}

// part is the text of one part of a key.
func (x *exchange) part(p *keyPart) string {
	switch p.Kind {
	case KeyClient:
		if user := x.userKey(); user != "" {
			return user
		}
		return x.ipKey()
	case KeyUser:
		return x.userKey()
	case KeyIP:
		return x.ipKey()
	case KeyRoute:
		return p.route
	case KeyHeader:
		return p.header(x.r)
	}
	return "" // global
}

func (x *exchange) ipKey() string {
	if !x.ip.found {
		x.ip.found, x.ip.key = true, x.site.clients.ip.Key(x.r)
	}
	return x.ip.key
}

func (x *exchange) userKey() string {
	if !x.user.found {
		x.user.found = true
		if user := x.site.user(x.r); user != "" {
			x.user.key = "user:" + user
		}
	}
	return x.user.key
}

// Header, Write, WriteHeader, Hijack and Unwrap make an exchange the ResponseWriter of the proxy.
func (x *exchange) Header() http.Header { return x.w.Header() }

func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

func (x *exchange) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		x.answer(status)
	}
	x.w.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.answer(http.StatusOK)
	return x.w.Write(p)
}

func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err == nil {
		x.answer(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// answer notes the status, and adds what the limits say, after what the upstream may have said of its own.
func (x *exchange) answer(status int) {
	if x.status != 0 {
		return
	}
	x.status = status
	x.known = x.known || x.asked
	if x.limited {
		httplimit.WriteHeaders(x.w.Header(), &x.decision, x.site.form)
	}
}

// abandon ends the request of a client that has left. Returning would have a server answer it with an empty 200.
func (x *exchange) abandon() {
	x.status = statusClientGone
	if x.r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}

// unavailable answers for an upstream that was not asked.
func (x *exchange) unavailable(retry time.Duration, detail string) {
	x.known, x.asked = true, false
	seconds := max(1, int64((retry+time.Second-1)/time.Second))
	x.Header()["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
	writeProblem(x, http.StatusServiceUnavailable, detail)
}

// failed answers for an upstream that did not. What went wrong inside is for the log, not for clients.
func (x *exchange) failed(req *http.Request, err error) {
	x.asked = false
	if x.status != 0 { // while a tunnel was set up
		return
	}
	var open *unavailableError
	var timeout net.Error
	switch {
	case errors.As(err, &open):
		x.unavailable(open.retryAfter, "the upstream is not asked at the moment")
		return
	case x.r.Context().Err() != nil:
		if bodyStopped(x.r) {
			x.Header()["Connection"] = []string{"close"}
			writeProblem(x, http.StatusRequestTimeout, "the body of the request stopped")
			return
		}
		x.g.log.Debug("client left", "route", x.route.name)
		x.abandon()
		return
	case clientGone(req):
		writeProblem(x, http.StatusBadRequest, "the body of the request could not be read")
		return
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		writeProblem(x, http.StatusGatewayTimeout, "the upstream did not answer in time")
	default:
		writeProblem(x, http.StatusBadGateway, "the upstream did not answer")
	}
	if !x.g.log.Enabled(req.Context(), slog.LevelDebug) && !x.g.upstreamFails.pass(hashOf(x.route.name+" "+err.Error())) {
		return
	}
	x.g.log.Warn("upstream failed", "upstream", x.route.upstream.name, "route", x.route.name, "status", x.status, "err", err)
}

// end settles and counts the request, whichever way it ended.
func (x *exchange) end() {
	if x.status == 0 { // broken off before an answer
		x.status, x.asked = statusClientGone, false
	}
	if x.limited {
		if x.route.settles {
			x.settle()
		}
		x.logAdmitted()
	}
	x.route.statuses.count(x.status)
	x.g.open.Add(-1)
	*x = exchange{}
	exchanges.Put(x)
}

// settle gives back what concurrency limits lent, and what was charged for answers that do not count. A charge whose
// answer nobody knows stays: otherwise clients would only have to leave early.
func (x *exchange) settle() {
	var back []weir.Charge
	out := x.decision.Outcomes()
	for i := range x.route.charges {
		c := &x.route.charges[i]
		if !c.settles || out[i].Refused() { // a shadow limit that does not admit has charged nothing
			continue
		}
		if c.limit.Algorithm == weir.Concurrency || x.known && len(c.only) > 0 && !slices.Contains(c.only, x.status) {
			back = append(back, x.charges[i])
		}
	}
	if back == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), settleTimeout)
	defer cancel()
	if err := x.g.limiter.Refund(ctx, x.decision.At, back...); err != nil {
		x.g.metrics.errors.Inc()
		x.g.log.Error("units not given back", "err", err, "route", x.route.name)
	}
}

// logStoreFailure writes a line for a request that could not be decided on, or counts it.
func (x *exchange) logStoreFailure(err error) {
	ctx, level, lines := x.r.Context(), slog.LevelError, x.g.storeFailures
	if errors.Is(err, redisstore.ErrUnavailable) {
		level, lines = slog.LevelInfo, x.g.storeRefusals // by policy; that the store is away has been said, once
	}
	if !x.g.log.Enabled(ctx, level) || !x.g.log.Enabled(ctx, slog.LevelDebug) && !lines.pass(hashOf(x.route.name)) {
		return
	}
	x.g.log.Log(ctx, level, "store failed", "err", err, "route", x.route.name)
}

// logRefusal writes one line for a refused request, with the limit that makes it wait the longest, or counts it.
func (x *exchange) logRefusal(f *httplimit.Refusal) {
	ctx := x.r.Context()
	if !x.g.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	worst, lines, key := x.worst(), x.route.full, ""
	if worst >= 0 { // else the queue is full
		lines, key = x.route.charges[worst].lines, x.charges[worst].Key
	}
	if !x.g.log.Enabled(ctx, slog.LevelDebug) && !lines.pass(hashOf(key)) {
		return
	}
	attrs := make([]slog.Attr, 0, 6)
	if worst >= 0 {
		c := &x.charges[worst]
		attrs = append(attrs,
			slog.String("limit", c.Limit.Name),
			slog.String("key", x.g.loggedKey(c.Key)),
			slog.Int64("cost", c.Cost))
	}
	attrs = append(attrs,
		slog.Bool("allowed", false),
		slog.Duration("retry_after", f.RetryAfter()),
		slog.String("route", x.route.name))
	x.g.log.LogAttrs(ctx, slog.LevelInfo, "request refused", attrs...)
}

// worst is the charge whose limit makes the request wait the longest, or −1.
func (x *exchange) worst() int {
	out, worst := x.decision.Outcomes(), -1
	for i := range out {
		if o := &out[i]; o.Refused() && !o.Limit.Shadow && (worst < 0 || o.Never || o.After > out[worst].After) {
			worst = i
		}
	}
	return worst
}

func (x *exchange) logAdmitted() {
	ctx := x.r.Context()
	if !x.g.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for i := range x.charges {
		c := &x.charges[i]
		x.g.log.LogAttrs(ctx, slog.LevelDebug, "request admitted",
			slog.String("limit", c.Limit.Name),
			slog.String("key", x.g.loggedKey(c.Key)),
			slog.Int64("cost", c.Cost),
			slog.Bool("allowed", true),
			slog.String("route", x.route.name),
			slog.Int("status", x.status))
	}
}

var logSeed = maphash.MakeSeed()

// loggedKey is a key as logs have it: a hash that is the same within this process, unless text is asked for.
func (g *Gateway) loggedKey(key string) string {
	if g.logKeys {
		return key
	}
	return hashText(hashOf(key))
}

// hashOf is what tells a key from others in this process without saying it.
func hashOf(key string) uint64 { return maphash.String(logSeed, key) }

func hashText(hash uint64) string { return strconv.FormatUint(hash, 16) }

// newProxy is what passes the requests of a route on. Answers of unknown length, and server-sent events, it flushes as they come.
func (g *Gateway) newProxy(s *site, up *upstream, conf *Route) *httputil.ReverseProxy {
	transport := up.within(conf.Timeout)
	if g.tracing != nil {
		transport.transport = g.tracing.transport(transport.transport)
	}
	return &httputil.ReverseProxy{
		Transport:  transport,
		BufferPool: &buffers,
		ErrorLog:   slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(up.url)
			if up.conf.PassHost {
				pr.Out.Host = pr.In.Host
			}
			s.clients.rewrite(pr)
			if pr.Out.Body != nil {
				pr.Out.Body = &sentBody{ReadCloser: pr.Out.Body}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			w.(*exchange).failed(req, err)
		},
	}
}

// buffers are what answers are copied through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }

// writeProblem answers with a problem of RFC 9457. The detail is ours, without anything that JSON escapes.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["Cache-Control"] = []string{"no-store"}
	w.WriteHeader(status)
	io.WriteString(w, `{"type":"about:blank","title":"`+http.StatusText(status)+
		`","status":`+strconv.Itoa(status)+`,"detail":"`+detail+`"}`+"\n")
}

// writeUnmatched answers a request for which a ServeMux has found nothing but answer: 405 if there is something for
// other methods, else 404.
func writeUnmatched(w http.ResponseWriter, r *http.Request, answer http.Handler) {
	heard := verdict{header: make(http.Header)}
	answer.ServeHTTP(&heard, r)
	if heard.status == http.StatusMethodNotAllowed {
		w.Header()["Allow"] = heard.header["Allow"]
		writeProblem(w, http.StatusMethodNotAllowed, "nothing here takes this method")
		return
	}
	writeProblem(w, http.StatusNotFound, "there is nothing here")
}

// verdict is a ResponseWriter that keeps the status and header of an answer, and drops the rest.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }
