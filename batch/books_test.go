package batch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBooksBalance(t *testing.T) {
	for name, l := range map[string]Ledger{
		"an item in no column":          {Items: 2, Same: 1},
		"an item in two":                {Items: 1, Same: 1, Changed: 1},
		"not fetched without a reason":  {Items: 1, NotFetched: 1},
		"a reason of what was fetched":  {Items: 1, Same: 1, Reasons: map[Reason]int{Network: 1}},
		"more reasons than not fetched": {Items: 1, NotFetched: 1, Reasons: map[Reason]int{Network: 1, Parse: 1}},
	} {
		if l.Check() == nil {
			t.Errorf("%s: the books balance", name)
		}
	}
}

// TestAtTheThreshold: what is just allowed is allowed.
func TestAtTheThreshold(t *testing.T) {
	for _, c := range []struct {
		t  Thresholds
		l  Ledger
		ok bool
	}{
		{Thresholds{}, Ledger{Requests: 10, Refusals: 3}, true},
		{Thresholds{}, Ledger{Requests: 100, Refusals: 31}, false},
		{Thresholds{RefusalShare: 1}, Ledger{Requests: 10, Refusals: 10}, true},
		{Thresholds{RefusalShare: -1}, Ledger{Requests: 10}, true},
		{Thresholds{RefusalShare: -1}, Ledger{Requests: 10, Refusals: 1}, false},
		{Thresholds{}, Ledger{NotFetched: 2, Reasons: map[Reason]int{RateLimited: 2}}, true},
		{Thresholds{}, Ledger{NotFetched: 3, Reasons: map[Reason]int{RateLimited: 3}}, false},
		{Thresholds{RateLimited: -1}, Ledger{NotFetched: 1, Reasons: map[Reason]int{RateLimited: 1}}, false},
		{Thresholds{NotFetched: 1}, Ledger{NotFetched: 1, Reasons: map[Reason]int{Network: 1}}, true},
		{Thresholds{NotFetched: 1}, Ledger{NotFetched: 2, Reasons: map[Reason]int{Network: 2}}, false},
		{Thresholds{NotFetched: -1}, Ledger{NotFetched: 1, Reasons: map[Reason]int{Network: 1}}, false},
	} {
		if err := c.t.Verdict(&c.l); (err == nil) != c.ok {
			t.Errorf("%+v of %+v: %v", c.l, c.t, err)
		}
	}
}

// TestOneIsSingular: one item is no items.
func TestOneIsSingular(t *testing.T) {
	one := Ledger{Items: 1, NotFetched: 1, Reasons: map[Reason]int{Network: 1}, Requests: 1}
	if got, want := one.String(), "1 item: 0 changed, 0 same, 0 not modified, 0 unknown upstream, 1 not fetched (network 1); 1 request, 0 refused"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (Thresholds{}).Verdict(&one).Error(); !strings.Contains(got, "1 item not fetched for other reasons") {
		t.Error(got)
	}
	if got, want := (Plan{Requests: 1, Workers: 1}).String(), "1 request, no rate given; 1 worker"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestStoppedIsNotTheItemsFault: what fails because the run is stopped is interrupted, whatever the fetch calls it.
func TestStoppedIsNotTheItemsFault(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	run := &Run{Items: names(10), Out: out, Workers: 1, Fetch: func(ctx context.Context, id string, _ Before) Result {
		if id == "item-005" {
			CounterOf(ctx).Request(true)
			cancel()
			return Lost(Network, "%v", ctx.Err())
		}
		return Result{Column: Changed, Body: []byte(id)}
	}}
	rep, err := run.Do(ctx)
	if !errors.Is(err, ErrInterrupted) || rep.Ledger.Reasons[Network] != 0 || rep.Ledger.Reasons[Interrupted] != 5 || rep.Ledger.Requests != 1 || rep.Ledger.Refusals != 1 {
		t.Errorf("%v; %s", err, &rep.Ledger)
	}
}

// TestOtherNameOtherItems: what an item of another URL was says nothing of one that is called the same here. A condition on it
// could be met, and the other's content would stand for this one's.
func TestOtherNameOtherItems(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	fetch := func(_ context.Context, id string, before Before) Result {
		if before != (Before{}) {
			return Result{Column: NotModified}
		}
		return Result{Column: Changed, Body: []byte(id), ETag: "v1"}
	}
	for i, c := range []struct {
		name string
		want Ledger
	}{
		{"one", Ledger{Items: 3, Changed: 3}},
		{"one", Ledger{Items: 3, NotModified: 3}},
		{"two", Ledger{Items: 3, Changed: 3}},
		{"", Ledger{Items: 3, Changed: 3}},
		{"", Ledger{Items: 3, NotModified: 3}},
	} {
		rep, err := (&Run{Name: c.name, Items: names(3), Out: out, Fetch: fetch}).Do(t.Context())
		if err != nil || rep.Ledger.String() != c.want.String() {
			t.Errorf("run %d: %v, %v; want %v", i, &rep.Ledger, err, &c.want)
		}
	}
	lost := func(context.Context, string, Before) Result { return Lost(Network, "reset") }
	if _, err := (&Run{Name: "three", Items: names(3), Out: out, Fetch: lost, Thresholds: Thresholds{NotFetched: 3}}).Do(t.Context()); err != nil {
		t.Error(err)
	}
	for id, r := range records(t, out) {
		if r.Stale || r.Data != nil {
			t.Errorf("%s has the content of another run: %+v", id, r)
		}
	}
}

// TestResumedWithoutItsResults: an item that was not modified since results that are gone is fetched again.
func TestResumedWithoutItsResults(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	broken := ""
	fetch := func(_ context.Context, id string, before Before) Result {
		if id == broken {
			return Lost(Network, "reset")
		}
		if before.ETag == "v1" {
			return Result{Column: NotModified}
		}
		return Result{Column: Changed, Body: []byte(id), ETag: "v1"}
	}
	for i, c := range []struct {
		broken string
		resume bool
		fails  bool
	}{{"", false, false}, {"item-001", false, true}, {"", true, false}} {
		if c.resume {
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
		}
		broken = c.broken
		if _, err := (&Run{Items: names(3), Out: out, Fetch: fetch, Resume: c.resume}).Do(t.Context()); (err != nil) != c.fails {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	for id, r := range records(t, out) {
		if r.Data == nil || *r.Data.Text != id {
			t.Errorf("%s has no content: %+v", id, r)
		}
	}
}

// TestResultsThatVanish: where the results of the last run can no longer be read, the run ends and says so; taken for none, they
// would make every item a change.
func TestResultsThatVanish(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	fetch := func(_ context.Context, id string, _ Before) Result {
		return Result{Column: Changed, Body: []byte(id)}
	}
	if _, err := (&Run{Items: names(20), Out: out, Fetch: fetch}).Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := 0
	rep, err := (&Run{Items: names(20), Out: out, Workers: 1, Thresholds: Thresholds{NotFetched: 20}, Fetch: func(ctx context.Context, id string, b Before) Result {
		asked++
		if err := os.Truncate(out, 0); err != nil {
			t.Error(err)
		}
		return fetch(ctx, id, b)
	}}).Do(t.Context())
	if err == nil || errors.Is(err, ErrVerdict) || errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "results") || rep.Written || rep.Complete || asked != 1 {
		t.Errorf("%v, asked %d times, %+v", err, asked, rep)
	}
}

// TestShutOut: a server that refuses all is not asked for every item, each time as long as it takes to be refused for good.
func TestShutOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		shutOut int
		refused func(n int) bool // the nth fetch
		asked   int
	}{
		{"all", 2, func(int) bool { return true }, 3},
		{"all but the first ten", 2, func(n int) bool { return n > 10 }, 13},
		{"two of three", 2, func(n int) bool { return n%3 != 0 }, 50},
		{"any number may be", 0, func(int) bool { return true }, 50},
	} {
		out, asked, stop := filepath.Join(t.TempDir(), "results.jsonl"), 0, false
		fetch := func(_ context.Context, id string, _ Before) Result {
			if asked++; c.refused(asked) && !stop {
				return Lost(RateLimited, "429")
			}
			return Result{Column: Changed, Body: []byte(id)}
		}
		rep, err := (&Run{Items: names(50), Out: out, Workers: 1, ShutOut: c.shutOut, Fetch: fetch}).Do(t.Context())
		if got := rep.Ledger; asked != c.asked || got.Items != 50 || got.Check() != nil || c.asked < 50 && (!errors.Is(err, ErrVerdict) || got.Changed+got.Reasons[RateLimited] != 50) {
			t.Errorf("%s: asked for %d, want %d; %v, %v", c.name, asked, c.asked, &got, err)
		}
		if rep.Written {
			continue
		}
		stop = true
		if rep, err := (&Run{Items: names(50), Out: out, Resume: true, Workers: 1, Fetch: fetch}).Do(t.Context()); err != nil || rep.Ledger.Changed != 50 {
			t.Errorf("%s, resumed: %v, %v", c.name, &rep.Ledger, err)
		}
	}
}

// TestShutOutEndsTheWaiting: what waits for a server that has shut the run out does not wait to the end.
func TestShutOutEndsTheWaiting(t *testing.T) {
	var waiting sync.WaitGroup
	waiting.Add(3)
	rep, err := (&Run{Items: names(20), Workers: 4, ShutOut: 2, Fetch: func(ctx context.Context, id string, _ Before) Result {
		if id == "item-001" || id == "item-002" {
			waiting.Done()
			<-ctx.Done()
			return Lost(Interrupted, "%v", ctx.Err())
		}
		if id == "item-003" { // its answer comes all the same
			waiting.Done()
			<-ctx.Done()
			return Result{Column: Changed, Body: []byte(id)}
		}
		waiting.Wait()
		return Lost(RateLimited, "429")
	}}).Do(t.Context())
	if !errors.Is(err, ErrVerdict) || rep.Ledger.Reasons[RateLimited] != 19 || rep.Ledger.Changed != 1 {
		t.Errorf("%v: %v", err, &rep.Ledger)
	}
}

// TestLongTornLine: of a line that a crash has torn nothing is left, however long it was.
func TestLongTornLine(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	fail := &Run{Items: names(2), Out: out, Workers: 1, Fetch: func(_ context.Context, id string, _ Before) Result {
		return Lost(Network, "down")
	}}
	if _, err := fail.Do(t.Context()); !errors.Is(err, ErrVerdict) {
		t.Fatal(err)
	}
	f, err := os.OpenFile(out+".journal", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"id":"item-001","data":{"text":"` + strings.Repeat("x\\n", 10_000))
	f.Close()
	fail.Resume = true
	for range 2 {
		if _, err := fail.Do(t.Context()); !errors.Is(err, ErrVerdict) {
			t.Fatal(err)
		}
	}
	if strings.Contains(read(t, out+".journal"), "xx") || strings.Contains(read(t, out+".journal"), `x\n`) {
		t.Error("a part of the torn line is still there")
	}
}

// TestStaleRecords: what was not fetched keeps its content, and the time of that; content that is not there is no
// condition of a request.
func TestStaleRecords(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	then := time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	lines := `{"id":"a","time":"2026-01-05T06:00:00Z","column":"changed","sha256":"5","etag":"\"1\"","data":{"text":"x"}}
{"id":"b","time":"2026-01-05T06:00:00Z","column":"unknown_upstream","etag":"\"1\""}
`
	if err := os.WriteFile(out, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	known := map[string]Before{}
	run := &Run{Items: []string{"a", "b"}, Out: out, Workers: 1, Thresholds: Thresholds{NotFetched: 1}, Fetch: func(_ context.Context, id string, b Before) Result {
		known[id] = b
		if id == "a" {
			return Lost(Network, "down")
		}
		return Result{Column: Unknown}
	}}
	if _, err := run.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if known["a"] != (Before{Hash: "5", ETag: `"1"`}) || known["b"] != (Before{}) {
		t.Errorf("known before: %+v", known)
	}
	a := records(t, out)["a"]
	if !a.Stale || !a.Time.Equal(then) || a.Data == nil || a.Column != NotFetched || a.ETag != `"1"` {
		t.Errorf("%+v", a)
	}
}

// TestSettle: what a counter has seen goes into the books.
func TestSettle(t *testing.T) {
	_, c := WithTally(t.Context())
	c.Request(false)
	c.Request(true)
	c.Wait(3 * time.Second)
	l := Ledger{Requests: 1, Refusals: 1, Waited: time.Second}
	c.Settle(&l)
	if l.Requests != 3 || l.Refusals != 2 || l.Waited != 4*time.Second {
		t.Errorf("%+v", l)
	}
}
