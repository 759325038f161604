package vulnwatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

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
	// What changed in the meantime is told as well.
	b.world.Apply(nvdtest.Gone, id)
	b.run()
	b.world.Apply(nvdtest.Back, id)
	b.world.Apply(nvdtest.Reworded, id)
	if e = b.run(); len(e.New) != 2 || e.New[0].Kind != Appeared || e.New[1].Kind != Wording {
		t.Errorf("back, and reworded: %+v", e.New)
	}
}

// TestNoDisagreementWithSilence: what the NVD says of KEV is compared with CISA's catalogue of the same day only.
func TestNoDisagreementWithSilence(t *testing.T) {
	b := newBench(t, 40)
	b.run()
	var id string
	for _, e := range b.world.NextDay() {
		if e.Kind == nvdtest.KEVListed {
			id = e.ID
		}
	}
	b.watch.Thresholds.NotFetched = 1
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 500, IDs: []string{id}})
	kinds := func(e *Edition) (all []Kind) {
		for _, c := range e.New {
			if c.CVE == id {
				all = append(all, c.Kind)
			}
		}
		return all
	}
	if got := kinds(b.run()); !slices.Equal(got, []Kind{KEVListed}) {
		t.Errorf("listed, and the NVD was not heard: %v", got)
	}
	b.server.Clear()
	if got := kinds(b.run()); !slices.Equal(got, []Kind{KEVDisagrees}) {
		t.Errorf("the NVD says otherwise: %v", got)
	}
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 500, IDs: []string{id}})
	if got := kinds(b.run()); len(got) != 0 {
		t.Errorf("and is not heard again: %v", got)
	}
}

// TestReallyChecked: the date of a CVE is that of the last check in which the NVD answered for it.
func TestReallyChecked(t *testing.T) {
	b := newBench(t, 20)
	b.watch.NVD.Workers, b.watch.NVD.Batch = 1, 1
	lost, gone := b.watch.IDs[3], b.watch.IDs[5]
	b.world.Apply(nvdtest.Gone, gone)
	first := b.run()
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 503, IDs: []string{lost}})
	b.watch.Thresholds.NotFetched = 1
	second := b.run()
	for i, s := range second.Snapshots {
		want := second.Report
		if s.ID == lost {
			want = first.Report
		}
		if !first.Snapshots[i].Checked.Equal(first.Report.Ended) || !s.Checked.Equal(want.Ended) {
			t.Errorf("%s: checked at %v, then at %v, in checks that ended at %v and %v", s.ID, first.Snapshots[i].Checked, s.Checked, first.Report.Ended, second.Report.Ended)
		}
		page := tree(t, b.watch.Out)["cve/"+s.ID+".html"]
		if at := "<dt>Really checked</dt><dd><time datetime=\"" + want.Ended.Format(time.RFC3339); !strings.Contains(page, at) {
			t.Errorf("%s: its page does not say that it was checked at %v", s.ID, want.Ended)
		}
	}
}

// TestTwoGoneAtOnce: one may be gone on any day, of a short list as well; two of it are an outage.
func TestTwoGoneAtOnce(t *testing.T) {
	b := newBench(t, 60)
	b.run()
	b.world.Apply(nvdtest.Gone, b.watch.IDs[1])
	b.world.Apply(nvdtest.Gone, b.watch.IDs[2])
	b.refused()
	b.world.Apply(nvdtest.Back, b.watch.IDs[2])
	if e := b.run(); len(e.New) != 1 || e.New[0].Kind != Gone {
		t.Errorf("%+v", e.New)
	}
}

// TestRefusalsOfAShortRun: two of four refused are no verdict, half of many are one.
func TestRefusalsOfAShortRun(t *testing.T) {
	for requests, ok := range map[int]bool{19: true, 20: false} {
		l := batch.Ledger{Items: 1, Same: 1, Requests: requests, Refusals: requests / 2}
		if err := (&Watch{}).verdict(&l); (err == nil) != ok {
			t.Errorf("half of %d: %v", requests, err)
		}
	}
	w := Watch{Thresholds: batch.Thresholds{RefusalShare: 0.1}}
	if w.verdict(&batch.Ledger{Items: 1, Same: 1, Requests: 4, Refusals: 2}) == nil {
		t.Error("a share that is set counts for few requests, too")
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
