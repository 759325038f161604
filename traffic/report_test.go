package traffic

import (
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// What logs say is text on the page and nothing else, and the page loads nothing.
func TestReportIsSelfContainedAndEscapes(t *testing.T) {
	const evil = `</title></svg><script src="https://evil.example/x.js">alert(1)</script><img src=x onerror=y>`
	r := &Report{
		Title: evil, Lead: evil, Agreed: evil, Made: evil,
		Verdicts: []Verdict{{evil, true, evil, false}, {"orders", false, "do not survive", false}, {evil, false, evil, true}},
		Facts:    []Fact{{evil, evil, true}},
		Notes:    []string{evil},
		Sections: []Section{{
			Title: evil, Text: evil,
			Charts: []Chart{{
				Title: evil, Text: evil, Unit: evil, Step: time.Second, Start: time.Unix(0, 0),
				Lines:  []Line{{evil, RoleServed, true, []float64{1, 2, 3}}, {evil, RoleDemand, false, []float64{1, math.NaN(), math.Inf(1), -1}}},
				Bounds: []Bound{{evil, 2}, {"far away", 1e9}},
				Marks:  []Mark{{evil, 0, time.Second}},
			}, {Title: "empty"}},
			Bars:   []Bars{{evil, evil, evil, []Bar{{evil, 10, 3}, {"b", 0, 0}}}, {Title: "empty"}},
			Tables: []Table{{Title: evil, Text: evil, Head: []string{evil, "n"}, Rows: [][]string{{evil, "1,000"}}, Strong: 1}},
		}},
	}
	var b strings.Builder
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for n := range page.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script", "img", "link", "iframe", "object":
			t.Errorf("the page has a %s", n.Data)
		}
		for _, a := range n.Attr {
			if a.Key == "href" || a.Key == "src" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("the page has %s=%q", a.Key, a.Val)
			}
			if strings.Contains(a.Val, "NaN") || strings.Contains(a.Val, "Inf") {
				t.Errorf("%s of %s is %q", a.Key, n.Data, a.Val)
			}
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 keys", 1: "1 key", 2: "2 keys", 1000: "1,000 keys"} {
		if got := CountOf(n, "key", "keys"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "−1,234"} {
		if got := Count(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for _, tt := range []struct {
		part, whole int64
		want        string
	}{
		{0, 0, "–"}, {0, 10, "0 %"}, {10, 10, "100 %"}, {1, 3, "33.3 %"}, {1, 1e9, "<0.001 %"}, {1e9 - 1, 1e9, ">99.99 %"},
		{5, 10_000, "0.050 %"}, {5, 1000, "0.50 %"},
	} {
		if got := Percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("%d of %d is %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
}

// A chart of nothing has no empty axes.
func TestChartOfNothing(t *testing.T) {
	none := Line{Name: "slowest", Values: []float64{math.NaN(), math.NaN()}}
	for want, c := range map[string]Chart{
		`<p class="none">No traffic.</p>`:    {},
		`<p class="none">There is none.</p>`: {Lines: []Line{none}, Step: time.Second},
	} {
		if got := c.svg(); got != want {
			t.Errorf("got %.200s, want %s", got, want)
		}
	}
	if got := (&Chart{Lines: []Line{none, {Name: "some", Values: []float64{0, 0}}}, Step: time.Second}).svg(); !strings.HasPrefix(got, "<svg") {
		t.Errorf("zeros are something: %.200s", got)
	}
}
