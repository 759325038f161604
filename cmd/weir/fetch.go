package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/redisstore"
)

// fetching are the flags of weir fetch.
type fetching struct {
	runFlags

	url, items, out, report, profile, store string

	headers     []string
	itemTimeout time.Duration
	maxHold     time.Duration
	maxBody     int64
	guard       time.Duration
	json        bool
	resume      bool
}

func newFetch() *cobra.Command {
	f := &fetching{runFlags: runFlags{workers: 4, timeout: time.Minute, latency: time.Second, refused: 0.30, limited: 2}}
	cmd := &cobra.Command{
		Use:   "fetch [item ...]",
		Short: "Fetch many items from a limited API, and account for every one",
		Long: `fetch gets one URL for each item without ever asking faster than the server's limit, and writes the results only if the
whole run is sound: an item that could not be fetched is never taken for one that did not change.

Items come from the arguments, from --items FILE (one a line; a # at its start or after a blank begins a comment) or from
standard input with --items -. Each ends in exactly one column: changed, same, not modified, unknown upstream, or not fetched with a
reason. Over the thresholds nothing is written, and a server that refuses one item after the other is not asked for the rest. A
journal keeps what was fetched; --resume goes on with it.

Secrets do not belong into arguments: --header 'Authorization: env:TOKEN' takes the value from an environment variable,
'apiKey: file:key.txt' from a file. Neither is ever printed.

Exit codes: 0 complete; 1 the verdict is no, or something failed: no results were written; 2 wrong arguments; 3 interrupted,
--resume goes on.`,
		Example: `  weir fetch --url 'https://api.example/v1/{id}' --rate 5/30s --items ids.txt --out results.jsonl
  weir fetch --url 'https://api.example/v1/{id}' --rate 5/30s --items ids.txt --plan`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd, "items")
	fl := cmd.Flags()
	fl.StringVar(&f.url, "url", "", "the `URL` of an item, with {id} where it goes")
	fl.StringVar(&f.items, "items", "", "a `file` of items, one a line; - is standard input")
	fl.StringArrayVar(&f.headers, "header", nil, "a header `'Name: value'`; the value may be env:VARIABLE or file:PATH")
	fl.DurationVar(&f.guard, "guard", 0, "how much longer than the period to wait, for clocks and ways that differ")
	fl.StringVar(&f.profile, "profile", "", "the `provider` whose answers to expect, as github or nvd; found out by itself if not given")
	fl.StringVar(&f.store, "store", "", "a Redis `URL`, so that several machines share one limit")
	fl.StringVar(&f.out, "out", "results.jsonl", "the `file` of results, a line of JSON an item")
	fl.StringVar(&f.report, "report", "", "a `file` for the account of the run; written whatever the verdict")
	fl.BoolVar(&f.json, "expect-json", true, "take only valid JSON for an answer")
	fl.DurationVar(&f.itemTimeout, "item-timeout", 0, "for one item with all waiting and attempts; 0 is none")
	fl.DurationVar(&f.maxHold, "max-hold", 10*time.Minute, "the longest wait that a server may ask for")
	fl.Int64Var(&f.maxBody, "max-body", 16<<20, "the most `bytes` of one answer")
	fl.BoolVar(&f.resume, "resume", false, "go on with the journal of a run that was not finished")
	return cmd
}

func (f *fetching) run(cmd *cobra.Command, args []string) error {
	items, err := f.readItems(cmd.Context(), cmd.InOrStdin(), args)
	if err != nil {
		return err
	}
	target, header, err := f.target()
	if err != nil {
		return err
	}
	plan, gate, err := f.gate(distinct(items))
	if err != nil {
		return err
	}
	if err := f.checkFiles(); err != nil {
		return err
	}
	if f.plan {
		return f.printPlan(cmd.OutOrStdout(), plan)
	}
	transport := &httplimit.Transport{
		Base:     &batch.Meter{Refused: f.refusal(target)},
		Gates:    gate,
		MaxHold:  f.maxHold,
		Timeout:  f.timeout,
		ReadBody: f.maxBody,
		Retry:    &httplimit.Retry{},
	}
	if f.profile != "" {
		transport.Profile = httplimit.ProfileNamed(f.profile)
	}
	if f.store != "" {
		conn, err := redisstore.Open(f.store)
		if err != nil {
			return badUsage("--store: %v", err)
		}
		defer conn.Close()
		// Nobody waits for a fetch as for a page: a Redis far away may take its time.
		transport.Limiter = &weir.Limiter{Store: &redisstore.Store{Client: conn, Timeout: 2 * time.Second}}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		if err := conn.Ping(ctx); err != nil {
			return failed(fmt.Errorf("--store %s cannot be used, and nothing was sent: %w", shownURL(f.store), err))
		}
	}
	if err := transport.Validate(); err != nil {
		return badUsage("%v", err)
	}
	if f.store == "" && len(gate) > 0 {
		transport.Limiter = new(weir.Limiter)
		if err := f.remember(cmd.Context(), transport.Limiter, gate[0], target); err != nil {
			return failed(err)
		}
	}
	watch := newFetchProgress(cmd.ErrOrStderr(), f.quiet, plan)
	transport.Observe = watch.event
	source := &batch.HTTP{
		Client: &http.Client{Transport: transport}, URL: f.url, Header: header, MaxBody: f.maxBody, JSON: f.json,
		Refused: f.refusal(target), Reason: reasonOf,
	}
	run := &batch.Run{
		Name: f.url, Items: items, Fetch: source.Fetch, Workers: f.workers, Timeout: f.itemTimeout,
		Out: f.out, Resume: f.resume, Progress: watch.item,
		Thresholds: f.thresholds(cmd), ShutOut: max(2, f.limited), // the verdict is certain then
	}
	rep, err := run.Do(cmd.Context())
	watch.end()
	rep.Name = shownURL(f.url)
	return f.tell(cmd, plan, rep, err)
}

// gate is the server's limit as a gate, and what it means for the run.
func (f *fetching) gate(items int) (batch.Plan, []httplimit.Gate, error) {
	plan := batch.Plan{Requests: items, Workers: f.workers, Latency: f.latency}
	rate, err := f.check()
	if err != nil {
		return plan, nil, err
	}
	if f.profile != "" && httplimit.ProfileNamed(f.profile) == nil {
		var names []string
		for _, p := range httplimit.Profiles {
			names = append(names, p.Name)
		}
		return plan, nil, badUsage("--profile %q: none of %s", f.profile, strings.Join(names, ", "))
	}
	for flag, d := range map[string]time.Duration{"latency": f.latency, "item-timeout": f.itemTimeout} {
		if d < 0 {
			return plan, nil, badUsage("--%s %v: want 0 or more", flag, d)
		}
	}
	if f.rate == "" && f.guard != 0 {
		return plan, nil, badUsage("--guard: it is for the period of --rate, which is not there")
	}
	if f.rate == "" {
		return plan, nil, nil
	}
	if rate.Units == 0 {
		return plan, nil, badUsage("--rate %s: nothing would ever be sent", f.rate)
	}
	gate := httplimit.Gate{Limit: &weir.Limit{Name: "fetch", Algorithm: weir.SlidingLog, Rate: rate}, Guard: f.guard}
	if err := gate.Validate(); err != nil {
		return plan, nil, badUsage("--rate: %v", err)
	}
	plan.Units, plan.Window = int(rate.Units), rate.Period+max(0, f.guard)
	return plan, []httplimit.Gate{gate}, nil
}

// refusal tells a refusal by a limit from other answers, as the provider does.
func (f *fetching) refusal(u *url.URL) func(*http.Response) bool {
	profile := httplimit.ProfileFor(u)
	if f.profile != "" {
		profile = httplimit.ProfileNamed(f.profile)
	}
	return func(resp *http.Response) bool {
		if resp.StatusCode < 400 {
			return false
		}
		var start []byte
		if resp.StatusCode == http.StatusForbidden { // at some providers it may mean either, and the page tells
			const most = 4 << 10
			page := resp.Body
			start, _ = io.ReadAll(io.LimitReader(page, most))
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(start), page), page}
		}
		a := httplimit.ReadAnswer(resp.StatusCode, resp.Header, start, time.Now(), profile)
		return a.Refused()
	}
}

// reasonOf reads the errors of the transport.
func reasonOf(err error) batch.Reason {
	var hold *httplimit.HoldError
	var limited *weir.LimitedError
	var body *httplimit.BodyError
	var open *httplimit.BreakerError
	switch {
	case errors.As(err, &hold):
		return batch.RateLimited
	case errors.As(err, &limited):
		return batch.GaveUp
	case errors.Is(err, httplimit.ErrBodyTooLarge):
		return batch.TooLarge
	case errors.As(err, &open):
		return batch.Server
	case errors.As(err, &body):
		return batch.Network
	}
	return ""
}

func (f *fetching) printPlan(w io.Writer, p batch.Plan) error {
	if f.asJSON {
		return failed(printJSON(w, map[string]any{
			"requests": p.Requests, "units": p.Units, "window_seconds": p.Window.Seconds(), "workers": p.Workers,
			"workers_needed": p.WorkersNeeded(), "latency_seconds": p.Latency.Seconds(),
			"bound_seconds": p.Bound().Seconds(), "expected_seconds": p.Simulate().Seconds(),
		}))
	}
	_, err := fmt.Fprintf(w, "%s\nexpected: %v\n", p, p.Simulate().Round(time.Millisecond))
	return failed(err)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
