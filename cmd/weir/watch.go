package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/vulnwatch"
)

// watching are the flags of weir watch.
type watching struct {
	runFlags

	list, out, keyFile, nvdURL, title, siteURL string

	kevURLs   []string
	every     time.Duration
	gone      float64
	kevShrink float64
}

func newWatch() *cobra.Command {
	f := &watching{runFlags: runFlags{workers: 5, timeout: 150 * time.Second, latency: 4 * time.Second, limited: 2}}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Check every CVE of a list against NVD and CISA KEV, and publish what changed",
		Long: `watch asks the NVD for every CVE of a list, up to 100 in one request and inside its limit, gets CISA's catalogue of known
exploited vulnerabilities, and publishes a site: an index, a page a CVE with its history, Atom and JSON feeds. What could not be
fetched is never read as "no change": over the thresholds nothing is published, and the pages of the last complete
check, if there are any, stay, marked stale.

The list has one id a line; # begins a comment. A line that is no CVE id stops nothing: the verdict and the pages name it, and
the exit code is what it is for the others. The key for the NVD, which raises its limit from 5 to 50 requests in 30 s, is
read from a file. --out becomes a symbolic link that is turned over to each new edition at once.

With --every it goes on as a service: the first check at once, then one each period. A check that failed is repeated
after a twelfth of the period.

Exit codes: 0 complete and published; 1 incomplete, or something failed: nothing was published; 2 wrong arguments, or no list
that can be read and has an id; 3 interrupted. A service that is told to stop ends with 0.

This product uses data from the NVD API but is not endorsed or certified by the NVD.`,
		Example: `  weir watch --list cves.txt --out site
  weir watch --list cves.txt --out /srv/cves --nvd-key-file /etc/weir/nvd.key --every 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd, "CVEs")
	fl := cmd.Flags()
	for flag, usage := range map[string]string{
		"rate":              "the `limit` of --nvd-url if it is not the NVD's 5/30s, with a key 50/30s",
		"workers":           "`requests` at once; with a key and thousands of CVEs more are of use, see --plan",
		"timeout":           "for one answer of the NVD, to its end; it can be slow with a hundred records",
		"plan":              "say what a check will take, send nothing",
		"json":              "print a JSON object a check",
		"max-refused-share": "fail over this `share` of requests refused; without it, over 0.3 of 20 requests or more",
	} {
		fl.Lookup(flag).Usage = usage
	}
	fl.StringVar(&f.list, "list", "", "the `file` of CVE ids, one a line")
	fl.StringVar(&f.out, "out", "", "the `folder` of the site; it must be new, or one that weir made")
	fl.StringVar(&f.keyFile, "nvd-key-file", "", "a `file` with an API key of the NVD")
	fl.StringVar(&f.nvdURL, "nvd-url", vulnwatch.NVDURL, "the NVD's API 2.0, or what serves as it")
	fl.StringArrayVar(&f.kevURLs, "kev-url", []string{vulnwatch.KEVURL, vulnwatch.KEVMirror}, "a `URL` of CISA's catalogue; several are tried in their order")
	fl.DurationVar(&f.every, "every", 0, "check again and again, with this `period`")
	fl.StringVar(&f.title, "title", "", "what the pages are called")
	fl.StringVar(&f.siteURL, "site-url", "", "where the site is published, for links in the feeds, as https://example.org/cves/")
	fl.Float64Var(&f.gone, "max-gone-share", 0.01, "take it for a broken answer if the NVD knows more than this `share` of its CVEs no longer")
	fl.Float64Var(&f.kevShrink, "max-kev-shrink", 0.01, "refuse a catalogue that has lost more than this `share` of its entries")
	return cmd
}

func (f *watching) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	key, err := f.readKey()
	if err != nil {
		return f.cannot(cmd, err)
	}
	ids, problems, err := f.readList()
	if err != nil {
		return f.cannot(cmd, err)
	}
	if f.plan {
		f.sayList(cmd.ErrOrStderr(), problems)
		_, err := fmt.Fprintln(cmd.OutOrStdout(), f.planned(ids, key))
		return failed(err)
	}
	if f.every == 0 {
		return f.exit(f.once(cmd.Context(), cmd, key, ids, problems))
	}
	return f.serve(cmd, key, ids, problems)
}

// cannot is for a check that ends before it asked anything, for the files that it needs. The pages are marked: a timer
// that runs into it every day would leave them looking fresh for ever.
func (f *watching) cannot(cmd *cobra.Command, err error) error {
	if !f.plan {
		why := err.Error() // without the folders of this machine
		for _, file := range []string{f.list, f.keyFile} {
			if file != "" {
				why = strings.ReplaceAll(why, file, filepath.Base(file))
			}
		}
		if stale := vulnwatch.MarkStale(f.out, errors.New(why)); stale != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "the pages could not be marked stale:", stale)
		}
	}
	return err
}

// check looks at the flags.
func (f *watching) check() error {
	switch {
	case f.list == "":
		return badUsage("--list is missing: a file of CVE ids, one a line")
	case f.out == "" && !f.plan:
		return badUsage("--out is missing: the folder of the site")
	case f.every < 0 || f.every > 0 && f.every < time.Second:
		return badUsage("--every %v: want a second or more", f.every)
	case f.timeout <= 0:
		return badUsage("--timeout %v: want a time above 0", f.timeout)
	}
	if _, err := f.runFlags.check(); err != nil {
		return err
	}
	if err := cmp.Or(checkShare("max-gone-share", f.gone), checkShare("max-kev-shrink", f.kevShrink)); err != nil {
		return err
	}
	for _, address := range append([]string{f.nvdURL}, f.kevURLs...) {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return badUsage("%q: want http:// or https:// and a host", address)
		}
	}
	return nil
}

func (f *watching) readKey() (string, error) {
	if f.keyFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(f.keyFile)
	if err != nil {
		return "", badUsage("--nvd-key-file: %v", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", badUsage("--nvd-key-file %s: want one key, in one line", f.keyFile)
	}
	if u, _ := url.Parse(f.nvdURL); u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return "", badUsage("--nvd-url %s: a key is sent over https only", f.nvdURL)
	}
	return key, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (f *watching) readList() (ids []string, problems []vulnwatch.Problem, err error) {
	ids, problems, err = vulnwatch.ListFile(f.list)
	if err != nil {
		return nil, nil, badConfig(err)
	}
	if len(ids) == 0 {
		const named = 3
		var said []string
		for _, p := range problems[:min(named, len(problems))] {
			said = append(said, p.String())
		}
		if n := len(problems) - named; n > 0 {
			said = append(said, fmt.Sprintf("and %s like that", counted(n, "more line")))
		}
		return nil, nil, badUsage("--list %s: no CVE ids in it: %s", f.list, strings.Join(append(said, "one a line is wanted"), "; "))
	}
	return ids, problems, nil
}

func (f *watching) sayList(w io.Writer, problems []vulnwatch.Problem) {
	for _, p := range problems {
		fmt.Fprintf(w, "%s: %s\n", f.list, printable(p.String()))
	}
}

func (f *watching) nvd(key string) *vulnwatch.NVD {
	n := &vulnwatch.NVD{URL: f.nvdURL, Key: key, Workers: f.workers}
	n.Rate, _ = f.runFlags.check() // that it can be read has been seen
	return n
}

// planned is what a check will take, by the gate that it will have.
func (f *watching) planned(ids []string, key string) batch.Plan {
	gate := f.nvd(key).Transport(nil).Gates[0]
	rate := gate.Limit.Rate
	return batch.Plan{
		Requests: (len(ids) + 99) / 100, Units: int(rate.Units), Window: rate.Period + gate.Guard,
		Workers: f.workers, Latency: f.latency,
	}
}

// once is one check.
func (f *watching) once(ctx context.Context, cmd *cobra.Command, key string, ids []string, problems []vulnwatch.Problem) error {
	plan := f.planned(ids, key)
	f.sayList(cmd.ErrOrStderr(), problems)
	if !f.asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", counted(len(ids), "CVE"), plan)
	}
	progress := newFetchProgress(cmd.ErrOrStderr(), f.quiet || f.asJSON, plan)
	nvd := f.nvd(key)
	transport := nvd.Transport(nil)
	transport.Timeout, transport.Observe = f.timeout, progress.event
	nvd.Client = &http.Client{Transport: transport}
	nvd.Progress = func(settled int) { progress.reached(settled * plan.Requests / len(ids)) }
	kev := vulnwatch.KEVTransport(nil)
	kev.Observe = func(e httplimit.Event) {
		if e.Kind == httplimit.Waiting || e.Kind == httplimit.Retrying {
			batch.CounterOf(e.Request.Context()).Wait(e.Wait)
		}
	}
	w := vulnwatch.Watch{
		IDs: ids, Problems: problems, Out: f.out, Title: f.title, URL: f.siteURL, NVD: nvd,
		KEV:        &vulnwatch.KEV{URLs: f.kevURLs, Client: &http.Client{Transport: kev}, Shrink: given(cmd, "max-kev-shrink", f.kevShrink)},
		Thresholds: f.thresholds(cmd),
		GoneShare:  given(cmd, "max-gone-share", f.gone),
	}
	e, err := w.Run(ctx)
	progress.end()
	transport.CloseIdleConnections()
	if e == nil {
		return err
	}
	if f.asJSON {
		return errors.Join(err, printJSON(cmd.OutOrStdout(), watched{plan.Bound().Seconds(), f.out, err == nil, e.Report, e.New}))
	}
	tellWatch(cmd.OutOrStdout(), e)
	if err != nil { // which says the reason, on standard error
		fmt.Fprintln(cmd.OutOrStdout(), "verdict: no: nothing was published")
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "verdict:", watchVerdict(e, err))
	fmt.Fprintln(cmd.OutOrStdout(), "published:", f.out)
	return nil
}

// reached is for those who count what is done themselves.
func (p *fetchProgress) reached(done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
}

// watched is a check as JSON.
type watched struct {
	Bound     float64            `json:"bound_seconds"` // the least that it could take
	Out       string             `json:"out"`
	Published bool               `json:"published"`
	Report    vulnwatch.Report   `json:"report"`
	Changes   []vulnwatch.Change `json:"changes"`
}

// tellWatch prints the account of a check, but for its verdict.
func tellWatch(w io.Writer, e *vulnwatch.Edition) {
	rep := &e.Report
	if rep.KEV.URL != "" { // else the verdict says why there was none
		for _, tried := range rep.KEV.Tried {
			fmt.Fprintln(w, "KEV: not from", printable(tried))
		}
		entries := fmt.Sprintf("%d entries", rep.KEV.Entries)
		if rep.KEV.Entries == 1 {
			entries = "1 entry"
		}
		fmt.Fprintf(w, "KEV: %s from %s", entries, rep.KEV.URL)
		if !rep.KEV.Released.IsZero() {
			fmt.Fprintf(w, ", released %s, %s ago", rep.KEV.Released.Format("2006-01-02 15:04 UTC"), ago(rep.Ended.Sub(rep.KEV.Released)))
		}
		if rep.KEV.NotModified {
			fmt.Fprint(w, ", not modified since the last check")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s; %v\n", columnsOf(rep), rep.Ended.Sub(rep.Started).Round(10*time.Millisecond))
	if rep.Drift > 0 {
		fmt.Fprintf(w, "of a shape that weir does not know, and not read, so that what was known stays: %s\n", counted(rep.Drift, "value"))
	}
	const shown = 20
	tellLost(w, rep.Lost)
	for i, c := range e.New {
		if i == shown {
			fmt.Fprintf(w, "… and %d more\n", len(e.New)-shown)
			break
		}
		fmt.Fprintf(w, "changed: %s: %s\n", c.CVE, shownText(c.Text))
	}
}

// columnsOf is the ledger in the words of a watch: what is there for the first time has not changed.
func columnsOf(rep *vulnwatch.Report) string {
	l := &rep.Ledger
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", counted(l.Items, "CVE"))
	if rep.New > 0 {
		fmt.Fprintf(&b, "%d new, ", rep.New)
	}
	fmt.Fprintf(&b, "%d changed, %d same, %d unknown upstream, %d not fetched", l.Changed-rep.New, l.Same+l.NotModified, l.Unknown, l.NotFetched)
	sep := " ("
	for _, r := range batch.Reasons {
		if n := l.Reasons[r]; n > 0 {
			fmt.Fprintf(&b, "%s%s %d", sep, r, n)
			sep = ", "
		}
	}
	if sep == ", " {
		b.WriteByte(')')
	}
	fmt.Fprintf(&b, "; %s, %d to the NVD and %d for KEV, %d refused", counted(l.Requests, "request"), l.Requests-rep.KEV.Requests, rep.KEV.Requests, l.Refusals)
	return b.String()
}

// watchVerdict is what a check came to, in one line.
func watchVerdict(e *vulnwatch.Edition, err error) string {
	if err != nil {
		return "no: " + printable(e.Report.Verdict)
	}
	text := "ok, complete"
	if e.Report.NoIDs != "" {
		text += ", but " + printable(e.Report.NoIDs)
	}
	if e.First {
		return text + "; the first check, so there is nothing to compare with"
	}
	return fmt.Sprintf("%s; %s, %d in all", text, counted(len(e.New), "change"), len(e.History))
}

// counted is as: 1 CVE, 2 CVEs.
func counted(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return fmt.Sprintf("%d %s", n, one)
}

// shownText is what upstream says, for one line on a terminal.
func shownText(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return printable(s)
}

// tellLost names what was not fetched, all that ended alike in one line.
func tellLost(w io.Writer, lost []vulnwatch.Lost) {
	type end struct {
		reason batch.Reason
		detail string
	}
	ids := make(map[end][]string)
	var ends []end
	for _, l := range lost {
		e := end{l.Reason, l.Detail}
		if ids[e] == nil {
			ends = append(ends, e)
		}
		ids[e] = append(ids[e], l.ID)
	}
	const shown, named = 20, 5
	for i, e := range ends {
		if i == shown {
			fmt.Fprintf(w, "… and %d more reasons\n", len(ends)-shown)
			break
		}
		some := strings.Join(ids[e][:min(named, len(ids[e]))], ", ")
		if n := len(ids[e]) - named; n > 0 {
			some += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "not fetched: %s: %s (%s)\n", some, shownText(e.detail), e.reason)
	}
}

// ago is how long ago something was, as people say it.
func ago(d time.Duration) string {
	n, unit := max(0, d)/time.Minute, "minute"
	switch {
	case d >= 48*time.Hour:
		n, unit = d/(24*time.Hour), "day"
	case d >= time.Hour:
		n, unit = d/time.Hour, "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// exit turns the end of a check into an exit code.
func (f *watching) exit(err error) error {
	if errors.Is(err, vulnwatch.ErrInterrupted) {
		return &exitError{code: exitInterrupted, err: err}
	}
	return failed(err)
}

// serve checks again and again, until it is told to stop. The list is read anew each time.
func (f *watching) serve(cmd *cobra.Command, key string, ids []string, problems []vulnwatch.Problem) error {
	ctx := cmd.Context()
	for n := 1; ; n++ {
		began := time.Now()
		err := error(nil)
		if n > 1 {
			ids, problems, err = f.readList()
		}
		if err == nil {
			err = f.once(ctx, cmd, key, ids, problems)
		} else {
			err = f.cannot(cmd, err)
		}
		if err != nil && !errors.Is(err, vulnwatch.ErrInterrupted) { // also if it is told to stop just now
			fmt.Fprintln(cmd.ErrOrStderr(), err)
		}
		if ctx.Err() != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "weir watch: stopped")
			return nil
		}
		next := nextCheck(began, time.Now(), f.every, err != nil)
		if !f.asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), "next check:", next.Format("2006-01-02 15:04:05 MST"))
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			fmt.Fprintln(cmd.ErrOrStderr(), "weir watch: stopped")
			return nil
		}
	}
}

// nextCheck is when to check again. A little of it is random, so that not everybody who started at midnight asks at midnight.
func nextCheck(began, ended time.Time, every time.Duration, failed bool) time.Time {
	next := began.Add(every)
	if failed {
		next = ended.Add(every / 12)
	}
	if next.Before(ended) {
		next = ended
	}
	return next.Add(rand.N(min(every/100, time.Minute) + 1))
}
