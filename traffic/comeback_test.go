package traffic

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// Who comes back, against a list of everything that is asked, gone through by hand.
func TestReturnsAgainstOracle(t *testing.T) {
	type asking struct {
		at    time.Time
		first int // the number of the request
		times int
		e     Event
	}
	for seed := range uint64(6) {
		events := crowdOf(seed, 800, 6, 5*time.Minute)
		l := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 20, Period: time.Minute}, Burst: 5}
		conf := &Returns{Share: 1, Times: 1 + int(seed%3), Wait: 8 * time.Second}
		r := simulate(t, &Simulation{Policy: perClient(l), Returns: conf, Algorithms: []weir.Algorithm{}}, events)

		var now time.Time
		lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
		var queue []asking
		for i, e := range events {
			queue = append(queue, asking{e.At, i, 0, e})
		}
		var refused, later, returned int64
		for len(queue) > 0 {
			// The earliest; of equals who came back, in the order in which they were refused.
			i := 0
			for j := range queue {
				a, b := &queue[j], &queue[i]
				if c := a.at.Compare(b.at); c < 0 || c == 0 && a.times > 0 && b.times == 0 {
					i = j
				}
			}
			a := queue[i]
			queue = slices.Delete(queue, i, i+1)
			now = a.at
			d, err := lim.Take(t.Context(), l.For(a.e.Client))
			if err != nil {
				t.Fatal(err)
			}
			if a.times > 0 {
				returned++
			}
			wait := time.Duration(math.Ceil(d.RetryAfter.Seconds())) * time.Second
			switch {
			case d.Allowed && a.times > 0:
				later++
			case d.Allowed:
			case a.times < conf.Times && wait <= conf.Wait:
				queue = append(queue, asking{a.at.Add(wait), a.first, a.times + 1, a.e})
			default:
				refused++
			}
		}
		if r.Requests != int64(len(events)) || r.Refused != refused || r.Later != later || r.Returned != returned {
			t.Errorf("seed %d: %d requests, %d refused, %d later, %d returned; want %d, %d, %d, %d", seed,
				r.Requests, r.Refused, r.Later, r.Returned, len(events), refused, later, returned)
		}
		if c := r.Classes[0]; c.Requests != r.Requests || c.Refused != refused || c.Later != later {
			t.Errorf("seed %d: class %+v", seed, c)
		}
		if got := r.Limits[0].Asked; got != r.Requests+returned {
			t.Errorf("seed %d: the limit was asked %d times, want %d", seed, got, r.Requests+returned)
		}
		if later == 0 || refused == 0 {
			t.Errorf("seed %d: %d later and %d refused test nothing", seed, later, refused)
		}
	}
}

// A share comes back, each time; nobody who was told to wait for too long, whom no wait helps, or who is the runaway.
func TestWhoComesBack(t *testing.T) {
	one := &weir.Limit{Name: "one", Rate: weir.Rate{Units: 1, Period: 30 * time.Second}}
	many := make([]Event, 5000)
	for i := range many {
		many[i] = Event{At: noon.Add(time.Duration(i) * time.Minute), Client: "a"}
		if i%2 == 1 {
			many[i].At = many[i-1].At.Add(time.Millisecond) // is refused, and told to wait for 30 s
		}
	}
	of := func(class string) []Event {
		all := slices.Clone(many)
		for i := range all {
			all[i].Class = class
		}
		return all
	}
	for _, tt := range []struct {
		name     string
		conf     *Returns
		events   []Event
		policy   Policy
		returned float64
	}{
		{"nobody", nil, many, perClient(one), 0},
		{"no share", &Returns{}, many, perClient(one), 0},
		{"some", &Returns{Share: 0.3}, many, perClient(one), 0.3 * 2500},
		{"all", &Returns{Share: 1}, many, perClient(one), 2500},
		{"too long", &Returns{Share: 1, Wait: 29 * time.Second}, many, perClient(one), 0},
		{"just as long", &Returns{Share: 1, Wait: 30 * time.Second}, many, perClient(one), 2500},
		{"the runaway", &Returns{Share: 1}, of(RunawayClass), perClient(one), 0},
		{"never", &Returns{Share: 1}, many, Policy{Limits: []*weir.Limit{one}, Charge: func(e *Event, a *Ask) error {
			a.Charges = append(a.Charges, one.For(e.Client).Costing(2))
			return nil
		}}, 0},
	} {
		r := simulate(t, &Simulation{Policy: tt.policy, Returns: tt.conf, Algorithms: []weir.Algorithm{}}, tt.events)
		if math.Abs(float64(r.Returned)-tt.returned) > 5*math.Sqrt(tt.returned*0.7) && float64(r.Returned) != tt.returned {
			t.Errorf("%s: %d came back, want about %v", tt.name, r.Returned, tt.returned)
		}
		if r.Later != r.Returned || r.Requests != 5000 || tt.name != "never" && r.Refused+r.Later != 2500 {
			t.Errorf("%s: %d refused and %d later of %d", tt.name, r.Refused, r.Later, r.Requests)
		}
	}
}

// Other algorithms and suggestions do not see who comes back because of this limit.
func TestReturnsAreOfThisLimit(t *testing.T) {
	events := crowdOf(2, 1000, 5, 5*time.Minute)
	results := make([]LimitResult, 2)
	for i, conf := range []*Returns{nil, {Share: 1}} {
		s := &Simulation{Policy: perClient(minute20), Returns: conf, Suggest: &Goal{Refused: 0.1}}
		results[i] = simulate(t, s, events).Limits[0]
	}
	if !reflect.DeepEqual(results[0].Algorithms, results[1].Algorithms) || !reflect.DeepEqual(results[0].Suggested, results[1].Suggested) {
		t.Errorf("alone %+v, %+v\nwith %+v, %+v", results[0].Algorithms, results[0].Suggested, results[1].Algorithms, results[1].Suggested)
	}
	if results[0].Asked == results[1].Asked {
		t.Error("nobody came back")
	}
	// And the table says so beside its figures.
	if got := results[0].WithoutReturns(); got != "" {
		t.Errorf("nobody comes back, and it says %q", got)
	}
	want := fmt.Sprintf("without those who come back after a refusal (%s requests, not the %s above)", Count(results[0].Asked), Count(results[1].Asked))
	if table := results[1].algorithmTable(); !strings.Contains(table.Text, want) {
		t.Errorf("the table says %q, want %q in it", table.Text, want)
	}
}

func TestReturnsInAScenario(t *testing.T) {
	text := "name: x\nduration: 1h\nload: {normal: 10/s}\nclasses:\n  - {name: a, request: GET /, share: 100%}\nclients:\n  returns: "
	s, err := ParseScenario("s.yaml", []byte(text+"{share: 70%, times: 2, wait: 90s}"))
	if err != nil || *s.Clients.Returns != (Returns{Share: 0.7, Times: 2, Wait: 90 * time.Second}) {
		t.Errorf("%+v, %v", s.Clients.Returns, err)
	}
	for returns, want := range map[string]string{
		"{share: 0%}":             "s.yaml:7:20: clients.returns.share: none; it takes the share of the refused requests that come back, as 70%",
		"{share: 1, times: -1}":   "clients.returns.times: -1; it takes how often",
		"{share: 1, wait: 10ms}":  "clients.returns.wait: 10ms; it takes the longest Retry-After",
		"{share: 1, patience: 1}": "clients.returns.patience: unknown field; it takes share, times and wait",
	} {
		if _, err := ParseScenario("s.yaml", []byte(text+returns)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", returns, err, want)
		}
	}
	j := Judgement{OK: true, Requests: 1000, Refused: 1, Later: 20, AtMost: 0.01, Agreed: true}
	if got, want := j.String(), "survive: 0.10 % of 1,000 refused, at most 1% agreed; 2.00 % were served only when they came back"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
