package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

const (
	goroutines = 64
	keys       = 10_000
	perMinute  = 6000
)

// taker decides over one unit of a key.
type taker func(ctx context.Context, key string) error

// weirOver is weir through rueidis, over so many limits at once.
func weirOver(limits, calls int) func(testing.TB, string) taker {
	return func(tb testing.TB, socket string) taker {
		conn, err := redisstore.Open("unix://" + socket)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(conn.Close)
		lim := weir.Limiter{Store: &redisstore.Store{Client: conn, Calls: calls, Timeout: 10 * time.Second}}
		var ls []*weir.Limit
		for i := range limits {
			ls = append(ls, &weir.Limit{Name: strconv.Itoa(i), Algorithm: weir.GCRA, Rate: weir.Rate{Units: perMinute, Period: time.Minute}})
		}
		return func(ctx context.Context, key string) error {
			var room [4]weir.Charge
			cs := room[:0]
			for _, l := range ls {
				cs = append(cs, l.For(key))
			}
			_, err := lim.Take(ctx, cs...)
			return err
		}
	}
}

func goRedis(tb testing.TB, socket string) *goredis.Client {
	rdb := goredis.NewClient(&goredis.Options{Network: "unix", Addr: socket, PoolSize: goroutines})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// takers are what is compared. trivial is what there is to reach: a script that does nothing, through weir's client.
var takers = []struct {
	name string
	open func(testing.TB, string) taker
}{
	{"trivial-script/limits=0", func(tb testing.TB, socket string) taker {
		opt := rueidis.MustParseURL("unix://" + socket)
		opt.DisableCache, opt.ForceSingleClient = true, true
		c, err := rueidis.NewClient(opt)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(c.Close)
		script := rueidis.NewLuaScript("return 1")
		return func(ctx context.Context, key string) error { return script.Exec(ctx, c, []string{key}, nil).Error() }
	}},
	{"weir/limits=1", weirOver(1, 0)},
	{"weir/limits=3", weirOver(3, 0)},
	{"weir-one-by-one/limits=1", weirOver(1, goroutines)},
	{"redis_rate/limits=1", func(tb testing.TB, socket string) taker {
		lim := redis_rate.NewLimiter(goRedis(tb, socket))
		return func(ctx context.Context, key string) error {
			_, err := lim.Allow(ctx, key, redis_rate.PerMinute(perMinute))
			return err
		}
	}},
	{"throttled/limits=1", func(tb testing.TB, socket string) taker {
		store, err := goredisstore.NewCtx(goRedis(tb, socket), "throttled:")
		if err != nil {
			tb.Fatal(err)
		}
		lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(perMinute), MaxBurst: perMinute - 1})
		if err != nil {
			tb.Fatal(err)
		}
		return func(ctx context.Context, key string) error {
			_, _, err := lim.RateLimitCtx(ctx, key, 1)
			return err
		}
	}},
	{"ulule/limits=1", func(tb testing.TB, socket string) taker {
		store, err := ululeredis.NewStore(goRedis(tb, socket))
		if err != nil {
			tb.Fatal(err)
		}
		lim := ulule.New(store, ulule.Rate{Limit: perMinute, Period: time.Minute})
		return func(ctx context.Context, key string) error {
			_, err := lim.Get(ctx, key)
			return err
		}
	}},
}

// BenchmarkTake has 64 goroutines decide over one of 10,000 keys each time.
func BenchmarkTake(b *testing.B) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("client:%d", i)
	}
	for _, s := range takers {
		b.Run("store="+s.name, func(b *testing.B) {
			take := s.open(b, startRedis(b))
			if err := take(context.Background(), "warm"); err != nil {
				b.Fatal(err)
			}
			took := make([][]time.Duration, goroutines)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range goroutines {
				n := b.N / goroutines
				if g < b.N%goroutines {
					n++
				}
				wg.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(g)))
					for range n {
						start := time.Now()
						if err := take(context.Background(), names[r.IntN(keys)]); err != nil {
							b.Error(err)
							return
						}
						took[g] = append(took[g], time.Since(start))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			all := slices.Concat(took...)
			slices.Sort(all)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "takes/s")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkRedisBenchmark is what redis-benchmark gets of the trivial script, from 64 connections without pipelining.
func BenchmarkRedisBenchmark(b *testing.B) {
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		b.Skip("no redis-benchmark on the PATH")
	}
	socket := startRedis(b)
	n := max(b.N, 1000)
	out, err := exec.Command("redis-benchmark", "-s", socket, "-c", strconv.Itoa(goroutines), "-n", strconv.Itoa(n), "--csv", "eval", "return 1", "1", "k").Output()
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		b.Fatalf("%s", out)
	}
	rps, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(rps, "takes/s")
}
