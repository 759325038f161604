package gateway

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// pingLimit is what Ping charges: the store has to run the script and write, which an answer to PING does not show.
var pingLimit = &weir.Limit{Name: "weir.ping", Algorithm: weir.GCRA, Rate: weir.Rate{Units: 10, Period: time.Second}}

// Ping connects to the shared store, has it make decisions as weir serve would, and reports how long one takes. The error says why
// the store cannot be used. Without a shared store both are zero.
func (c *Config) Ping(ctx context.Context) (took time.Duration, err error) {
	if !c.shared() {
		return 0, nil
	}
	conn, err := redisstore.Open(c.Store)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	secret, err := c.Redis.secret()
	if err != nil {
		return 0, err
	}
	if err := conn.Ping(ctx); err != nil {
		return 0, fmt.Errorf("store %s: %w", c.StoreName(), err)
	}
	lim := weir.Limiter{Store: &redisstore.Store{Client: conn, Prefix: c.Redis.Prefix, Secret: secret, Timeout: -1}}
	for range 2 { // the first may send the text of the script
		begin := time.Now()
		if err := lim.Debit(ctx, pingLimit.For("")); err != nil {
			return 0, fmt.Errorf("store %s answers but does not decide: %w", c.StoreName(), err)
		}
		took = time.Since(begin)
	}
	return took, nil
}

// StoreName is the shared store without its password, or "memory".
func (c *Config) StoreName() string {
	if !c.shared() {
		return storeMemory
	}
	u, err := url.Parse(c.Store)
	if err != nil {
		return storeRedis
	}
	return u.Redacted()
}
