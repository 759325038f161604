package vulnwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// bench is a Watch of a made-up world over loopback. There is no limit unless a test sets one.
type bench struct {
	*testing.T
	world  *nvdtest.World
	server *nvdtest.Server
	url    string
	watch  *Watch
	client *httplimit.Transport
}

func newBench(t *testing.T, cves int) *bench {
	t.Helper()
	b := &bench{T: t, world: nvdtest.Synthetic(1, cves)}
	b.server = &nvdtest.Server{World: b.world, Key: "good-key", Units: -1, KeyUnits: -1}
	ts := httptest.NewServer(b.server)
	t.Cleanup(ts.Close)
	b.url = ts.URL
	nvd := &NVD{URL: ts.URL + nvdtest.NVDPath, Rate: weir.Rate{Units: 100_000, Period: time.Second}}
	b.client = nvd.Transport(&http.Transport{})
	b.client.Retry.Base, b.client.Retry.Max, b.client.Retry.Budget = time.Millisecond, time.Millisecond, -1
	nvd.Client = &http.Client{Transport: b.client}
	kev := KEVTransport(&http.Transport{})
	kev.Retry.Base = time.Millisecond
	t.Cleanup(func() { b.client.CloseIdleConnections(); kev.CloseIdleConnections() })
	b.watch = &Watch{
		IDs: b.world.IDs(), Out: filepath.Join(t.TempDir(), "site"), NVD: nvd,
		KEV: &KEV{URLs: []string{ts.URL + nvdtest.KEVPath, ts.URL + nvdtest.MirrorPath}, Client: &http.Client{Transport: kev}},
	}
	return b
}

// run is a check that must succeed.
func (b *bench) run() *Edition {
	b.Helper()
	e, err := b.watch.Run(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Report.Ledger.Check(); err != nil {
		b.Error(err)
	}
	return e
}

// refused is a check that must publish nothing.
func (b *bench) refused() (*Edition, error) {
	b.Helper()
	before := tree(b.T, b.watch.Out)
	e, err := b.watch.Run(b.Context())
	if !errors.Is(err, ErrIncomplete) {
		b.Fatalf("got %v, want a refusal", err)
	}
	if e.Report.Complete || len(e.New) != 0 || e.Report.Verdict == "ok" {
		b.Errorf("report %+v with %d changes", e.Report, len(e.New))
	}
	if before == nil {
		return e, err
	}
	after := tree(b.T, b.watch.Out)
	for _, name := range []string{"status.json", "status.css"} {
		if before[name] == after[name] {
			b.Errorf("%s does not tell that the check failed", name)
		}
		delete(before, name)
		delete(after, name)
	}
	if !maps.Equal(before, after) {
		b.Error("the site has changed beside its stale mark")
	}
	return e, err
}

// tree is every file below a folder; nil if there is none.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	root, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files := make(map[string]string)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDaysAreTold: what the world edits is what the history says, edit by edit, over some days.
func TestDaysAreTold(t *testing.T) {
	b := newBench(t, 271)
	if e := b.run(); len(e.New) != 0 || e.Report.Ledger.Changed != 271 {
		t.Fatalf("the first check tells %d changes; %s", len(e.New), &e.Report.Ledger)
	}
	// What the history says of an edit.
	says := map[nvdtest.EditKind][]Kind{
		nvdtest.ScoreAdded: {ScoreChanged}, nvdtest.CNAScoreAdded: {ScoreChanged}, nvdtest.ScoreChanged: {ScoreChanged},
		nvdtest.StatusChanged: {StatusChanged}, nvdtest.ReferenceAdded: {RefsChanged}, nvdtest.WeaknessAdded: {CWEChanged},
		nvdtest.Reworded: {Wording}, nvdtest.Touched: nil, nvdtest.Rejected: {StatusChanged, Wording},
		nvdtest.KEVListed: {KEVDisagrees, KEVListed}, nvdtest.KEVCaughtUp: {KEVDisagrees}, nvdtest.KEVRemoved: {KEVDisagrees, KEVRemoved},
		nvdtest.KEVRansomware: {KEVRansomware}, nvdtest.KEVDueMoved: {KEVDue}, nvdtest.KEVReworded: {Wording},
	}
	ids := make(map[string]bool)
	seen := make(map[nvdtest.EditKind]bool)
	var told []Change
	for day := 1; day <= 6; day++ {
		var want, got []string
		edited := make(map[string]bool) // records of the NVD
		for _, edit := range b.world.NextDay() {
			seen[edit.Kind] = true
			for _, kind := range says[edit.Kind] {
				want = append(want, edit.ID+" "+string(kind))
			}
			switch edit.Kind {
			case nvdtest.Touched, nvdtest.KEVListed, nvdtest.KEVRemoved, nvdtest.KEVRansomware, nvdtest.KEVReworded:
			default:
				edited[edit.ID] = true
			}
		}
		e := b.run()
		for _, c := range e.New {
			got = append(got, c.CVE+" "+string(c.Kind))
			if ids[c.ID] {
				t.Errorf("day %d: the id %s is there twice", day, c.ID)
			}
			ids[c.ID] = true
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("day %d: the history says %q, the edits were %q", day, got, want)
		}
		if l := e.Report.Ledger; l.Changed != len(edited) || l.Same != 271-len(edited) {
			t.Errorf("day %d: %s; %d records were edited", day, &l, len(edited))
		}
		told = append(told, e.New...)
		if !slices.EqualFunc(e.History, told, func(a, b Change) bool { return a.ID == b.ID && a.Text == b.Text }) {
			t.Fatalf("day %d: earlier lines of the history are not what they were", day)
		}
	}
	if len(seen) != len(says) {
		t.Errorf("six days had %d kinds of edits, want all %d", len(seen), len(says))
	}
	if e := b.run(); len(e.New) != 0 || e.Report.Ledger.Same != 271 || !e.Report.KEV.NotModified {
		t.Errorf("a second check on one day: %s, %d changes, KEV %+v", &e.Report.Ledger, len(e.New), e.Report.KEV)
	}
}

func TestThreeRequestsFor271(t *testing.T) {
	b := newBench(t, 271)
	e := b.run()
	if n, _ := b.server.Asked(); n != 3 || e.Report.Ledger.Requests != 4 { // and one for KEV
		t.Errorf("%d requests to the NVD, %d in the ledger; want 3, 4", n, e.Report.Ledger.Requests)
	}
	for _, r := range b.server.Requests() {
		if len(r.IDs) > 100 {
			t.Errorf("%d ids in one request", len(r.IDs))
		}
	}
}

// TestWhatArrives: each thing that the NVD has been seen to answer, and what becomes of the ids. odd is the one it is about.
func TestWhatArrives(t *testing.T) {
	const odd = "CVE-2024-900005"
	type want struct {
		column   batch.Column
		reason   batch.Reason
		lost     int // ids not fetched; -1: all
		requests int // at most
	}
	for name, tc := range map[string]struct {
		fault nvdtest.Fault
		want  want
	}{
		"503 twice, and it was nothing":           {nvdtest.Fault{Kind: nvdtest.Status, Status: 503, Times: 2}, want{batch.Changed, "", 0, 5}},
		"503 for one id":                          {nvdtest.Fault{Kind: nvdtest.Status, Status: 503, IDs: []string{odd}}, want{batch.NotFetched, batch.Server, 1, 30}},
		"524 for more than 30 ids":                {nvdtest.Fault{Kind: nvdtest.Status, Status: 524, Above: 30}, want{batch.Changed, "", 0, 12}},
		"500 for everything":                      {nvdtest.Fault{Kind: nvdtest.Status, Status: 500}, want{batch.NotFetched, batch.Server, -1, 100}},
		"404 with a message for one id":           {nvdtest.Fault{Kind: nvdtest.Status, Status: 404, Message: "Invalid cveIds parameter.", IDs: []string{odd}}, want{batch.NotFetched, batch.Server, 1, 30}},
		"404 without a message: a wrong URL":      {nvdtest.Fault{Kind: nvdtest.Status, Status: 404}, want{batch.NotFetched, batch.Server, -1, 3}},
		"414 for more than 30 ids":                {nvdtest.Fault{Kind: nvdtest.Status, Status: 414, Above: 30}, want{batch.Changed, "", 0, 12}},
		"no answer for more than 60 ids":          {nvdtest.Fault{Kind: nvdtest.Stall, Above: 60}, want{batch.Changed, "", 0, 5}},
		"reset in the body, once":                 {nvdtest.Fault{Kind: nvdtest.Reset, Times: 1}, want{batch.Changed, "", 0, 2}},
		"reset in the body, for one id":           {nvdtest.Fault{Kind: nvdtest.Reset, IDs: []string{odd}}, want{batch.NotFetched, batch.Network, 1, 30}},
		"truncated JSON, once":                    {nvdtest.Fault{Kind: nvdtest.Truncated, Times: 1}, want{batch.Changed, "", 0, 2}},
		"truncated JSON, for one id":              {nvdtest.Fault{Kind: nvdtest.Truncated, IDs: []string{odd}}, want{batch.NotFetched, batch.Parse, 1, 30}},
		"HTML with 200, once":                     {nvdtest.Fault{Kind: nvdtest.HTML, Times: 1}, want{batch.Changed, "", 0, 2}},
		"HTML with 200, for everything":           {nvdtest.Fault{Kind: nvdtest.HTML}, want{batch.NotFetched, batch.Parse, -1, 100}},
		"JSON of another shape":                   {nvdtest.Fault{Kind: nvdtest.OtherJSON}, want{batch.NotFetched, batch.Parse, -1, 100}},
		"an empty answer, once":                   {nvdtest.Fault{Kind: nvdtest.Empty, Times: 1}, want{batch.Changed, "", 0, 2}},
		"empty answers without vulnerabilities":   {nvdtest.Fault{Kind: nvdtest.Empty}, want{batch.Unknown, "", 0, 2}},
		"one record left out, once":               {nvdtest.Fault{Kind: nvdtest.Omit, IDs: []string{odd}, Times: 1}, want{batch.Changed, "", 0, 2}},
		"one record left out":                     {nvdtest.Fault{Kind: nvdtest.Omit, IDs: []string{odd}}, want{batch.Unknown, "", 0, 2}},
		"fewer records than totalResults":         {nvdtest.Fault{Kind: nvdtest.Paged, Above: 20}, want{batch.Changed, "", 0, 15}},
		"an answer for another id":                {nvdtest.Fault{Kind: nvdtest.OtherID, IDs: []string{odd}}, want{batch.NotFetched, batch.Parse, 1, 20}},
		"two records for one id":                  {nvdtest.Fault{Kind: nvdtest.Twice, IDs: []string{odd}}, want{batch.NotFetched, batch.Parse, 1, 20}},
		"unknown properties, statuses, metrics":   {nvdtest.Fault{Kind: nvdtest.Unknown}, want{batch.Changed, "", 0, 1}},
		"properties of other types":               {nvdtest.Fault{Kind: nvdtest.Shape}, want{batch.Changed, "", 0, 1}},
		"429 with Retry-After 0, twice":           {nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "0", Times: 2}, want{batch.Changed, "", 0, 3}},
		"429 without Retry-After, twice":          {nvdtest.Fault{Kind: nvdtest.Status, Status: 429, Times: 2}, want{batch.Changed, "", 0, 3}},
		"429 to the last":                         {nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "0"}, want{batch.NotFetched, batch.RateLimited, -1, 6}},
		"429 that asks for an hour":               {nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "3600"}, want{batch.NotFetched, batch.RateLimited, -1, 1}},
		"403 and HTML, once":                      {nvdtest.Fault{Kind: nvdtest.Forbidden, Times: 1}, want{batch.Changed, "", 0, 2}},
		"403 and HTML to the last":                {nvdtest.Fault{Kind: nvdtest.Forbidden}, want{batch.NotFetched, batch.RateLimited, -1, 6}},
		"a redirect, which would take a key away": {nvdtest.Fault{Kind: nvdtest.Status, Status: 302}, want{batch.NotFetched, batch.Server, -1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 100)
			b.watch.NVD.Workers = 1
			if tc.fault.Kind == nvdtest.Stall {
				b.client.Timeout = 100 * time.Millisecond
			}
			if tc.want.reason == batch.RateLimited && tc.fault.RetryAfter != "3600" {
				b.client.Profile.Floor, b.client.MaxHold = time.Millisecond, 100*time.Millisecond // longer each time, up to a minute
			}
			b.client.Profile.Floor = time.Millisecond
			b.server.Inject(tc.fault)
			answers, err := b.watch.NVD.Fetch(t.Context(), b.watch.IDs, nil)
			if err != nil {
				t.Fatal(err)
			}
			var l batch.Ledger
			for _, id := range b.watch.IDs {
				l.Add(answers[id].Result)
				if (answers[id].Record != nil) != (answers[id].Result.Column == batch.Changed) {
					t.Errorf("%s: %+v with the record %v", id, answers[id].Result, answers[id].Record)
				}
			}
			got := answers[odd].Result
			if got.Column != tc.want.column || got.Reason != tc.want.reason {
				t.Errorf("the id ends as %+v, want %+v", got, tc.want)
			}
			lost := tc.want.lost
			if lost < 0 {
				lost = 100
			}
			if l.NotFetched != lost {
				t.Errorf("%s; want %d not fetched", &l, lost)
			}
			if n, _ := b.server.Asked(); n > tc.want.requests {
				t.Errorf("%d requests, want at most %d", n, tc.want.requests)
			}
			t.Logf("%s: %s", got.Detail, &l)
		})
	}
}

// TestNotEveryIDIsAskedForWhenNothingAnswers: a source that is down is not asked for ten thousand single ids.
func TestNotEveryIDIsAskedForWhenNothingAnswers(t *testing.T) {
	b := newBench(t, 10)
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 503})
	ids := nvdtest.Synthetic(1, 10_000).IDs()
	answers, err := b.watch.NVD.Fetch(t.Context(), ids, nil)
	if err != nil || len(answers) != len(ids) {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	for id, a := range answers {
		if a.Result.Reason != batch.Server || a.Result.Status != 503 {
			t.Fatalf("%s: %+v", id, a.Result)
		}
	}
	if n, _ := b.server.Asked(); n > 120 {
		t.Errorf("%d requests to a server that is down", n)
	}
	t.Log(answers[ids[9999]].Result.Detail)
}

// TestUpAgain: what was lost while a source was down is asked for at the end, when it is up again.
func TestUpAgain(t *testing.T) {
	b := newBench(t, 271)
	b.watch.NVD.Workers = 1
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 503, Times: 20}) // ten requests, each sent twice
	if e := b.run(); e.Report.Ledger.Changed != 271 {
		t.Errorf("%s", &e.Report.Ledger)
	}
}

func TestBadKey(t *testing.T) {
	b := newBench(t, 271)
	b.run()
	b.server.Forget()
	b.watch.NVD.Key, b.watch.NVD.Workers = "bad-key", 1
	_, err := b.refused()
	var bad *BadKeyError
	if !errors.As(err, &bad) || bad.Message != "Invalid apiKey." || !strings.Contains(err.Error(), "Invalid apiKey.") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "bad-key") {
		t.Errorf("the key stands in the error: %v", err)
	}
	if n, _ := b.server.Asked(); n != 1 {
		t.Errorf("%d requests with a key that is wrong, want 1", n)
	}
	b.watch.NVD.Key = "good-key"
	if e := b.run(); e.Report.Ledger.Same != 271 {
		t.Errorf("with the right key: %s", &e.Report.Ledger)
	}
}

func TestGone(t *testing.T) {
	b := newBench(t, 150)
	b.run()
	id := b.watch.IDs[7]
	b.world.Apply(nvdtest.Gone, id)
	b.server.Forget()
	e := b.run()
	if len(e.New) != 1 || e.New[0].Kind != Gone || e.New[0].CVE != id || e.Report.Ledger.Unknown != 1 {
		t.Errorf("changes %+v; %s", e.New, &e.Report.Ledger)
	}
	asked := 0
	for _, r := range b.server.Requests() {
		if slices.Contains(r.IDs, id) {
			asked++
		}
	}
	if asked != 3 {
		t.Errorf("it was asked for %d times before it was taken for gone, want 3", asked)
	}
	if e = b.run(); len(e.New) != 0 {
		t.Errorf("gone once more: %+v", e.New)
	}
	// A day on which it cannot be fetched does not make it known again.
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 500, IDs: []string{id}})
	b.watch.Thresholds.NotFetched = 1
	if e = b.run(); len(e.New) != 0 || e.Report.Ledger.NotFetched != 1 {
		t.Errorf("not fetched: %+v; %s", e.New, &e.Report.Ledger)
	}
	b.server.Clear()
	b.world.Apply(nvdtest.Back, id)
	if e = b.run(); len(e.New) != 1 || e.New[0].Kind != Appeared || e.New[0].CVE != id {
		t.Errorf("back: %+v", e.New)
	}
}

// TestManyGoneAtOnce: answers without what they had yesterday are an outage, not news.
func TestManyGoneAtOnce(t *testing.T) {
	b := newBench(t, 150)
	b.run()
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Empty})
	e, err := b.refused()
	if e.Report.Ledger.Reasons[batch.Parse] != 150 || !strings.Contains(e.Report.Lost[0].Detail, "149 more of 150") {
		t.Errorf("%v: %+v", err, e.Report.Lost[0])
	}
	b.server.Clear()
	if e := b.run(); len(e.New) != 0 {
		t.Errorf("the day after: %+v", e.New)
	}
}

func TestKEVIsRefused(t *testing.T) {
	both := func(f nvdtest.Fault) []nvdtest.Fault {
		f.At = nvdtest.KEV
		g := f
		g.At = nvdtest.Mirror
		return []nvdtest.Fault{f, g}
	}
	for name, tc := range map[string]struct {
		fault nvdtest.Fault
		says  string
	}{
		"truncated":        {nvdtest.Fault{Kind: nvdtest.Truncated}, "truncated"},
		"miscounted":       {nvdtest.Fault{Kind: nvdtest.Miscounted}, "its count is"},
		"shrunk":           {nvdtest.Fault{Kind: nvdtest.Shrunk}, "entries are gone, over 1.0 %"},
		"older":            {nvdtest.Fault{Kind: nvdtest.Behind}, "older than the one of the last check"},
		"a page of HTML":   {nvdtest.Fault{Kind: nvdtest.HTML}, "truncated or not one"},
		"JSON of others":   {nvdtest.Fault{Kind: nvdtest.OtherJSON}, "no count or no entries"},
		"down":             {nvdtest.Fault{Kind: nvdtest.Status, Status: 503}, "503"},
		"turns us away":    {nvdtest.Fault{Kind: nvdtest.Forbidden}, "403"},
		"breaks off":       {nvdtest.Fault{Kind: nvdtest.Reset}, "body of a 200 answer"},
		"empty with a 304": {nvdtest.Fault{Kind: nvdtest.Status, Status: 304}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 40)
			b.run()
			if name != "older" {
				b.world.Skip()
			}
			b.server.Inject(both(tc.fault)...)
			if tc.says == "" {
				if e := b.run(); !e.Report.KEV.NotModified || e.Report.KEV.Entries < 300 {
					t.Errorf("KEV %+v", e.Report.KEV)
				}
				return
			}
			e, err := b.refused()
			if !strings.Contains(err.Error(), tc.says) || !strings.Contains(e.Report.KEV.Error, tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
			if e.Report.Ledger.NotFetched != 0 {
				t.Errorf("%s", &e.Report.Ledger)
			}
			// The mirror alone suffices.
			b.server.Clear()
			f := tc.fault
			f.At = nvdtest.KEV
			b.server.Inject(f)
			e = b.run()
			if k := e.Report.KEV; k.URL != b.url+nvdtest.MirrorPath || len(k.Tried) != 1 || !strings.Contains(k.Tried[0], tc.says) || len(e.New) != 0 {
				t.Errorf("with the mirror: %+v, changes %+v", k, e.New)
			}
		})
	}
}

// TestLaggingMirror: what a mirror does not have yet has not been removed.
func TestLaggingMirror(t *testing.T) {
	b := newBench(t, 40)
	b.run()
	b.world.NextDay()
	b.run()
	b.server.Inject(
		nvdtest.Fault{Kind: nvdtest.Forbidden, At: nvdtest.KEV},
		nvdtest.Fault{Kind: nvdtest.Behind, At: nvdtest.Mirror},
	)
	if _, err := b.refused(); !strings.Contains(err.Error(), "older than") {
		t.Error(err)
	}
}

func TestSingleRemovalFromKEVIsAnEvent(t *testing.T) {
	b := newBench(t, 40)
	b.run()
	var id string
	for _, s := range b.run().Snapshots {
		if s.KEV != nil {
			id = s.ID
		}
	}
	b.world.Skip()
	if !b.world.Apply(nvdtest.KEVRemoved, id) {
		t.Fatal(id)
	}
	e := b.run()
	if len(e.New) != 2 || e.New[0].Kind != KEVRemoved || e.New[1].Kind != KEVDisagrees || e.New[0].CVE != id {
		t.Errorf("%+v", e.New)
	}
}

// TestThreeRefusedItems is the rule that the run exists for: 429 is not "no change".
func TestThreeRefusedItems(t *testing.T) {
	b := newBench(t, 5)
	b.watch.NVD.Batch, b.watch.NVD.Workers = 1, 1
	b.client.MaxHold = time.Millisecond // or the others would wait as well
	b.run()
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "7200", IDs: []string{b.watch.IDs[0], b.watch.IDs[2]}})
	e := b.run()
	if l := e.Report.Ledger; l.Reasons[batch.RateLimited] != 2 || l.Same != 3 {
		t.Errorf("two of five: %s", &l)
	}
	for _, s := range []Snapshot{e.Snapshots[0], e.Snapshots[2]} {
		if s.Record == nil || !s.Checked.Before(e.Report.Started) {
			t.Errorf("%s, which was not fetched, is said to have been checked at %v in the run of %v", s.ID, s.Checked, e.Report.Started)
		}
	}
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "7200", IDs: b.watch.IDs[4:]})
	b.world.NextDay()
	e, err := b.refused()
	if !errors.Is(err, batch.ErrVerdict) || e.Report.Ledger.Reasons[batch.RateLimited] != 3 {
		t.Errorf("%v; %s", err, &e.Report.Ledger)
	}
	if e.Report.Verdict != "3 items not fetched because of the rate limit, over 2" {
		t.Errorf("the verdict reads %q", e.Report.Verdict)
	}
	status := tree(t, b.watch.Out)["status.json"]
	if !strings.Contains(status, `"stale": true`) || !strings.Contains(status, e.Report.Verdict) {
		t.Errorf("status.json: %s", status)
	}
	b.server.Clear()
	if b.run(); strings.Contains(tree(t, b.watch.Out)["status.json"], `"stale": true`) {
		t.Error("still stale after a complete check")
	}
}

func TestMassEditIsOneLine(t *testing.T) {
	b := newBench(t, 271)
	b.run()
	b.world.Skip()
	edits := b.world.MassEdit("Awaiting Analysis", "Deferred")
	e := b.run()
	if len(edits) < 20 || len(e.New) != 1 || len(e.New[0].Also) != len(edits)-1 || e.New[0].Kind != StatusChanged {
		t.Errorf("%d edits are told in %d lines", len(edits), len(e.New))
	}
}

func TestRenamedPropertiesAreNoChange(t *testing.T) {
	b := newBench(t, 100)
	b.world.Rename(true)
	b.run()
	b.world.Rename(false)
	if e := b.run(); len(e.New) != 0 || e.Report.Ledger.Same != 100 {
		t.Errorf("%+v; %s", e.New, &e.Report.Ledger)
	}
}

func TestInterruptedStaysAsItIs(t *testing.T) {
	b := newBench(t, 100)
	b.run()
	before := tree(t, b.watch.Out)
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Stall})
	ctx, cancel := context.WithCancel(t.Context())
	b.client.Observe = func(e httplimit.Event) {
		if e.Kind == httplimit.Sent {
			cancel()
		}
	}
	e, err := b.watch.Run(ctx)
	if !errors.Is(err, ErrInterrupted) || errors.Is(err, ErrIncomplete) || e.Report.Ledger.Reasons[batch.Interrupted] != 100 {
		t.Errorf("%v; %s", err, &e.Report.Ledger)
	}
	if !maps.Equal(before, tree(t, b.watch.Out)) {
		t.Error("the site has changed")
	}
}

func TestTwoRunsAtOnce(t *testing.T) {
	b := newBench(t, 10)
	b.run()
	s, err := openSite(b.watch.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := b.watch.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another run is at work on it") {
		t.Errorf("got %v", err)
	}
}

func TestNVDAndCISADisagree(t *testing.T) {
	listed := func(added, due string) *Record { return &Record{KEV: &NVDKEV{added, due}} }
	for name, tc := range map[string]struct {
		record *Record
		entry  *Entry
		want   string
	}{
		"neither":            {&Record{}, nil, ""},
		"unknown to the NVD": {nil, &Entry{Added: "2026-01-02"}, ""},
		"both":               {listed("2026-01-02", "2026-01-23"), &Entry{Added: "2026-01-02", Due: "2026-01-23"}, ""},
		"only CISA":          {&Record{}, &Entry{Added: "2026-01-02"}, "CISA lists it since 2026-01-02, the NVD does not say so"},
		"only the NVD":       {listed("2026-01-02", ""), nil, "the NVD says that CISA lists it since 2026-01-02, CISA does not"},
		"another date":       {listed("2026-01-03", ""), &Entry{Added: "2026-01-02"}, "CISA lists it since 2026-01-02, the NVD says 2026-01-03"},
		"another due date":   {listed("2026-01-02", "2026-02-01"), &Entry{Added: "2026-01-02", Due: "2026-01-23"}, "CISA's due date is 2026-01-23, the NVD's 2026-02-01"},
	} {
		if got := Disagreement(tc.record, tc.entry); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestReadList(t *testing.T) {
	ids, problems, err := ReadList(strings.NewReader("\ufeffCVE-2024-3094 # xz\r\n\n# all of it\n cve-2021-44228\nCVE-2024-3094\nCVE-24-1\nlog4shell\n"))
	if err != nil || !slices.Equal(ids, []string{"CVE-2024-3094", "CVE-2021-44228"}) {
		t.Errorf("%q, %v", ids, err)
	}
	want := []string{
		"line 5: CVE-2024-3094 stands in line 1 already",
		`line 6: "CVE-24-1" is no CVE id; the form is CVE-2024-3094`,
		`line 7: "log4shell" is no CVE id; the form is CVE-2024-3094`,
	}
	if !slices.Equal(problems, want) {
		t.Errorf("problems %q", problems)
	}
	_, _, err = ReadList(strings.NewReader("CVE-2024-3094\n\n" + strings.Repeat("x", 1<<17)))
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a line without end: %v", err)
	}
}

func ExampleReadList() {
	ids, problems, _ := ReadList(strings.NewReader("CVE-2024-3094  # xz\nCVE-2021-44228\nheartbleed\n"))
	fmt.Println(ids)
	fmt.Println(problems)
	// Output:
	// [CVE-2024-3094 CVE-2021-44228]
	// [line 3: "heartbleed" is no CVE id; the form is CVE-2024-3094]
}
