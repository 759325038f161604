package blackfriday

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt with what the reports print")

// measured is a report as a run could have made it.
func measured() *Report {
	perSecond := func(n int64) weir.Rate { return weir.Rate{Units: n, Period: time.Second} }
	return &Report{
		Machine:       Machine{2, "linux", "amd64", "go1.26"},
		PathPerSecond: 14_000,
		Seconds:       27.4,
		Backend:       Pool{1500, 30, 20, 2250, 1000},
		Trial:         Trial{1371, 35.2, 0.001},
		Wave:          Wave{3.5, 5250, 12},
		Limits:        []Limit{{"backend", perSecond(1425), 60, 24}, {"client", perSecond(10), 20, 0}},
		Acts: []Act{{
			Name: "without weir",
			Classes: []Class{
				{Name: "orders", Sent: 9213, Served: 1160, Failed: 7841, Unanswered: 212, P50: 367.12, P99: 989.4},
				{Name: "back office", Sent: 14233, Served: 1842, Failed: 12065, Unanswered: 326, P50: 365, P99: 991},
				{Name: "runaway client", Sent: 17933, Served: 2318, Failed: 15211, Other: 6, Unanswered: 398, P50: 381, P99: 985},
				{Name: "all", Sent: 41379, Served: 5320, Failed: 35117, Other: 6, Unanswered: 936, Late: 4138, MaxLate: 48.5, P50: 369, P99: 989},
			},
			Worked: 17000, Wasted: 11730,
			OrdersSent:   []int64{20, 20, 20, 90, 160, 160, 160, 160, 90, 20, 20, 20},
			OrdersServed: []int64{20, 20, 20, 88, 12, 0, 0, 0, 0, 0, 9, 20},
		}, {
			Name: "with weir",
			Classes: []Class{
				{Name: "orders", Sent: 9213, Served: 9213, P50: 24.1, P99: 42.2},
				{Name: "back office", Sent: 14233, Served: 2985, Refused: 11248, P50: 23, P99: 41, RefusalP50: 0.7},
				{Name: "runaway client", Sent: 17933, Served: 139, Refused: 17794, P50: 9.64, P99: 40, RefusalP50: 0.7},
				{Name: "all", Sent: 41379, Served: 12337, Refused: 29042, P50: 24, P99: 42, RefusalP50: 0.7},
			},
			Worked:       12337,
			OrdersSent:   []int64{20, 20, 20, 90, 160, 160, 160, 160, 90, 20, 20, 20},
			OrdersServed: []int64{20, 20, 20, 90, 160, 160, 160, 160, 90, 20, 20, 20},
		}},
		Refusal: &Refusal{
			Status: "HTTP/1.1 429 Too Many Requests",
			Header: http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"}},
			Body:   `{"title":"Too many requests","status":429}` + "\n",
		},
	}
}

// class is one kind of client of an act.
func (r *Report) class(act, i int) *Class { return &r.Acts[act].Classes[i] }

func TestReportText(t *testing.T) {
	for name, change := range map[string]func(*Report){
		"as-expected": func(*Report) {},
		"not-enough-load": func(r *Report) {
			r.Wave.Factor, r.Wave.Peak = 0.8, 1200
			*r.class(0, orders) = *r.class(1, orders)
			r.Acts[0].Wasted = 0
		},
		"orders-alone-are-too-many": func(r *Report) {
			r.Wave.Factor, r.Wave.Peak = 10, 15_000
			r.class(1, orders).Served, r.class(1, orders).Refused = 6000, 3213
		},
		"weir-did-not-help": func(r *Report) {
			*r.class(1, orders) = Class{Name: "orders", Sent: 9213, Served: 1000, Failed: 8000, Unanswered: 213, P50: 300, P99: 900}
			r.class(1, 3).Late, r.class(1, 3).MaxLate = 20_000, 1200
		},
		"nothing-served": func(r *Report) {
			*r.class(0, orders) = Class{Name: "orders", Sent: 9213, Unanswered: 9213}
			*r.class(1, orders) = *r.class(0, orders)
			r.Refusal = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := measured()
			change(r)
			r.conclude()
			var out bytes.Buffer
			if err := r.WriteText(&out); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
					t.Errorf("%d columns, want at most 100: %s", n, line)
				}
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != string(want) {
				t.Errorf("got:\n%s\nwant (go test -update writes it anew):\n%s", got, want)
			}
		})
	}
}

func TestPercentHidesNothing(t *testing.T) {
	for _, tt := range []struct {
		n, of int64
		want  string
	}{
		{0, 0, "0 %"}, {0, 7, "0 %"}, {7, 7, "100 %"}, {1, 7, "14 %"}, {1, 1_000_000, "<0.1 %"},
		{999_999, 1_000_000, ">99.9 %"}, {994, 1000, "99.4 %"}, {5, 100, "5.0 %"},
	} {
		if got := percent(tt.n, tt.of); got != tt.want {
			t.Errorf("%d of %d: %q, want %q", tt.n, tt.of, got, tt.want)
		}
	}
}

func TestCount(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.8: "1,234,568"} {
		if got := count(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}
