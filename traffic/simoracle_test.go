package traffic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// weighed is a policy of one limit whose charges have the cost that an event has as Bytes, and the priority that it has as Status.
func weighed(l *weir.Limit) Policy {
	return Policy{Limits: []*weir.Limit{l}, Charge: func(e *Event, a *Ask) error {
		a.Charges = append(a.Charges, l.For(e.Client).Costing(e.Bytes).AtPriority(weir.Priority(e.Status)))
		return nil
	}}
}

// weighedCrowd has times that meet on a grid, so that some are exactly a period apart.
func weighedCrowd(seed uint64, n int, length time.Duration) []Event {
	random := rand.New(rand.NewPCG(seed, 9))
	all := make([]Event, n)
	for i := range all {
		all[i] = Event{
			At: noon.Add(17*time.Second + time.Duration(random.Int64N(int64(length/time.Second)))*time.Second), Client: fmt.Sprint("c", min(4, random.IntN(9))),
			Bytes: 1 + random.Int64N(3), Status: int(weir.Low) + random.IntN(3),
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

// tried is what a limit alone says to the events.
func tried(t *testing.T, l *weir.Limit, events []Event) []bool {
	t.Helper()
	var now time.Time
	lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
	allowed := make([]bool, len(events))
	for i := range events {
		e := &events[i]
		now = e.At
		d, err := lim.Take(t.Context(), l.For(e.Client).Costing(e.Bytes).AtPriority(weir.Priority(e.Status)))
		if err != nil {
			t.Fatal(err)
		}
		allowed[i] = d.Allowed
	}
	return allowed
}

func quantilesOf(all []int64) Quantiles {
	slices.Sort(all)
	at := func(q float64) int64 { return all[int(math.Ceil(q*float64(len(all))))-1] }
	return Quantiles{at(0.5), at(0.99), all[len(all)-1]}
}

// Costs, priorities and headroom count in demand, in the comparison and over time: each figure against one that is counted from all events.
func TestWeighedChargesAgainstOracle(t *testing.T) {
	for seed := range uint64(4) {
		events := weighedCrowd(seed, 1500, 12*time.Minute)
		l := &weir.Limit{Name: "x", Rate: weir.Rate{Units: 20, Period: time.Minute}, Burst: 41, Headroom: 8}
		got := simulate(t, &Simulation{Policy: weighed(l)}, events).Limits[0]

		type period struct {
			client string
			at     time.Time
		}
		units, demand, peaks := int64(0), map[period]int64{}, map[string]int64{}
		over := make([]int64, len(got.times.spans))
		for _, e := range events {
			p := period{e.Client, e.At.Truncate(time.Minute)}
			units += e.Bytes
			demand[p] += e.Bytes
			peaks[e.Client] = max(peaks[e.Client], demand[p])
			i := e.At.Sub(got.times.start) / got.times.width()
			over[i] = max(over[i], demand[p])
		}
		var all, most []int64
		for _, n := range demand {
			all = append(all, n)
		}
		for _, n := range peaks {
			most = append(most, n)
		}
		if got.Units != units || got.Demand != quantilesOf(all) || got.KeyPeak != quantilesOf(most) || got.Window.Demand != slices.Max(all) {
			t.Errorf("seed %d: %d units, demand %+v, peaks %+v, worst %+v; want %d, %+v, %+v", seed,
				got.Units, got.Demand, got.KeyPeak, got.Window, units, quantilesOf(all), quantilesOf(most))
		}
		if demand[period{got.Window.Key, got.Window.At}] != got.Window.Demand {
			t.Errorf("seed %d: the worst window %+v is none", seed, got.Window)
		}
		if start := got.times.start; !start.Equal(start.Truncate(got.times.width())) || got.times.width() == time.Second {
			t.Errorf("seed %d: steps of %v from %v on", seed, got.times.width(), start)
		}
		for i, s := range got.times.spans {
			if s.peak != over[i] {
				t.Errorf("seed %d: in step %d a key asks for %d, want %d", seed, i, s.peak, over[i])
			}
		}

		for _, a := range got.Algorithms {
			v := &weir.Limit{Name: "x", Algorithm: a.Algorithm, Rate: l.Rate}
			room := int64(0)
			switch a.Algorithm {
			case weir.TokenBucket, weir.GCRA:
				v.Burst, v.Headroom, room = 41, 8, 41+19 // a burst, and what comes back in less than a minute
			case weir.LeakyBucket:
				room = 20
			case weir.FixedWindow:
				v.Headroom, room = 3, 40 // ⌊8·20/41⌋
			case weir.SlidingWindow:
				v.Headroom, room = 3, 39
			case weir.SlidingLog:
				v.Headroom, room = 3, 20
			}
			allowed := tried(t, v, events)
			var want AlgorithmResult
			for i, e := range events {
				used := int64(0)
				for j := range i {
					if o := &events[j]; allowed[j] && o.Client == e.Client && e.At.Sub(o.At) < time.Minute {
						used += o.Bytes
					}
				}
				fits := used+e.Bytes <= 20-int64(weir.High-weir.Priority(e.Status))*v.Headroom
				switch {
				case !allowed[i]:
					want.Refused++
					if fits {
						want.WrongRefused++
					}
				case !fits:
					want.WrongAdmitted++
				}
				if allowed[i] {
					want.MostIn = max(want.MostIn, used+e.Bytes)
				}
			}
			if !approximates(a.Algorithm) {
				want.WrongAdmitted, want.WrongRefused = 0, 0
			}
			if a.Refused != want.Refused || a.WrongAdmitted != want.WrongAdmitted || a.WrongRefused != want.WrongRefused || a.MostIn != want.MostIn || a.Bound != room {
				t.Errorf("seed %d, %v: %+v, want %+v and a bound of %d", seed, a.Algorithm, a, want, room)
			}
		}
	}
}

// The smallest limit, where headroom and a burst that is no multiple of the rate have a say. Where charges differ there is no smallest one to be
// found by halving: then one that keeps to the goal, and with one unit less would not.
func TestSuggestWeighed(t *testing.T) {
	l := &weir.Limit{Name: "x", Rate: weir.Rate{Units: 7, Period: time.Minute}, Burst: 10, Headroom: 2}
	proportional := func(units int64) int64 { return (units*10 + 6) / 7 }
	for _, goal := range []Goal{{Refused: 0.02}, {Refused: 0.05}, {Refused: 0.1}, {Refused: 0.15}, {Refused: 0.2}, {Refused: 0.3}, {Refused: 0.4}, {Refused: 0.4, Clients: true}} {
		for _, uneven := range []bool{false, true} {
			events := weighedCrowd(5, 500, 8*time.Minute)
			for i := range events {
				if !uneven {
					events[i].Bytes, events[i].Status = 2, int(weir.Normal)
				}
			}
			good := func(units, burst int64) bool {
				v := &weir.Limit{Name: "x", Rate: weir.Rate{Units: units, Period: time.Minute}, Burst: burst, Headroom: min(2*burst/10, (burst-1)/2)}
				refused, hit := 0, map[string]bool{}
				for i, ok := range tried(t, v, events) {
					if !ok {
						refused++
						hit[events[i].Client] = true
					}
				}
				if goal.Clients {
					return float64(len(hit)) <= float64(goal.Refused)*5
				}
				return float64(refused) <= float64(goal.Refused)*float64(len(events))
			}
			r := simulate(t, &Simulation{Policy: weighed(l), Suggest: &goal, Algorithms: []weir.Algorithm{}}, events).Limits[0]
			got, text := r.Suggested, r.Suggested.Sentence(&r)
			units, burst := got.Rate.Units, got.Burst
			if !uneven {
				units, burst = 1, 1
				for !good(units, proportional(units)) {
					units++
				}
				for !good(units, burst) {
					burst++
				}
			} else if !good(units, burst) || good(units-1, proportional(units-1)) || good(units, burst-1) {
				t.Errorf("%v, uneven: %d with burst %d does not do, or less does too", goal.String(), units, burst)
			}
			if !got.Found || got.Rate.Units != units || got.Burst != burst || got.Uneven != uneven {
				t.Errorf("%v, uneven %v: got %+v, want %d with burst %d", goal.String(), uneven, got, units, burst)
			}
			if want := fmt.Sprintf("; %d/m would refuse ", units-1); !strings.Contains(text, want) || strings.Contains(text, "is the smallest found that") != uneven {
				t.Errorf("%v, uneven %v: no %q in %s", goal.String(), uneven, want, text)
			}
		}
	}
}

// Of more keys than are kept one by one, what is said of all is near what is true of all, and what is said of one is true.
func TestManyKeys(t *testing.T) {
	const most, n = 1 << 15, 40_000 // fewer than usual, so that fewer requests do
	l := &weir.Limit{Name: "x", Rate: weir.Rate{Units: 5, Period: time.Hour}}
	s := &Simulation{Policy: weighed(l), Algorithms: []weir.Algorithm{}, Suggest: &Goal{Refused: 0.3, Clients: true}}
	defer s.Close()
	at := noon
	add := func(client string, cost int64) {
		at = at.Add(time.Millisecond)
		if err := s.Add(&Event{At: at, Client: client, Bytes: cost}); err != nil {
			t.Fatal(err)
		}
		s.limits[0].keys.most = most
	}
	for i := range n {
		add(fmt.Sprint("c", i), 1+6*int64(i%4/3)) // every fourth asks for 7
	}
	hot := ""
	for i := 0; hot == "" || keyHash(hot) > math.MaxUint64/8; i++ { // one that is kept
		hot = fmt.Sprint("hot", i)
	}
	for range 1500 {
		add(hot, 1)
	}
	r, err := s.Result(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := &r.Limits[0]
	near := func(what string, got, want int64) {
		if math.Abs(float64(got-want)) > 0.02*float64(want) {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	near("keys", got.Keys, n+1)
	near("refused keys", got.KeysRefused, n/4)
	if got.KeysPart != 2 {
		t.Errorf("one key in %d is kept", got.KeysPart)
	}
	if k := got.TopAsked[0]; k != (KeyCount{Key: hot, Asked: 1500, Refused: 1495}) {
		t.Errorf("the hot key: %+v", k)
	}
	if g := got.Suggested; !g.Found || g.Rate.Units != 1 || // which only those who ask for 7 do not fit into
		float64(g.KeysHit) > 0.3*float64(g.Keys) || g.Keys > n/2+n/50 {
		t.Errorf("suggested %+v", g) // of the keys that are kept, as Keys is
	}
}

// What is given back is given back at its time, and nothing that was not taken: the same decisions as of a limiter that is told so by hand.
func TestGivingBackAgainstALimiter(t *testing.T) {
	bucket := &weir.Limit{Name: "bucket", Rate: weir.Rate{Units: 6, Period: time.Minute}, Burst: 8}
	shadow := &weir.Limit{Name: "shadow", Rate: weir.Rate{Units: 5, Period: time.Minute}, Algorithm: weir.FixedWindow, Shadow: true}
	open := &weir.Limit{Name: "open", Rate: weir.Rate{Units: 2, Period: time.Hour}, Algorithm: weir.Concurrency}
	keeps := func(i, status int) bool { return i < 2 && status == 401 }
	const took = 7 * time.Second // where it is not known
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 4))
		var now time.Time
		lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
		type owed struct {
			at, made time.Time
			charges  []weir.Charge
		}
		var back []owed
		var got []bool
		var outcomes []string
		s := &Simulation{Took: took, Algorithms: []weir.Algorithm{}, Policy: Policy{Limits: []*weir.Limit{bucket, shadow, open}, Charge: func(e *Event, a *Ask) error {
			a.Charges, a.Keeps = append(a.Charges, bucket.For("b"), shadow.For("s"), open.For("o")), keeps
			return nil
		}}, Decided: func(_ *Event, _ []weir.Charge, d *weir.Decision) {
			got = append(got, d.Allowed)
			outcomes = append(outcomes, fmt.Sprint(d.Outcomes()[0].Remaining, d.Outcomes()[1].Remaining, d.Outcomes()[2].Remaining))
		}}
		at := noon
		for i := range 400 {
			at = at.Add(time.Duration(random.Int64N(int64(10 * time.Second))))
			e := Event{At: at.Truncate(time.Microsecond), Status: []int{200, 401}[random.IntN(2)], Took: []time.Duration{0, time.Second, 20 * time.Second}[random.IntN(3)]}
			if err := s.Add(&e); err != nil {
				t.Fatal(err)
			}
			slices.SortStableFunc(back, func(a, b owed) int { return a.at.Compare(b.at) })
			for len(back) > 0 && !back[0].at.After(e.At) {
				now = back[0].at
				if err := lim.Refund(t.Context(), back[0].made, back[0].charges...); err != nil {
					t.Fatal(err)
				}
				back = back[1:]
			}
			now = e.At
			charges := []weir.Charge{bucket.For("b"), shadow.For("s"), open.For("o")}
			d, err := lim.Take(t.Context(), charges...)
			if err != nil {
				t.Fatal(err)
			}
			left := fmt.Sprint(d.Outcomes()[0].Remaining, d.Outcomes()[1].Remaining, d.Outcomes()[2].Remaining)
			if got[i] != d.Allowed || outcomes[i] != left {
				t.Fatalf("seed %d, request %d: %v, %s left; want %v, %s", seed, i, got[i], outcomes[i], d.Allowed, left)
			}
			if !d.Allowed {
				continue
			}
			long := e.Took
			if long == 0 {
				long = took
			}
			o := owed{at: e.At.Add(long), made: d.At}
			for j := range charges {
				if !keeps(j, e.Status) && !d.Outcomes()[j].Refused() {
					o.charges = append(o.charges, charges[j])
				}
			}
			back = append(back, o)
		}
		if n := len(slices.DeleteFunc(got, func(ok bool) bool { return ok })); n < 40 || n > 360 {
			t.Errorf("seed %d: %d of 400 refused, too few or too many to test anything", seed, n)
		}
	}
}

// The worst minute is the one with the most refusals, and of equals the one with the most requests.
func TestWorstMinute(t *testing.T) {
	var w worst
	for minute, m := range []struct{ asked, refused int }{{9, 2}, {5, 3}, {8, 3}, {7, 3}, {20, 1}} {
		for i := range m.asked {
			w.add(noon.Add(time.Duration(minute)*time.Minute+time.Duration(i)*time.Second), i < m.refused)
		}
	}
	if want := (Minute{noon.Add(2 * time.Minute), 8, 3}); w.Most != want {
		t.Errorf("got %+v, want %+v", w.Most, want)
	}
}

// Verdicts: a class that nothing was asked of has proven nothing, nobody minds the runaway, and the bound that was agreed goes before the flag.
func TestVerdicts(t *testing.T) {
	half, none := Share(0.5), Share(0)
	scenario := &Scenario{Classes: []Class{{Name: "orders", RefusedAtMost: &half}, {Name: "silent", RefusedAtMost: &none}, {Name: "reads"}}}
	r := &SimulationReport{Results: []*Simulated{{Policy: "p", Classes: []ClassResult{
		{Name: "orders", Requests: 10, Refused: 5}, {Name: "reads", Requests: 10, Refused: 1}, {Name: RunawayClass, Requests: 10, Refused: 10},
	}}}}
	r.Judge(scenario, &none)
	var got []string
	for i := range r.Verdicts {
		got = append(got, fmt.Sprint(r.Verdicts[i].Class, " ", r.Verdicts[i].OK, " ", r.Verdicts[i].Agreed))
	}
	if want := []string{"orders true true", "silent false true", "reads false false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.OK() {
		t.Error("all is well")
	}
	r.Results[0].Refused = 16
	if facts := r.Results[0].facts(); !strings.HasSuffix(facts[1].Label, "; 62.5 % of these are the runaway's") {
		t.Errorf("nothing of the runaway in %+v", facts)
	}
}

// Of several policies each figure says whose it is.
func TestPageOfSeveralPolicies(t *testing.T) {
	r := &SimulationReport{}
	for i, name := range []string{"strict", "loose"} {
		r.Results = append(r.Results, &Simulated{Policy: name, Requests: 10, Refused: int64(5 - 4*i), Limits: []LimitResult{{Name: "client", Rate: minute20.Rate, Burst: 20}}})
	}
	page := r.Page("", "", "")
	var facts, titles []string
	for _, f := range page.Facts {
		facts = append(facts, f.Value+" "+f.Label)
	}
	for _, s := range page.Sections {
		titles = append(titles, s.Title)
	}
	if want := []string{"10 requests in 0s", "50.0 % would be refused under strict", "10.0 % would be refused under loose"}; !slices.Equal(facts, want) {
		t.Errorf("facts %q, want %q", facts, want)
	}
	if want := []string{"Policy strict: all requests over time", "Limit client=20/m under strict", "Policy loose: all requests over time", "Limit client=20/m under loose"}; !slices.Equal(titles, want) {
		t.Errorf("sections %q, want %q", titles, want)
	}
}
