package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/traffic"
)

// simulating are the flags of weir simulate.
type simulating struct {
	configs  []string
	limits   []string
	scenario string
	format   string
	html     string
	suggest  string
	failOver string

	disorder  time.Duration
	took      time.Duration
	top       int
	whole     bool
	hash      bool
	noCompare bool
	asJSON    bool
	quiet     bool

	made func() string // the last line of the page; tests replace it
}

func newSimulate() *cobra.Command {
	s := &simulating{made: func() string {
		return "Made by weir simulate " + versionText() + " on " + time.Now().Format("2 January 2006 at 15:04 MST")
	}}
	cmd := &cobra.Command{
		Use:   "simulate (-c weir.yaml | --limit 'NAME=RATE ...') (--scenario FILE | LOG...)",
		Short: "Try limits on access logs or on a scenario, before they are enforced",
		Long: `simulate puts the requests of access logs, or of a scenario, through limits in virtual time, with the code that weir serve runs, and says what
would have been refused, whose and when; what the keys ask for; and how each limit would do with every other algorithm.

Logs may be in the common or combined format, JSON of nginx or Caddy, or any format string of nginx; compressed with gzip; several; - is
standard input. They are read as a stream, so that their size does not matter. Lines that cannot be read are counted and shown.

Refused requests of a scenario come back once Retry-After has passed, as far as its clients.returns says so.

Several -c are compared. Several --limit are one policy: a request has to pass all of them, as with weir serve.

Exit codes: 0 all classes survive; 1 one does not, by the scenario's refused_at_most or by --fail-over, or reading failed;
2 the arguments, the configuration or the scenario are wrong.`,
		Example: `  weir simulate --limit 'client=100/m burst=20' access.log access.log.1.gz
  weir simulate --limit 'client=100/m' --suggest '0.1% of clients' --html report.html access.log
  weir simulate -c weir.yaml --scenario blackfriday.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&s.configs, "config", "c", nil, "a configuration `file` of weir serve; may be repeated")
	f.StringArrayVar(&s.limits, "limit", nil, "instead: a `limit`, as 'client=100/m burst=20 key=ip'; may be repeated")
	f.StringVar(&s.scenario, "scenario", "", "the `file` of a scenario, instead of logs")
	f.StringVar(&s.format, "format", "auto", "of the logs: "+traffic.FormatNames+", or a format `string` of nginx as '$remote_addr [$time_local] \"$request\" $status'")
	f.StringVar(&s.suggest, "suggest", "", "look for the smallest limits that refuse at most a `share`, as '0.1%' of requests or '0.1% of clients'")
	f.StringVar(&s.failOver, "fail-over", "", "exit with 1 if more than this `share` of any class or route is refused, as 1%")
	f.StringVar(&s.html, "html", "", "write a report for people to a `file`")
	f.BoolVar(&s.asJSON, "json", false, "print the results as JSON")
	f.BoolVar(&s.hash, "hash", false, "show keys as hashes: they name people")
	f.IntVar(&s.top, "top", 10, "how many keys to name")
	f.BoolVar(&s.noCompare, "no-compare", false, "leave out the other algorithms: faster")
	f.DurationVar(&s.disorder, "disorder", 10*time.Second, "how far out of order lines of a log may be")
	f.BoolVar(&s.whole, "whole-seconds", false, "leave requests at the whole second that a log has, instead of spreading them over it")
	f.DurationVar(&s.took, "took", 100*time.Millisecond, "how long answers take where a log does not say: for concurrency limits")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "no progress on the terminal")
	return cmd
}

func (s *simulating) run(cmd *cobra.Command, logs []string) error {
	goal, failOver, err := s.goals()
	if err != nil {
		return err
	}
	var scenario *traffic.Scenario
	switch {
	case s.scenario != "" && len(logs) > 0:
		return badUsage("simulate: a scenario or logs, not both")
	case s.scenario == "" && len(logs) == 0:
		return badUsage("simulate: nothing to simulate; give logs, - for standard input, or --scenario FILE")
	case s.scenario != "":
		if scenario, err = traffic.LoadScenario(s.scenario); err != nil {
			return badConfig(err)
		}
	}
	simulations, configs, err := s.simulations(goal)
	if err != nil {
		return err
	}
	if scenario != nil {
		for _, sim := range simulations {
			sim.Returns, sim.Seed = scenario.Clients.Returns, scenario.Seed
		}
	}
	page, err := s.createPage() // before reading for an hour
	if err != nil {
		return badUsage("simulate: --html: %v", err)
	}
	if page != nil {
		defer os.Remove(page.Name())
		defer page.Close()
	}
	var headers []string
	for _, cfg := range configs {
		headers = append(headers, cfg.KeyHeaders()...)
	}
	for i := range simulations {
		defer simulations[i].Close()
	}

	report := &traffic.SimulationReport{Source: sourceOf(logs)}
	progress := s.progress(cmd.ErrOrStderr())
	var read func(context.Context, func(*traffic.Event) error) error
	if scenario != nil {
		report.Source, report.Agreed = scenario.Name, scenario.Agreed.String()
		progress.of = int64(scenario.Total())
		read = func(ctx context.Context, f func(*traffic.Event) error) error { return readScenario(ctx, scenario, f) }
	} else {
		format, err := traffic.ParseFormat(s.format, headers...)
		if err != nil {
			return badUsage("simulate: --format: %v", trimmed(err))
		}
		for _, name := range logs {
			if _, err := os.Stat(name); name != "-" && err != nil {
				return badUsage("simulate: %v", trimmed(err))
			}
		}
		log := &traffic.Log{
			Files: logs, Stdin: cmd.InOrStdin(), Format: format, Headers: headers, Disorder: max(1, s.disorder), Whole: s.whole,
		}
		report.Log = &log.Stats
		read = log.Read
	}
	said := &sayings{headers: map[string]int64{}}
	err = traffic.Ahead(cmd.Context(), read, func(e *traffic.Event) error {
		said.add(e)
		for i := range simulations {
			if err := simulations[i].Add(e); err != nil {
				return err
			}
		}
		progress.step(e)
		return nil
	})
	progress.say("looking for the smallest limits", goal != nil && err == nil)
	for i := range simulations {
		if err != nil {
			break
		}
		var r *traffic.Simulated
		if r, err = simulations[i].Result(cmd.Context()); err == nil {
			report.Results = append(report.Results, r)
		}
	}
	progress.clear()
	if err != nil {
		return failed(fmt.Errorf("simulate: %w", trimmed(err)))
	}
	if s.hash && report.Log != nil { // lines name people too
		for i := range report.Log.Bad {
			report.Log.Bad[i].Text, report.Log.Bad[i].Why = "", ""
		}
	}
	report.Judge(scenario, failOver)
	report.Notes = s.notes(report, scenario, configs, said.notes(configs, scenario != nil))
	if page != nil {
		if err := s.writePage(page, report, scenario); err != nil {
			return failed(fmt.Errorf("simulate: %w", err))
		}
	}
	if s.asJSON {
		err = printJSON(cmd.OutOrStdout(), report)
	} else {
		err = printSimulation(cmd.OutOrStdout(), report)
	}
	switch {
	case err != nil:
		return failed(err)
	case report.Log != nil && report.Log.Events == 0:
		return failed(fmt.Errorf("simulate: no request in %s", traffic.CountOf(report.Log.Lines, "line", "lines")))
	case report.Log != nil && len(report.Log.Broken) > 0:
		return failed(fmt.Errorf("simulate: %s; what was read before is in the results", report.Log.Broken[0]))
	case !report.OK():
		return &exitError{code: exitFailure}
	}
	return nil
}

// sourceOf names the logs.
func sourceOf(logs []string) string {
	names := make([]string, len(logs))
	for i, name := range logs {
		if names[i] = name; name == "-" {
			names[i] = "standard input"
		}
	}
	return strings.Join(names, ", ")
}

// trimmed is err without the name of the package, which people do not know.
func trimmed(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "traffic: "); ok {
		return errors.New(text)
	}
	return err
}

func (s *simulating) goals() (*traffic.Goal, *traffic.Share, error) {
	var goal *traffic.Goal
	var failOver *traffic.Share
	if s.top < 1 || s.disorder < 0 || s.took < 0 {
		return nil, nil, badUsage("simulate: --top takes 1 or more, --disorder and --took no negative time")
	}
	if s.suggest != "" {
		goal = new(traffic.Goal)
		share, what, _ := strings.Cut(s.suggest, " ")
		switch strings.TrimSpace(what) {
		case "", "of requests":
		case "of clients", "of keys":
			goal.Clients = true
		default:
			return nil, nil, badUsage("simulate: --suggest %q: the form is 0.1%%, or '0.1%% of clients'", s.suggest)
		}
		if err := goal.Refused.UnmarshalText([]byte(share)); err != nil {
			return nil, nil, badUsage("simulate: --suggest: %v", trimmed(err))
		}
	}
	if s.failOver != "" {
		failOver = new(traffic.Share)
		if err := failOver.UnmarshalText([]byte(s.failOver)); err != nil {
			return nil, nil, badUsage("simulate: --fail-over: %v", trimmed(err))
		}
	}
	return goal, failOver, nil
}

// simulations is one for each policy, with its configuration.
func (s *simulating) simulations(goal *traffic.Goal) (all []*traffic.Simulation, configs []*gateway.Config, err error) {
	var names []string
	switch {
	case len(s.configs) > 0 && len(s.limits) > 0:
		return nil, nil, badUsage("simulate: --limit is for simulating without a file")
	case len(s.limits) > 0:
		cfg, err := gateway.Quick("http://127.0.0.1", s.limits, "")
		if err != nil {
			return nil, nil, badConfig(err)
		}
		names, configs = []string{"the limits"}, []*gateway.Config{cfg}
	case len(s.configs) > 0:
		for _, path := range s.configs {
			cfg, err := gateway.Load(path)
			if err != nil {
				return nil, nil, badConfig(err)
			}
			names, configs = append(names, path), append(configs, cfg)
		}
	default:
		return nil, nil, badUsage("simulate: no limits; give -c FILE, or --limit 'client=100/m burst=20'")
	}
	for i, cfg := range configs {
		policy, err := policyOf(names[i], cfg)
		if err != nil {
			return nil, nil, badConfig(err)
		}
		sim := &traffic.Simulation{Policy: policy, Top: s.top, Took: s.took, Suggest: goal}
		if s.noCompare {
			sim.Algorithms = []weir.Algorithm{}
		}
		if s.hash {
			sim.Names = hashedKey
		}
		all = append(all, sim)
	}
	return all, configs, nil
}

// hashedKey is a key as reports have it with --hash: the same in each run.
func hashedKey(key string) string {
	if key == "" {
		return ""
	}
	kind, _, ok := strings.Cut(key, ":")
	sum := sha256.Sum256([]byte(key))
	if !ok || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") != "" {
		kind = "key"
	}
	return kind + ":#" + hex.EncodeToString(sum[:6])
}

// policyOf is a configuration as weir serve would run it: the gateway itself says what each request is charged.
func policyOf(name string, cfg *gateway.Config) (traffic.Policy, error) {
	cfg.Admin.Address = "off"
	g, err := gateway.New(cfg, gateway.Options{Limiter: new(weir.Limiter)})
	if err != nil {
		return traffic.Policy{}, err
	}
	p := traffic.Policy{Name: name}
	for _, l := range cfg.Limits {
		p.Limits = append(p.Limits, &l.Limit)
	}
	var r http.Request
	p.Charge = func(e *traffic.Event, a *traffic.Ask) error {
		if err := requestOf(e, &r); err != nil {
			return err
		}
		charged, err := g.Charges(&r, gateway.Known{User: e.User, Client: e.Client}, a.Charges)
		a.Charges = charged.Charges
		if a.Class = charged.Route; e.Class != "" {
			a.Class = e.Class
		}
		if e.Client == traffic.RunawayClient && e.Class != "" {
			a.Class = traffic.RunawayClass
		}
		if charged.Settles() {
			a.Keeps = charged.Keeps
		}
		return err
	}
	return p, nil
}

// requestOf makes the request that a server would have got.
func requestOf(e *traffic.Event, r *http.Request) error {
	target, err := url.ParseRequestURI(e.Path)
	if err != nil {
		return err
	}
	header := r.Header
	if header == nil {
		header = make(http.Header)
	}
	clear(header)
	for _, f := range e.Header {
		header[f.Name] = append(header[f.Name], f.Value)
	}
	host := e.Host
	if target.Host != "" { // of a request to a forward proxy
		host = target.Host
	}
	*r = http.Request{
		Method: e.Method, URL: target, Host: host, RequestURI: e.Path, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: net.JoinHostPort(e.Client, "1"),
	}
	return nil
}

// readScenario is the scenario as a log would be read.
func readScenario(ctx context.Context, s *traffic.Scenario, f func(*traffic.Event) error) error {
	n := 0
	for e := range s.Events() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f(&e); err != nil {
			return err
		}
	}
	return nil
}

// notes are the small print; said is that of what keys are made of.
func (s *simulating) notes(r *traffic.SimulationReport, scenario *traffic.Scenario, configs []*gateway.Config, said []string) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if l := r.Log; l != nil {
		if l.Unreadable > 0 {
			add("%s of %s lines could not be read (%s), and count nowhere else.", traffic.Count(l.Unreadable), traffic.Count(l.Lines), traffic.Percent(l.Unreadable, l.Lines))
			for _, bad := range l.Bad {
				add("%s", bad)
			}
			if more := l.Unreadable - int64(len(l.Bad)); more > 0 {
				add("and %s", traffic.CountOf(more, "more line", "more lines"))
			}
		}
		for _, broken := range l.Broken {
			add("%s: what follows is missing.", broken)
		}
		if l.Late > 0 {
			add("%s more than %v out of order, and counted at the time of the line before: sort the log, or raise --disorder.", traffic.CountOf(l.Late, "line was", "lines were"), s.disorder)
		}
		if l.Spread > 0 {
			add("The log has whole seconds: %s spread evenly over theirs. In bursts shorter than a second more would be refused.", traffic.CountOf(l.Spread, "request was", "requests were"))
		}
	}
	notes = append(notes, said...)
	if scenario != nil {
		add("The requests are made up from the scenario, independent of each other, the same in each run.")
	}
	for _, p := range r.Results {
		in := ""
		if len(r.Results) > 1 {
			in = " (" + p.Policy + ")"
		}
		if p.Already > 0 {
			add("%s refused with 429 when the log was written; what their clients would have done otherwise is not known.%s", traffic.CountOf(p.Already, "request was", "requests were"), in)
		}
		if p.Invalid > 0 {
			add("%s that no server would let through to its limits, and that counts nowhere else.%s", traffic.CountOf(p.Invalid, "request is one", "requests are of a kind"), in)
		}
		if p.Free > 0 {
			add("%s no limit.%s", traffic.CountOf(p.Free, "request meets", "requests meet"), in)
		}
		if p.Overflowed > 0 {
			add("Memory was full: %s made for several keys together.%s", traffic.CountOf(p.Overflowed, "decision was", "decisions were"), in)
		}
		for i := range p.Limits {
			if l := &p.Limits[i]; l.KeysPart > 1 {
				add("Keys of the limit %q were counted as a sample, one in %d.%s", l.Name, l.KeysPart, in)
			}
		}
	}
	switch {
	case scenario == nil:
		add("Each refused request is refused once: clients that come back after Retry-After are not foreseen.")
	case scenario.Clients.Returns == nil:
		add("Each refused request is refused once: that clients come back after Retry-After is said by clients.returns of the scenario, and it says nothing.")
	default:
		add("%s of the refused, all but the runaway, come back once Retry-After has passed, and are counted as refused if they are never served. Other algorithms and suggested limits are without them.", scenario.Clients.Returns.Share)
	}
	for _, cfg := range configs {
		if slices.ContainsFunc(cfg.Routes, func(r *gateway.Route) bool { return r.Queue != nil }) {
			add("Queues of routes are not waited in: with weir serve some of the refused would be served late.")
			break
		}
	}
	return notes
}

// createPage makes the file that the report is written into, beside where it will be; nil if none is wanted.
func (s *simulating) createPage() (*os.File, error) {
	if s.html == "" {
		return nil, nil
	}
	page, err := os.CreateTemp(filepath.Dir(s.html), ".weir-simulate-*")
	var bad *os.PathError
	if errors.As(err, &bad) { // whose path is one that nobody has asked for
		err = fmt.Errorf("%s: %w", s.html, bad.Err)
	}
	return page, err
}

// writePage writes the HTML report, whole or not at all.
func (s *simulating) writePage(page *os.File, r *traffic.SimulationReport, scenario *traffic.Scenario) error {
	title := "What the limits would do: " + filepath.Base(r.Source)
	if scenario == nil && strings.Contains(r.Source, ", ") {
		title = "What the limits would do: " + fmt.Sprint(strings.Count(r.Source, ", ")+1) + " logs"
	}
	lead := "Real requests from access logs, put through limits before they are enforced."
	if scenario != nil {
		title = scenario.Name + ": what the limits would do"
		lead = "The traffic that is expected, put through the limits before it comes."
	}
	err := r.Page(title, lead, s.made()).WriteHTML(page)
	if err == nil {
		err = page.Chmod(0o644)
	}
	if closed := page.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(page.Name(), s.html)
}

// simulateProgress is one line on a terminal; elsewhere it is quiet.
type simulateProgress struct {
	w    io.Writer // nil: quiet
	n    int64
	of   int64 // about how many; 0: not known
	last time.Time
	from time.Time
}

func (s *simulating) progress(w io.Writer) *simulateProgress {
	p := &simulateProgress{from: time.Now()}
	if file, ok := w.(*os.File); ok && !s.quiet && term.IsTerminal(int(file.Fd())) {
		p.w = w
	}
	return p
}

func (p *simulateProgress) step(e *traffic.Event) {
	if p.n++; p.w == nil || p.n%1024 != 0 || time.Since(p.last) < 250*time.Millisecond {
		return
	}
	p.last = time.Now()
	share := ""
	if p.of > 0 {
		share = fmt.Sprintf(" of about %s", traffic.Count(p.of))
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s%s requests, %s a second; at %s", traffic.Count(p.n), share,
		traffic.Count(int64(float64(p.n)/time.Since(p.from).Seconds())), e.At.UTC().Format("2 Jan 15:04:05"))
}

func (p *simulateProgress) say(text string, doing bool) {
	if p.w != nil && doing {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	}
}

func (p *simulateProgress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
