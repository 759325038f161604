package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/redisstore"
)

// shared is a gateway for everything, with limits counted in Redis.
func shared(r *redistest.Server, upstream string, limits []*weir.Limit, charges ...Charge) *Config {
	cfg := everything(upstream, limits, charges...)
	cfg.Store = r.URL
	cfg.Redis.Timeout = 5 * time.Second // a busy machine is no outage
	return cfg
}

// askAll asks n times and returns how often each status came.
func askAll(t *testing.T, url string, n int) map[int]int {
	t.Helper()
	got := map[int]int{}
	for range n {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		got[resp.StatusCode]++
	}
	return got
}

func TestTwoInstancesHoldOneLimit(t *testing.T) {
	r := redistest.Start(t)
	up := backend(t, hello)
	limits := []*weir.Limit{perHour("all", 6), perHour("own", 5)}
	cfg := func() *Config {
		c := shared(r, up, limits, Charge{Limit: "all", Key: "global"}, Charge{Limit: "own", Key: "global"})
		c.Limits[1].Store = "memory"
		return c
	}
	_, a := start(t, cfg(), Options{})
	_, b := start(t, cfg(), Options{})
	if got := askAll(t, a, 4); got[200] != 4 {
		t.Errorf("the first instance: %v", got)
	}
	if got := askAll(t, b, 4); got[200] != 2 || got[429] != 2 {
		t.Errorf("the second instance, of a limit of 6 together: %v", got)
	}
	g, _ := start(t, cfg(), Options{})
	d, err := g.limiter.Peek(t.Context(), g.site.Load().limits["own"].For(""), g.site.Load().limits["all"].For(""))
	if err != nil || d.Outcomes()[0].Remaining != 5 || d.Outcomes()[1].Remaining != 0 || d.Allowed || d.RetryAfter == 0 {
		t.Errorf("both places in one answer: %+v, %v", d, err)
	}
}

// TestARefusalInRedisLeavesNothingInMemory: what memory was charged is given back.
func TestARefusalInRedisLeavesNothingInMemory(t *testing.T) {
	r := redistest.Start(t)
	window := &weir.Limit{Name: "own", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 9, Period: time.Hour}}
	cfg := shared(r, backend(t, hello), []*weir.Limit{perHour("all", 2), window}, Charge{Limit: "all", Key: "global"}, Charge{Limit: "own", Key: "global"})
	cfg.Limits[1].Store = "memory"
	g, url := start(t, cfg, Options{})
	if got := askAll(t, url, 6); got[200] != 2 || got[429] != 4 {
		t.Errorf("%v", got)
	}
	d, err := g.limiter.Peek(t.Context(), g.site.Load().limits["own"].For(""))
	if err != nil || d.Outcomes()[0].Remaining != 7 {
		t.Errorf("of 9, with 2 admitted, memory has %d left, %v", d.Outcomes()[0].Remaining, err)
	}
}

// TestConcurrencyInMemoryBesideRedis: the unit comes back by its instant, which is memory's.
func TestConcurrencyInMemoryBesideRedis(t *testing.T) {
	r := redistest.Start(t)
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 1, Period: time.Hour}}
	cfg := shared(r, backend(t, hello), []*weir.Limit{perHour("all", 100), open}, Charge{Limit: "all", Key: "global"}, Charge{Limit: "open", Key: "global"})
	cfg.Limits[1].Store = "memory"
	_, url := start(t, cfg, Options{})
	if got := askAll(t, url, 10); got[200] != 10 {
		t.Errorf("one after the other through a limit of one at once: %v", got)
	}
}

func TestWithoutRedis(t *testing.T) {
	up := backend(t, hello)
	deny, allow := redisstore.Deny, redisstore.Allow
	for _, c := range []struct {
		name     string
		onError  redisstore.Policy
		own      *redisstore.Policy
		replicas int
		want     map[int]int
	}{
		{"local, one replica", redisstore.Local, nil, 0, map[int]int{200: 6, 429: 2}},
		{"local, three replicas", redisstore.Local, nil, 3, map[int]int{200: 2, 429: 6}},
		{"allow", redisstore.Allow, nil, 0, map[int]int{200: 8}},
		{"deny", redisstore.Deny, nil, 0, map[int]int{503: 8}},
		{"deny, but for this limit", redisstore.Deny, &allow, 0, map[int]int{200: 8}},
		{"allow, but for this limit", redisstore.Allow, &deny, 0, map[int]int{503: 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := redistest.New(t) // not started: a gateway starts without its Redis
			cfg := shared(r, up, []*weir.Limit{perHour("all", 6)}, Charge{Limit: "all", Key: "global"})
			cfg.OnError, cfg.Limits[0].OnError, cfg.Replicas = c.onError, c.own, c.replicas
			g, url := start(t, cfg, Options{})
			got := askAll(t, url, 8)
			for status, n := range c.want {
				if got[status] != n {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
			if s := g.stores.guard.Stats(); !s.Down || s.Err == nil || s.Since.IsZero() {
				t.Errorf("the guard says %+v", s)
			}
			if c.want[503] > 0 {
				resp, err := http.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.Header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
			}
		})
	}
}

// TestHello: a Gateway says at its start what is wrong with its store, before anybody asks.
func TestHello(t *testing.T) {
	r := redistest.New(t)
	var log journal
	opts := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	start(t, shared(r, backend(t, hello), []*weir.Limit{perHour("all", 6)}, Charge{Limit: "all", Key: "global"}), opts)
	await(t, "the warning", func() bool { return log.has("shared store does not answer") })
	r.Start()
	start(t, shared(r, backend(t, hello), []*weir.Limit{perHour("all", 6)}, Charge{Limit: "all", Key: "global"}), opts)
	await(t, "the good news", func() bool { return log.has("shared store answers") })
}

// TestOutageInMetrics: since when, and how many decisions were made which way.
func TestOutageInMetrics(t *testing.T) {
	r := redistest.New(t)
	before := float64(time.Now().UnixMilli()) / 1000
	g, url := start(t, shared(r, backend(t, hello), []*weir.Limit{perHour("all", 6)}, Charge{Limit: "all", Key: "global"}), Options{})
	askAll(t, url, 5)
	families, err := g.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var since, local float64
	for _, f := range families {
		for _, m := range f.Metric {
			switch {
			case f.GetName() == "weir_store_down_since_timestamp_seconds":
				since = m.Gauge.GetValue()
			case f.GetName() == "weir_store_decisions_total" && m.Label[0].GetValue() == "local":
				local = m.Counter.GetValue()
			}
		}
	}
	if since < before || since > before+600 || local != 5 {
		t.Errorf("down since %f, at the earliest %f; %v decided here, want 5", since, before, local)
	}
}

// TestRedisComesBack kills the server under a running gateway and starts it again.
func TestRedisComesBack(t *testing.T) {
	r := redistest.Start(t)
	cfg := shared(r, backend(t, hello), []*weir.Limit{perHour("all", 1000)}, Charge{Limit: "all", Key: "global"})
	g, url := start(t, cfg, Options{})
	if got := askAll(t, url, 3); got[200] != 3 || g.stores.guard.Stats().Down {
		t.Fatalf("%v, %+v", got, g.stores.guard.Stats())
	}
	r.Kill()
	if got := askAll(t, url, 20); got[200] != 20 {
		t.Errorf("while Redis is dead: %v", got)
	}
	r.Start()
	for deadline := time.Now().Add(30 * time.Second); g.stores.guard.Stats().Down; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still down: %+v", g.stores.guard.Stats())
		}
		askAll(t, url, 1)
	}
	d, err := g.limiter.Peek(t.Context(), g.site.Load().limits["all"].For(""))
	if err != nil || d.Outcomes()[0].Remaining > 980 {
		t.Errorf("what was admitted meanwhile is not charged: %d left of 1000, %v", d.Outcomes()[0].Remaining, err)
	}
}

func TestStoreConfiguration(t *testing.T) {
	const head = "upstreams: {a: {url: \"http://127.0.0.1:1\"}}\nroutes: [{pattern: /, limits: [{limit: x}, {limit: y}]}]\n"
	for want, text := range map[string]string{
		"store: ":                              "store: http://host\nlimits: [{name: x, rate: 5/s}, {name: y, rate: 5/s}]\n",
		"limits[0].store: \"disk\" is none of": "limits: [{name: x, rate: 5/s, store: disk}, {name: y, rate: 5/s}]\n",
		"limits[0].store: redis, and the configuration":       "limits: [{name: x, rate: 5/s, store: redis}, {name: y, rate: 5/s}]\n",
		"limits[0].store: leased, and a limit of concurrency": "store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, algorithm: concurrency, store: leased}, {name: y, rate: 5/s}]\n",
		"limits[0].on_error: the limit is":                    "limits: [{name: x, rate: 5/s, on_error: deny}, {name: y, rate: 5/s}]\n",
		"on_error: ":                                          "on_error: panic\nlimits: [{name: x, rate: 5/s}, {name: y, rate: 5/s}]\n",
		"replicas: -1":                                        "replicas: -1\nlimits: [{name: x, rate: 5/s}, {name: y, rate: 5/s}]\n",
		"redis.secret_file: ":                                 "store: redis://127.0.0.1:1\nredis: {secret_file: nowhere}\nlimits: [{name: x, rate: 5/s}, {name: y, rate: 5/s}]\n",
		"limits[0].tag: the limit is counted in memory":       "limits: [{name: x, rate: 5/s, tag: a}, {name: y, rate: 5/s}]\n",
		"limits[0].tag: \"{a}\" has braces":                   "store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, tag: \"{a}\"}, {name: y, rate: 5/s}]\n",
		"routes[0].limits: \"x\" is in slot":                  "store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, tag: a}, {name: y, rate: 5/s}]\n",
		"\"y\" in slot":                                       "store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s}, {name: y, rate: 2/s, tag: a, store: leased}]\n", // too small for portions
		"both remember each request; count them":              "store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, algorithm: sliding-log}, {name: y, rate: 5/s, algorithm: concurrency, store: memory}]\n",
	} {
		_, err := Parse("weir.yaml", []byte(head+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	for _, fine := range []string{
		"store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, tag: a}, {name: y, rate: 5/s, tag: a}]\n",
		"store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, tag: a}, {name: y, rate: 5/s, store: memory}]\n",
		"store: redis://127.0.0.1:1\nlimits: [{name: x, rate: 5/s, tag: a}, {name: y, rate: 500/s, store: leased}]\n",
	} {
		if _, err := Parse("weir.yaml", []byte(head+fine)); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	c, err := Parse("weir.yaml", []byte(head+"store: redis://:secret-word@127.0.0.1:1\nlimits: [{name: x, rate: 5/s, on_error: allow}, {name: y, rate: 5/s, store: memory}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if *c.Limits[0].OnError != redisstore.Allow || c.storeOf(c.Limits[0]) != storeRedis || c.storeOf(c.Limits[1]) != storeMemory {
		t.Errorf("%+v", c.Limits)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.Ping(ctx); err == nil || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("Ping of nobody: %v", err)
	}
}

// TestPing: a store that answers and does not decide is none, and looking leaves nothing behind for long.
func TestPing(t *testing.T) {
	r := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := &Config{Store: r.URL}
	c.Redis.Prefix = "shop:"
	if took, err := c.Ping(ctx); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
	conn, err := redisstore.Open(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	keys, err := conn.Do(ctx, "KEYS", "*")
	if names, _ := keys.([]any); err != nil || len(names) != 1 || !strings.HasPrefix(fmt.Sprint(names[0]), "shop:") {
		t.Errorf("the store has %v, %v; want one key under the prefix", keys, err)
	}
	if _, err := conn.Do(ctx, "ACL", "SETUSER", "default", "-evalsha", "-eval"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ping(ctx); err == nil || !strings.Contains(err.Error(), "answers but does not decide") {
		t.Errorf("where scripts are refused: %v", err)
	}
	if took, err := (&Config{}).Ping(ctx); took != 0 || err != nil {
		t.Errorf("without a shared store: %v, %v", took, err)
	}
}

// TestTag: the configuration says which slot of a Cluster a limit's keys are in, and no reload moves them away from what is spent.
func TestTag(t *testing.T) {
	r := redistest.Start(t)
	cfg := func() *Config {
		c := shared(r, backend(t, hello), []*weir.Limit{perHour("one", 100)}, Charge{Limit: "one", Key: "global"})
		c.Limits[0].Tag = "shop"
		return c
	}
	g, url := start(t, cfg(), Options{})
	askAll(t, url, 1)
	keys, err := g.stores.conn.Do(t.Context(), "KEYS", "*")
	if text := fmt.Sprint(keys); err != nil || !strings.Contains(text, "weir:{shop}") {
		t.Errorf("the keys are %s, %v", text, err)
	}
	other := cfg()
	other.Limits[0].Tag = "town"
	if err := g.Reload(other); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("a reload with another tag: %v", err)
	}
}

func TestLeased(t *testing.T) {
	r := redistest.Start(t)
	up := backend(t, hello)
	cfg := func() *Config {
		c := shared(r, up, []*weir.Limit{perHour("fleet", 100)}, Charge{Limit: "fleet", Key: "global"})
		c.Limits[0].Store, c.Replicas = "leased", 2
		return c
	}
	g, a := start(t, cfg(), Options{})
	_, b := start(t, cfg(), Options{})
	got := askAll(t, a, 80)[200] + askAll(t, b, 80)[200]
	// What is charged and not yet spent, at most a tenth, stays out of reach of the others until it is given back.
	if got > 100 || got < 80 {
		t.Errorf("two instances admitted %d of 100", got)
	}
	if calls := g.stores.redis.Stats().Decisions; calls > 70 {
		t.Errorf("%d decisions in Redis for 80 requests: nothing was leased", calls)
	}
}
