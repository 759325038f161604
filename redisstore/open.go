package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Conn is a [Client] that [Open] has made. It connects when it is first used, and again when the connection breaks,
// so that a program can start before its Redis does.
type Conn struct {
	opt rueidis.ClientOption

	mu         sync.Mutex
	client     rueidis.Client
	connecting chan struct{} // closed when the attempt under way has ended
	err        error         // of the last attempt
	closed     bool
}

// Open gives a Client for a URL, without connecting yet:
//
//	redis://user:password@host:6379/0         TCP; user and password of an ACL, both optional
//	rediss://…                                TLS; ?skip_verify=true trusts any certificate
//	unix://user:password@/run/redis.sock?db=0 Unix socket
//	redis://sentinel:26379?master_set=main    the master that Sentinels watch; more of them with &addr=host:port;
//	                                          their own login with &sentinel_user=…&sentinel_password=…
//	redis://node:6379?addr=node2:6379         a Redis Cluster, from any of its nodes; one node finds out by itself
//
// Of the query, dial_timeout and write_timeout (as 500ms) say how long connecting and an answer on a connection may take;
// they are 1 s and 2 s. An error never contains the password.
func Open(rawURL string) (*Conn, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("weir: redis: the URL cannot be read; the form is redis://user:password@host:port/db")
	}
	opt, err := rueidis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("weir: redis: url %s: %w", u.Redacted(), err)
	}
	q := u.Query()
	opt.Sentinel.Username, opt.Sentinel.Password = q.Get("sentinel_user"), q.Get("sentinel_password")
	opt.Sentinel.TLSConfig = opt.TLSConfig
	opt.Sentinel.TopologyRefreshInterval = 5 * time.Second
	if u.Scheme == "unix" {
		opt.ForceSingleClient = true
		if opt.InitAddress[0] == "" {
			return nil, fmt.Errorf("weir: redis: url %s: no path; the form is unix:///run/redis.sock", u.Redacted())
		}
	}
	if v := q.Get("cluster"); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return nil, fmt.Errorf("weir: redis: url %s: cluster=%q; it takes true or false", u.Redacted(), v)
		}
		opt.ForceSingleClient = !on
	}
	return NewConn(opt), nil
}

// NewConn is Open for what no URL can say: client certificates, credentials that change. What it needs to
// connect and answer soon is set where opt leaves it zero.
func NewConn(opt rueidis.ClientOption) *Conn {
	opt.DisableCache = true // which keeps CLIENT TRACKING, and the right to it, out
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = time.Second
	}
	if opt.ConnWriteTimeout == 0 {
		opt.ConnWriteTimeout = 2 * time.Second
	}
	if opt.TLSConfig != nil && opt.TLSConfig.MinVersion == 0 {
		opt.TLSConfig = opt.TLSConfig.Clone()
		opt.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return &Conn{opt: opt}
}

var errClosed = errors.New("connection closed")

// Do implements Client. Commands of concurrent callers share round trips.
func (c *Conn) Do(ctx context.Context, args ...string) (any, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	cmd := client.B().Arbitrary(args[0])
	if len(args) > 3 && (args[0] == "EVALSHA" || args[0] == "EVAL") {
		n, err := strconv.Atoi(args[2])
		if err != nil || n < 0 || n > len(args)-3 {
			return nil, fmt.Errorf("%s with %q keys", args[0], args[2])
		}
		keys := args[3 : 3+n]
		if client.Mode() == rueidis.ClientModeCluster && !oneTag(keys) {
			return nil, errors.New("CROSSSLOT Keys in request don't hash to the same slot")
		}
		cmd = cmd.Args(args[1:3]...).Keys(keys...).Args(args[3+n:]...)
	} else {
		cmd = cmd.Args(args[1:]...)
	}
	msg, err := client.Do(ctx, cmd.Build()).ToMessage()
	if err != nil {
		return nil, err
	}
	if msg.IsString() {
		return msg.ToString()
	}
	return msg.ToAny()
}

// Cluster reports whether the server is a Redis Cluster, as far as is known: before the first connection, whether the URL
// says so.
func (c *Conn) Cluster() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client.Mode() == rueidis.ClientModeCluster
	}
	return !c.opt.ForceSingleClient && c.opt.Sentinel.MasterSet == "" && len(c.opt.InitAddress) > 1
}

// Ping connects and asks for an answer. What it returns says why Redis cannot be used.
func (c *Conn) Ping(ctx context.Context) error {
	client, err := c.connect(ctx)
	if err == nil {
		err = client.Do(ctx, client.B().Ping().Build()).Error()
	}
	if err != nil {
		return fmt.Errorf("weir: redis: %w", err)
	}
	return nil
}

// Close ends the connections. Later calls fail.
func (c *Conn) Close() {
	c.mu.Lock()
	client := c.client
	c.client, c.closed = nil, true
	c.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// connect is the client, connected for the first time if need be. One attempt at a time is under way, and it goes on when ctx ends.
func (c *Conn) connect(ctx context.Context) (rueidis.Client, error) {
	c.mu.Lock()
	if c.client != nil || c.closed {
		defer c.mu.Unlock()
		if c.closed {
			return nil, errClosed
		}
		return c.client, nil
	}
	attempt := c.connecting
	if attempt == nil {
		attempt = make(chan struct{})
		c.connecting = attempt
		go c.attempt(attempt)
	}
	c.mu.Unlock()
	select {
	case <-attempt:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // since it was connected, perhaps
		return nil, errClosed
	}
	if c.client == nil {
		return nil, c.err
	}
	return c.client, nil
}

func (c *Conn) attempt(done chan struct{}) {
	client, err := rueidis.NewClient(c.opt)
	if err != nil && strings.Contains(err.Error(), "unknown message type") { // the first byte of an answer, as of HTTP/1.1 400
		err = fmt.Errorf("what answers there is not Redis: %w", err)
	}
	c.mu.Lock()
	closed := c.closed
	if err == nil && !closed {
		c.client = client
	}
	if closed {
		err = errClosed
	}
	c.err, c.connecting = err, nil
	c.mu.Unlock()
	close(done)
	if closed && client != nil {
		client.Close()
	}
}

// oneTag reports whether the keys, which all have a hash tag, are in one slot.
func oneTag(keys []string) bool {
	tag := func(key string) string {
		_, key, _ = strings.Cut(key, "{")
		key, _, _ = strings.Cut(key, "}")
		return key
	}
	for _, k := range keys {
		if a, b := tag(keys[0]), tag(k); a != b && slot(a) != slot(b) {
			return false
		}
	}
	return true
}
