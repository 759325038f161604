package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// startCluster starts a Redis Cluster of three nodes on the loopback, and gives its nodes and their URLs.
func startCluster(t testing.TB) (nodes []*server, urls []string) {
	t.Helper()
	var admins []*redisstore.Conn
	var ports []string
	for range 3 {
		s := newServer(t)
		ports = append(ports, s.OnPort())
		s.Args = append(s.Args, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		s.Start()
		nodes = append(nodes, s)
		urls = append(urls, "redis://127.0.0.1:"+ports[len(ports)-1])
		admins = append(admins, s.client())
	}
	for i, c := range admins {
		args := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * 16384 / 3; slot < (i+1)*16384/3; slot++ {
			args = append(args, fmt.Sprint(slot))
		}
		do(t, c, args...)
		do(t, c, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	for _, port := range ports[1:] {
		do(t, admins[0], "CLUSTER", "MEET", "127.0.0.1", port)
	}
	for _, c := range admins {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			info := do(t, c, "CLUSTER", "INFO").(string)
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the cluster does not come up:\n%s", info)
			}
		}
	}
	return nodes, urls
}

func TestCluster(t *testing.T) {
	nodes, urls := startCluster(t)
	one := urls[0] // the others are found out
	limits := all()
	for _, l := range limits {
		l.Rate = weir.Rate{Units: 30, Period: time.Hour}
	}
	limits[weir.LeakyBucket].Shadow = true

	t.Run("one tag", func(t *testing.T) {
		conn := open(t, one)
		lim := weir.Limiter{Store: &redisstore.Store{Client: conn, Timeout: 5 * time.Second}}
		var admitted int
		for range 40 {
			d, err := lim.Take(t.Context(), charges(limits, "k")...)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			}
		}
		if admitted != 30 || !conn.Cluster() {
			t.Errorf("admitted %d, want 30; cluster=%t", admitted, conn.Cluster())
		}
	})

	t.Run("a tag for each limit", func(t *testing.T) {
		for _, url := range []string{one, one + "?addr=" + strings.TrimPrefix(urls[1], "redis://")} {
			store := &redisstore.Store{Client: open(t, url), Prefix: url, Timeout: 5 * time.Second, Tag: func(l *weir.Limit) string { return l.Name }}
			lim := weir.Limiter{Store: store}
			if err := store.CheckSlots(limits[0], limits[1]); !errors.Is(err, redisstore.ErrCrossSlot) || !strings.Contains(err.Error(), `"token-bucket"`) || !strings.Contains(err.Error(), `"gcra"`) {
				t.Errorf("at start: %v", err)
			}
			for range 2 { // not yet connected, and connected
				if _, err := lim.Take(t.Context(), charges(limits, "k")...); !errors.Is(err, redisstore.ErrCrossSlot) {
					t.Errorf("when asked: %v", err)
				}
			}
			for _, l := range limits {
				var n int64
				for range 40 {
					d, err := lim.Take(t.Context(), l.For("k"))
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						n++
					}
				}
				if n != 30 && !l.Shadow {
					t.Errorf("%s admitted %d, want 30", l.Name, n)
				}
			}
		}
		used := 0
		for _, s := range nodes {
			if n := len(keys(t, s.client())); n > 0 {
				used++
			}
		}
		if used < 2 {
			t.Errorf("all keys are on one node")
		}
	})

	t.Run("nodes whose clocks differ", func(t *testing.T) {
		clock := time.Now().Truncate(time.Second)
		now := func() time.Time { // of each call, so of each slot
			clock = clock.Add(time.Minute)
			return clock
		}
		store := &redisstore.Store{Client: open(t, one), Prefix: "clocks:", Timeout: 5 * time.Second, Now: now, Tag: func(l *weir.Limit) string { return l.Name }}
		lim := weir.Limiter{Store: store}
		var cs []weir.Charge
		for _, l := range limits[:2] {
			c := l.For("k").Costing(30)
			if d, err := lim.Take(t.Context(), c); err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
			cs = append(cs, c)
		}
		d, err := lim.Peek(t.Context(), cs...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range d.Outcomes() { // each is asked two minutes after it was taken
			if o.After != 58*time.Minute {
				t.Errorf("%s: after %v, want 58m", o.Limit.Name, o.After)
			}
		}
	})

	t.Run("leased limits in slots of their own", func(t *testing.T) {
		store := &redisstore.Store{Client: open(t, one), Prefix: "leased:", Timeout: 5 * time.Second, Tag: func(l *weir.Limit) string { return l.Name }}
		fleet := &weir.Limit{Name: "fleet", Rate: weir.Rate{Units: 1000, Period: time.Hour}}
		region := &weir.Limit{Name: "region", Rate: weir.Rate{Units: 500, Period: time.Hour}}
		leased := &redisstore.Leased{Store: store, Lease: func(l *weir.Limit) bool { return l == fleet || l == region }}
		defer leased.Close(t.Context())
		lim := weir.Limiter{Store: leased}
		together := []weir.Charge{fleet.For(""), limits[0].For("leased"), region.For("")}
		if d, err := lim.Peek(t.Context(), together...); err != nil || !d.Allowed {
			t.Errorf("peek, with nothing leased yet: %t, %v", d.Allowed, err)
		}
		d, err := lim.Take(t.Context(), together...)
		if err != nil || !d.Allowed {
			t.Fatalf("take: %t, %v", d.Allowed, err)
		}
		if d, err := lim.Peek(t.Context(), together...); err != nil || d.Outcomes()[1].Remaining != 29 {
			t.Errorf("peek: %d left, want 29, %v", d.Outcomes()[1].Remaining, err)
		}
		if err := lim.Refund(t.Context(), d.At, together...); err != nil {
			t.Errorf("refund: %v", err)
		}
		if err := lim.Debit(t.Context(), fleet.For(""), limits[0].For("leased")); err != nil {
			t.Errorf("debit: %v", err)
		}
		if err := lim.Hold(t.Context(), time.Now().Add(time.Hour), fleet.For(""), limits[0].For("leased")); err != nil {
			t.Errorf("hold: %v", err)
		}
		if d, err := lim.Peek(t.Context(), together...); err != nil || d.Allowed {
			t.Errorf("peek, held: %t, %v", d.Allowed, err)
		}
	})

	t.Run("a node dies", func(t *testing.T) {
		store := &redisstore.Store{Client: open(t, one), Tag: func(l *weir.Limit) string { return l.Name }}
		g := &redisstore.Guard{Shared: store}
		lim := weir.Limiter{Store: g}
		nodes[2].Kill()
		for _, l := range limits {
			if _, err := lim.Take(t.Context(), l.For("k2")); err != nil {
				t.Errorf("%s: %v", l.Name, err)
			}
		}
		if g.Stats().Local == 0 {
			t.Errorf("got %+v", g.Stats())
		}
	})
}
