package blackfriday

import (
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// Report is what a run measured. Latencies are those of served requests, in milliseconds from the instant at which a
// request was due; they are 0 where none was served.
type Report struct {
	Machine       Machine  `json:"machine"`
	PathPerSecond float64  `json:"path_per_second"` // requests that the proxy carries to a server that answers at once
	Backend       Pool     `json:"backend"`
	Trial         Trial    `json:"trial"` // the backend at 0.9 of its capacity without limits; the peak
	Wave          Wave     `json:"wave"`
	Limits        []Limit  `json:"limits"`
	Acts          []Act    `json:"acts"`
	Refusal       *Refusal `json:"refused_answer"` // the first of the runaway client's, or null

	Conclusion []string `json:"conclusion"`
	Seconds    float64  `json:"seconds"` // of the whole run
}

// Machine is where it ran.
type Machine struct {
	CPUs int    `json:"cpus"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
}

// Pool is the backend.
type Pool struct {
	Capacity  float64 `json:"capacity_per_second"`
	Workers   int     `json:"workers"`
	ServiceMS float64 `json:"service_ms"`
	Queue     int     `json:"queue"`
	GivesUpMS float64 `json:"gives_up_ms"`
}

// Trial is what the backend did when it was not overrun, and whether this machine keeps up with the wave.
type Trial struct {
	PerSecond float64 `json:"served_per_second"`
	P99       float64 `json:"p99_ms"`
	LateShare float64 `json:"peak_late_share"` // of the requests at the peak of the wave, with limits: sent more than 10 ms late
}

// Wave is what was sent in each act.
type Wave struct {
	Factor  float64 `json:"factor"`
	Peak    float64 `json:"peak_per_second"`
	Seconds float64 `json:"seconds"`
}

// Limit is one of the policy.
type Limit struct {
	Name     string    `json:"name"`
	Rate     weir.Rate `json:"rate"`
	Burst    int64     `json:"burst"`
	Headroom int64     `json:"headroom"`
}

// Act is what became of the wave.
type Act struct {
	Name    string  `json:"name"`
	Classes []Class `json:"classes"`
	Worked  int64   `json:"backend_worked"` // requests that the backend worked on
	Wasted  int64   `json:"backend_wasted"` // of them, for clients who had given up

	OrdersSent   []int64 `json:"orders_sent"`   // in equal parts of the act
	OrdersServed []int64 `json:"orders_served"` // of those sent in that part
}

// Class is one kind of client. Sent is the sum of Served, Refused, Failed, Other and Unanswered.
type Class struct {
	Name       string  `json:"name"`
	Sent       int64   `json:"sent"`
	Served     int64   `json:"served"`     // 2xx
	Refused    int64   `json:"refused"`    // 429
	Failed     int64   `json:"failed"`     // 5xx
	Other      int64   `json:"other"`      // any other status
	Unanswered int64   `json:"unanswered"` // timeouts and broken connections
	Late       int64   `json:"late"`       // sent more than 10 ms after the instant that was fixed
	MaxLate    float64 `json:"max_late_ms"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	RefusalP50 float64 `json:"refusal_p50_ms"` // of the 429s
}

// Refusal is an answer, as it came.
type Refusal struct {
	Status string      `json:"status"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

func ms(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 2) }

func round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}

func (r *Report) plan(p plan) {
	b := p.backend()
	r.Backend = Pool{p.capacity, b.Workers, ms(b.Service), b.Queue, ms(b.Patience)}
	r.Wave = Wave{p.factor, p.wave().Peak(), p.length.Seconds()}
	backend, client := p.limits()
	for _, l := range []*weir.Limit{backend, client} {
		r.Limits = append(r.Limits, Limit{l.Name, l.Rate, l.Capacity(), l.Headroom})
	}
}

func (a *act) report(name string) Act {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Act{Name: name, Worked: a.worked, Wasted: a.wasted}
	var all traffic.Tally
	for i := range a.tallies {
		out.Classes = append(out.Classes, classOf(classes[i].name, &a.tallies[i]))
		all.Merge(&a.tallies[i])
	}
	out.Classes = append(out.Classes, classOf("all", &all))
	for _, m := range a.moments {
		out.OrdersSent = append(out.OrdersSent, m.sent)
		out.OrdersServed = append(out.OrdersServed, m.served)
	}
	return out
}

func classOf(name string, t *traffic.Tally) Class {
	return Class{name, t.Sent, t.OK, t.Refused, t.Failed, t.Other, t.Unanswered, t.Late, ms(t.MaxLate),
		ms(t.Latency.Quantile(0.5)), ms(t.Latency.Quantile(0.99)), ms(t.Refusal.Quantile(0.5))}
}
