// Stalls measures the longest that a caller waits for a decision while the store grows to many keys and then drops
// them, for weir and for peers, one after the other.
//
//	go run ./cmd/stalls [-keys 10000000] [-peer-keys 1000000] [-quick]
//
// One goroutine brings new keys as fast as the store takes them; another asks for a few keys of its own and
// writes down how long each ask takes. The row of no store at all says how long the machine itself
// holds up a loop. What a wait is made of: lock is all the time, added up, for which callers waited for a lock
// of the store, so that no single one waited longer; sched is the longest that a goroutine was ready and had to wait for a
// processor, which on few processors is most of what is seen, and none of the store's doing.
package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/didip/tollbooth/v7/limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/weir-go/weir"
)

func main() {
	keys := flag.Int("keys", 10_000_000, "keys that weir grows to")
	peerKeys := flag.Int("peer-keys", 1_000_000, "keys that peers grow to")
	quick := flag.Bool("quick", false, "a tenth of both")
	flag.Parse()
	if *quick {
		*keys, *peerKeys = *keys/10, *peerKeys/10
	}
	fmt.Printf("%-22s %-6s %10s %10s %10s %10s %8s %10s %10s %10s\n", "store", "phase", "keys", "asks", "p99.9", "longest", "> 5 ms", "lock", "sched", "took")
	runs := []struct {
		name string
		keys int
		open func() store
	}{
		{"none (the machine)", 10 * *keys, func() store { return store{take: func(string) {}} }},
		{"weir token-bucket", *keys, openWeir},
		{"weir token-bucket", *peerKeys, openWeir},
		{"sethvargo", *peerKeys, openSethvargo},
		{"tollbooth", *peerKeys, openTollbooth},
	}
	for _, r := range runs {
		s := r.open()
		grow := watch(s, func() {
			for i := range r.keys {
				s.take("key:" + strconv.Itoa(i))
				if i%1000 == 0 {
					runtime.Gosched()
				}
			}
		})
		report(r.name, "grow", r.keys, grow)
		drop := watch(s, func() {
			// All keys are idle by now or soon; new ones come, and the store drops the old ones as it does.
			end := time.Now().Add(idle + 2*time.Second)
			for i := 0; time.Now().Before(end); i++ {
				s.take("next:" + strconv.Itoa(i%1000))
				if i%100 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			// Weir drops what is at rest where new keys come: let a few reach every part of the table.
			for i := range r.keys / 4 {
				s.take("more:" + strconv.Itoa(i))
			}
		})
		report(r.name, "drop", r.keys, drop)
		if s.held != nil {
			fmt.Printf("%-22s %-6s %10d\n", "", "left", s.held())
		}
		runtime.GC()
	}
}

// idle is after which a key may be dropped.
const idle = 5 * time.Second

// store is what is measured.
type store struct {
	take func(key string)
	held func() int
}

func openWeir() store {
	m := &weir.Memory{MaxCells: -1}
	lim := weir.Limiter{Store: m}
	l := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 1, Period: idle}, Burst: 100}
	ctx := context.Background()
	return store{func(key string) { lim.Take(ctx, l.For(key)) }, func() int { return m.Stats().Cells }}
}

func openSethvargo() store {
	s, err := memorystore.New(&memorystore.Config{Tokens: 100, Interval: idle, SweepInterval: idle, SweepMinTTL: idle})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	return store{take: func(key string) { s.Take(ctx, key) }}
}

func openTollbooth() store {
	l := tollbooth.NewLimiter(0.2, &limiter.ExpirableOptions{DefaultExpirationTTL: idle, ExpireJobInterval: idle})
	l.SetBurst(100)
	return store{take: func(key string) { l.LimitReached(key) }}
}

// watched is how long asks took while something was going on.
type watched struct {
	asks, long  int // long is how many of them took over 5 ms
	p999, max   time.Duration
	lock, sched time.Duration
	took        time.Duration // the whole
}

// watch asks for keys of its own while work runs.
func watch(s store, work func()) watched {
	var done atomic.Bool
	result := make(chan watched)
	go func() {
		took := make([]time.Duration, 0, 1<<22)
		own := []string{"own:1", "own:2", "own:3", "own:4", "own:5", "own:6", "own:7", "own:8"}
		var longest time.Duration
		asks, long := 0, 0
		for i := 0; !done.Load(); i++ {
			began := time.Now()
			s.take(own[i%len(own)])
			t := time.Since(began)
			longest = max(longest, t)
			asks++
			if t > 5*time.Millisecond {
				long++
			}
			if len(took) < cap(took) {
				took = append(took, t)
			} else {
				took[i%len(took)] = t
			}
		}
		slices.Sort(took)
		w := watched{asks: asks, long: long, max: longest}
		if len(took) > 0 {
			w.p999 = took[len(took)*999/1000]
		}
		result <- w
	}()
	before := readMetrics()
	began := time.Now()
	work()
	done.Store(true)
	w := <-result
	w.took = time.Since(began)
	after := readMetrics()
	w.lock = seconds(after[0].Value.Float64() - before[0].Value.Float64())
	was, is := before[1].Value.Float64Histogram(), after[1].Value.Float64Histogram()
	for i := range is.Counts {
		if is.Counts[i] > was.Counts[i] {
			w.sched = seconds(is.Buckets[i])
		}
	}
	return w
}

func readMetrics() []metrics.Sample {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}, {Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	if h := s[1].Value.Float64Histogram(); h != nil { // which Read may use again
		s[1].Value.Float64Histogram().Counts = slices.Clone(h.Counts)
	}
	return s
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func report(name, phase string, keys int, w watched) {
	fmt.Printf("%-22s %-6s %10d %10d %10v %10v %8d %10v %10v %10v\n", name, phase, keys, w.asks, w.p999.Round(time.Microsecond/10), w.max.Round(time.Microsecond), w.long, w.lock.Round(time.Microsecond), w.sched.Round(time.Microsecond), w.took.Round(time.Millisecond))
}
