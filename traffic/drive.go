package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir"
)

// Drive sends the requests of a [Scenario], or any others, to a real server and measures what becomes of them. The loop is open,
// as that of [Load]: a server that stalls is sent just as much, and a latency counts from the instant at which its request was due.
// It never sends more than its ceiling, ends by itself, and sends nothing to a machine that was not named for it.
type Drive struct {
	URL     string          // where to, http or https; its path goes in front of each request's. Required
	Events  iter.Seq[Event] // what to send, in the order of time. Required
	Begin   time.Time       // the instant of Events at which the run begins; zero: the first event's
	Classes []Class         // in the order of the report; a request has the body of its class
	Hosts   []string        // names and addresses that may be sent to beside those of the loopback interface

	// Identify writes into a request's header whom it comes from, as the server is to see it. Nil writes the client's address into
	// X-Forwarded-For, which a server believes only from a proxy that it trusts.
	Identify func(*Event, http.Header)

	Ceiling     weir.Rate     // the most requests in any time of its period, as of Load. Required
	MaxRequests int64         // sent in all; zero means 1,000,000
	MaxTime     time.Duration // after which nothing more is sent, but by those who come back; zero means 10 min
	Timeout     time.Duration // of a request, as of Load
	MaxOpen     int           // requests at once, as of Load

	// Samples is how many refused clients of each class at a time are made to do what Retry-After said; see [Promises]. Zero
	// means 20, negative none.
	Samples int

	// Linger is the longest Retry-After that a client is made to wait for, and how long after the last event the
	// run may still go on for such clients. Zero means 30 s, negative none.
	Linger time.Duration

	// PerClient says that the server has no limit that clients share, so that what others were served explains
	// no client's refusal.
	PerClient bool

	// Progress, if not nil, is told four times a second how it goes, one call at a time.
	Progress func(DriveProgress)

	// Transport sends; nil means one made for this, without a proxy, which connects to nothing but URL's host.
	Transport http.RoundTripper
}

// DriveProgress is how far a Drive is.
type DriveProgress struct {
	Elapsed time.Duration
	Total   Tally // of all classes
	Unsent  int64
	Waiting int  // clients that wait as they were told
	Ending  bool // no more events are due
}

// Why a Drive ended.
const (
	EndComplete    = "complete"
	EndMaxRequests = "max requests"
	EndMaxTime     = "max time"
	EndInterrupted = "interrupted"
)

// Driven is what a Drive measured.
type Driven struct {
	Began   time.Time
	Lasted  time.Duration // with the time that clients waited after the last event
	Ended   string        // complete, max requests, max time or interrupted
	Classes []ClassDriven
	Step    time.Duration // of the Moments
	Faults  []DriveFault  // why requests had no answer
}

// ClassDriven is what became of the requests of one class. The events that came due are Tally.Sent + OverCeiling + OverOpen + TooLate + Cut. What a
// client sent that came back as it was told is in Promises alone.
type ClassDriven struct {
	Name        string
	OverCeiling int64 // not sent: ErrCeiling
	OverOpen    int64 // not sent: ErrMaxOpen
	TooLate     int64 // not sent: ErrTooLate
	Cut         int64 // given up, since the run was interrupted
	Tally       Tally
	Promises    Promises
	Moments     []Moment // one a Driven.Step, by when requests were due
}

// Due is how many events came due.
func (c *ClassDriven) Due() int64 {
	return c.Tally.Sent + c.OverCeiling + c.OverOpen + c.TooLate + c.Cut
}

// Moment is a part of the time.
type Moment struct {
	Sent, OK, Refused, Failed, Unanswered int64 // as of Tally

	Slowest time.Duration // of the OK
}

// DriveFault is a reason for which requests had no answer.
type DriveFault struct {
	Reason string
	Count  int64
}

const (
	defaultMaxRequests = 1_000_000
	defaultMaxTime     = 10 * time.Minute
	defaultLinger      = 30 * time.Second
	defaultSamples     = 20
	moments            = 240 // at most; then two become one
)

// ErrHost means that a Drive was to send to a machine that it was not allowed to.
var ErrHost = errors.New("traffic: neither a loopback address nor allowed by name")

// Validate says what is wrong, before anything is sent.
func (d *Drive) Validate() error {
	_, err := d.target()
	switch {
	case err != nil:
		return err
	case d.Events == nil:
		return errors.New("traffic: drive: no events")
	case d.Ceiling.Units <= 0:
		return errors.New("traffic: drive: no ceiling; it is the most requests that may be sent, as 1000/s")
	case d.MaxRequests < 0 || d.MaxTime < 0 || d.Timeout < 0 || d.MaxOpen < 0:
		return errors.New("traffic: drive: a bound is negative")
	}
	l := weir.Limit{Name: "ceiling", Algorithm: weir.SlidingLog, Rate: d.Ceiling}
	if err := l.Validate(); err != nil {
		return fmt.Errorf("traffic: drive: %w", err)
	}
	return nil
}

// target is the URL, if it may be sent to.
func (d *Drive) target() (*url.URL, error) {
	u, err := url.Parse(d.URL)
	if err != nil {
		return nil, errors.New("traffic: drive: the URL is none") // without what was given, which may have a password in it
	}
	if u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("traffic: drive: URL %.200q: the form is http://host:port, perhaps with a path", u.Redacted())
	}
	if !loopback(u.Hostname()) && !d.named(u.Hostname()) {
		return nil, fmt.Errorf("%w: %.200q", ErrHost, d.URL)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	return u, nil
}

func (d *Drive) named(host string) bool {
	return slices.ContainsFunc(d.Hosts, func(h string) bool { return strings.EqualFold(strings.Trim(h, "[]"), host) })
}

// loopback tells whether a host is this machine by its text. Other names are not looked up: whoever answers for them might say so.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// transport connects to nothing but the target, and for a target on this machine to nothing but its loopback
// interface, wherever localhost leads.
func (d *Drive) transport(u *url.URL) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !d.named(u.Hostname()) {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().Unmap().IsLoopback() {
				return fmt.Errorf("%w: %s", ErrHost, address)
			}
			return nil
		}
	}
	return &http.Transport{
		Proxy:               nil, // the environment's would be another machine
		DialContext:         dialer.DialContext,
		MaxIdleConnsPerHost: cmp.Or(d.MaxOpen, 10_000),
		MaxIdleConns:        cmp.Or(d.MaxOpen, 10_000),
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		ForceAttemptHTTP2:   true,
	}
}

// driving is one Run of a Drive.
type driving struct {
	*Drive
	target *url.URL
	ctx    context.Context
	began  time.Time

	requests atomic.Int64 // sent
	ending   atomic.Bool

	mu     sync.Mutex
	result Driven
	index  map[string]int // of the classes
	bodies []string
	faults map[string]int64
	other  string // the reason of those that have none in common
	watch  watch
	err    error // of the first event that is no request
}

// call is one request under way, as a Drive knows it.
type call struct {
	event    Event
	class    int
	client   string // whose quota it is likely to use
	sent     time.Time
	promise  *promise // that the client came back on; nil: an event
	chained  bool     // its client comes back once more
	suspects []*suspicion
}

// Run sends the events and returns what was measured, also if ctx ended before: then Ended is EndInterrupted. It returns at the
// latest MaxTime, Linger and Timeout after it was called. The error means that nothing was sent, or that an event is no request.
func (d *Drive) Run(ctx context.Context) (*Driven, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	r := &driving{Drive: d, ctx: ctx, began: time.Now(), index: map[string]int{}, faults: map[string]int64{}}
	r.target, _ = d.target()
	r.result = Driven{Began: r.began, Ended: EndComplete, Step: time.Second}
	r.watch = watch{open: map[*call]struct{}{}, clients: map[string]*tracked{}, perClient: d.PerClient}
	for i := range d.Classes {
		r.class(d.Classes[i].Name)
		r.bodies[i] = d.Classes[i].Body
	}
	load := Load{
		Transport: d.Transport, Timeout: d.Timeout, MaxOpen: d.MaxOpen, Ceiling: d.Ceiling,
		sent: r.sending, follow: r.obey, linger: max(0, cmp.Or(d.Linger, defaultLinger)),
	}
	if load.Transport == nil {
		t := d.transport(r.target)
		defer t.CloseIdleConnections()
		load.Transport = t
	}
	if d.Progress != nil {
		defer r.tell()()
	}
	err := load.Run(ctx, r.shots(), r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &r.result
	res.Lasted = time.Since(r.began)
	if err != nil && ctx.Err() != nil {
		res.Ended = EndInterrupted
	} else if err != nil {
		return nil, err
	}
	for reason, n := range r.faults {
		res.Faults = append(res.Faults, DriveFault{reason, n})
	}
	slices.SortFunc(res.Faults, func(a, b DriveFault) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	return res, r.err
}

// tell calls Progress until stop is called.
func (r *driving) tell() (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.Progress(r.progress())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}

func (r *driving) progress() DriveProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := DriveProgress{Elapsed: time.Since(r.began), Ending: r.ending.Load()}
	for i := range r.result.Classes {
		c := &r.result.Classes[i]
		p.Total.Merge(&c.Tally)
		p.Unsent += c.OverCeiling + c.OverOpen + c.TooLate
		p.Waiting += r.watch.waiting[i]
	}
	return p
}

// class is the number of a class, a new one if it was not known.
func (r *driving) class(name string) int {
	i, ok := r.index[name]
	if !ok {
		i = len(r.result.Classes)
		r.index[name] = i
		r.result.Classes = append(r.result.Classes, ClassDriven{Name: name})
		r.bodies = append(r.bodies, "")
		r.watch.waiting = append(r.watch.waiting, 0)
		r.watch.next = append(r.watch.next, time.Time{})
	}
	return i
}

// shots are the events as requests, up to the bounds.
func (r *driving) shots() iter.Seq[Shot] {
	return func(yield func(Shot) bool) {
		defer r.ending.Store(true)
		begin := r.Begin
		for e := range r.Events {
			if begin.IsZero() {
				begin = e.At
			}
			at := e.At.Sub(begin)
			switch {
			case max(at, time.Since(r.began)) >= cmp.Or(r.MaxTime, defaultMaxTime):
				r.result.Ended = EndMaxTime
				return
			case r.requests.Load() >= r.maxRequests():
				r.result.Ended = EndMaxRequests
				return
			}
			shot, err := r.shot(e)
			if err != nil {
				r.err = err
				return
			}
			shot.At = at
			if !yield(shot) {
				return
			}
		}
	}
}

func (r *driving) shot(e Event) (Shot, error) {
	r.mu.Lock()
	class := r.class(e.Class)
	body := r.bodies[class]
	r.mu.Unlock()
	c := &call{event: e, class: class, client: cmp.Or(e.Client, e.User)}
	req, err := r.request(&c.event, body)
	return Shot{Class: class, Request: req, call: c}, err
}

// request is an event as a request to the target, whatever its path says about where it goes.
func (r *driving) request(e *Event, body string) (*http.Request, error) {
	path, err := url.ParseRequestURI(cmp.Or(e.Path, "/"))
	if err != nil || path.Host != "" || !strings.HasPrefix(path.Path, "/") {
		return nil, fmt.Errorf("traffic: drive: %.200q is no path", e.Path)
	}
	u := *r.target
	u.Path, u.RawPath, u.RawQuery = r.target.Path+path.Path, r.target.EscapedPath()+path.EscapedPath(), path.RawQuery
	req := &http.Request{
		Method: cmp.Or(e.Method, "GET"), URL: &u, Host: e.Host, Header: make(http.Header, len(e.Header)+1),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	req.Header.Set("User-Agent", "weir-load") // whom to ask, for those who find it in their log
	for _, f := range e.Header {
		if f.Name == "User-Agent" {
			req.Header.Del(f.Name)
		}
		req.Header.Add(f.Name, f.Value)
	}
	if body != "" {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(strings.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	}
	switch {
	case r.Identify != nil:
		r.Identify(e, req.Header)
	case e.Client != "":
		req.Header.Set("X-Forwarded-For", e.Client)
	}
	return req, nil
}

func (r *driving) sending(s *Shot) error {
	if r.requests.Add(1) > r.maxRequests() {
		r.requests.Add(-1)
		return errMaxRequests
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.call.sent = time.Now()
	r.watch.sent(s.call)
	return nil
}

var errMaxRequests = errors.New("traffic: as many requests as allowed were sent")

func (r *driving) maxRequests() int64 { return cmp.Or(r.MaxRequests, defaultMaxRequests) }

// done counts what became of one request.
func (r *driving) done(s *Shot, res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.result.Classes[s.Class]
	unsent := s.call.sent.IsZero()
	cut := res.Err != nil && r.ctx.Err() != nil
	if !unsent {
		r.watch.ended(r.result.Classes, s.call, res, cut)
	} else if s.call.promise != nil {
		r.watch.unsent(c, s.call, cut)
	}
	switch {
	case s.call.promise != nil:
		return
	case unsent && errors.Is(res.Err, errMaxRequests):
		r.result.Ended = EndMaxRequests // a client that came back was the last
		return
	case unsent && errors.Is(res.Err, ErrMaxOpen):
		c.OverOpen++
		return
	case unsent && errors.Is(res.Err, ErrTooLate):
		c.TooLate++
		return
	case unsent && errors.Is(res.Err, ErrCeiling):
		c.OverCeiling++
		return
	case cut:
		c.Cut++
		return
	}
	c.Tally.Add(res)
	if res.Err != nil {
		reason := faultOf(res.Err)
		if reason == "" {
			if r.other == "" {
				r.other = "other, as: " + res.Err.Error()
			}
			reason = r.other
		}
		r.faults[reason]++
	}
	m := r.moment(c, s.At)
	m.Sent++
	switch {
	case res.Err != nil:
		m.Unanswered++
	case res.Status >= 200 && res.Status < 300:
		m.OK++
		m.Slowest = max(m.Slowest, res.Latency)
	case res.Status == http.StatusTooManyRequests:
		m.Refused++
	case res.Status >= 500:
		m.Failed++
	}
}

// moment is the one of an instant. When there would be too many, two become one.
func (r *driving) moment(c *ClassDriven, at time.Duration) *Moment {
	for at >= moments*r.result.Step {
		r.result.Step *= 2
		for i := range r.result.Classes {
			c := &r.result.Classes[i]
			for j := range c.Moments {
				if j%2 == 0 {
					c.Moments[j/2] = c.Moments[j]
				} else {
					c.Moments[j/2].add(&c.Moments[j])
				}
			}
			c.Moments = c.Moments[:(len(c.Moments)+1)/2]
		}
	}
	i := int(at / r.result.Step)
	for len(c.Moments) <= i {
		c.Moments = append(c.Moments, Moment{})
	}
	return &c.Moments[i]
}

func (m *Moment) add(o *Moment) {
	m.Sent += o.Sent
	m.OK += o.OK
	m.Refused += o.Refused
	m.Failed += o.Failed
	m.Unanswered += o.Unanswered
	m.Slowest = max(m.Slowest, o.Slowest)
}

// faultOf is an error as a reason that many have in common, without ports and addresses; empty if it is none of the usual ones.
func faultOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the server"
	case errors.Is(err, syscall.EMFILE):
		return "too many open files on this machine"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no free port on this machine"
	case errors.Is(err, ErrHost):
		return "the host's name leads to another machine"
	}
	return ""
}
