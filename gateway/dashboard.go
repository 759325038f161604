package gateway

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-go/weir"
)

const (
	sampleEvery  = time.Second
	keptSamples  = 180 // of each limit
	latencySpan  = 60  // samples that the quantiles of latency are over
	shownKeys    = 10  // of each limit and list
	keptHolds    = 256 // that were set here
	longestPause = 5 * sampleEvery
)

// board is what the dashboard shows. It looks at the counters of metrics once a second; of requests it knows what a heat
// is told. Its methods are safe for concurrent use.
type board struct {
	g       *Gateway
	started time.Time
	streams atomic.Int64 // being sent

	mu        sync.Mutex
	samples   int       // so far
	at        time.Time // of the last one
	turned    time.Time // when the tops began their windows
	limits    map[string]*limitSeries
	routes    map[string]*statusSeries
	upstreams map[string]*latencySeries
	holds     []hold
	frame     []byte // what streams send for sample number framed
	framed    int
}

func newBoard(g *Gateway) *board {
	now := time.Now()
	return &board{g: g, started: now, turned: now,
		limits: map[string]*limitSeries{}, routes: map[string]*statusSeries{}, upstreams: map[string]*latencySeries{}}
}

// run samples until ctx ends, so that there is a past to show to who opens the dashboard.
func (b *board) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		b.sample(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample looks at the counters, unless that was just done.
func (b *board) sample(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	past := now.Sub(b.at)
	if past < sampleEvery*9/10 {
		return
	}
	s := b.g.site.Load()
	if past > longestPause { // the first one, or nobody looked for a while
		clear(b.limits)
		clear(b.routes)
		clear(b.upstreams)
	}
	b.at = now
	b.samples++

	keep(b.limits, s.limits)
	for name := range s.limits {
		if b.limits[name] == nil {
			b.limits[name] = &limitSeries{tally: b.g.metrics.tally(name)}
		}
		b.limits[name].sample(past)
	}
	routes := map[string]*route{noRoute: s.unmatched}
	for _, r := range s.routes {
		routes[r.name] = r
	}
	keep(b.routes, routes)
	for name, r := range routes {
		if b.routes[name] == nil {
			b.routes[name] = &statusSeries{statuses: r.statuses}
		}
		b.routes[name].sample(past)
	}
	keep(b.upstreams, s.upstreams)
	for name := range s.upstreams {
		if b.upstreams[name] == nil {
			b.upstreams[name] = &latencySeries{histogram: b.g.metrics.latency.WithLabelValues(name).(prometheus.Metric)}
		}
		b.upstreams[name].sample(past)
	}
	if now.Sub(b.turned) >= topWindow {
		b.turned = now
		for _, h := range s.heats {
			h.use.turn()
			h.refusals.turn()
		}
	}
	b.holds = slices.DeleteFunc(b.holds, func(h hold) bool { return !h.until.After(now) })
}

// keep forgets what is not in the configuration any more.
func keep[A, B any](m map[string]A, names map[string]B) {
	for name := range m {
		if _, ok := names[name]; !ok {
			delete(m, name)
		}
	}
}

// counts are admitted, refused, and refused by a shadow limit.
type counts [3]float64

// limitSeries is the past of a limit.
type limitSeries struct {
	tally tally
	total counts
	past  []counts // a second, the latest last
	known bool     // total is that of an earlier sample
}

func (l *limitSeries) sample(past time.Duration) {
	total := counts{value(l.tally.admitted), value(l.tally.refused), value(l.tally.shadow)}
	if l.known {
		var rate counts
		for i := range rate {
			rate[i] = perSecond(total[i]-l.total[i], past)
		}
		if len(l.past) == keptSamples {
			l.past = slices.Delete(l.past, 0, 1)
		}
		l.past = append(l.past, rate)
	}
	l.total, l.known = total, true
}

func (l *limitSeries) latest() counts {
	if len(l.past) == 0 {
		return counts{}
	}
	return l.past[len(l.past)-1]
}

// statusSeries is how many answers of a route there were in the last second, by class of status; 499 at 0.
type statusSeries struct {
	statuses    *statuses
	total, rate [6]float64
	known       bool
}

func (r *statusSeries) sample(past time.Duration) {
	for i := range r.total {
		counter := r.statuses.gone
		if i > 0 {
			counter = r.statuses.classes[i]
		}
		total := value(counter)
		if r.known {
			r.rate[i] = perSecond(total-r.total[i], past)
		}
		r.total[i] = total
	}
	r.known = true
}

// latencySeries is the past of an upstream's histogram of latency.
type latencySeries struct {
	histogram prometheus.Metric
	bounds    []float64
	past      [][]uint64 // answers up to each bound, and all; the latest last
	rate      float64    // answers a second, lately
}

func (l *latencySeries) sample(past time.Duration) {
	var m dto.Metric
	if l.histogram.Write(&m) != nil {
		return
	}
	h := m.GetHistogram()
	var counts []uint64
	l.bounds = l.bounds[:0]
	for _, b := range h.GetBucket() {
		l.bounds = append(l.bounds, b.GetUpperBound())
		counts = append(counts, b.GetCumulativeCount())
	}
	counts = append(counts, h.GetSampleCount())
	if n := len(l.past); n > 0 {
		before := l.past[n-1]
		l.rate = perSecond(float64(counts[len(counts)-1]-before[len(before)-1]), past)
	}
	if len(l.past) > latencySpan {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.past = append(l.past, counts)
}

// recent are the answers since the first sample that is kept, up to each bound.
func (l *latencySeries) recent() []float64 {
	if len(l.past) == 0 {
		return nil
	}
	first, last := l.past[0], l.past[len(l.past)-1]
	n := make([]float64, len(last))
	for i := range last {
		n[i] = float64(last[i] - first[i])
	}
	return n
}

// quantile is the q-quantile of counts up to each bound, and of all at the end: evenly spread within a bucket, as
// Prometheus has it, and the last bound where it is beyond. It is negative if there is nothing.
func quantile(q float64, bounds, counts []float64) float64 {
	if len(counts) == 0 || counts[len(counts)-1] == 0 {
		return -1
	}
	rank := q * counts[len(counts)-1]
	for i, bound := range bounds {
		if counts[i] < rank {
			continue
		}
		low, below := 0.0, 0.0
		if i > 0 {
			low, below = bounds[i-1], counts[i-1]
		}
		if counts[i] == below {
			return low
		}
		return low + (bound-low)*(rank-below)/(counts[i]-below)
	}
	return bounds[len(bounds)-1]
}

// value is what a counter has counted.
func value(c prometheus.Counter) float64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return m.GetCounter().GetValue()
}

// perSecond is a rate to a tenth.
func perSecond(n float64, past time.Duration) float64 {
	return math.Round(10*n/past.Seconds()) / 10
}

// hold is a hold that was set through the admin listener.
type hold struct {
	limit, key string
	every      bool
	until      time.Time
}

// held notes a hold, or that it was lifted, where until is not after now.
func (b *board) held(c *weir.Charge, until time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = slices.DeleteFunc(b.holds, func(h hold) bool {
		return h.limit == c.Limit.Name && h.key == c.Key && h.every == c.Every
	})
	if until.After(time.Now()) {
		if len(b.holds) == keptHolds {
			b.holds = slices.Delete(b.holds, 0, 1)
		}
		b.holds = append(b.holds, hold{c.Limit.Name, c.Key, c.Every, until})
	}
}

// keyOf is the key of a limit that has a hash, in the form of hashText, as far as it is known: those used or refused most, and those held.
func (b *board) keyOf(limit, text string) (key string, ok bool) {
	hash, err := strconv.ParseUint(text, 16, 64)
	if b == nil || err != nil {
		return "", false
	}
	b.mu.Lock()
	for _, h := range b.holds {
		if h.limit == limit && !h.every && hashOf(h.key) == hash {
			b.mu.Unlock()
			return h.key, true
		}
	}
	b.mu.Unlock()
	heat := b.g.site.Load().heats[limit]
	if heat == nil {
		return "", false
	}
	if key, ok = heat.use.find(hash); ok {
		return key, true
	}
	return heat.refusals.find(hash)
}

// The rest is what streams send, as JSON.

type shownFrame struct {
	Sample    int             `json:"sample"`
	Now       int64           `json:"now"`    // ms
	Since     int64           `json:"since"`  // ms: when the process began
	Window    int64           `json:"window"` // ms: from when on keys are counted
	Ready     bool            `json:"ready"`
	Draining  bool            `json:"draining"`
	Open      int64           `json:"open"`
	Token     bool            `json:"token"` // changes are possible, with one
	Clear     bool            `json:"clear"` // keys are text
	Limits    []shownLimit    `json:"limits"`
	Routes    []shownRoute    `json:"routes"`
	Upstreams []shownUpstream `json:"upstreams"`
	Holds     []shownHold     `json:"holds"`
	Memory    *shownMemory    `json:"memory"`
	Store     *shownStore     `json:"store"`
	Errors    float64         `json:"errors"`
	Reloads   shownReloads    `json:"reloads"`
}

type shownLimit struct {
	Name      string         `json:"name"`
	Algorithm weir.Algorithm `json:"algorithm"`
	Rate      weir.Rate      `json:"rate"`
	Capacity  int64          `json:"capacity"`
	Shadow    bool           `json:"shadow"`
	Store     string         `json:"store"`
	Now       counts         `json:"now"` // a second
	Total     counts         `json:"total"`
	Use       []shownKey     `json:"use"`
	Refusals  []shownKey     `json:"refusals"`
	Missed    int64          `json:"missed"` // charges that the lists do not count
}

// shownKey is a key that had between Count − Over and Count.
type shownKey struct {
	Key   string `json:"key,omitempty"` // text, if that is shown
	Hash  string `json:"hash"`
	Cut   bool   `json:"cut,omitempty"`
	Count int64  `json:"count"`
	Over  int64  `json:"over,omitempty"`
}

type shownRoute struct {
	Name    string     `json:"name"`
	Now     [6]float64 `json:"now"` // a second, as statusSeries has them
	Waiting int64      `json:"waiting"`
	Queue   int64      `json:"queue"` // that may wait
}

type shownUpstream struct {
	Name  string  `json:"name"`
	State string  `json:"state"`
	P50   float64 `json:"p50"` // seconds; negative: no answers
	P95   float64 `json:"p95"`
	Rate  float64 `json:"rate"` // answers a second
}

type shownHold struct {
	Limit string `json:"limit"`
	Key   string `json:"key,omitempty"`
	Hash  string `json:"hash"`
	Every bool   `json:"every"`
	Until int64  `json:"until"` // ms
}

type shownMemory struct {
	Cells      int   `json:"cells"`
	Max        int   `json:"max"` // negative: no bound
	Overflowed int64 `json:"overflowed"`
}

type shownStore struct {
	Down    bool  `json:"down"`
	Since   int64 `json:"since"` // ms
	Outages int64 `json:"outages"`
	Shared  int64 `json:"shared"`
	Local   int64 `json:"local"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

type shownReloads struct {
	Applied float64 `json:"applied"`
	Refused float64 `json:"refused"`
}

// latest is the JSON of the latest sample, made once for all who look.
func (b *board) latest(now time.Time) []byte {
	b.sample(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.framed != b.samples {
		b.frame, b.framed = marshal(b.show()), b.samples
	}
	return b.frame
}

// history is the JSON of the past of the limits: for each a list of admitted, of refused, and of shadow refusals a second.
func (b *board) history(now time.Time) []byte {
	b.sample(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	past := map[string][3][]float64{}
	for name, l := range b.limits {
		var columns [3][]float64
		for i := range columns {
			columns[i] = make([]float64, len(l.past))
			for j := range l.past {
				columns[i][j] = l.past[j][i]
			}
		}
		past[name] = columns
	}
	return marshal(map[string]any{"sample": b.samples, "limits": past})
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // no type here has values that JSON does not
		panic("weir: dashboard: " + err.Error())
	}
	return data
}

func (b *board) show() *shownFrame {
	g, s := b.g, b.g.site.Load()
	f := &shownFrame{
		Sample: b.samples, Now: b.at.UnixMilli(), Since: b.started.UnixMilli(), Window: max(b.started.UnixMilli(), b.turned.Add(-topWindow).UnixMilli()),
		Ready: g.Ready(), Draining: g.draining.Load(), Open: g.open.Load(), Token: s.token != nil, Clear: s.config.Admin.ShowKeys,
		Limits: []shownLimit{}, Routes: []shownRoute{}, Upstreams: []shownUpstream{}, Holds: []shownHold{},
		Errors:  value(g.metrics.errors),
		Reloads: shownReloads{value(g.metrics.reloads.WithLabelValues("applied")), value(g.metrics.reloads.WithLabelValues("refused"))},
	}
	for _, l := range s.config.Limits {
		shown := shownLimit{Name: l.Name, Algorithm: l.Algorithm, Rate: l.Rate, Capacity: l.Capacity(), Shadow: l.Shadow, Store: s.config.storeOf(l)}
		if series := b.limits[l.Name]; series != nil {
			shown.Now, shown.Total = series.latest(), series.total
		}
		if h := s.heats[l.Name]; h != nil {
			shown.Use, shown.Refusals = f.keys(&h.use), f.keys(&h.refusals)
			shown.Missed = h.use.missed.Load() + h.refusals.missed.Load()
		}
		f.Limits = append(f.Limits, shown)
	}
	for _, conf := range s.config.Routes {
		f.route(b, s.routes[matchable(conf.Pattern)])
	}
	f.route(b, s.unmatched)
	for _, name := range sortedKeys(s.upstreams) {
		up := shownUpstream{Name: name, State: breakerNames[s.upstreams[name].state()], P50: -1, P95: -1}
		if l := b.upstreams[name]; l != nil {
			n := l.recent()
			up.P50, up.P95 = quantile(.5, l.bounds, n), quantile(.95, l.bounds, n)
			up.Rate = l.rate
		}
		f.Upstreams = append(f.Upstreams, up)
	}
	for _, h := range b.holds {
		shown := shownHold{Limit: h.limit, Hash: hashText(hashOf(h.key)), Every: h.every, Until: h.until.UnixMilli()}
		if f.Clear {
			shown.Key = readable(h.key, false)
		}
		f.Holds = append(f.Holds, shown)
	}
	if g.memory != nil {
		m := g.memory.Stats()
		f.Memory = &shownMemory{m.Cells, m.MaxCells, m.Overflowed}
	}
	if g.stores != nil && g.stores.guard != nil {
		d := g.stores.guard.Stats()
		f.Store = &shownStore{Down: d.Down, Outages: d.Outages, Shared: d.Shared, Local: d.Local, Allowed: d.Allowed, Denied: d.Denied}
		if d.Down {
			f.Store.Since = d.Since.UnixMilli()
		}
	}
	return f
}

func (f *shownFrame) route(b *board, r *route) {
	shown := shownRoute{Name: r.name}
	if series := b.routes[r.name]; series != nil {
		shown.Now = series.rate
	}
	if r.queue != nil {
		shown.Waiting, shown.Queue = r.queue.waiting.Load(), r.queue.length
	}
	f.Routes = append(f.Routes, shown)
}

func (f *shownFrame) keys(t *top) []shownKey {
	keys := []shownKey{}
	for _, e := range t.list(shownKeys) {
		k := shownKey{Hash: hashText(e.Hash), Cut: e.Cut, Count: e.Count, Over: e.Over}
		if f.Clear {
			k.Key = readable(e.Key, e.Cut)
		}
		keys = append(keys, k)
	}
	return keys
}
