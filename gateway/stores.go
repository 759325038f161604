package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/words"
	"github.com/weir-go/weir/redisstore"
)

// Where a limit is counted.
const (
	storeMemory = "memory"
	storeRedis  = "redis"
	storeLeased = "leased" // in Redis, by portions that an instance has paid for
)

// shared reports whether the configuration has a store that instances share.
func (c *Config) shared() bool { return c.Store != "" && c.Store != storeMemory }

// storeOf is where a limit is counted.
func (c *Config) storeOf(l *Limit) string {
	switch {
	case l.Store != "":
		return l.Store
	case c.shared():
		return storeRedis
	}
	return storeMemory
}

// policyOf is what becomes of a limit while the shared store does not answer.
func (c *Config) policyOf(l *Limit) redisstore.Policy {
	if l.OnError != nil {
		return *l.OnError
	}
	return c.OnError
}

func (k *checker) store() {
	c := k.c
	k.count("replicas", c.Replicas)
	k.positive("redis.timeout", c.Redis.Timeout)
	if !c.shared() {
		return
	}
	if conn, err := redisstore.Open(c.Store); err != nil {
		k.addErr("store", err, "%s; the form is memory, or redis://user:password@host:6379/0, rediss://… or unix:///path", strings.TrimPrefix(err.Error(), "weir: redis: "))
	} else {
		conn.Close()
	}
	if _, err := c.Redis.secret(); err != nil {
		k.addErr("redis.secret_file", err, "%v", err)
	}
}

func (r *Redis) secret() ([]byte, error) {
	if r.SecretFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(r.SecretFile)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	const least = 16
	if secret := []byte(strings.TrimSpace(string(b))); len(secret) >= least {
		return secret, nil
	}
	return nil, fmt.Errorf("%s has less than %d bytes", words.Quoted(r.SecretFile), least)
}

func (k *checker) limitStore(field string, l *Limit) {
	switch {
	case l.Store != "" && l.Store != storeMemory && l.Store != storeRedis && l.Store != storeLeased:
		k.add(field+".store", "%s is none of memory, redis, leased", words.Quoted(l.Store))
	case (l.Store == storeRedis || l.Store == storeLeased) && !k.c.shared():
		k.add(field+".store", "%s, and the configuration has no Redis; give one as store: redis://host:6379", l.Store)
	case l.Store == storeLeased && (l.Algorithm == weir.LeakyBucket || l.Algorithm == weir.Concurrency || l.Headroom > 0):
		k.add(field+".store", "leased, and a limit of %v%s cannot be taken in portions; use redis", l.Algorithm, map[bool]string{true: " with headroom"}[l.Headroom > 0])
	case l.OnError != nil && k.c.storeOf(l) == storeMemory:
		k.add(field+".on_error", "the limit is counted in memory, which does not fail")
	case l.Tag != "" && k.c.storeOf(l) == storeMemory:
		k.add(field+".tag", "the limit is counted in memory, which has no slots")
	case strings.ContainsAny(l.Tag, "{}"):
		k.add(field+".tag", "%s has braces; it is written without", words.Quoted(l.Tag))
	}
}

// splitRoute says what is wrong with the limits of one request if they are counted in two places: what is given back there
// must be found again, by the instant it was charged, and there is one instant.
func (k *checker) splitRoute(field string, charges []Charge) {
	logs := map[string]string{}
	for i := range charges {
		for _, l := range k.c.Limits {
			if l == nil || l.Name != charges[i].Limit || l.Algorithm != weir.SlidingLog && l.Algorithm != weir.Concurrency {
				continue
			}
			place := storeRedis
			if k.c.storeOf(l) == storeMemory {
				place = storeMemory
			}
			logs[place] = l.Name
		}
	}
	if len(logs) > 1 {
		k.add(field, "%s counts in memory and %s in redis, and both remember each request; count them in one place", words.Quoted(logs[storeMemory]), words.Quoted(logs[storeRedis]))
	}
}

// slots says which limits of one request a Redis Cluster could not decide together. Leased ones are asked for by themselves.
func (k *checker) slots(field string, charges []Charge) {
	var together []*weir.Limit
	tags := map[*weir.Limit]string{}
	leased := &redisstore.Leased{Instances: k.c.Replicas}
	for i := range charges {
		for _, l := range k.c.Limits {
			if l == nil || l.Name != charges[i].Limit || k.c.storeOf(l) == storeMemory || k.c.storeOf(l) == storeLeased && leased.Leases(&l.Limit) {
				continue
			}
			together = append(together, &l.Limit)
			tags[&l.Limit] = l.Tag
		}
	}
	store := &redisstore.Store{Tag: func(l *weir.Limit) string { return tags[l] }}
	if err := store.CheckSlots(together...); err != nil {
		k.addErr(field, err, "%s", strings.TrimPrefix(err.Error(), "weir: redis: "))
	}
}

// stores are the stores of a Gateway, as its first configuration says.
type stores struct {
	url    string
	memory *weir.Memory
	conn   *redisstore.Conn
	redis  *redisstore.Store
	leased *redisstore.Leased // around redis
	guard  *redisstore.Guard  // around leased
	site   *atomic.Pointer[site]
}

// openStores makes the stores of a configuration that has passed Validate. It connects to nothing yet.
func (g *Gateway) openStores(cfg *Config) (*stores, error) {
	s := &stores{url: cfg.Store, memory: &weir.Memory{MaxCells: cfg.MaxCells}, site: &g.site}
	if !cfg.shared() {
		return s, nil
	}
	var err error
	if s.conn, err = redisstore.Open(cfg.Store); err != nil {
		return nil, fault("store", err)
	}
	secret, err := cfg.Redis.secret()
	if err != nil {
		return nil, fault("redis.secret_file", err)
	}
	s.redis = &redisstore.Store{Client: s.conn, Prefix: cfg.Redis.Prefix, Secret: secret, Tag: s.tag, Timeout: cfg.Redis.Timeout}
	s.leased = &redisstore.Leased{Store: &redisstore.Refusals{Store: s.redis}, Instances: cfg.Replicas, Lease: s.leases}
	s.guard = &redisstore.Guard{Shared: s.leased, Policy: s.policy, Replicas: cfg.Replicas, Log: g.log}
	return s, nil
}

// limit is what the configuration in force says of a limit.
func (s *stores) limit(l *weir.Limit) (*Config, *Limit) {
	site := s.site.Load()
	if site == nil {
		return nil, nil
	}
	return site.config, site.confs[l.Name]
}

// policy is what becomes of a limit while the shared store does not answer.
func (s *stores) policy(l *weir.Limit) redisstore.Policy {
	cfg, conf := s.limit(l)
	if conf == nil {
		return redisstore.Local
	}
	return cfg.policyOf(conf)
}

// tag is the hash tag of a limit's keys; empty is the usual one.
func (s *stores) tag(l *weir.Limit) string {
	if _, conf := s.limit(l); conf != nil {
		return conf.Tag
	}
	return ""
}

// leases reports whether a limit is taken from Redis in portions.
func (s *stores) leases(l *weir.Limit) bool {
	cfg, conf := s.limit(l)
	return conf != nil && cfg.storeOf(conf) == storeLeased
}

// inMemory reports whether a limit is counted by this instance for itself.
func (s *stores) inMemory(l *weir.Limit) bool {
	cfg, conf := s.limit(l)
	return conf != nil && cfg.storeOf(conf) == storeMemory
}

// Apply is a Store over both places. Limits in one place are decided at once, all or none. Where a request has some in
// each, memory is asked first, and what it charged is given back if Redis refuses: nothing is charged that was
// refused, but for that moment others may be refused on account of it.
func (s *stores) Apply(ctx context.Context, tx *weir.Tx) error {
	var here, there part
	for i := range tx.Charges {
		if s.inMemory(tx.Charges[i].Limit) {
			here.add(tx, i)
		} else {
			there.add(tx, i)
		}
	}
	switch {
	case len(there.at) == 0:
		return s.memory.Apply(ctx, tx)
	case len(here.at) == 0:
		return s.guard.Apply(ctx, tx)
	}
	return s.both(ctx, tx, &here, &there)
}

// part is the charges of a Tx that are decided in one place.
type part struct {
	tx weir.Tx
	at []int // where in the whole Tx they are
}

func (p *part) add(whole *weir.Tx, i int) {
	p.tx.Op, p.tx.Made, p.tx.Until = whole.Op, whole.Made, whole.Until
	c := whole.Charges[i]
	c.Cell = len(p.at)
	for j, k := range p.at { // charges that meet are in one place
		if k == whole.Charges[i].Cell {
			c.Cell = j
		}
	}
	p.at = append(p.at, i)
	p.tx.Charges = append(p.tx.Charges, c)
}

// logs reports whether some limit of p remembers requests by their instants.
func (p *part) logs() bool {
	for i := range p.tx.Charges {
		switch p.tx.Charges[i].Limit.Algorithm {
		case weir.SlidingLog, weir.Concurrency:
			return true
		}
	}
	return false
}

func (s *stores) both(ctx context.Context, tx *weir.Tx, here, there *part) error {
	// The instant of the whole is that of the part that has to find it again; the clocks of the two places may differ.
	first, second := there, here
	if here.logs() {
		first, second = here, there
	}
	if tx.Op == weir.Refund {
		second.tx.Made = max(0, tx.Made-skew)
	}
	if err := s.memory.Apply(ctx, &here.tx); err != nil {
		return err
	}
	if tx.Op == weir.Take && !here.tx.OK {
		here.answer(tx, there)
		return nil
	}
	err := s.guard.Apply(ctx, &there.tx)
	if tx.Op == weir.Take && (err != nil || !there.tx.OK) {
		back := here.refund()
		_ = s.memory.Apply(ctx, &back) // which does not fail
	}
	if err != nil {
		return err
	}
	tx.Now, tx.OK, tx.At = first.tx.Now, first.tx.OK && second.tx.OK, first.tx.At
	first.copyTo(tx)
	second.copyTo(tx)
	if !second.tx.OK {
		tx.At = max(tx.At, second.here(tx, second.tx.At))
	}
	return nil
}

// skew is how far apart the clocks of the two places are taken to be. A refund in the place whose clock is not that of the
// decision is taken for one of a charge made so much earlier: of a bucket it gives back a little less than it might, not more.
const skew = weir.Instant(20_000)

// refund gives back what the part has charged.
func (p *part) refund() weir.Tx {
	back := weir.Tx{Op: weir.Refund, Made: p.tx.Now}
	for _, c := range p.tx.Charges {
		if c.When <= p.tx.Now { // a shadow limit may not have admitted
			back.Charges = append(back.Charges, c)
		}
	}
	for i := range back.Charges {
		back.Charges[i].Cell = i
		for j := range i {
			if back.Charges[j].Limit.Name == back.Charges[i].Limit.Name && back.Charges[j].Key == back.Charges[i].Key {
				back.Charges[i].Cell = back.Charges[j].Cell
				break
			}
		}
	}
	return back
}

// answer makes the refusal of a part that of the whole; the other part was not asked.
func (p *part) answer(whole *weir.Tx, other *part) {
	whole.Now, whole.OK, whole.At = p.tx.Now, false, p.tx.At
	p.copyTo(whole)
	for _, i := range other.at {
		c := &whole.Charges[i]
		c.When, c.Left, c.Next, c.Held = whole.Now, 0, 0, 0
	}
}

// here is an instant of p as one of the whole.
func (p *part) here(whole *weir.Tx, at weir.Instant) weir.Instant {
	if at == 0 || at == weir.Never {
		return at
	}
	return at - p.tx.Now + whole.Now
}

// copyTo copies the results, as instants of the whole.
func (p *part) copyTo(whole *weir.Tx) {
	for j, i := range p.at {
		from, to := &p.tx.Charges[j], &whole.Charges[i]
		to.Left = from.Left
		to.When, to.Next, to.Held = p.here(whole, from.When), p.here(whole, from.Next), p.here(whole, from.Held)
	}
}

// close gives back what is leased, and ends the connections.
func (s *stores) close(ctx context.Context) {
	if s.conn != nil {
		s.leased.Close(ctx)
		s.conn.Close()
	}
}

// hello asks the shared store once at the start, so that what is wrong with it is not first said when a request comes. It
// holds nothing up.
func (s *stores) hello(ctx context.Context, log *slog.Logger) {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch err := s.conn.Ping(ctx); {
	case err == nil:
		log.Info("shared store answers", "cluster", s.conn.Cluster())
	case !errors.Is(err, context.Canceled):
		log.Warn("shared store does not answer; until it does, limits are decided by policy", "err", err)
	}
}

// limiter decides over the stores: straight on memory where there is nothing else, which is faster.
func (s *stores) limiter() *weir.Limiter {
	if s.guard == nil {
		return &weir.Limiter{Store: s.memory}
	}
	return &weir.Limiter{Store: s}
}
