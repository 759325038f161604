package traffic

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

func blackFriday(t testing.TB) *Scenario {
	t.Helper()
	s, err := LoadScenario("../examples/blackfriday.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScenarioExample(t *testing.T) {
	s := blackFriday(t)
	if got, want := s.Agreed.String(), "agreed by M. Sato (marketing) and K. Berger (shop platform) on 2026-10-01"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.Begin(); !got.Equal(time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("begins at %v", got)
	}
	if len(s.Classes) != 3 || s.Classes[0].Share != 0.05 || float64(*s.Classes[0].RefusedAtMost) != 0.001 || s.Classes[2].RefusedAtMost != nil {
		t.Errorf("classes are %+v", s.Classes)
	}
	if got := s.PeakRate(); math.Abs(got-400) > 1e-6 { // the runaway, 50/s, comes when the peak is over
		t.Errorf("peak of %v/s, want 400", got)
	}
	counts := map[string]float64{}
	var last time.Time
	var n, runaway, office, users float64
	for e := range s.Events() {
		if e.At.Before(last) || e.At.Before(s.Begin()) || !e.At.Before(s.Begin().Add(s.Duration)) {
			t.Fatalf("request %v: at %v after %v", n, e.At, last)
		}
		last = e.At
		n++
		switch e.Client {
		case "203.0.113.66":
			runaway++
			continue
		case "203.0.113.1":
			office++
		}
		if e.User != "" {
			users++
		}
		counts[e.Class]++
	}
	if want := s.Total(); math.Abs(n-want) > 5*math.Sqrt(want) {
		t.Errorf("%v requests, want about %v", n, want)
	}
	if runaway != 50*10*60 {
		t.Errorf("%v of the runaway, want %v", runaway, 50*10*60)
	}
	load := n - runaway
	for name, share := range map[string]float64{"orders": 0.05, "cart": 0.15, "reads": 0.80} {
		if got := counts[name] / load; math.Abs(got-share) > 0.005 {
			t.Errorf("%s is %v of the load, want %v", name, got, share)
		}
	}
	if got := office / load; math.Abs(got-0.01) > 0.001 {
		t.Errorf("the office has %v of the load, want 0.01", got)
	}
	if got := users / load; math.Abs(got-0.40) > 0.05 {
		t.Errorf("users have %v of the load, want about 0.40", got)
	}
}

// A runaway that goes on for longer than the scenario ends with it.
func TestRunawayEndsWithTheScenario(t *testing.T) {
	s := blackFriday(t)
	s.Clients.Runaway.At, s.Clients.Runaway.For = 55*time.Minute, time.Hour
	n := 0
	for e := range s.Events() {
		if !e.At.Before(s.Begin().Add(s.Duration)) {
			t.Fatalf("a request at %v", e.At)
		}
		if e.Client == RunawayClient {
			n++
		}
	}
	if n != 50*5*60 {
		t.Errorf("%d of the runaway, want %d", n, 50*5*60)
	}
}

func TestScenarioIsTheSameEachTime(t *testing.T) {
	s := blackFriday(t)
	s.Duration = 2 * time.Minute
	s.Clients.Runaway = nil
	var first []string
	for e := range s.Events() {
		first = append(first, e.At.String()+e.Client+e.User+e.Path)
	}
	i := 0
	for e := range s.Events() {
		if got := e.At.String() + e.Client + e.User + e.Path; got != first[i] {
			t.Fatalf("request %d is %q, and was %q", i, got, first[i])
		}
		i++
	}
}

func TestShapes(t *testing.T) {
	h := time.Hour
	rates := func(n, p int64) (weir.Rate, weir.Rate) {
		return weir.Rate{Units: n, Period: time.Second}, weir.Rate{Units: p, Period: time.Second}
	}
	for _, tt := range []struct {
		name  string
		shape Shape
		want  map[time.Duration]float64 // in 8 hours
	}{
		{"steady", Shape{Shape: Flat}, map[time.Duration]float64{0: 10, 4 * h: 10, 8*h - 1: 10}},
		{"nothing said is a step", Shape{}, map[time.Duration]float64{0: 10, 2*h - 1: 10, 2 * h: 90, 6*h - 1: 90, 6 * h: 10}},
		{"step", Shape{Shape: Step, At: h, For: h}, map[time.Duration]float64{h - 1: 10, h: 90, 2*h - 1: 90, 2 * h: 10, 8*h - 1: 10}},
		{"ramp", Shape{Shape: Climb, At: h, Rise: 2 * h, For: h}, map[time.Duration]float64{h: 10, 2 * h: 50, 3 * h: 90, 4 * h: 90, 5 * h: 50, 6 * h: 10}},
		{"spike", Shape{Shape: Spike, At: h, For: 4 * h}, map[time.Duration]float64{h - 1: 10, h: 90, h + h/2: 50, 2 * h: 30, 5 * h: 10}},
		{"daily", Shape{Shape: Daily, At: 4 * h}, map[time.Duration]float64{4 * h: 90}},
		{"a step that outlasts the scenario", Shape{Shape: Step, At: 7 * h, For: 5 * h}, map[time.Duration]float64{7*h - 1: 10, 7 * h: 90, 8*h - 1: 90, 9 * h: 0}},
	} {
		tt.shape.Normal, tt.shape.Peak = rates(10, 90)
		p := tt.shape.Profile(8 * h)
		if err := p.Validate(); err != nil || p.End() != 8*h {
			t.Errorf("%s: %v, ends at %v", tt.name, err, p.End())
		}
		for at, want := range tt.want {
			if got := p.Rate(at); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: %v/s at %v, want %v/s", tt.name, got, at, want)
			}
		}
	}
}

// The peak of a day is at its time of day, in the zone of the start, whenever the scenario begins.
func TestDailyPeaksAtItsTimeOfDay(t *testing.T) {
	for _, tt := range []struct {
		start, at string
		want      time.Duration // after the beginning
	}{
		{"", "", 14 * time.Hour},
		{"2026-11-27T08:00:00Z", "", 6 * time.Hour},
		{"2026-11-27T08:00:00+09:00", "at: 20h, ", 12 * time.Hour},
		{"2026-11-27T20:00:00Z", "at: 14h30m, ", 18*time.Hour + 30*time.Minute},
	} {
		text := "name: x\nduration: 24h\nload: {normal: 10/s, peak: 90/s, " + tt.at + "shape: daily}\nclasses: [{name: a, request: GET /, share: 25%}, {name: b, request: GET /b, share: 75%}]\n"
		if tt.start != "" {
			text += "start: " + tt.start + "\n"
		}
		s, err := ParseScenario("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p := s.Profile(1)
		top := time.Duration(0)
		for at := time.Duration(0); at < s.Duration; at += 5 * time.Minute {
			if p.Rate(at) > p.Rate(top)+1e-9 {
				top = at
			}
		}
		if d := (top - tt.want).Abs(); d > 8*time.Minute || math.Abs(p.Rate(tt.want)-67.5) > 0.1 {
			t.Errorf("start %q, %q: the peak is %v after the beginning, want %v", tt.start, tt.at, top, tt.want)
		}
	}
}

func TestScenarioFaults(t *testing.T) {
	const good = "name: x\nduration: 1h\nload: {normal: 10/s}\nclasses:\n  - {name: a, request: GET /, share: 100%}\n"
	if _, err := ParseScenario("s.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new, want string }{
		{"unknown field", "duration: 1h", "durations: 1h", `s.yaml:2:1: durations: unknown field; did you mean duration?`},
		{"twice", "duration: 1h", "duration: 1h\nduration: 1h", `s.yaml:3:1: duration: given twice, first on line 2`},
		{"alias", "name: x", "name: *a", "s.yaml:1:7: name: *a stands for nothing"},
		{"tag", "name: x", "name: !!str x", "s.yaml:1:7: name: a tag"},
		{"nothing", "name: x", "name:", "s.yaml:1:1: name: no name"},
		{"no rate", "{normal: 10/s}", "{normal: }", "s.yaml:3:8: load.normal: nothing; give it a value"},
		{"no office", "name: x", "name: x\nclients: {office: }", "s.yaml:2:11: clients.office: nothing in it; write {}"},
		{"no duration", "duration: 1h", "seed: 1", "s.yaml:1:1: duration: 0s; it takes more than 0"},
		{"bad duration", "duration: 1h", "duration: 1x", `s.yaml:2:11: duration: "1x": no duration; the form is a number and a unit`},
		{"bad time", "name: x", "name: x\nstart: noon", `s.yaml:2:8: start: the text "noon"; it takes a time, as 2026-11-27T08:00:00Z`},
		{"bad seed", "name: x", "name: x\nseed: -1", `s.yaml:2:7: seed: -1; it takes a whole number, 0 or more`},
		{"bad rate", "10/s", "10 a second", `s.yaml:3:16: load.normal: rate "10 a second": no slash`},
		{"bad share", "100%", "120%", `s.yaml:5:38: classes[0].share: "120%" is no share`},
		{"sum", "100%", "90%", "s.yaml:5:3: classes: the shares add up to 90%; it takes 100%"},
		{"shape", "{normal: 10/s}", "{normal: 10/s, shape: hill}", `s.yaml:3:29: load.shape: "hill" is none of steady, step, ramp, spike, daily`},
		{"no load", "{normal: 10/s}", "{}", "s.yaml:3:7: load.normal: no load; it takes a rate"},
		{"low peak", "{normal: 10/s}", "{normal: 10/s, peak: 5/s}", "load.peak: 5/s is less than the normal load of 10/s"},
		{"a peak after the end", "{normal: 10/s}", "{normal: 10/s, peak: 50/s, at: 90m}", "s.yaml:3:38: load.at: 1h30m0s is not within the 1h0m0s of the scenario: the peak would never come"},
		{"a peak of another time of day", "{normal: 10/s}", "{normal: 10/s, peak: 50/s, shape: daily}", "s.yaml:3:7: load.at: from 00:00 on for 1h0m0s the peak at 14:00 never comes"},
		{"no time of day", "{normal: 10/s}", "{normal: 10/s, peak: 50/s, shape: daily, at: 30h}", "load.at: 30h0m0s is no time of day; it takes 0 to 24h"},
		{"a peak that is steady", "{normal: 10/s}", "{normal: 10/s, peak: 50/s, shape: steady}", "s.yaml:3:41: load.shape: steady has no peak, and there is one"},
		{"a shape without a peak", "{normal: 10/s}", "{normal: 10/s, shape: spike}", "s.yaml:3:29: load.shape: spike without a peak"},
		{"request", "GET /", "GET", "classes[0].request: \"GET\" is no request; the form is"},
		{"no class", "{name: a, request: GET /, share: 100%}", "{name: a, request: GET /}", "s.yaml:5:5: classes[0]: neither a share"},
		{"date", "name: x", "name: x\nagreed: {on: May 5}", `agreed.on: "May 5" is no date`},
		{"zipf", "name: x", "name: x\nclients: {zipf: -1}", "s.yaml:2:17: clients.zipf: -1; it takes 0 to 10"},
		{"runaway", "name: x", "name: x\nclients: {runaway: {class: b, rate: 1/s}}", `clients.runaway.class: there is no class called "b"`},
		{"not yaml", "name: x", "name: [x", "s.yaml:2:1: not YAML: ',' or ']' must be specified"},
		{"second document", "name: x", "---\nname: x\n---\nname: y", "a second document"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		_, err := ParseScenario("s.yaml", []byte(text))
		var faults *ScenarioError
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v\nwant %s", tt.name, err, tt.want)
		}
	}
	_, err := ParseScenario("s.yaml", []byte("name: ''\nduration: -1h\n"))
	if n := len(strings.Split(err.Error(), "\n")); n != 3 {
		t.Errorf("%d faults, want 3:\n%v", n, err)
	}
	if _, err := ParseScenario("s.yaml", nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// Whatever is in the file, there is a scenario that can be run, or an error with a line.
func FuzzScenario(f *testing.F) {
	example, err := os.ReadFile("../examples/blackfriday.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("name: x\nduration: 1h\nload: {normal: 10/s, peak: 1/ms, shape: daily}\nclasses: [{name: a, request: GET /, share: 1}]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScenario("s.yaml", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		for i := range s.Classes {
			if err := s.Profile(i).Validate(); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for range s.Events() {
			if n++; n == 10 {
				break
			}
		}
	})
}
