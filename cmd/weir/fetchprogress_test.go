package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// TestFetchProgressLine: the line says what is waited for, and how long it takes if the gate is run to the end.
func TestFetchProgressLine(t *testing.T) {
	plan := batch.Plan{Requests: 12, Units: 5, Window: 3 * time.Second, Workers: 3, Latency: time.Second}
	p := newFetchProgress(io.Discard, true, plan)
	now := time.Now()
	is := func(want string) {
		t.Helper()
		if got := p.line(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is("0 of 12 · about 9s left")
	a, _ := http.NewRequest("GET", "http://host/a", nil)
	b, _ := http.NewRequest("GET", "http://host/b", nil)
	p.event(httplimit.Event{Kind: httplimit.Sent, Request: a})
	is("0 of 12 · waiting for an answer · about 9s left")
	p.event(httplimit.Event{Kind: httplimit.Sent, Request: b})
	is("0 of 12 · waiting for 2 answers · about 9s left")
	p.item(batch.Record{}, batch.Ledger{Items: 5, NotFetched: 1, Refusals: 2})
	p.opens = now.Add(2 * time.Second)
	is("5 of 12 · 1 not fetched · 2 refused · the gate opens in 2s · about 7s left")
	p.closed = true
	is("5 of 12 · 1 not fetched · 2 refused · the server asks to wait 2s · about 7s left")
	p.item(batch.Record{}, batch.Ledger{Items: 12})
	p.opens = now
	p.event(httplimit.Event{Kind: httplimit.Answered, Request: a})
	p.event(httplimit.Event{Kind: httplimit.Failed, Request: b})
	is("12 of 12")
}

// TestFetchCountsApart: attempts, refusals and waiting are in the account beside where the items ended, and a 0 that was given is one.
func TestFetchCountsApart(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" || asked.Add(1) == 1 {
			w.Header().Set("Retry-After", map[bool]string{true: "86400", false: "2"}[r.URL.Path == "/never"])
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	args := []string{"fetch", "--url", server.URL + "/{id}", "--out", filepath.Join(t.TempDir(), "out"), "--json", "--max-refused-share", "1"}
	code, stdout, stderr := weirIn(t.Context(), "", append(args, "a")...)
	var rep batch.Report
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if l := rep.Ledger; l.Requests != 2 || l.Refusals != 1 || l.Waited <= 0 {
		t.Errorf("%+v", l)
	}
	if code, stdout, stderr := weirIn(t.Context(), "", append(args, "--max-rate-limited", "0", "--max-hold", "1ms", "never")...); code != exitFailure || !strings.Contains(stderr, "1 item not fetched because of the rate limit, over 0") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
