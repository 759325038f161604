package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// TestRefundsUnderAnotherClock: where a charge was made is told by its instant, and Redis has a clock of its own.
func TestRefundsUnderAnotherClock(t *testing.T) {
	for _, off := range []time.Duration{5 * time.Second, -150 * time.Millisecond} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			s := startRedis(t)
			clock := func() time.Time { return time.Now().Add(off) }
			g := &redisstore.Guard{Shared: &redisstore.Store{Client: s.client(), Timeout: patience, Now: clock}, Retry: 50 * time.Millisecond}
			lim := &weir.Limiter{Store: g}
			all := client.For("k").Costing(120)
			there, err := lim.Take(t.Context(), all)
			if err != nil || !there.Allowed {
				t.Fatal(there.Allowed, err)
			}
			s.Freeze()
			within(t, "leaving Redis", lim, down(g))
			if here, err := lim.Take(t.Context(), all); err != nil || !here.Allowed {
				t.Fatal(here.Allowed, err)
			}
			if err := lim.Refund(t.Context(), there.At, all); err != nil {
				t.Fatal(err)
			}
			if n := takeAll(t, lim, client.For("k")); n > 1 {
				t.Errorf("%d units given back here that were charged there", n)
			}
			left := time.Now()
			within(t, "an outage longer than the clocks are apart", lim, func() bool { return time.Since(left) > 300*time.Millisecond })
			s.Thaw()
			within(t, "asking Redis again", lim, up(g))
			again := client.For("after").Costing(120)
			d, err := lim.Take(t.Context(), again)
			if err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
			if err := lim.Refund(t.Context(), d.At, again); err != nil {
				t.Fatal(err)
			}
			if d, err := lim.Take(t.Context(), again); err != nil || !d.Allowed {
				t.Error("what was charged there after the return was not given back there", err)
			}
		})
	}
}
