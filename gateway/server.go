package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// What a Config means where it says nothing, and what a server allows a client.
const (
	defaultListen   = ":8080"
	defaultAdmin    = "127.0.0.1:9090"
	adminOff        = "off"
	defaultShutdown = 30 * time.Second

	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Gateway is the reverse proxy of a [Config]. Its methods are safe for concurrent use, but for Listen and Serve, which
// are called once.
type Gateway struct {
	log     *slog.Logger
	logKeys bool
	limiter *weir.Limiter
	memory  *weir.Memory // what the limiter runs on; nil if it is another Store
	stores  *stores      // of the configuration; nil if the limiter is another's
	metrics *metrics
	tracing *tracing // nil: none
	board   *board   // what the dashboard shows; nil without an admin listener

	storeFailures *fewLines
	storeRefusals *fewLines // by the policy for a store that does not answer
	upstreamFails *fewLines

	site     atomic.Pointer[site] // what the configuration in force says
	reloadMu sync.Mutex           // held to replace it
	draining atomic.Bool
	open     atomic.Int64 // requests under way, tunnels among them

	data  []*server
	admin *server // nil: none
}

// Options are what a Gateway gets from its surroundings. The zero value is ready.
type Options struct {
	// Logger gets a line for each request that is refused (level Info) or admitted (Debug, a line a limit), with the
	// fields limit, key, cost, allowed, retry_after, route and status as far as they apply; for failures of the store (Error) and of
	// upstreams (Warn), with err and upstream; and for what happens to the Gateway itself. Nil is silent.
	//
	// Unless Debug is enabled, a limit has at most ten lines about refusals a minute, the first of each key, and then one
	// with the count of all others; so have failures of the store, by route.
	Logger *slog.Logger

	// LogKeys writes keys as text. Otherwise they are hashed, for they name people; the same key has the same hash until the
	// process ends.
	LogKeys bool

	// Limiter decides. Nil means one that keeps up to Config.MaxCells keys in memory.
	Limiter *weir.Limiter
}

// New is a Gateway that runs on cfg. It opens nothing but the files that cfg names, and starts nothing. The error is a
// *ConfigError where the configuration is to blame.
func New(cfg *Config, opts Options) (*Gateway, error) {
	g := &Gateway{log: opts.Logger, logKeys: opts.LogKeys, limiter: opts.Limiter}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if g.limiter == nil {
		var err error
		if g.stores, err = g.openStores(cfg); err != nil {
			return nil, err
		}
		g.memory = g.stores.memory
		g.limiter = g.stores.limiter()
	} else if m, ok := g.limiter.Store.(*weir.Memory); ok {
		g.memory = m
	}
	const more = "failures of the store, not logged one by one"
	g.storeFailures = &fewLines{log: g.log, level: slog.LevelError, text: more}
	g.storeRefusals = &fewLines{log: g.log, level: slog.LevelInfo, text: more}
	g.upstreamFails = &fewLines{log: g.log, level: slog.LevelWarn, text: "failures of upstreams, not logged one by one"}
	g.metrics = newMetrics(g)
	g.tracing = newTracing(&cfg.Tracing)
	if cfg.Admin.address() != adminOff {
		g.board = newBoard(g)
	}
	s, err := g.compile(cfg, nil)
	if err != nil {
		return nil, err
	}
	g.site.Store(s)
	g.logFindings(cfg)
	return g, nil
}

// logFindings warns of what is probably a mistake.
func (g *Gateway) logFindings(cfg *Config) {
	for _, f := range Lint(cfg) {
		attrs := []any{"severity", f.Severity, "field", f.Field, "fault", f.Fault, "fix", f.Fix}
		if f.Line > 0 { // it is from a file
			attrs = append(attrs, "line", f.Line)
		}
		g.log.Warn("probably a mistake in the configuration", attrs...)
	}
}

// Handler is the proxy itself, without listeners.
func (g *Gateway) Handler() http.Handler {
	if g.tracing != nil {
		return g.tracing.handler(g, http.HandlerFunc(g.serve))
	}
	return http.HandlerFunc(g.serve)
}

// breakerChanged is told when a circuit breaker opens or closes.
func (g *Gateway) breakerChanged(upstream, from, to string) {
	g.metrics.breakers.WithLabelValues(upstream, to).Inc()
	g.log.Warn("circuit breaker", "upstream", upstream, "from", from, "to", to)
}

// server is one listener and what serves it.
type server struct {
	http.Server
	name     string // the address as the configuration has it
	listener net.Listener
	url      string
}

// ListenError is an address that cannot be listened on.
type ListenError struct {
	Field   string // of the configuration, as listen[0].address; listen: it is the default
	Address string
	Err     error // why; without the address
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("gateway: %s: listen on %s: %v", e.Field, e.Address, e.Err)
}

func (e *ListenError) Unwrap() error { return e.Err }

// Listen opens the listeners of the configuration, all or none. The error is a *ListenError.
func (g *Gateway) Listen() (err error) {
	cfg := g.site.Load().config
	defer func() {
		if err != nil {
			for _, s := range g.servers() {
				s.listener.Close()
			}
			g.data, g.admin = nil, nil
		}
	}()
	for i, l := range cfg.listeners() {
		s, err := g.listen(&l)
		if err != nil {
			field := "listen"
			if len(cfg.Listen) > 0 {
				field = strictyaml.Item(field, i) + ".address"
			}
			return &ListenError{Field: field, Address: l.Address, Err: err}
		}
		g.data = append(g.data, s)
	}
	if address := cfg.Admin.address(); address != adminOff {
		s, err := open(address, g.AdminHandler(), g.log)
		if err != nil {
			return &ListenError{Field: "admin.address", Address: address, Err: err}
		}
		s.url = "http://" + s.listener.Addr().String()
		g.admin = s
	}
	return nil
}

func (c *Config) listeners() []Listener {
	if len(c.Listen) == 0 {
		return []Listener{{Address: defaultListen}}
	}
	return c.Listen
}

func (a *Admin) address() string {
	if a.Address == "" {
		return defaultAdmin
	}
	return a.Address
}

func (g *Gateway) servers() []*server {
	all := g.data[:len(g.data):len(g.data)]
	if g.admin != nil {
		all = append(all, g.admin)
	}
	return all
}

// listen opens a listener of the proxy.
func (g *Gateway) listen(l *Listener) (*server, error) {
	s, err := open(l.Address, g.Handler(), g.log)
	if err != nil {
		return nil, err
	}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	scheme := "http"
	if l.Cert != "" {
		scheme = "https"
		s.Protocols.SetHTTP2(true)
		address := l.Address
		s.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12,
			// From the configuration in force, so that a reload replaces certificates.
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return g.site.Load().certs[address], nil
			},
		}
	} else if l.H2C {
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	s.url = scheme + "://" + s.listener.Addr().String()
	if s.listener.Addr().Network() == "unix" {
		s.url = l.Address
	}
	return s, nil
}

// open listens on host:port or unix:/path.
func open(address string, h http.Handler, log *slog.Logger) (*server, error) {
	network, where := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, where = "unix", path
		removeStale(path)
	}
	listener, err := net.Listen(network, where)
	if err != nil {
		return nil, reason(err)
	}
	return &server{
		name:     address,
		listener: listener,
		Server: http.Server{
			Handler:           cutOffSlow(h, bodyPause),
			ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong
		},
	}, nil
}

// reason is err without the address, which whoever wraps it says.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// removeStale removes a socket on which nobody listens any more: left behind, it would forbid listening.
func removeStale(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return
	}
	os.Remove(path)
}

// URLs says where the proxy listens, once Listen has been called.
func (g *Gateway) URLs() []string {
	urls := make([]string, len(g.data))
	for i, s := range g.data {
		urls[i] = s.url
	}
	return urls
}

// AdminURL says where the admin listener is, once Listen has been called; empty if there is none.
func (g *Gateway) AdminURL() string {
	if g.admin == nil {
		return ""
	}
	return g.admin.url
}

// Serve serves until ctx ends, then stops gracefully: it reports that it is not ready, takes no new connections, and
// gives open requests and tunnels Config.Shutdown before it cuts them off. It calls Listen if that has not been done. The
// error is nil after a stop, even one that had to cut off.
func (g *Gateway) Serve(ctx context.Context) error {
	if g.data == nil {
		if err := g.Listen(); err != nil {
			return err
		}
	}
	if g.tracing != nil {
		if err := g.tracing.export(ctx, g.log); err != nil {
			g.log.Error("nothing is traced", "err", err)
		}
		defer g.tracing.stop()
	}
	// The contexts of requests outlive ctx, until they are cut off.
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()

	if g.board != nil {
		var sampling sync.WaitGroup
		sampling.Go(func() { g.board.run(base) })
		defer sampling.Wait() // shutdown ends it
	}
	if g.stores != nil {
		var asking sync.WaitGroup
		asking.Go(func() { g.stores.hello(base, g.log) })
		defer asking.Wait() // shutdown ends it
	}
	failed := make(chan error, len(g.data)+1)
	for _, s := range g.servers() {
		s.BaseContext = func(net.Listener) context.Context { return base }
		go func() { failed <- s.serve() }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.shutdown(cutOff)
	return err
}

func (s *server) serve() error {
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(s.listener, "", "")
	} else {
		err = s.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("weir: serve on %s: %w", s.name, err)
}

// shutdown ends all servers, the admin listener last: until then it says that the gateway is not ready.
func (g *Gateway) shutdown(cutOff context.CancelFunc) {
	g.draining.Store(true)
	patience := g.site.Load().config.Shutdown
	if patience == 0 {
		patience = defaultShutdown
	}
	g.log.Info("shutting down", "open", g.open.Load(), "within", patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	var wg sync.WaitGroup
	for _, s := range g.data {
		wg.Go(func() { s.Shutdown(ctx) })
	}
	wg.Wait()
	g.awaitIdle(ctx) // tunnels, which servers have let go of
	if n := g.open.Load(); n > 0 {
		g.log.Warn("requests cut off", "open", n)
	}
	cutOff()
	for _, s := range g.servers() {
		s.Close()
	}
	g.reloadMu.Lock()
	defer g.reloadMu.Unlock()
	g.storeFailures.close()
	g.storeRefusals.close()
	g.upstreamFails.close()
	for _, l := range g.site.Load().lines {
		l.close()
	}
	for _, up := range g.site.Load().upstreams {
		up.closeIdle()
	}
	if g.stores != nil {
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.stores.close(last)
	}
}

// awaitIdle waits until no request is under way, or ctx ends.
func (g *Gateway) awaitIdle(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for g.open.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Ready says whether requests should be sent here: not while shutting down, and not when every upstream's
// circuit breaker is open.
func (g *Gateway) Ready() bool {
	if g.draining.Load() {
		return false
	}
	s := g.site.Load()
	for _, up := range s.upstreams {
		if up.state() != breakerOpen {
			return true
		}
	}
	return len(s.upstreams) == 0
}
