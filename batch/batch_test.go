package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// shelf is what a pretended server has: content by item.
type shelf map[string]string

func (s shelf) fetch(_ context.Context, id string, _ Before) Result {
	body, ok := s[id]
	if !ok {
		return Result{Column: Unknown, Status: 404}
	}
	return Result{Column: Changed, Body: []byte(body), Status: 200}
}

func names(n int) []string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("item-%03d", i))
	}
	return items
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func records(t *testing.T, path string) map[string]Record {
	t.Helper()
	all := make(map[string]Record)
	for line := range strings.Lines(read(t, path)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all[r.ID] = r
	}
	return all
}

func TestEveryItemEndsInOneColumn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	server := shelf{"a": `{"v": 1}`, "b": "text", "c": "\xff\x00"}
	first := &Run{Items: []string{"a", "b", "c", "nowhere", "", "a"}, Fetch: server.fetch, Out: out}
	rep, err := first.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (Ledger{Items: 4, Changed: 3, Unknown: 1}); rep.Ledger.String() != want.String() || rep.Dropped != 2 || !rep.Written {
		t.Errorf("first run: %v, %d dropped", &rep.Ledger, rep.Dropped)
	}
	server["b"] = "other text"
	second := &Run{Items: []string{"a", "b", "c", "nowhere"}, Out: out, Fetch: func(ctx context.Context, id string, before Before) Result {
		if id == "c" {
			return Lost(Network, "reset")
		}
		if id == "b" && before.Hash == "" {
			t.Error("nothing is known of b from the first run")
		}
		return server.fetch(ctx, id, before)
	}, Thresholds: Thresholds{NotFetched: 1}}
	rep, err = second.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (Ledger{Items: 4, Changed: 1, Same: 1, Unknown: 1, NotFetched: 1, Reasons: map[Reason]int{Network: 1}}); rep.Ledger.String() != want.String() {
		t.Errorf("second run: %v, want %v", &rep.Ledger, &want)
	}
	got := records(t, out)
	if c := got["c"]; c.Column != NotFetched || !c.Stale || c.Data == nil || string(c.Data.Base64) != "\xff\x00" {
		t.Errorf("an item that was not fetched keeps its content, marked: %+v", c)
	}
	if a := got["a"]; a.Column != Same || string(a.Data.JSON) != `{"v":1}` {
		t.Errorf("a: %+v", a)
	}
	if b := got["b"]; b.Column != Changed || *b.Data.Text != "other text" {
		t.Errorf("b: %+v", b)
	}
	if _, err := os.Stat(out + ".journal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal remains: %v", err)
	}
}

func TestOverTheThresholdsNothingIsWritten(t *testing.T) {
	limited := func(n int) func(context.Context, string, Before) Result {
		var count atomic.Int64
		return func(ctx context.Context, id string, _ Before) Result {
			if count.Add(1) <= int64(n) {
				CounterOf(ctx).Request(true)
				return Lost(RateLimited, "429 Too Many Requests")
			}
			CounterOf(ctx).Request(false)
			return Result{Column: Changed, Body: []byte("new")}
		}
	}
	for _, c := range []struct {
		name  string
		fetch func(context.Context, string, Before) Result
		th    Thresholds
		fails string
	}{
		{"two of fifty rate limited", limited(2), Thresholds{}, ""},
		{"three of fifty rate limited", limited(3), Thresholds{}, "3 items not fetched because of the rate limit, over 2"},
		{"three, with room for them", limited(3), Thresholds{RateLimited: 5}, ""},
		{"one, with room for none", limited(1), Thresholds{RateLimited: -1}, "1 item not fetched because of the rate limit, over 0"},
		{"a third refused", limited(16), Thresholds{RateLimited: 50}, "32.0 % of 50 requests were refused, over 30.0 %"},
		{"one network error", func(_ context.Context, id string, _ Before) Result {
			if id == "item-007" {
				return Lost(Network, "no route")
			}
			return Result{Column: Changed, Body: []byte("new")}
		}, Thresholds{}, "1 item not fetched for other reasons, over 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "results.jsonl")
			old := &Run{Items: names(50), Out: out, Fetch: func(context.Context, string, Before) Result {
				return Result{Column: Changed, Body: []byte("old")}
			}}
			if _, err := old.Do(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := read(t, out)
			run := &Run{Items: names(50), Out: out, Fetch: c.fetch, Thresholds: c.th, Workers: 1}
			rep, err := run.Do(t.Context())
			if c.fails == "" {
				if err != nil || !rep.Written || !rep.Complete || read(t, out) == before {
					t.Errorf("%v, %+v; want written", err, rep)
				}
				return
			}
			if !errors.Is(err, ErrVerdict) || !strings.Contains(err.Error(), c.fails) || rep.Written || rep.Complete {
				t.Errorf("%v, %+v; want a verdict that says %q", err, rep, c.fails)
			}
			if read(t, out) != before {
				t.Error("the results have changed")
			}
			// What was fetched is not lost.
			again := &Run{Items: names(50), Out: out, Resume: true, Fetch: func(_ context.Context, id string, _ Before) Result {
				return Result{Column: Changed, Body: []byte("new")}
			}}
			rep, err = again.Do(t.Context())
			if c.th.RateLimited == 50 { // the refusals of before still count
				if !errors.Is(err, ErrVerdict) && rep.Ledger.Refusals == 0 && rep.Resumed != 34 {
					t.Errorf("resumed: %v, %+v", err, rep)
				}
			}
			if rep.Resumed == 0 || rep.Ledger.Items != 50 {
				t.Errorf("resumed %d of 50: %v", rep.Resumed, err)
			}
		})
	}
}

func TestInterruptedAndResumed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	var fetched atomic.Int32
	run := &Run{Items: names(100), Out: out, Workers: 3, Fetch: func(ctx context.Context, id string, _ Before) Result {
		if fetched.Add(1) == 40 {
			cancel()
		}
		if ctx.Err() != nil {
			return Lost(Interrupted, "stopped")
		}
		return Result{Column: Changed, Body: []byte(id)}
	}}
	rep, err := run.Do(ctx)
	if !errors.Is(err, ErrInterrupted) || rep.Written {
		t.Fatalf("%v, %+v", err, rep)
	}
	if err := rep.Ledger.Check(); err != nil || rep.Ledger.Items != 100 {
		t.Errorf("%v: %v", err, &rep.Ledger)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Error("an interrupted run has written results")
	}
	fresh := &Run{Items: names(100), Out: out, Fetch: shelf{}.fetch}
	if _, err := fresh.Do(t.Context()); !errors.Is(err, ErrJournal) {
		t.Errorf("a run beside an unfinished journal: %v", err)
	}
	other := &Run{Items: names(99), Out: out, Fetch: shelf{}.fetch, Resume: true}
	if _, err := other.Do(t.Context()); !errors.Is(err, ErrJournal) {
		t.Errorf("resuming another run's journal: %v", err)
	}
	had := 100 - rep.Ledger.Reasons[Interrupted]
	fetched.Store(1000)
	again := &Run{Items: names(100), Out: out, Resume: true, Fetch: run.Fetch}
	rep, err = again.Do(t.Context())
	if err != nil || rep.Resumed != had || int(fetched.Load()) != 1000+100-had {
		t.Errorf("resumed: %v, %d taken over of %d, %d fetched", err, rep.Resumed, had, fetched.Load()-1000)
	}
	for id, r := range records(t, out) {
		if r.Data == nil || *r.Data.Text != id {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

// TestCrashAtEveryByte cuts the journal at each of its bytes, as a crash may, and resumes.
func TestCrashAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "results.jsonl")
	items := names(4)
	stop := &Run{Items: items, Out: out, Workers: 1, Fetch: func(_ context.Context, id string, _ Before) Result {
		if id == "item-003" {
			return Lost(Network, "down")
		}
		return Result{Column: Changed, Body: []byte(id)}
	}}
	if _, err := stop.Do(t.Context()); !errors.Is(err, ErrVerdict) {
		t.Fatal(err)
	}
	whole := read(t, out+".journal")
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(out+".journal", []byte(whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		fetched := 0
		run := &Run{Items: items, Out: out, Resume: true, Workers: 1, Fetch: func(_ context.Context, id string, _ Before) Result {
			fetched++
			return Result{Column: Changed, Body: []byte(id)}
		}}
		rep, err := run.Do(t.Context())
		if err != nil || fetched+rep.Resumed != 4 {
			t.Fatalf("cut after %d bytes: %v, %d fetched, %d resumed", cut, err, fetched, rep.Resumed)
		}
		if lines := strings.Count(whole[:cut], "\n"); rep.Resumed != max(0, min(lines-1, 3)) {
			t.Fatalf("cut after %d bytes, %d lines: %d resumed", cut, lines, rep.Resumed)
		}
		if got := records(t, out); len(got) != 4 {
			t.Fatalf("cut after %d bytes: %d results", cut, len(got))
		}
		os.Remove(out)
	}
}

func TestTwoRunsAtOnce(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	entered, leave, left := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		(&Run{Items: names(1), Out: out, Fetch: func(context.Context, string, Before) Result {
			close(entered)
			<-leave
			return Result{Column: Changed}
		}}).Do(context.Background())
		close(left)
	}()
	<-entered
	_, err := (&Run{Items: names(1), Out: out, Resume: true, Fetch: shelf{}.fetch}).Do(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another run is using it") {
		t.Errorf("a second run: %v", err)
	}
	close(leave)
	<-left
}

func TestBadFilesAreSaid(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "results.jsonl")
	for _, c := range []struct{ results, journal, want string }{
		{"not json\n", "", "results.jsonl:1: not a line of results"},
		{`{"id":"a","column":"same"}` + "\n" + `{"id":"b","col`, "", "results.jsonl:2: not a line of results"},
		{"", "hello\n", "journal:1: not a journal of this version; move the file away"},
		{"", `{"weir_journal":"1","run":"other"}` + "\n", "it fetched something else"},
	} {
		os.Remove(out)
		os.Remove(out + ".journal")
		if c.results != "" {
			os.WriteFile(out, []byte(c.results), 0o600)
		}
		if c.journal != "" {
			os.WriteFile(out+".journal", []byte(c.journal), 0o600)
		}
		_, err := (&Run{Items: names(1), Out: out, Resume: true, Fetch: shelf{}.fetch}).Do(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v; want %q", c.results, c.journal, err, c.want)
		}
	}
}

func TestWriteFileLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("old"), 0o600)
	err := WriteFile(path, func(w io.Writer) error {
		w.Write(bytes.Repeat([]byte("new"), 100_000))
		return errors.New("disk full")
	})
	if err == nil || read(t, path) != "old" {
		t.Errorf("%v; the file is %.10q", err, read(t, path))
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		n, r    int
		w       time.Duration
		k       int
		l       time.Duration
		bound   time.Duration
		workers int
	}{
		{84, 5, 30 * time.Second, 6, time.Second, 481 * time.Second, 1},
		{271, 5, 30 * time.Second, 6, time.Second, 1621 * time.Second, 1},
		{271, 50, 30 * time.Second, 6, time.Second, 151 * time.Second, 2},
		{271, 50, 30 * time.Second, 2, 2 * time.Second, 272 * time.Second, 4},
		{3, 5, 30 * time.Second, 6, 4 * time.Second, 4 * time.Second, 1},
		{170, 50, 30 * time.Second, 6, 20 * time.Second, 580 * time.Second, 34},
		{0, 5, time.Second, 1, time.Second, 0, 5},
	} {
		p := Plan{Requests: c.n, Units: c.r, Window: c.w, Workers: c.k, Latency: c.l}
		if got := p.Bound(); got != c.bound {
			t.Errorf("%+v: bound %v, want %v", p, got, c.bound)
		}
		if got := p.WorkersNeeded(); got != c.workers {
			t.Errorf("%+v: %d workers needed, want %d", p, got, c.workers)
		}
		if got := p.Simulate(); got < c.bound {
			t.Errorf("%+v: simulated %v, under the bound %v", p, got, c.bound)
		}
	}
}

// TestPlanSimulates: a slot opens one window after the answer, not after the start.
func TestPlanSimulates(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		used []time.Duration
		want time.Duration
	}{
		{Plan{Requests: 7, Units: 2, Window: 10 * time.Second, Workers: 4, Latency: time.Second}, nil, 34 * time.Second},
		{Plan{Requests: 7, Workers: 4, Latency: time.Second}, nil, 2 * time.Second},
		{Plan{Requests: 2, Units: 2, Window: 10 * time.Second, Workers: 4, Latency: time.Second}, []time.Duration{5 * time.Second}, 6 * time.Second},
		{Plan{Requests: 271, Units: 5, Window: 30 * time.Second, Workers: 1, Latency: time.Second}, nil, 54*31*time.Second + time.Second},
		{Plan{}, nil, 0},
	} {
		if got := c.plan.Simulate(c.used...); got != c.want {
			t.Errorf("%v, %v used: %v, want %v", c.plan, c.used, got, c.want)
		}
	}
}

func TestPlanReads(t *testing.T) {
	for want, p := range map[string]Plan{
		"1 request at 5 in 30s: at least 1s, with answers of 1s; 1 of 2 workers suffices":   {Requests: 1, Units: 5, Window: 30 * time.Second, Workers: 2, Latency: time.Second},
		"6 requests at 5 in 30s: at least 31s, with answers of 1s; 1 of 2 workers suffices": {Requests: 6, Units: 5, Window: 30 * time.Second, Workers: 2, Latency: time.Second},
		"1 request, no rate given; 2 workers":                                               {Requests: 1, Workers: 2},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
