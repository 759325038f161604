package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// loading are the flags of weir load.
type loading struct {
	url, scenario, rate, ceiling, method, share, keys, html string

	length      time.Duration
	clients     int
	hosts       []string
	identify    []string
	headers     []string
	samples     int
	linger      time.Duration
	perClient   bool
	timeout     time.Duration
	maxOpen     int
	maxRequests int64
	maxTime     time.Duration
	asJSON      bool
	quiet       bool
}

func newLoad() *cobra.Command {
	l := &loading{}
	cmd := &cobra.Command{
		Use:   "load --url URL (--scenario FILE | --rate RATE --for TIME) --ceiling RATE",
		Short: "Send a scenario to a real server, and report who was served",
		Long: `load sends the requests of a scenario, or of one rate, to a server and counts by class what was served, refused with 429,
failed and left without an answer, with latencies. The loop is open, as customers are: instants are fixed beforehand, a
server that stalls is sent just as much, and a latency counts from the instant at which its request was due.

It sends to this machine alone unless --allow-host names another; never more than --ceiling, by when requests
really leave; never longer than --max-time (and --linger, --timeout for what is then under way). Ctrl-C ends it and
still reports. Redirects are counted, not followed.

Some of the refused do what Retry-After says: they wait just as long and ask again, on top of the load. Kept: not refused then.
Taken: refused, but another request of the same client was served meanwhile. Unclear: refused, and only others were served
meanwhile, which may share a limit. Broken: refused, and nothing but the server explains it. "not shown" is said of Retry-After
where none of them was served: others came first.

With --scenario, --for plays it in a shorter time: its shape squeezed, its rates as they are. --share sends a part of it.
A client's address goes into X-Forwarded-For, which a server believes from proxies that it trusts; weir serve needs
clients: {trusted_proxies: [127.0.0.0/8]} for a test. --identify says it otherwise.

Exit codes: 0 measured, also if a verdict is "not shown"; 1 a class was served less than agreed in the scenario, a promise
was broken, or nothing was answered; 2 wrong arguments, nothing was sent; 3 interrupted.`,
		Example: `  weir load --url http://127.0.0.1:8080/ --rate 500/s --for 10s --ceiling 1000/s
  weir load --url http://127.0.0.1:8080 --scenario examples/blackfriday.yaml --for 2m --ceiling 500/s --html load.html
  weir load --url https://staging.example --allow-host staging.example --scenario s.yaml --ceiling 200/s \
            --identify 'X-API-Key: {key}' --keys keys.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&l.url, "url", "", "where to send; with --scenario its path goes in front of the scenario's")
	fl.StringVar(&l.scenario, "scenario", "", "a `file` that says what is expected, as examples/blackfriday.yaml")
	fl.StringVar(&l.rate, "rate", "", "without a scenario: the load, as 500/s, evenly spaced")
	fl.DurationVar(&l.length, "for", 0, "how long; default 10s, or as long as the scenario")
	fl.StringVar(&l.ceiling, "ceiling", "", "the most requests that may leave in any such time, as 1000/s; required")
	fl.StringArrayVar(&l.hosts, "allow-host", nil, "a `host` that is not this machine and may be sent to")
	fl.StringVar(&l.method, "method", "GET", "without a scenario: the method")
	fl.IntVar(&l.clients, "clients", 1, "without a scenario: how many clients take turns")
	fl.StringVar(&l.share, "share", "100%", "with a scenario: which `part` of its requests to send")
	fl.StringArrayVar(&l.identify, "identify", []string{"X-Forwarded-For: {client}"}, "a header `'Name: value'` by which the server knows a client, with {client}, {user} or {key}")
	fl.StringVar(&l.keys, "keys", "", "a `file` of API keys for {key}: lines of a user and a key")
	fl.StringArrayVar(&l.headers, "header", nil, "a header `'Name: value'` of every request; the value may be env:VARIABLE or file:PATH")
	fl.IntVar(&l.samples, "samples", 20, "how many refused clients of a class at a time do what Retry-After says; 0 is none")
	fl.DurationVar(&l.linger, "linger", 30*time.Second, "the longest Retry-After to wait for, and how long to go on for it at the end; 0 is not at all")
	fl.BoolVar(&l.perClient, "per-client", false, "the server has no limit that clients share: none is unclear")
	fl.DurationVar(&l.timeout, "timeout", 10*time.Second, "for one request, from its instant to the end of the answer")
	fl.IntVar(&l.maxOpen, "max-open", 10_000, "requests under way at once; what is due beyond that is not sent, and counted")
	fl.Int64Var(&l.maxRequests, "max-requests", 1_000_000, "requests in all")
	fl.DurationVar(&l.maxTime, "max-time", 10*time.Minute, "for the load")
	fl.StringVar(&l.html, "html", "", "write a report with pictures to this `file`")
	fl.BoolVar(&l.asJSON, "json", false, "print the figures as one JSON object")
	fl.BoolVar(&l.quiet, "quiet", false, "no progress on a terminal")
	return cmd
}

func (l *loading) run(cmd *cobra.Command) error {
	plan, err := l.plan()
	if err != nil {
		return err
	}
	page := io.WriteCloser(nil)
	if l.html != "" { // before anything is sent, so that nothing is measured for nobody
		if page, err = os.Create(l.html); err != nil {
			return badUsage("load: --html: %v", err)
		}
		defer page.Close()
	}
	clear := l.progress(cmd.ErrOrStderr(), plan)
	res, err := plan.drive.Run(cmd.Context())
	clear()
	if err != nil {
		return failed(err)
	}
	rep := newLoadReport(plan, res)
	if page != nil {
		if err := errors.Join(rep.page().WriteHTML(page), page.Close()); err != nil {
			return failed(err)
		}
	}
	if l.asJSON {
		err = printJSON(cmd.OutOrStdout(), rep)
	} else {
		err = rep.writeText(cmd.OutOrStdout())
	}
	if err != nil {
		return failed(err)
	}
	return rep.verdict()
}

// loadPlan is what is to be sent.
type loadPlan struct {
	drive    traffic.Drive
	scenario *traffic.Scenario // nil: one rate
	target   string
	length   time.Duration
	total    float64 // requests, about
	peak     float64 // requests a second
	share    float64 // of the scenario
}

// plan checks the flags before anything is sent.
func (l *loading) plan() (*loadPlan, error) {
	var (
		p   = &loadPlan{share: 1}
		d   = &p.drive
		err error
	)
	switch {
	case l.url == "":
		return nil, badUsage("load: no --url")
	case l.ceiling == "":
		return nil, badUsage("load: no --ceiling: it is the most that may be sent, as 1000/s, whatever the scenario says")
	case (l.scenario == "") == (l.rate == ""):
		return nil, badUsage("load: want either --scenario or --rate")
	case l.length < 0 || l.linger < 0 || l.timeout <= 0 || l.maxOpen <= 0 || l.maxRequests <= 0 || l.maxTime <= 0 || l.samples < 0:
		return nil, badUsage("load: --for, --linger and --samples take no negative number, --timeout, --max-open, --max-requests and --max-time more than 0")
	}
	if d.Ceiling, err = weir.ParseRate(l.ceiling); err != nil {
		return nil, badUsage("load: --ceiling: %v", err)
	}
	target, err := url.Parse(l.url)
	if err != nil {
		return nil, badUsage("load: --url is none: the form is http://host:port/path") // without it: it may have a password in it
	}
	d.URL = l.url
	p.target = (&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path, RawPath: target.RawPath}).String()
	d.Hosts, d.PerClient = l.hosts, l.perClient
	d.Timeout, d.MaxOpen, d.MaxRequests, d.MaxTime = l.timeout, l.maxOpen, l.maxRequests, l.maxTime
	d.Samples, d.Linger = cmp.Or(l.samples, -1), cmp.Or(l.linger, -1)
	if l.scenario != "" {
		err = l.fromScenario(p)
	} else {
		err = l.fromRate(p, target)
	}
	if err != nil {
		return nil, err
	}
	if d.Identify, err = l.identity(); err != nil {
		return nil, err
	}
	if err := d.Validate(); errors.Is(err, traffic.ErrHost) {
		return nil, badUsage("%v\nIf that machine is yours to send %v to: --allow-host %s", err, d.Ceiling, target.Hostname())
	} else if err != nil {
		return nil, badUsage("%v", err)
	}
	ceiling := float64(d.Ceiling.Units) / d.Ceiling.Period.Seconds()
	switch {
	case p.peak > ceiling*(1+1e-9):
		hint := "raise it"
		if p.scenario != nil {
			hint += fmt.Sprintf(", or send a part: --share %.3g%%", 100*p.share*ceiling/p.peak*0.9)
		}
		return nil, badUsage("load: the peak of %.4g requests a second is over the ceiling of %v: %s", p.peak, d.Ceiling, hint)
	case p.length > l.maxTime:
		return nil, badUsage("load: %v is longer than --max-time %v: raise it, or play it in less with --for", p.length, l.maxTime)
	case p.total > float64(l.maxRequests):
		return nil, badUsage("load: about %.0f requests are more than --max-requests %d: raise it, or send less", p.total, l.maxRequests)
	}
	return p, nil
}

// fromScenario makes the events those of a scenario: of each, a share is kept by lot and the time is squeezed. Thinned so, independent
// arrivals stay independent arrivals, and whatever the shape, rates are as they were, times the share.
func (l *loading) fromScenario(p *loadPlan) error {
	s, err := traffic.LoadScenario(l.scenario)
	var bad *traffic.ScenarioError
	if errors.As(err, &bad) {
		return badConfig(err)
	} else if err != nil {
		return badUsage("load: --scenario: %v", err)
	}
	var share traffic.Share
	if err := share.UnmarshalText([]byte(l.share)); err != nil || share == 0 {
		return badUsage("load: --share %q: want more than 0%% and up to 100%%", l.share)
	}
	p.scenario, p.share, p.length = s, float64(share), cmp.Or(l.length, s.Duration)
	if p.length > s.Duration {
		return badUsage("load: --for %v is longer than the scenario, %v", p.length, s.Duration)
	}
	squeeze := float64(p.length) / float64(s.Duration)
	keep, begin := p.share*squeeze, s.Begin()
	p.peak, p.total = s.PeakRate()*p.share, s.Total()*keep
	p.drive.Begin, p.drive.Classes = begin, s.Classes
	runaway := s.Clients.Runaway != nil && !slices.ContainsFunc(s.Classes, func(c traffic.Class) bool { return c.Name == traffic.RunawayClass })
	if runaway { // apart, as when it is simulated: else it seems that others are refused
		of := max(0, slices.IndexFunc(s.Classes, func(c traffic.Class) bool { return c.Name == s.Clients.Runaway.Class }))
		p.drive.Classes = append(slices.Clone(s.Classes), traffic.Class{Name: traffic.RunawayClass, Body: s.Classes[of].Body})
	}
	p.drive.Events = func(yield func(traffic.Event) bool) {
		random := rand.New(rand.NewPCG(s.Seed, 4))
		for e := range s.Events() {
			if keep < 1 && random.Float64() >= keep {
				continue
			}
			e.At = begin.Add(time.Duration(float64(e.At.Sub(begin)) * squeeze))
			if runaway && e.Client == traffic.RunawayClient {
				e.Class = traffic.RunawayClass
			}
			if !yield(e) {
				return
			}
		}
	}
	return nil
}

const maxLoadClients = 100_000

// fromRate makes the events one rate, evenly spaced, of clients that take turns.
func (l *loading) fromRate(p *loadPlan, target *url.URL) error {
	rate, err := weir.ParseRate(l.rate)
	switch {
	case err != nil:
		return badUsage("load: --rate: %v", err)
	case rate.Units == 0:
		return badUsage("load: --rate %v sends nothing", rate)
	case l.clients < 1 || l.clients > maxLoadClients:
		return badUsage("load: --clients %d: want 1 to %d", l.clients, maxLoadClients)
	case l.share != "100%":
		return badUsage("load: --share is of a scenario; with --rate, give another rate")
	case l.method == "" || strings.ContainsFunc(l.method, func(r rune) bool { return (r < 'A' || r > 'Z') && r != '-' }):
		return badUsage("load: --method %q is none", l.method)
	}
	p.peak = float64(rate.Units) / rate.Period.Seconds()
	p.length = cmp.Or(l.length, 10*time.Second)
	load := traffic.Steady(p.peak, p.length)
	p.total = load.Total()
	path := cmp.Or(target.RequestURI(), "/")
	p.drive.URL = (&url.URL{Scheme: target.Scheme, User: target.User, Host: target.Host, Fragment: target.Fragment}).String()
	p.drive.Begin = time.Now()
	p.drive.Events = rounds(load.Even(), traffic.Event{At: p.drive.Begin, Class: l.method + " " + target.EscapedPath(), Method: l.method, Path: path}, l.clients)
	p.drive.Classes = []traffic.Class{{Name: l.method + " " + target.EscapedPath()}}
	return nil
}

// rounds is an event at each of these instants, of clients in turn.
func rounds(instants iter.Seq[time.Duration], e traffic.Event, clients int) iter.Seq[traffic.Event] {
	return func(yield func(traffic.Event) bool) {
		begin, n := e.At, 0
		for at := range instants {
			k := n%clients + 1
			e.At = begin.Add(at)
			e.Client = netip.AddrFrom4([4]byte{198, 18 + byte(k>>16), byte(k >> 8), byte(k)}).String() // RFC 2544: nobody's
			e.User = fmt.Sprintf("user-%d", k)
			if !yield(e) {
				return
			}
			n++
		}
	}
}

// identity is how a request says whom it comes from, and what all have in their header.
func (l *loading) identity() (func(*traffic.Event, http.Header), error) {
	always, err := givenHeader(l.headers)
	if err != nil {
		return nil, err
	}
	keys, err := l.readKeys()
	if err != nil {
		return nil, err
	}
	type line struct{ name, value string }
	var lines []line
	for _, s := range l.identify {
		name, value, ok := strings.Cut(s, ":")
		name, value = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !ok || name == "" || strings.ContainsAny(s, "\r\n\x00"):
			return nil, badUsage("load: --identify %q: the form is 'Name: value'", s)
		case !strings.Contains(value, "{client}") && !strings.Contains(value, "{user}") && !strings.Contains(value, "{key}"):
			return nil, badUsage("load: --identify %s: it says the same of all, without {client}, {user} or {key}", name)
		case strings.Contains(value, "{key}") && keys == nil:
			return nil, badUsage("load: --identify %s: for {key}, give the keys with --keys", name)
		}
		lines = append(lines, line{name, value})
	}
	return func(e *traffic.Event, h http.Header) {
		for name, values := range always {
			h[name] = values
		}
		known := [...]line{{"{client}", e.Client}, {"{user}", e.User}, {"{key}", keys[e.User]}}
	lines:
		for _, l := range lines {
			for _, k := range known {
				if strings.Contains(l.value, k.name) {
					if k.value == "" { // somebody without a name, or without a key
						continue lines
					}
					l.value = strings.ReplaceAll(l.value, k.name, k.value)
				}
			}
			h.Set(l.name, l.value)
		}
	}, nil
}

// readKeys reads lines of a user and a key. Errors do not quote them.
func (l *loading) readKeys() (map[string]string, error) {
	if l.keys == "" {
		return nil, nil
	}
	file, err := os.Open(l.keys)
	if err != nil {
		return nil, badUsage("load: --keys: %v", err)
	}
	defer file.Close()
	keys := map[string]string{}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		parts := strings.Fields(text)
		if len(parts) != 2 {
			return nil, badUsage("load: --keys: %s:%d: want a user, blanks and a key", l.keys, n)
		}
		keys[parts[0]] = parts[1]
	}
	if err := lines.Err(); err != nil {
		return nil, badUsage("load: --keys: %v", err)
	}
	return keys, nil
}

// progress draws one line on a terminal until clear is called.
func (l *loading) progress(w io.Writer, p *loadPlan) (clear func()) {
	file, ok := w.(*os.File)
	if l.quiet || !ok || !term.IsTerminal(int(file.Fd())) {
		return func() {}
	}
	p.drive.Progress = func(now traffic.DriveProgress) {
		fmt.Fprintf(w, "\r\x1b[K%s", progressLine(now, p.length))
	}
	return func() { fmt.Fprint(w, "\r\x1b[K") }
}

func progressLine(p traffic.DriveProgress, length time.Duration) string {
	t := &p.Total
	line := fmt.Sprintf("%v of %v: %s sent, %s served, %s refused, %s failed or unanswered; p99 %s", min(p.Elapsed, length).Round(time.Second), length,
		traffic.Count(t.Sent), traffic.Count(t.OK), traffic.Count(t.Refused), traffic.Count(t.Failed+t.Unanswered), latency(t.Latency.Quantile(0.99)))
	if p.Ending && p.Waiting > 0 {
		line = fmt.Sprintf("%v: all sent; still waiting as Retry-After told them: %d", p.Elapsed.Round(time.Second), p.Waiting)
	}
	return line
}
