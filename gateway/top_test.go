package gateway

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// What a top says is checked against counting everything, on streams that differ in how much the largest keys stand out.
func TestTopBounds(t *testing.T) {
	const adds = 60_000
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.2, 1, 100_000)
	streams := map[string]func(i int) (key int, weight int64){
		"few":      func(i int) (int, int64) { return rng.IntN(20), 1 },
		"zipf":     func(i int) (int, int64) { return int(zipf.Uint64()), 1 },
		"weighted": func(i int) (int, int64) { return int(zipf.Uint64()), 1 + rng.Int64N(50) },
		"uniform":  func(i int) (int, int64) { return rng.IntN(50_000), 1 },
		"new":      func(i int) (int, int64) { return i, 1 },
		"runaway among new": func(i int) (int, int64) {
			if i%20 == 0 {
				return -1, 1
			}
			return i, 1
		},
		"heavy at the end": func(i int) (int, int64) {
			if i > adds*9/10 {
				return i % 3, 1
			}
			return i, 1
		},
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		t.Run(name, func(t *testing.T) {
			var windows [3]map[string]int64 // the last one is not shown any more
			for i := range windows {
				windows[i] = map[string]int64{}
			}
			var sketched top
			for i := range adds {
				n, weight := streams[name](i)
				key := "ip:" + strconv.Itoa(n)
				sketched.add(key, weight)
				windows[0][key] += weight
				if i == adds/3 || i == adds*2/3 {
					sketched.turn()
					windows[2], windows[1], windows[0] = windows[1], windows[0], map[string]int64{}
				}
			}
			exact := map[string]int64{}
			var given [topShards][2]int64 // in each window
			for w, window := range windows[:2] {
				for key, n := range window {
					exact[key] += n
					given[shardOf(key)][w] += n
				}
			}
			list := sketched.list(math.MaxInt)
			bound := func(key string) int64 {
				g := given[shardOf(key)]
				return g[0]/topSlots + g[1]/topSlots
			}
			listed := map[string]bool{}
			for i, e := range list {
				if listed[e.Key] {
					t.Errorf("%s is listed twice", e.Key)
				}
				listed[e.Key] = true
				if n := exact[e.Key]; n > e.Count || n < e.Count-e.Over || e.Over > bound(e.Key) {
					t.Fatalf("%s: %d − %d, is %d, bound %d", e.Key, e.Count, e.Over, n, bound(e.Key))
				}
				if i > 0 && e.Count > list[i-1].Count {
					t.Errorf("%d: %d after %d", i, e.Count, list[i-1].Count)
				}
				if key, ok := sketched.find(e.Hash); !ok || key != e.Key {
					t.Errorf("%x is %q, want %q", e.Hash, key, e.Key)
				}
			}
			for key, n := range exact {
				if n > bound(key) && !listed[key] {
					t.Errorf("%s has %d, bound %d, and is not listed", key, n, bound(key))
				}
			}
			if sketched.missed.Load() != 0 {
				t.Error("missed", sketched.missed.Load())
			}
		})
	}
}

func shardOf(key string) uint64 { return hashOf(key) % topShards }

func TestTopForgets(t *testing.T) {
	var x top
	counts := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range x.list(10) {
			got = append(got, fmt.Sprintf("%s %d", e.Key, e.Count))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	counts()
	x.add("a", 3)
	x.add("nothing", 0)
	x.add("less", -1)
	counts("a 3")
	x.turn()
	x.add("a", 1)
	x.add("b", 2)
	counts("a 4", "b 2")
	x.turn()
	counts("b 2", "a 1")
	x.turn()
	counts()
	x.turn()
	x.add("c", 1)
	counts("c 1")
	x.add("c", math.MaxInt64)
	x.turn()
	x.add("c", math.MaxInt64)
	counts(fmt.Sprintf("c %d", int64(math.MaxInt64)))
}

// Long keys are counted apart, and only the beginning of each is kept.
func TestTopLongKeys(t *testing.T) {
	var x top
	long := strings.Repeat("x", 64<<10)
	x.add(long, 2)
	x.add(long+"y", 1)
	list := x.list(10)
	if len(list) != 2 || list[0].Key != long[:topText] || !list[0].Cut || list[0].Count != 2 || list[1].Count != 1 {
		t.Fatalf("%d entries", len(list))
	}
	if _, ok := x.find(list[0].Hash); ok {
		t.Error("the beginning of a key is found as if it were one")
	}
	if _, ok := x.find(1); ok {
		t.Error("found what was never there")
	}
}

// Many at once: what is counted and what is missed add up.
func TestTopConcurrent(t *testing.T) {
	const workers, each = 8, 5000
	var x top
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				x.add(strconv.Itoa((w+i)%20), 1)
				if i%1000 == 0 {
					x.list(5)
				}
			}
		})
	}
	wg.Wait()
	total := x.missed.Load()
	for _, e := range x.list(100) {
		total += e.Count
	}
	if total != workers*each {
		t.Errorf("counted and missed are %d, want %d", total, workers*each)
	}
}

func TestTopAllocates(t *testing.T) {
	var x top
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "ip:203.0.113." + strconv.Itoa(i)
	}
	for _, k := range keys {
		x.add(k, 1)
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() { x.add(keys[i%len(keys)], 1); i++ }); n > 0 {
		t.Errorf("%g allocations to count a new key", n)
	}
}

func BenchmarkTop(b *testing.B) {
	for _, n := range []int{1, 100, 1_000_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = "ip:203.0.113." + strconv.Itoa(i)
		}
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			var x top
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.add(keys[i%n], 1)
				i++
			}
		})
		b.Run(fmt.Sprintf("keys=%d/parallel", n), func(b *testing.B) {
			var x top
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(n); pb.Next(); i++ {
					x.add(keys[i%n], 1)
				}
			})
			b.ReportMetric(100*float64(x.missed.Load())/float64(b.N), "%missed")
		})
	}
}
