// Flood fills a Memory with live keys up to its bound, sends ten million keys that were never seen, and reports
// whether memory grew, whether any old key got a fresh burst, and what was counted.
//
//	go run ./cmd/flood [-full 1000000] [-new 10000000]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/weir-go/weir"
)

func main() {
	full := flag.Int("full", 1_000_000, "keys that fill the memory")
	flood := flag.Int("new", 10_000_000, "new keys that come then")
	flag.Parse()
	if err := run(*full, *flood); err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

func run(full, flood int) error {
	ctx := context.Background()
	m := &weir.Memory{MaxCells: full}
	lim := weir.Limiter{Store: m}
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 3, Period: 24 * time.Hour}}
	for i := range full {
		if d, err := lim.Take(ctx, client.For("client:"+strconv.Itoa(i)).Costing(3)); err != nil || !d.Allowed {
			return fmt.Errorf("key %d is refused its first units: %v", i, err)
		}
	}
	before := heap()
	fmt.Printf("full:     %d keys have spent their 3 units, %.1f MB\n", full, mb(before))

	start := time.Now()
	passed := 0
	for i := range flood {
		d, err := lim.Take(ctx, client.For("flood:"+strconv.Itoa(i)))
		if err != nil {
			return err
		}
		if d.Allowed {
			passed++
		}
	}
	took := time.Since(start)
	after, stats := heap(), m.Stats()
	fmt.Printf("flood:    %d new keys, %.0f ns each, %d passed on the shared cell of the limit\n", flood, float64(took.Nanoseconds())/float64(flood), passed)
	fmt.Printf("after:    %.1f MB (%+.1f MB), %d cells, %d charges counted as overflowed\n", mb(after), mb(after-before), stats.Cells, stats.Overflowed)

	fresh := 0
	for i := range full {
		if d, err := lim.Take(ctx, client.For("client:"+strconv.Itoa(i))); err != nil || d.Allowed {
			fresh++
		}
	}
	fmt.Printf("old keys: %d of %d got a fresh burst\n", fresh, full)
	if fresh > 0 || passed > 3 || mb(after-before) > 1 || stats.Overflowed < int64(flood) {
		return fmt.Errorf("the flood did what it must not do")
	}
	return nil
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
