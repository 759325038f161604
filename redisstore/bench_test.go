package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// BenchmarkTake has 64 goroutines take from a Redis on the same machine.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1, 3} {
		for _, calls := range []int{1, 2, 4, 8, 64} {
			b.Run(fmt.Sprintf("charges=%d/calls=%d", n, calls), func(b *testing.B) {
				client := startRedis(b).client()
				store := &redisstore.Store{Client: client, Calls: calls, Timeout: 10 * time.Second}
				lim := weir.Limiter{Store: store}
				var limits []*weir.Limit
				for i := range n {
					limits = append(limits, &weir.Limit{Name: strconv.Itoa(i), Rate: weir.Rate{Units: 1000, Period: time.Second}})
				}
				var goroutine atomic.Int64
				before := serverTime(b, client)
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					key := strconv.FormatInt(goroutine.Add(1), 10)
					cs := charges(limits, key)
					for pb.Next() {
						if _, err := lim.Take(context.Background(), cs...); err != nil {
							b.Error(err)
							return
						}
					}
				})
				s := store.Stats()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "takes/s")
				b.ReportMetric(float64(s.Decisions)/float64(s.Calls), "takes/call")
				b.ReportMetric((serverTime(b, client)-before)/float64(s.Decisions), "server-µs/take")
			})
		}
	}
}

// serverTime is how many microseconds of CPU the server has used.
func serverTime(t testing.TB, client redisstore.Client) (us float64) {
	t.Helper()
	for line := range strings.Lines(do(t, client, "INFO", "cpu").(string)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			us += 1e6 * s
		}
	}
	return us
}

// BenchmarkLeased compares a leased limit with one in memory, from all cores.
func BenchmarkLeased(b *testing.B) {
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 1_000_000_000, Period: time.Second}, Burst: 1_000_000}
	for name, store := range map[string]weir.Store{
		"memory": wrapped{&weir.Memory{}},
		"leased": &redisstore.Leased{Store: &redisstore.Store{Client: startRedis(b).client()}},
	} {
		b.Run("store="+name, func(b *testing.B) {
			lim := weir.Limiter{Store: store}
			c := l.For("")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := lim.Take(context.Background(), c); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// wrapped hides which Store it is, so that the Limiter takes the same way to both.
type wrapped struct{ weir.Store }
