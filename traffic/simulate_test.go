package traffic

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// perClient is a policy of limits that are charged one unit for each client.
func perClient(limits ...*weir.Limit) Policy {
	return Policy{Limits: limits, Charge: func(e *Event, a *Ask) error {
		for _, l := range limits {
			a.Charges = append(a.Charges, l.For(e.Client))
		}
		return nil
	}}
}

// crowdOf is seeded traffic of a few clients, in bursts.
func crowdOf(seed uint64, n, clients int, length time.Duration) []Event {
	random := rand.New(rand.NewPCG(seed, 7))
	var all []Event
	for len(all) < n {
		at := noon.Add(time.Duration(random.Int64N(int64(length)))).Truncate(time.Microsecond)
		for range 1 + random.IntN(20) {
			all = append(all, Event{At: at, Client: fmt.Sprint("c", random.IntN(clients)), Method: "GET", Path: "/"})
			at = at.Add(time.Duration(random.Int64N(int64(50 * time.Millisecond)))).Truncate(time.Microsecond)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

func simulate(t testing.TB, s *Simulation, events []Event) *Simulated {
	t.Helper()
	defer s.Close()
	for i := range events {
		if err := s.Add(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Result(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var minute20 = &weir.Limit{Name: "client", Rate: weir.Rate{Units: 20, Period: time.Minute}}

// oracle judges one algorithm's decisions by looking at all that it admitted before, each time.
type oracle struct {
	wrongAdmitted, wrongRefused, refused, most int64
}

func judge(events []Event, allowed []bool, units int64, period time.Duration) (o oracle) {
	admitted := map[string][]time.Time{}
	for i, e := range events {
		used := int64(0)
		for _, at := range admitted[e.Client] {
			if e.At.Sub(at) < period {
				used++
			}
		}
		switch fits := used+1 <= units; {
		case allowed[i] && !fits:
			o.wrongAdmitted++
		case !allowed[i] && fits:
			o.wrongRefused++
		}
		if !allowed[i] {
			o.refused++
			continue
		}
		admitted[e.Client] = append(admitted[e.Client], e.At)
		o.most = max(o.most, used+1)
	}
	return o
}

// The comparison is right about every algorithm: against all admissions of small traffic, looked at one by one.
func TestComparisonAgainstOracle(t *testing.T) {
	for seed := range uint64(5) {
		events := crowdOf(seed, 1500, 4, 10*time.Minute)
		r := simulate(t, &Simulation{Policy: perClient(minute20)}, events)
		wrong := int64(0)
		for _, a := range r.Limits[0].Algorithms {
			// The same limit alone, by a limiter of its own.
			l := &weir.Limit{Name: "x", Algorithm: a.Algorithm, Rate: minute20.Rate}
			var now time.Time
			lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
			allowed := make([]bool, len(events))
			for i, e := range events {
				now = e.At
				d, err := lim.Take(context.Background(), l.For(e.Client))
				if err != nil {
					t.Fatal(err)
				}
				allowed[i] = d.Allowed
			}
			want := judge(events, allowed, 20, time.Minute)
			if !approximates(a.Algorithm) {
				want.wrongAdmitted, want.wrongRefused = 0, 0
			}
			got := oracle{a.WrongAdmitted, a.WrongRefused, a.Refused, a.MostIn}
			if got != want {
				t.Errorf("seed %d, %v: got %+v, want %+v", seed, a.Algorithm, got, want)
			}
			if a.MostIn > a.Bound {
				t.Errorf("seed %d, %v: %d in a period, more than its bound of %d", seed, a.Algorithm, a.MostIn, a.Bound)
			}
			if a.Algorithm == weir.SlidingLog && (got.wrongAdmitted != 0 || got.wrongRefused != 0) {
				t.Errorf("seed %d: the exact log is wrong: %+v", seed, got)
			}
			wrong += got.wrongAdmitted + got.wrongRefused
		}
		if wrong == 0 {
			t.Errorf("seed %d: nothing was wrong, so that nothing is tested", seed)
		}
	}
}

// The edges that the algorithms are known for: twice the limit around the boundary of a fixed window, and one less for the
// sliding counter.
func TestKnownEdges(t *testing.T) {
	limit := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 100, Period: time.Minute}}
	var boundary []Event // 100 just before the boundary, 100 just after it
	for i := range 200 {
		at := noon.Add(-time.Millisecond)
		if i >= 100 {
			at = noon
		}
		boundary = append(boundary, Event{At: at, Client: "a"})
	}
	var greedy []Event // 100 at the very end of a window, then whatever it admits
	for range 100 {
		greedy = append(greedy, Event{At: noon.Add(-time.Microsecond), Client: "a"})
	}
	for ms := range 60_000 {
		greedy = append(greedy, Event{At: noon.Add(time.Duration(ms) * time.Millisecond), Client: "a"})
	}
	of := func(events []Event, a weir.Algorithm) AlgorithmResult {
		r := simulate(t, &Simulation{Policy: perClient(limit)}, events)
		for _, x := range r.Limits[0].Algorithms {
			if x.Algorithm == a {
				return x
			}
		}
		t.Fatalf("no %v", a)
		return AlgorithmResult{}
	}
	if got := of(boundary, weir.FixedWindow); got.MostIn != 200 || got.WrongAdmitted != 100 || got.Refused != 0 || got.Bound != 200 {
		t.Errorf("fixed window at a boundary: %+v", got)
	}
	if got := of(boundary, weir.SlidingWindow); got.MostIn != 100 || got.Refused != 100 {
		t.Errorf("sliding window at a boundary: %+v", got)
	}
	if got := of(greedy, weir.SlidingWindow); got.MostIn != 199 || got.Bound != 199 {
		t.Errorf("sliding window, greedy: %+v", got)
	}
	if got := of(greedy, weir.SlidingLog); got.MostIn != 100 || got.WrongAdmitted+got.WrongRefused != 0 {
		t.Errorf("sliding log, greedy: %+v", got)
	}
}

// What is counted by key and period, against a map of all of them.
func TestLimitCounts(t *testing.T) {
	events := crowdOf(3, 3000, 30, 20*time.Minute)
	refused := map[string]int64{}
	s := &Simulation{Policy: perClient(minute20), Decided: func(e *Event, c []weir.Charge, d *weir.Decision) {
		if !d.Allowed {
			refused[c[0].Key]++
		}
	}}
	r := simulate(t, s, events)
	l := &r.Limits[0]
	asked, windows, minutes := map[string]int64{}, map[string]int64{}, map[time.Time]int64{}
	for _, e := range events {
		asked[e.Client]++
		windows[e.Client+e.At.Truncate(time.Minute).String()]++
		minutes[e.At.Truncate(time.Minute)]++
	}
	var demand []int64
	for _, n := range windows {
		demand = append(demand, n)
	}
	slices.Sort(demand)
	total := int64(0)
	for _, n := range refused {
		total += n
	}
	if l.Asked != int64(len(events)) || l.Refused != total || r.Refused != total || l.Keys != int64(len(asked)) || l.KeysRefused != int64(len(refused)) || l.KeysPart != 1 {
		t.Errorf("%+v; want %d asked, %d refused, %d and %d keys", l, len(events), total, len(asked), len(refused))
	}
	want := Quantiles{demand[(len(demand)+1)/2-1], demand[(len(demand)*99+99)/100-1], demand[len(demand)-1]}
	if l.Demand != want || l.Window.Demand != want.Max {
		t.Errorf("demand %+v, worst window %+v; want %+v", l.Demand, l.Window, want)
	}
	for i, k := range l.TopRefused {
		if k.Refused != refused[k.Key] || k.Asked != asked[k.Key] || i > 0 && k.Refused > l.TopRefused[i-1].Refused {
			t.Errorf("%+v; want %d of %d", k, refused[k.Key], asked[k.Key])
		}
	}
	var inTimes, refusedInTimes int64
	for _, s := range l.times.spans {
		inTimes += s.asked
		refusedInTimes += s.refused
	}
	if inTimes != l.Asked || refusedInTimes != l.Refused {
		t.Errorf("over time %d of %d, want %d of %d", refusedInTimes, inTimes, l.Refused, l.Asked)
	}
	if l.Worst.Asked != minutes[l.Worst.At] {
		t.Errorf("worst minute %+v, want %d asked", l.Worst, minutes[l.Worst.At])
	}
}

// What is suggested, against every smaller limit.
func TestSuggestAgainstBruteForce(t *testing.T) {
	for _, algorithm := range []weir.Algorithm{weir.TokenBucket, weir.GCRA, weir.FixedWindow, weir.SlidingLog} {
		for _, goal := range []Goal{{Refused: 0.01}, {Refused: 0.1}, {Refused: 0}, {Refused: 0.2, Clients: true}} {
			events := crowdOf(11, 600, 12, 6*time.Minute)
			l := &weir.Limit{Name: "client", Algorithm: algorithm, Rate: weir.Rate{Units: 30, Period: time.Minute}}
			r := simulate(t, &Simulation{Policy: perClient(l), Suggest: &goal, Algorithms: []weir.Algorithm{}}, events)
			got := r.Limits[0].Suggested
			// what a limit refuses, of requests and of clients
			try := func(units, burst int64) (n int64, keys int64) {
				v := &weir.Limit{Name: "x", Algorithm: algorithm, Rate: weir.Rate{Units: units, Period: time.Minute}}
				if algorithm == weir.GCRA {
					v.Algorithm = weir.TokenBucket
				}
				if algorithm == weir.TokenBucket || algorithm == weir.GCRA {
					v.Burst = burst
				}
				var now time.Time
				lim := weir.Limiter{Store: &weir.Memory{Now: func() time.Time { return now }}}
				hit := map[string]bool{}
				for _, e := range events {
					now = e.At
					if d, err := lim.Take(context.Background(), v.For(e.Client)); err != nil {
						t.Fatal(err)
					} else if !d.Allowed {
						n++
						hit[e.Client] = true
					}
				}
				return n, int64(len(hit))
			}
			good := func(units, burst int64) bool {
				n, keys := try(units, burst)
				if goal.Clients {
					return float64(keys) <= float64(goal.Refused)*12
				}
				return float64(n) <= float64(goal.Refused)*float64(len(events))
			}
			units := int64(1)
			for !good(units, units) {
				units++
			}
			burst := units
			if algorithm == weir.TokenBucket || algorithm == weir.GCRA {
				burst = 1
				for !good(units, burst) {
					burst++
				}
			}
			n, keys := try(units, burst)
			if !got.Found || got.Rate.Units != units || got.Burst != burst || got.Refused != n || goal.Clients && got.KeysHit != keys {
				t.Errorf("%v, %v: got %+v, want %d with burst %d, refusing %d", algorithm, goal.String(), got, units, burst, n)
			}
		}
	}
}

// What only failed logins cost, and what is out only for a time, comes back.
func TestChargesThatAreGivenBack(t *testing.T) {
	login := &weir.Limit{Name: "login", Rate: weir.Rate{Units: 2, Period: time.Hour}, Algorithm: weir.SlidingLog}
	open := &weir.Limit{Name: "open", Rate: weir.Rate{Units: 1, Period: time.Minute}, Algorithm: weir.Concurrency}
	at := func(s float64, status int, took time.Duration) Event {
		return Event{At: noon.Add(time.Duration(s * float64(time.Second))), Client: "a", Status: status, Took: took}
	}
	events := []Event{
		at(0, 200, time.Second), // the login counts until its answer, and is forgotten then
		at(0.5, 401, 0),         // one is open: refused
		at(1, 401, time.Second), // counts
		at(3, 401, time.Second), // counts
		at(5, 401, time.Second), // a third: refused
	}
	var got []bool
	s := &Simulation{
		Policy: Policy{Limits: []*weir.Limit{login, open}, Charge: func(e *Event, a *Ask) error {
			a.Charges = append(a.Charges, login.For(e.Client), open.For(""))
			a.Keeps = func(i, status int) bool { return i == 0 && status == 401 }
			return nil
		}},
		Decided: func(_ *Event, _ []weir.Charge, d *weir.Decision) { got = append(got, d.Allowed) },
	}
	simulate(t, s, events)
	if want := []bool{true, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Requests that were refused when the log was written are told apart.
func TestRefusedAlready(t *testing.T) {
	events := []Event{{At: noon, Status: 429}, {At: noon, Status: 503}, {At: noon, Status: 429}, {At: noon}}
	if r := simulate(t, &Simulation{Policy: perClient(minute20)}, events); r.Already != 2 {
		t.Errorf("%d, want 2", r.Already)
	}
}

func TestSimulationFailures(t *testing.T) {
	s := &Simulation{Policy: perClient(minute20)}
	if err := s.Add(&Event{At: noon}); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(&Event{At: noon.Add(-1)}); err == nil {
		t.Error("time goes back, and nothing is said")
	}
	s = &Simulation{Policy: perClient(minute20, minute20)}
	if err := s.Add(&Event{At: noon}); err == nil {
		t.Error("two limits of one name, and nothing is said")
	}
	r, err := (&Simulation{Policy: perClient(minute20)}).Result(context.Background())
	if err != nil || r.Requests != 0 || len(r.Limits) != 1 {
		t.Errorf("nothing simulated: %+v, %v", r, err)
	}
}

// A sample of the keys tells about all of them.
func TestKeySample(t *testing.T) {
	s := newKeySample[int](1000)
	for i := range 50_000 {
		if v := s.of(keyHash(fmt.Sprint("key", i%40_000))); v != nil {
			*v++
		}
	}
	if n := len(s.kept); n > 1000 || n < 400 {
		t.Errorf("%d keys kept", n)
	}
	if got := float64(s.all()); got < 36_000 || got > 44_000 {
		t.Errorf("%v keys in all, want about 40,000", got)
	}
	twice := 0
	for _, v := range s.kept {
		if *v == 2 {
			twice++
		}
	}
	if share := float64(twice) / float64(len(s.kept)); share < 0.2 || share > 0.3 {
		t.Errorf("%v came twice, want about 0.25", share)
	}
}

// The sketch finds all heavy keys, and is never too low.
func TestTopKeys(t *testing.T) {
	const seed = 4
	random := rand.New(rand.NewPCG(seed, 0))
	zipf := rand.NewZipf(random, 1.1, 1, 100_000)
	top, exact := newTopKeys(200), map[string]int64{}
	const n = 200_000
	for range n {
		key := fmt.Sprint(zipf.Uint64())
		top.add(key, 1)
		exact[key]++
	}
	in := map[string]bool{}
	for _, k := range top.top(200) {
		in[k.key] = true
		if k.count < exact[k.key] || k.count-k.over > exact[k.key] {
			t.Errorf("seed %d: %s is %d to %d, want %d", seed, k.key, k.count-k.over, k.count, exact[k.key])
		}
	}
	for key, count := range exact {
		if count > n/200 && !in[key] {
			t.Errorf("seed %d: %s, with %d, is missing", seed, key, count)
		}
	}
}

func TestTimelineKeepsSums(t *testing.T) {
	var tl timeline
	total := int64(0)
	for _, at := range []time.Duration{0, time.Second, 7 * time.Minute, 8 * time.Hour, 80 * 24 * time.Hour, 900 * 24 * time.Hour} {
		for range 10 {
			tl.at(noon.Add(at)).asked++
			total++
		}
		sum := int64(0)
		for _, s := range tl.spans {
			sum += s.asked
		}
		if sum != total || len(tl.spans) > timelineSpans {
			t.Errorf("after %v: %d in %d spans, want %d", at, sum, len(tl.spans), total)
		}
	}
	if c := cmp.Compare(tl.width(), 7*24*time.Hour); c != 0 {
		t.Errorf("%v a span", tl.width())
	}
}

// Where there are too many admissions to remember, some keys are judged no more, and the others still rightly.
func TestComparisonForgets(t *testing.T) {
	s := &Simulation{Policy: perClient(minute20)}
	events := crowdOf(9, 4000, 200, 10*time.Minute)
	if err := s.Add(&events[0]); err != nil {
		t.Fatal(err)
	}
	c := s.limits[0].compare
	c.most = 800
	for i := range events[1:] {
		if err := s.Add(&events[1+i]); err != nil {
			t.Fatal(err)
		}
		real := 0
		for _, k := range c.keys {
			for _, log := range k.logs {
				real += len(log.entries) - log.first
			}
		}
		if real != c.entries || c.entries > c.most+6 {
			t.Fatalf("event %d: %d entries are there, %d are counted, at most %d", i, real, c.entries, c.most)
		}
	}
	for _, r := range c.results {
		if approximates(r.Algorithm) && (r.Judged == 0 || r.Judged == r.Asked) || r.Asked != int64(len(events)) {
			t.Errorf("%+v", r)
		}
		if r.Algorithm == weir.SlidingLog && r.WrongAdmitted+r.WrongRefused > 0 {
			t.Errorf("the exact log is wrong: %+v", r)
		}
	}
}

// A trace gives back what was put in, from memory and from the disk.
func TestTrace(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 2_000_000} {
		tr := new(trace)
		random := rand.New(rand.NewPCG(1, uint64(n)))
		at := weir.InstantOf(noon)
		for i := range n {
			at += weir.Instant(i % 1000)
			c := weir.Charge{Cost: int64(i % 300), Priority: weir.Priority(i%3 - 1)}
			if err := tr.add(at, random.Uint64(), &c); err != nil {
				t.Fatal(err)
			}
		}
		if onDisk := tr.file != nil; onDisk != (n > 1_500_000) {
			t.Errorf("%d charges on disk: %v", n, onDisk)
		}
		for range 2 {
			random = rand.New(rand.NewPCG(1, uint64(n)))
			i, at := 0, weir.InstantOf(noon)
			err := tr.each(func(c *traced) (bool, error) {
				at += weir.Instant(i % 1000)
				if want := (traced{at, random.Uint64(), int64(i % 300), weir.Priority(i%3 - 1)}); *c != want {
					t.Fatalf("charge %d of %d is %+v, want %+v", i, n, *c, want)
				}
				i++
				return true, nil
			})
			if err != nil || i != n {
				t.Errorf("%d of %d charges, %v", i, n, err)
			}
		}
		tr.close()
	}
}

func TestAhead(t *testing.T) {
	ctx := context.Background()
	read := func(n int, end error) func(context.Context, func(*Event) error) error {
		return func(_ context.Context, f func(*Event) error) error {
			for i := range n {
				if err := f(&Event{Status: i}); err != nil {
					return err
				}
			}
			return end
		}
	}
	stop := fmt.Errorf("stop")
	for _, n := range []int{0, 1, 511, 512, 513, 50_000} {
		got := 0
		err := Ahead(ctx, read(n, nil), func(e *Event) error {
			if e.Status != got {
				t.Fatalf("event %d comes as number %d", e.Status, got)
			}
			got++
			return nil
		})
		if err != nil || got != n {
			t.Errorf("%d of %d events, %v", got, n, err)
		}
		if err := Ahead(ctx, read(n, stop), func(*Event) error { return nil }); err != stop {
			t.Errorf("%d events: reading fails, and Ahead says %v", n, err)
		}
		if n > 0 {
			if err := Ahead(ctx, read(n, nil), func(*Event) error { return stop }); err != stop {
				t.Errorf("%d events: deciding fails, and Ahead says %v", n, err)
			}
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := Ahead(ended, read(50_000, nil), func(*Event) error { return nil }); err != context.Canceled {
		t.Errorf("ended: %v", err)
	}
}
