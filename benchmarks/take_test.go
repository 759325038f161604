package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

var (
	// never refuses within any run, so that what is measured is an admission
	fast = Quota{Every: time.Microsecond, Burst: 1_000_000_000}
	// as clients have it: a key stays busy for a minute after its last unit
	slow = Quota{Every: time.Minute, Burst: 10_000}
)

func name(store, algorithm string, charges int, keys, dist, callers string) string {
	return fmt.Sprintf("store=%s/alg=%s/charges=%d/keys=%s/dist=%s/callers=%s", store, algorithm, charges, keys, dist, callers)
}

// BenchmarkKey is what making a key adds to the rows of a million.
func BenchmarkKey(b *testing.B) {
	at := orders["uniform"]()
	var f fresh
	i := 0
	report := cpu(b)
	for b.Loop() {
		f.key(at[i&(len(at)-1)])
		i++
	}
	report()
}

func BenchmarkClock(b *testing.B) {
	start := time.Now()
	report := cpu(b)
	for b.Loop() {
		time.Since(start)
	}
	report()
}

func BenchmarkTake(b *testing.B) {
	for _, s := range Stores {
		b.Run(name(s.Store, s.Algorithm, 1, "1", "hot", "1"), func(b *testing.B) {
			take := s.New(fast)
			report := cpu(b)
			for b.Loop() {
				if !take("user:1") {
					b.Fatal("refused")
				}
			}
			report()
		})
	}
	for _, s := range Stores {
		b.Run(name(s.Store, s.Algorithm, 1, "1", "hot", "many"), func(b *testing.B) {
			take := s.New(fast)
			report := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					take("user:1") // some peers refuse when they are in each other's way
				}
			})
			report()
		})
	}
	for _, dist := range []string{"uniform", "zipf"} {
		for _, s := range Stores {
			b.Run(name(s.Store, s.Algorithm, 1, "1M", dist, "1"), func(b *testing.B) {
				keys, at := millionKeys(), orders[dist]()
				take := s.New(slow)
				for _, key := range keys {
					take(key)
				}
				runtime.GC()
				report := cpu(b)
				var f fresh
				i := 0
				for b.Loop() {
					take(f.key(at[i&(len(at)-1)]))
					i++
				}
				report()
			})
		}
	}
	for _, s := range Stores {
		b.Run(name(s.Store, s.Algorithm, 1, "new", "uniform", "1"), func(b *testing.B) {
			keys := millionKeys()
			take := s.New(slow)
			runtime.GC()
			report := cpu(b)
			i := 0
			for b.Loop() {
				if i == len(keys) {
					b.StopTimer()
					i, take = 0, s.New(slow)
					runtime.GC()
					b.StartTimer()
				}
				take(keys[i])
				i++
			}
			report()
		})
	}
	for charges := 1; charges <= 3; charges++ {
		b.Run(name("memory", "token-bucket", charges, "1M", "uniform", "1"), func(b *testing.B) { several(b, charges) })
	}
}

// several takes from a global limit, from that of a tenant, of whom there are a thousand, and from that of a user.
func several(b *testing.B, n int) {
	keys, at, tenants := millionKeys(), orders["uniform"](), Keys(1000)
	var lim weir.Limiter
	ctx := context.Background()
	user, tenant, global := slow.Limit(weir.TokenBucket), fast.Limit(weir.TokenBucket), fast.Limit(weir.TokenBucket)
	tenant.Name, global.Name = "tenant", "global"
	var f fresh
	charges := func(i int) [3]weir.Charge {
		return [3]weir.Charge{user.For(f.key(uint32(i))), tenant.For(tenants[i%1000]), global.For("")}
	}
	for i := range keys {
		c := charges(i)
		lim.Take(ctx, c[:n]...)
	}
	runtime.GC()
	report := cpu(b)
	i := 0
	for b.Loop() {
		c := charges(int(at[i&(len(at)-1)]))
		lim.Take(ctx, c[:n]...)
		i++
	}
	report()
}

// BenchmarkSize is not about time: it fills a store with a million keys and reports what each takes of the heap.
func BenchmarkSize(b *testing.B) {
	for _, s := range Stores {
		b.Run(fmt.Sprintf("store=%s/alg=%s/keys=1M", s.Store, s.Algorithm), func(b *testing.B) {
			keys := millionKeys()
			var bytes float64
			for b.Loop() {
				before := heap()
				take := s.New(slow)
				for _, key := range keys {
					take(key)
				}
				bytes = float64(heap()-before) / Million
				runtime.KeepAlive(take)
			}
			b.ReportMetric(bytes, "B/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
