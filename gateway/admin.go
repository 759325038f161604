package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// maxHold is the longest hold that the admin listener takes: a typing error should not stop a client for ever.
const maxHold = 366 * 24 * time.Hour

// AdminHandler is what operators talk to:
//
//	GET    /                                the dashboard, for browsers
//	GET    /events                          what it shows, each second, as server-sent events
//	GET    /healthz                         200 while the process serves
//	GET    /readyz                          200 if requests should come here, else 503
//	GET    /metrics                         for Prometheus
//	GET    /limits                          the limits in force
//	GET    /limits/{name}                   one limit; what it has left, if it has the empty key only
//	GET    /limits/{name}/{key}             what the key has left; it charges nothing
//	DELETE /limits/{name}/{key}             forget what the key has spent, and its hold
//	POST   /limits/{name}/{key}/hold?for=30s  let the key pass nothing for that long; for=0 lifts the hold
//	POST   /limits/{name}/hold?for=30s      the same for all keys of the limit
//
// A key is the text that the rule's key makes, escaped as a path segment: user:42, ip:203.0.113.7,
// ip:2001:db8::%2F64, and nothing at all for the key "global". One that no request can have is refused. With ?by=hash it is a hash as the dashboard and the log have
// it, of a key that the dashboard lists or that is held.
//
// DELETE and POST need the bearer token of Admin.TokenFile. Without a token file only requests that arrive on a
// loopback address may change anything, and no page in a browser may. With one the dashboard may: browsers do not add that token by
// themselves, and pages of other origins are refused even if they have it. On loopback, every request for a host
// name that is not the machine's own is refused, so that no page can rebind its name to here.
func (g *Gateway) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", g.adminReady)
	if g.board != nil {
		g.board.handle(mux)
	}
	mux.Handle("GET /metrics", g.metrics.handler())
	mux.HandleFunc("GET /limits", g.adminLimits)
	mux.HandleFunc("GET /limits/{name}", g.adminLimit)
	mux.HandleFunc("GET /limits/{name}/{key...}", g.withCharge(g.adminPeek))
	mux.HandleFunc("DELETE /limits/{name}/{key...}", g.change(g.withCharge(g.adminReset)))
	mux.HandleFunc("POST /limits/{name}/{key}/hold", g.change(g.withCharge(g.adminHold)))
	mux.HandleFunc("POST /limits/{name}/hold", g.change(g.withCharge(g.adminHold)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if onLoopback(r) && !loopbackName(r.Host) {
			writeProblem(w, http.StatusMisdirectedRequest, "the admin listener is on loopback and answers to localhost and addresses only")
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			writeUnmatched(w, r, mux)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// change lets only those pass who may change something.
func (g *Gateway) change(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := g.site.Load().token
		browser, ours := fromBrowser(r)
		switch {
		case browser && !ours:
			writeProblem(w, http.StatusForbidden, "pages of other origins may not change limits")
		case browser && token == nil:
			writeProblem(w, http.StatusForbidden, "changing limits in a browser takes a token, which admin.token_file sets")
		case token != nil && !bears(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeProblem(w, http.StatusUnauthorized, "changing limits takes the bearer token of admin.token_file")
		case token == nil && !onLoopback(r):
			writeProblem(w, http.StatusForbidden, "without admin.token_file limits can be changed on a loopback listener only")
		default:
			next(w, r)
		}
	}
}

// bears reports whether r has the token of which this is the hash. Hashes are compared, so that time tells nothing of either.
func bears(r *http.Request, token *[sha256.Size]byte) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], token[:]) == 1
}

// onLoopback reports whether r came in on a loopback address or a unix socket.
func onLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// loopbackName reports whether a Host header is no name that somebody else can point here: pages could rebind theirs to
// a loopback address, and read from it.
func loopbackName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

func (g *Gateway) adminReady(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	if !g.Ready() {
		status = http.StatusServiceUnavailable
	}
	breakers := make(map[string]string)
	for _, up := range g.site.Load().upstreams {
		breakers[up.name] = breakerNames[up.state()]
	}
	writeJSON(w, status, struct {
		Ready     bool              `json:"ready"`
		Draining  bool              `json:"draining"`
		Upstreams map[string]string `json:"upstreams"`
	}{status == http.StatusOK, g.draining.Load(), breakers})
}

// limitInForce is the JSON of a limit.
type limitInForce struct {
	Name      string         `json:"name"`
	Algorithm weir.Algorithm `json:"algorithm"`
	Rate      weir.Rate      `json:"rate"`
	Capacity  int64          `json:"capacity"`
	Headroom  int64          `json:"headroom,omitempty"`
	Shadow    bool           `json:"shadow,omitempty"`
}

func inForce(l *weir.Limit) limitInForce {
	return limitInForce{l.Name, l.Algorithm, l.Rate, l.Capacity(), l.Headroom, l.Shadow}
}

func (g *Gateway) adminLimits(w http.ResponseWriter, r *http.Request) {
	limits := []limitInForce{}
	for _, l := range g.site.Load().config.Limits {
		limits = append(limits, inForce(&l.Limit))
	}
	writeJSON(w, http.StatusOK, map[string]any{"limits": limits})
}

func (g *Gateway) adminLimit(w http.ResponseWriter, r *http.Request) {
	s := g.site.Load()
	l := s.limits[r.PathValue("name")]
	switch {
	case l == nil:
		writeProblem(w, http.StatusNotFound, noSuchLimit)
	case len(s.config.keyUses(l.Name)) > 0 && !slices.ContainsFunc(s.config.keyUses(l.Name), func(u keyUse) bool { return u.parts[0].Kind != KeyGlobal }):
		g.adminPeek(w, r, l.For(""))
	default:
		writeJSON(w, http.StatusOK, inForce(l))
	}
}

const noSuchLimit = "no limit of this name; GET /limits lists them"

// withCharge finds the limit and key of a path: the whole limit if the path has no key.
func (g *Gateway) withCharge(next func(http.ResponseWriter, *http.Request, weir.Charge)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := g.site.Load()
		l := s.limits[r.PathValue("name")]
		key := r.PathValue("key")
		if l != nil && byHash(r) {
			text, ok := g.board.keyOf(l.Name, key)
			if !ok {
				writeProblem(w, http.StatusNotFound, "no key of this hash is known; those that the dashboard lists are, unless they are very long")
				return
			}
			key = text
		}
		switch {
		case l == nil:
			writeProblem(w, http.StatusNotFound, noSuchLimit)
		case r.Pattern == "POST /limits/{name}/hold":
			next(w, r, l.Every())
		default:
			if why := s.config.keyFault(l.Name, key); why != "" && !byHash(r) {
				badRequest(w, why)
				return
			}
			next(w, r, l.For(key))
		}
	}
}

// byHash reports whether the key of a path is a hash.
func byHash(r *http.Request) bool { return r.URL.Query().Get("by") == "hash" }

func (g *Gateway) adminPeek(w http.ResponseWriter, r *http.Request, c weir.Charge) {
	d, err := g.limiter.Peek(r.Context(), c)
	if err != nil {
		g.storeFailed(w, err)
		return
	}
	// Nothing but a hold stands in the way of no units at all.
	none, err := g.limiter.Peek(r.Context(), c.Costing(0))
	if err != nil {
		g.storeFailed(w, err)
		return
	}
	o, held := d.Outcomes()[0], none.Outcomes()[0].After
	shown := c.Key
	if byHash(r) {
		shown = r.PathValue("key")
	}
	writeJSON(w, http.StatusOK, struct {
		Limit      string  `json:"limit"`
		Key        string  `json:"key"`
		Allowed    bool    `json:"allowed"` // one more unit
		Remaining  int64   `json:"remaining"`
		Capacity   int64   `json:"capacity"`
		RetryAfter float64 `json:"retry_after"` // seconds
		Held       float64 `json:"held"`        // seconds
	}{c.Limit.Name, shown, !o.Refused(), o.Remaining, c.Limit.Capacity(), o.After.Seconds(), held.Seconds()})
}

func (g *Gateway) adminReset(w http.ResponseWriter, r *http.Request, c weir.Charge) {
	if err := g.limiter.Reset(r.Context(), c); err != nil {
		g.storeFailed(w, err)
		return
	}
	g.board.held(&c, time.Time{})
	g.log.Info("limit reset", "limit", c.Limit.Name, "key", g.loggedKey(c.Key))
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) adminHold(w http.ResponseWriter, r *http.Request, c weir.Charge) {
	long, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || long < 0 || long > maxHold {
		writeProblem(w, http.StatusBadRequest, "for wants a duration from 0 to 8784h, as in ?for=30s; 0 lifts the hold")
		return
	}
	var until time.Time
	if long > 0 {
		until = time.Now().Add(long)
	}
	if err := g.limiter.Hold(r.Context(), until, c); err != nil {
		g.storeFailed(w, err)
		return
	}
	g.board.held(&c, until)
	g.log.Info("limit held", "limit", c.Limit.Name, "key", g.loggedKey(c.Key), "every", c.Every, "for", long)
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) storeFailed(w http.ResponseWriter, err error) {
	g.metrics.errors.Inc()
	g.log.Error("store failed", "err", err)
	writeProblem(w, http.StatusServiceUnavailable, "the store did not answer")
}

// badRequest answers with a problem of RFC 9457 whose detail may quote the request.
func badRequest(w http.ResponseWriter, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	encodeJSON(w, http.StatusBadRequest, struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(http.StatusBadRequest), http.StatusBadRequest, detail})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	encodeJSON(w, status, v)
}

func encodeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
}
