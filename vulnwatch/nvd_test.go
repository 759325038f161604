package vulnwatch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

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

// TestKeyGoesNowhereElse: a redirect is not followed, as it would take the key along.
func TestKeyGoesNowhereElse(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	moved := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusMovedPermanently))
	defer moved.Close()
	b := newBench(t, 10)
	b.watch.NVD.URL, b.watch.NVD.Key = moved.URL, "good-key"
	answers, err := b.watch.NVD.Fetch(t.Context(), b.watch.IDs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := answers[b.watch.IDs[0]].Result; got.Reason != batch.Server || !strings.Contains(got.Detail, "redirects are not followed") || elsewhere.Load() != 0 {
		t.Errorf("%+v; %d requests elsewhere", got, elsewhere.Load())
	}
}

// TestAnswersThatAreNone: what has the mark of the NVD on it and is no answer for the ids.
func TestAnswersThatAreNone(t *testing.T) {
	const id = "CVE-2026-900001"
	record := func(id string) string {
		return `{"cve":{"id":"` + id + `","vulnStatus":"Analyzed","descriptions":[],"references":[]}}`
	}
	for _, tc := range []struct {
		body string
		says string // empty: it is an answer
	}{
		{`{"format":"NVD_CVE","totalResults":1,"vulnerabilities":[` + record(id) + `]}`, ""},
		{`{"format":"NVD_CVE","totalResults":2,"vulnerabilities":[` + record(id) + `,` + record(id) + `]}`, ""},
		{`{"format":"NVD_CVE","totalResults":2,"vulnerabilities":[` + record(id) + `,` + record("CVE-2026-900002") + `]}`, ""},
		{`{"format":"NVD_CVE"}`, "no answer of the NVD"},
		{`{"format":"NVD_CVE","vulnerabilities":[` + record(id) + `]}`, "no answer of the NVD"},
		{`{"format":"NVD_CVE_HISTORY","totalResults":0,"was":"NVD_CVE"}`, "no answer of the NVD"},
		{`{"format":"NVD_CVE","totalResults":-1}`, "totalResults says -1"},
		{`{"format":"NVD_CVE","totalResults":1}`, "0 records, where totalResults says 1"},
		{`{"format":"NVD_CVE","totalResults":1,"vulnerabilities":[` + record("CVE-2026-900002") + `]}`, "was not asked for"},
		{`{"format":"NVD_CVE","totalResults":1,"vulnerabilities":[null]}`, "not an NVD record"},
		{`{"format":"NVD_CVE","totalResults":1,"vulnerabilities":[{"cve":{"id":5}}]}`, "its id is"},
		{`{"format":"NVD_CVE","totalResults":"1"}`, "another shape"},
		{``, "0 bytes that are not JSON"},
		{` [1`, "not JSON: it begins with"},
		{`<html>`, "not JSON: it begins with"},
	} {
		records, lost := read([]byte(tc.body), []string{id})
		switch {
		case tc.says == "" && (lost != nil || len(records) != 1 || records[id] == nil):
			t.Errorf("%s: %v, %+v", tc.body, records, lost)
		case tc.says != "" && (lost == nil || !strings.Contains(lost.result.Detail, tc.says) || lost.result.Reason != batch.Parse):
			t.Errorf("%s: %v, %+v, want %q", tc.body, records, lost, tc.says)
		}
	}
}

// TestLostThenMissing: an id whose answer was lost at first, and that is missing in those that come later, is unknown.
func TestLostThenMissing(t *testing.T) {
	b := newBench(t, 10)
	id := b.watch.IDs[3]
	b.watch.NVD.Workers = 1
	b.world.Apply(nvdtest.Gone, id)
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 503, IDs: []string{id}, Times: 10}) // ten, five, two, one: each twice, and once more
	answers, err := b.watch.NVD.Fetch(t.Context(), b.watch.IDs, nil)
	if err != nil || answers[id].Result.Column != batch.Unknown {
		t.Errorf("%+v, %v", answers[id].Result, err)
	}
}

// TestAtMostAHundred: whatever is asked for, a request has no more ids than the NVD takes.
func TestAtMostAHundred(t *testing.T) {
	b := newBench(t, 271)
	b.watch.NVD.Batch = 500
	b.run()
	for _, r := range b.server.Requests() {
		if len(r.IDs) > 100 {
			t.Errorf("%d ids", len(r.IDs))
		}
	}
}

// TestTransportForTheNVD: what the NVD wants, and what it needs for a hundred records.
func TestTransportForTheNVD(t *testing.T) {
	for key, want := range map[string]weir.Rate{"": {Units: 5, Period: 30 * time.Second}, "k": {Units: 50, Period: 30 * time.Second}} {
		tr := (&NVD{Key: key}).Transport(nil)
		gate := tr.Gates[0]
		if len(tr.Gates) != 1 || gate.Limit.Rate != want || gate.Limit.Algorithm != weir.SlidingLog || gate.Reopen != httplimit.AfterStart || gate.Guard < 250*time.Millisecond {
			t.Errorf("with the key %q: %+v of %+v", key, gate, gate.Limit)
		}
		if tr.Timeout < 2*time.Minute || tr.ReadBody == 0 || tr.Check == nil {
			t.Errorf("timeout %v, body of %d", tr.Timeout, tr.ReadBody)
		}
	}
}
