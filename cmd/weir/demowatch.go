package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/vulnwatch"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// watchDemo is weir demo watch.
type watchDemo struct {
	out    string
	from   string
	cves   int
	window time.Duration
	asJSON bool
}

func newDemoWatch() *cobra.Command {
	d := &watchDemo{}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show a watched list of CVEs over four days, two of them broken",
		Long: `A made-up NVD and a made-up KEV catalogue live through four days in this process, with the NVD's limit of 5 requests in a
window that is 20 times as short. weir watch checks a list each day: first all of it, then what was edited; on the third day
the NVD refuses too much, and nothing is published; on the fourth, CISA's catalogue is truncated, its mirror is not, and what was
missed is told. The site stays to be looked at. It takes about 15 seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	cmd.Flags().StringVar(&d.out, "out", "", "a new `folder` for the site; not given: a temporary one")
	cmd.Flags().IntVar(&d.cves, "cves", 750, "how long the list is")
	cmd.Flags().StringVar(&d.from, "records", "", "a `folder` of answers of the NVD's API 2.0, *.json, and a known_exploited_vulnerabilities.json, to be edited instead of made-up ones")
	cmd.Flags().DurationVar(&d.window, "window", 1500*time.Millisecond, "the window of the limit; the NVD's is 30s")
	cmd.Flags().BoolVar(&d.asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

// watchedDay is what a day came to.
type watchedDay struct {
	Day       int                `json:"day"`
	What      string             `json:"what"`
	Edits     []nvdtest.Edit     `json:"edits"`         // that the NVD and CISA made
	Asked     int                `json:"requests"`      // that the NVD had
	Refused   int                `json:"refused"`       // of them, by its limit
	Bound     float64            `json:"bound_seconds"` // the least that asking could take
	Published bool               `json:"published"`     //
	Untouched bool               `json:"untouched"`     // the site is what it was, but for its stale mark
	Report    vulnwatch.Report   `json:"report"`        //
	Changes   []vulnwatch.Change `json:"changes"`       // that were published
	edition   *vulnwatch.Edition // nil if there is none
	err       error
}

func (d *watchDemo) run(cmd *cobra.Command) error {
	switch {
	case d.cves < 100 || d.cves > 100_000:
		return badUsage("demo watch: --cves %d: want 100 to 100000", d.cves)
	case d.window < 100*time.Millisecond || d.window > 30*time.Second:
		return badUsage("demo watch: --window %v: want 100ms to 30s", d.window)
	}
	if _, err := os.Lstat(d.out); err == nil { // days of another demo, which this one's would contradict
		return badUsage("demo watch: --out %s is there already; give a new one", d.out)
	}
	if d.out == "" {
		dir, err := os.MkdirTemp("", "weir-demo-watch-")
		if err != nil {
			return failed(err)
		}
		d.out = filepath.Join(dir, "site")
	}
	world, err := d.world()
	if err != nil {
		return err
	}
	world.StartAt(time.Now().AddDate(0, 0, -3).Add(-time.Hour))
	server := &nvdtest.Server{World: world, Window: d.window, Latency: d.window / 20}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failed(err)
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(listener)
	defer web.Close()

	var days []watchedDay
	for n, day := range []struct {
		what   string
		faults []nvdtest.Fault
	}{
		{what: "the first check"},
		{what: "an ordinary day"},
		{what: "the NVD refuses", faults: []nvdtest.Fault{{Kind: nvdtest.Status, Status: http.StatusTooManyRequests, IDs: world.IDs()[:min(20, len(world.IDs()))]}}},
		{what: "CISA's catalogue is truncated", faults: []nvdtest.Fault{{Kind: nvdtest.Truncated, At: nvdtest.KEV}}},
	} {
		today := watchedDay{Day: n + 1, What: day.what}
		if n > 0 {
			today.Edits = world.NextDay()
			select { // a night is at least a window long
			case <-time.After(d.window):
			case <-cmd.Context().Done():
			}
		}
		server.Clear()
		server.Inject(day.faults...)
		server.Forget()
		if !d.asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "\nDay %d: %s\n", today.Day, today.What)
		}
		if err := d.check(cmd.Context(), "http://"+listener.Addr().String(), world.IDs(), &today); err != nil {
			return failed(err)
		}
		today.Asked, today.Refused = server.Asked()
		for _, r := range server.Requests() {
			if r.Endpoint == nvdtest.NVD && r.Status == http.StatusTooManyRequests && !r.Refused {
				today.Refused++ // by the fault
			}
		}
		days = append(days, today)
		if !d.asJSON {
			today.tell(cmd.OutOrStdout())
		}
	}
	if d.asJSON {
		return failed(printJSON(cmd.OutOrStdout(), map[string]any{"site": d.out, "cves": d.cves, "window_seconds": d.window.Seconds(), "days": days}))
	}
	return failed(d.summary(cmd.OutOrStdout(), days))
}

// world is what the demo is about.
func (d *watchDemo) world() (*nvdtest.World, error) {
	if d.from == "" {
		return nvdtest.Synthetic(uint64(d.cves), d.cves), nil
	}
	world, err := nvdtest.Load(os.DirFS(d.from))
	if err != nil {
		return nil, badUsage("demo watch: --records %s: %v", d.from, err)
	}
	const least = 10 // fewer cannot show a day that is refused
	d.cves = len(world.IDs())
	if d.cves < least {
		return nil, badUsage("demo watch: --records %s: %d CVEs, want %d or more", d.from, d.cves, least)
	}
	return world, nil
}

// check is one check. An error is one of the demo, not of the check.
func (d *watchDemo) check(ctx context.Context, base string, ids []string, today *watchedDay) error {
	nvd := &vulnwatch.NVD{URL: base + nvdtest.NVDPath, Rate: weir.Rate{Units: 5, Period: d.window}}
	t := nvd.Transport(nil)
	t.Retry.Refusals = 2 // or the broken day would take a minute
	nvd.Client = &http.Client{Transport: t}
	w := vulnwatch.Watch{
		IDs: ids, Out: d.out, Title: "Watched CVEs (made up)", NVD: nvd,
		KEV: &vulnwatch.KEV{URLs: []string{base + nvdtest.KEVPath, base + nvdtest.MirrorPath}},
	}
	gate := t.Gates[0]
	plan := batch.Plan{Requests: (len(ids) + 99) / 100, Units: 5, Window: gate.Limit.Rate.Period + gate.Guard, Workers: 5, Latency: d.window / 20}
	today.Bound = plan.Bound().Seconds()
	before, err := siteHash(d.out)
	if err != nil {
		return err
	}
	e, err := w.Run(ctx)
	if errors.Is(err, vulnwatch.ErrInterrupted) {
		return errors.New("demo watch: interrupted")
	}
	if err != nil && !errors.Is(err, vulnwatch.ErrIncomplete) {
		return err
	}
	after, hashErr := siteHash(d.out)
	if hashErr != nil {
		return hashErr
	}
	today.edition, today.err = e, err
	today.Published, today.Untouched = err == nil, before == after
	today.Report, today.Changes = e.Report, e.New
	return nil
}

func (day *watchedDay) tell(w io.Writer) {
	if len(day.Edits) > 0 {
		fmt.Fprintf(w, "  made upstream since yesterday: %s\n", counted(len(day.Edits), "edit"))
	}
	out := &indented{w: w}
	tellWatch(out, day.edition)
	fmt.Fprintln(out, "verdict:", watchVerdict(day.edition, day.err))
	fmt.Fprintf(w, "  the NVD had %s and refused %d; the least possible time was %.1f s, it took %.1f s\n",
		counted(day.Asked, "request"), day.Refused, day.Bound, day.Report.Ended.Sub(day.Report.Started).Seconds())
	switch {
	case day.Published:
		fmt.Fprintln(w, "  → published")
	case day.Untouched:
		fmt.Fprintln(w, "  → nothing was published: the site is byte for byte that of the day before, but for its stale mark")
	default:
		fmt.Fprintln(w, "  → nothing was published, and yet the site has changed: this is a bug of weir")
	}
}

// summary tells the history in plain words.
func (d *watchDemo) summary(w io.Writer, days []watchedDay) error {
	last := days[len(days)-1].edition
	shown := last.History[max(0, len(last.History)-5):]
	fmt.Fprintf(w, "\nThe history, the last %d of %s:\n", len(shown), counted(len(last.History), "line"))
	for _, c := range shown {
		fmt.Fprintf(w, "  %s  %-16s  %s\n", c.Time.Local().Format("15:04:05"), c.CVE, shownText(c.Text))
		if n := len(c.Also); n > 0 {
			fmt.Fprintf(w, "  %27s and %s\n", "", counted(n, "more CVE"))
		}
	}
	_, err := fmt.Fprintf(w, "\nThe site: %s\n", filepath.Join(d.out, "index.html"))
	return err
}

// indented writes each line a little to the right.
type indented struct {
	w      io.Writer
	inLine bool
}

func (i *indented) Write(p []byte) (int, error) {
	for n, b := range p {
		if !i.inLine {
			if _, err := io.WriteString(i.w, "  "); err != nil {
				return n, err
			}
		}
		i.inLine = b != '\n'
		if _, err := i.w.Write([]byte{b}); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// siteHash is one of all files of a site but its stale mark.
func siteHash(dir string) (string, error) {
	root, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "status.json" || e.Name() == "status.css" {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d ", path, len(b)) // the path has the edition in it
		h.Write(b)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
