package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir"
)

// metrics is what a Gateway counts, in a registry of its own. No label comes from a request: names of limits,
// routes and upstreams are the configuration's, and everything else is a closed set. Counters outlive reloads.
type metrics struct {
	registry  *prometheus.Registry
	decisions *prometheus.CounterVec
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	breakers  *prometheus.CounterVec
	errors    prometheus.Counter
	reloads   *prometheus.CounterVec
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total",
			Help: "What limits said: admitted, refused, or shadow_refused where a shadow limit would have refused.",
		}, []string{"limit", "outcome"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_requests_total",
			Help: "Requests by route and class of the status answered; 499 stands for clients that left before an answer.",
		}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_upstream_latency_seconds",
			Help:    "From asking an upstream to the header of its answer, or to the error.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"upstream"}),
		breakers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_breaker_changes_total",
			Help: "Changes of circuit breakers by the state they went to.",
		}, []string{"upstream", "state"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_store_errors_total",
			Help: "Decisions that the store could not make.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reloads_total",
			Help: "Reloads of the configuration: applied or refused.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{"applied", "refused"} {
		m.reloads.WithLabelValues(outcome) // from 0 on, so that the first one is seen as an increase
	}
	m.registry.MustRegister(m.decisions, m.requests, m.latency, m.breakers, m.errors, m.reloads, &gauges{g: g})
	if g.memory != nil {
		m.registry.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "weir_memory_cells",
				Help: "Keys that memory holds.",
			}, func() float64 { return float64(g.memory.Stats().Cells) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "weir_memory_overflow_total",
				Help: "Charges decided on a limit's shared cell because memory was full.",
			}, func() float64 { return float64(g.memory.Stats().Overflowed) }),
		)
	}
	if g.stores != nil && g.stores.guard != nil {
		m.registry.MustRegister(&sharedStore{g.stores})
	}
	return m
}

// sharedStore collects how decisions that belong into the shared store were made.
type sharedStore struct{ s *stores }

var (
	storeDecisionsDesc = prometheus.NewDesc("weir_store_decisions_total",
		"Decisions on shared limits by who made them: shared, local, allowed by nobody, denied.", []string{"by"}, nil)
	storeDownDesc = prometheus.NewDesc("weir_store_down",
		"1 while the shared store is not asked, because it failed.", nil, nil)
	storeSinceDesc = prometheus.NewDesc("weir_store_down_since_timestamp_seconds",
		"Since when the shared store is not asked; 0 while it is.", nil, nil)
	storeFullDesc = prometheus.NewDesc("weir_store_full_total",
		"Decisions made by this instance because the shared store was full.", nil, nil)
	storeUnsyncedDesc = prometheus.NewDesc("weir_store_unsynced_total",
		"Keys charged without the shared store that were too many to charge there afterwards.", nil, nil)
	storeOutagesDesc = prometheus.NewDesc("weir_store_outages_total",
		"How often the shared store was left alone.", nil, nil)
	storeCallsDesc = prometheus.NewDesc("weir_store_calls_total",
		"Calls of the script; several decisions can share one.", nil, nil)
)

func (c *sharedStore) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeDecisionsDesc
	ch <- storeDownDesc
	ch <- storeSinceDesc
	ch <- storeFullDesc
	ch <- storeUnsyncedDesc
	ch <- storeOutagesDesc
	ch <- storeCallsDesc
}

func (c *sharedStore) Collect(ch chan<- prometheus.Metric) {
	g := c.s.guard.Stats()
	for by, n := range map[string]int64{"shared": g.Shared, "local": g.Local, "allowed": g.Allowed, "denied": g.Denied} {
		ch <- prometheus.MustNewConstMetric(storeDecisionsDesc, prometheus.CounterValue, float64(n), by)
	}
	down, since := 0.0, 0.0
	if g.Down {
		down, since = 1, float64(g.Since.UnixMilli())/1000
	}
	ch <- prometheus.MustNewConstMetric(storeDownDesc, prometheus.GaugeValue, down)
	ch <- prometheus.MustNewConstMetric(storeSinceDesc, prometheus.GaugeValue, since)
	ch <- prometheus.MustNewConstMetric(storeFullDesc, prometheus.CounterValue, float64(g.Full))
	ch <- prometheus.MustNewConstMetric(storeUnsyncedDesc, prometheus.CounterValue, float64(g.Unsynced))
	ch <- prometheus.MustNewConstMetric(storeOutagesDesc, prometheus.CounterValue, float64(g.Outages))
	ch <- prometheus.MustNewConstMetric(storeCallsDesc, prometheus.CounterValue, float64(c.s.redis.Stats().Calls))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// tally counts what one limit says.
type tally struct{ admitted, refused, shadow prometheus.Counter }

func (m *metrics) tally(limit string) tally {
	return tally{
		admitted: m.decisions.WithLabelValues(limit, "admitted"),
		refused:  m.decisions.WithLabelValues(limit, "refused"),
		shadow:   m.decisions.WithLabelValues(limit, "shadow_refused"),
	}
}

// count adds what a limit said to a request that was let in or not.
func (t *tally) count(o *weir.Outcome, allowed bool) {
	switch {
	case o.Refused() && o.Limit.Shadow:
		t.shadow.Inc()
	case o.Refused():
		t.refused.Inc()
	case allowed:
		t.admitted.Inc()
	}
}

// statuses counts the answers of one route by class of status.
type statuses struct {
	classes [6]prometheus.Counter // 1xx at 1
	gone    prometheus.Counter
}

func (m *metrics) statuses(route string) *statuses {
	s := &statuses{gone: m.requests.WithLabelValues(route, "499")}
	for i := 1; i < len(s.classes); i++ {
		s.classes[i] = m.requests.WithLabelValues(route, strconv.Itoa(i)+"xx")
	}
	return s
}

func (s *statuses) count(status int) {
	switch class := status / 100; {
	case status == statusClientGone:
		s.gone.Inc()
	case class >= 1 && class < len(s.classes):
		s.classes[class].Inc()
	default: // an upstream's odd status
		s.classes[5].Inc()
	}
}

// gauges collects what the configuration in force decides the labels of, so that names do not outlive a reload.
type gauges struct{ g *Gateway }

var (
	queueDesc = prometheus.NewDesc("weir_queue_length",
		"Requests that wait in a route's queue.", []string{"route"}, nil)
	breakerDesc = prometheus.NewDesc("weir_breaker_state",
		"The circuit breaker of an upstream: 0 closed, 1 half open, 2 open.", []string{"upstream"}, nil)
	readyDesc = prometheus.NewDesc("weir_ready",
		"1 if requests should come here, as /readyz says.", nil, nil)
)

func (c *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueDesc
	ch <- breakerDesc
	ch <- readyDesc
}

func (c *gauges) Collect(ch chan<- prometheus.Metric) {
	s := c.g.site.Load()
	if s == nil {
		return
	}
	ready := 0.0
	if c.g.Ready() {
		ready = 1
	}
	ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready)
	for _, r := range s.routes {
		if r.queue != nil {
			ch <- prometheus.MustNewConstMetric(queueDesc, prometheus.GaugeValue, float64(r.queue.waiting.Load()), r.name)
		}
	}
	for _, up := range s.upstreams {
		ch <- prometheus.MustNewConstMetric(breakerDesc, prometheus.GaugeValue, float64(up.state()), up.name)
	}
}
