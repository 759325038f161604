package main

import (
	"encoding/json"
	"html"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// TestLoadVerdictOnRetryAfter: who was served proves a promise, who was let down disproves it, and who was overtaken does neither.
func TestLoadVerdictOnRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		promises traffic.Promises
		scenario bool
		want     string // the verdict's line, without "Retry-After"; empty: there is none
		fails    bool
	}{
		{name: "nobody obeyed", promises: traffic.Promises{Given: 9, TooLong: 9}},
		{name: "still waiting", promises: traffic.Promises{Given: 9, Open: 2, Lost: 1}},
		{name: "served", promises: traffic.Promises{Kept: 2, Taken: 3, Unclear: 1}, want: "yes: can be believed: of 6 clients that did what it said, served: 2; overtaken by requests of the same client: 3; perhaps by those of others: 1."},
		{name: "served now and then", promises: traffic.Promises{Kept: 24, Unclear: 721}, scenario: true,
			want: "not shown: may be true or not: of 745 clients that did what it said, served: 24; others came first (requests of the same client: 0; perhaps those of others: 721): send less of the scenario with --share, and see whether the server tells clients apart by --identify."},
		{name: "all overtaken", promises: traffic.Promises{Taken: 10},
			want: "not shown: may be true or not: none of 10 clients that did what it said was served; others came first (requests of the same client: 10; perhaps those of others: 0): lower --rate or use more --clients."},
		{name: "one overtaken by others", promises: traffic.Promises{Unclear: 1}, scenario: true,
			want: "not shown: may be true or not: the one client that did what it said was not served; others came first (requests of the same client: 0; perhaps those of others: 1): send less of the scenario with --share, and see whether the server tells clients apart by --identify."},
		{name: "let down", promises: traffic.Promises{Kept: 5, Broken: 1, Example: &traffic.BrokenPromise{Client: "a", Request: "GET /", Said: "1", Waited: time.Second, ThenSaid: "1"}},
			want: "NO: cannot be believed: of 6 clients that did what it said, refused again though nobody was served meanwhile: 1. As GET / for a: told 1, waited 1s, then told 1.", fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := &loadPlan{target: "http://127.0.0.1/", length: time.Second, share: 1, peak: 10}
			plan.drive.Ceiling = weir.Rate{Units: 10, Period: time.Second}
			if tt.scenario {
				plan.scenario = &traffic.Scenario{Name: "rush", Duration: time.Second}
			}
			r := newLoadReport(plan, &traffic.Driven{Ended: traffic.EndComplete, Step: time.Second, Lasted: time.Second,
				Classes: []traffic.ClassDriven{{Name: "reads", Tally: traffic.Tally{Sent: 20, OK: 10, Refused: 10}, Promises: tt.promises}}})
			var text strings.Builder
			if err := r.writeText(&text); err != nil {
				t.Fatal(err)
			}
			got := ""
			for line := range strings.Lines(text.String()) {
				if sign, rest, ok := strings.Cut(line, ": Retry-After "); ok {
					got += sign + ": " + strings.TrimSuffix(rest, "\n")
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err := r.verdict(); (err != nil) != tt.fails {
				t.Errorf("the exit is %v", err)
			}
			if tt.want == "" {
				return
			}
			sign, said, _ := strings.Cut(tt.want, ": ")
			b, err := json.Marshal(r.Verdicts)
			if err != nil {
				t.Fatal(err)
			}
			if s := string(b); strings.Contains(s, `"ok":true`) != (sign == "yes") || strings.Contains(s, `"not_shown":true`) != (sign == "not shown") {
				t.Errorf("%s is %s", sign, s)
			}
			var page strings.Builder
			if err := r.page().WriteHTML(&page); err != nil {
				t.Fatal(err)
			}
			class := map[string]string{"yes": "ok", "not shown": "open", "NO": "no"}[sign]
			if s := html.UnescapeString(page.String()); !strings.Contains(s, `<div class="verdict `+class+`">`) || !strings.Contains(s, strings.TrimSuffix(said, ".")) {
				t.Errorf("the page has no verdict of class %s that says %q", class, said)
			}
		})
	}
}
