package redis

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// GoRedis is a go-redis client as a redisstore.Client.
func GoRedis(rdb goredis.UniversalClient) redisstore.Client {
	return redisstore.ClientFunc(func(ctx context.Context, args ...string) (any, error) {
		a := make([]any, len(args))
		for i := range args {
			a[i] = args[i]
		}
		return rdb.Do(ctx, a...).Result()
	})
}

// Valkey is a valkey-go client as a redisstore.Client.
func Valkey(c valkey.Client) redisstore.Client {
	return redisstore.ClientFunc(func(ctx context.Context, args ...string) (any, error) {
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return nil, err
		}
		return c.Do(ctx, c.B().Arbitrary(args[:3]...).Keys(args[3:3+n]...).Args(args[3+n:]...).Build()).ToAny()
	})
}

// A service that has a go-redis client already.
func Example_goRedis() {
	rdb := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	lim := weir.Limiter{Store: &redisstore.Guard{Shared: &redisstore.Store{Client: GoRedis(rdb)}, Replicas: 3}}
	perClient := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 600, Period: time.Hour}}

	d, err := lim.Take(context.Background(), perClient.For("user:42"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Allowed)
}

// TestClients decides through each client, the script not being there at first.
func TestClients(t *testing.T) {
	socket := startRedis(t)
	rdb := goredis.NewClient(&goredis.Options{Network: "unix", Addr: socket})
	defer rdb.Close()
	opt := valkey.MustParseURL("unix://" + socket)
	opt.DisableCache = true
	vk, err := valkey.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer vk.Close()
	limit := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 10, Period: time.Hour}}
	left := int64(10)
	for name, client := range map[string]redisstore.Client{"go-redis": GoRedis(rdb), "valkey-go": Valkey(vk)} {
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		lim := weir.Limiter{Store: &redisstore.Store{Client: client, Timeout: 5 * time.Second}}
		for range 2 {
			d, err := lim.Take(t.Context(), limit.For("k"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			left--
			if got := d.Outcomes()[0].Remaining; got != left {
				t.Errorf("%s: %d left, want %d", name, got, left)
			}
		}
	}
}
