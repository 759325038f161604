package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/blackfriday"
)

// A short demo, whole: nothing in it depends on how fast this machine is.
func TestDemoJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"demo", "--seconds", "1.5", "--rate", "3", "--json"}, nil, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var report blackfriday.Report
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&report); err != nil {
		t.Fatal(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("after the report: %v, want the end", err)
	}
	if report.Wave.Factor != 3 || report.Wave.Seconds != 1.5 || report.Wave.Peak != 3*report.Backend.Capacity || report.Backend.Workers < 1 {
		t.Errorf("wave %+v on %+v", report.Wave, report.Backend)
	}
	if len(report.Acts) != 2 || len(report.Limits) != 2 || len(report.Conclusion) < 2 {
		t.Fatalf("%d acts, %d limits, %d sentences", len(report.Acts), len(report.Limits), len(report.Conclusion))
	}
	for _, act := range report.Acts {
		if len(act.Classes) != 4 {
			t.Fatalf("%s: %d classes", act.Name, len(act.Classes))
		}
		var sum blackfriday.Class
		for i, c := range act.Classes {
			if c.Sent != c.Served+c.Refused+c.Failed+c.Other+c.Unanswered || c.Sent == 0 {
				t.Errorf("%s, %s: the columns do not add up: %+v", act.Name, c.Name, c)
			}
			if c.Sent != report.Acts[0].Classes[i].Sent {
				t.Errorf("%s, %s: sent %d, and %d in the first act", act.Name, c.Name, c.Sent, report.Acts[0].Classes[i].Sent)
			}
			if c.Other != 0 {
				t.Errorf("%s, %s: %d answers that are none of 2xx, 429 and 5xx", act.Name, c.Name, c.Other)
			}
			if c.Name != "all" {
				sum.Sent += c.Sent
				sum.Served += c.Served
				sum.Refused += c.Refused
			} else if sum.Sent != c.Sent || sum.Served != c.Served || sum.Refused != c.Refused {
				t.Errorf("%s: all are %+v, the classes add up to %+v", act.Name, c, sum)
			}
		}
		var sent, served int64
		for i := range act.OrdersSent {
			sent += act.OrdersSent[i]
			served += act.OrdersServed[i]
		}
		if orders := act.Classes[0]; sent != orders.Sent || served != orders.Served {
			t.Errorf("%s: over time %d orders sent and %d served, in all %d and %d", act.Name, sent, served, orders.Sent, orders.Served)
		}
	}
	without, with := &report.Acts[0], &report.Acts[1]
	if n := without.Classes[3].Refused; n != 0 {
		t.Errorf("%d requests got 429 without limits", n)
	}
	// What the limit of a client says, for as long as the act and its stragglers can have taken: this holds on any machine.
	runaway := with.Classes[2]
	if most := 20 + int64(10*report.Seconds); runaway.Served > most {
		t.Errorf("the runaway client was served %d times, want at most %d", runaway.Served, most)
	}
	if report.Refusal == nil {
		t.Fatal("no refusal was kept")
	}
	if !strings.HasPrefix(report.Refusal.Status, "HTTP/1.1 429") || report.Refusal.Header.Get("Retry-After") == "" ||
		report.Refusal.Header.Get("RateLimit") == "" || !json.Valid([]byte(report.Refusal.Body)) {
		t.Errorf("the refusal is %+v", report.Refusal)
	}
	if lines := strings.Count(stderr.String(), "\n"); lines != 3 {
		t.Errorf("%d lines of progress, want one for the calibration and one for each act: %q", lines, &stderr)
	}
}

func TestDemoIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"demo", "--seconds", "600"}, nil, &stdout, &stderr)
	if code != exitFailure || stdout.Len() != 0 || stderr.String() != "weir demo: interrupted\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}

func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--seconds", "0"}, {"--seconds", "NaN"}, {"--seconds", "601"}, {"--rate", "0"}, {"--rate", "-1"}, {"--rate", "+Inf"}, {"now"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"demo"}, args...), nil, &stdout, &stderr); code != exitUsage || stdout.Len() != 0 || stderr.Len() == 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}
