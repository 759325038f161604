package traffic

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Scenario is traffic that is expected: how much, of what, from whom. It is a business decision written down, so that it also says who
// made it. [ParseScenario] reads it from YAML; the zero value of a field that is not required is its default.
type Scenario struct {
	Name     string        `yaml:"name"`
	Agreed   Agreed        `yaml:"agreed"`
	Start    time.Time     `yaml:"start"`    // when it begins; zero: midnight UTC of Agreed.On, else of 2026-01-01
	Duration time.Duration `yaml:"duration"` // required
	Seed     uint64        `yaml:"seed"`     // the same seed makes the same requests
	Load     Shape         `yaml:"load"`     // of all classes with a share together
	Classes  []Class       `yaml:"classes"`  // at least one
	Clients  Clients       `yaml:"clients"`
}

// Agreed says who decided that this is the traffic to be ready for, and when.
type Agreed struct {
	By string `yaml:"by"`
	On string `yaml:"on"` // a date, as 2026-10-01
}

// String is a line for reports, empty if nobody agreed.
func (a Agreed) String() string {
	switch {
	case a.By == "":
		return ""
	case a.On == "":
		return "agreed by " + a.By
	}
	return "agreed by " + a.By + " on " + a.On
}

// Shape is how load goes from normal to its peak and back.
type Shape struct {
	Normal weir.Rate     `yaml:"normal"` // required, unless every class has a rate of its own
	Peak   weir.Rate     `yaml:"peak"`   // zero: as normal
	Shape  string        `yaml:"shape"`  // steady, step, ramp, spike or daily; empty: step if there is a peak, else steady
	At     time.Duration `yaml:"at"`     // when it begins to rise, or with daily the time of day of the peak, in the zone of start; 0: after a quarter of the scenario, or at 14:00
	Rise   time.Duration `yaml:"rise"`   // ramp: how long the way up takes, and the way down; 0: an eighth of the scenario
	For    time.Duration `yaml:"for"`    // step, ramp: how long the peak lasts; spike: how long until it is over; 0: half of the scenario
}

// Class is a kind of request.
type Class struct {
	Name          string            `yaml:"name"`
	Request       string            `yaml:"request"`         // method and path, as "POST /orders"; {…} in the path becomes a number from 1 to 1000
	Host          string            `yaml:"host"`            // empty: none
	Header        map[string]string `yaml:"header"`          //
	Body          string            `yaml:"body"`            // what a load test sends
	Share         Share             `yaml:"share"`           // of the load, as 10%
	Rate          weir.Rate         `yaml:"rate"`            // instead of Share: its normal load
	Peak          weir.Rate         `yaml:"peak"`            // with Rate: its peak; zero: as Rate
	RefusedAtMost *Share            `yaml:"refused_at_most"` // it survives if no more than this is refused; nil: there is no verdict
}

// Method and Path are the two parts of Request.
func (c *Class) Method() string { m, _, _ := strings.Cut(c.Request, " "); return m }

// Path is the part of Request after the method, with its placeholders.
func (c *Class) Path() string { _, p, _ := strings.Cut(c.Request, " "); return strings.TrimSpace(p) }

// Clients says whom requests come from.
type Clients struct {
	Count   int      `yaml:"count"`   // how many there are; 0: 1000
	Zipf    float64  `yaml:"zipf"`    // the k-th sends k^−zipf as much as the first: 0 is all alike, 1 is usual
	Users   Share    `yaml:"users"`   // which part of them signs in
	Office  *Office  `yaml:"office"`  // people behind one address; nil: none
	Runaway *Runaway `yaml:"runaway"` // one client that never stops asking; nil: none
	Returns *Returns `yaml:"returns"` // who comes back after a refusal, in a simulation; nil: nobody
}

// Office is people who share an address.
type Office struct {
	People int   `yaml:"people"` // 0: 200
	Share  Share `yaml:"share"`  // of all requests, without those of the runaway
}

// Runaway is one client, with an address of its own, that asks in a loop, on top of the load.
type Runaway struct {
	Class string        `yaml:"class"` // what it asks for; empty: the first class
	Rate  weir.Rate     `yaml:"rate"`  // required
	At    time.Duration `yaml:"at"`    // when it begins
	For   time.Duration `yaml:"for"`   // 0: to the end
}

// Share is a part of a whole, 0 to 1. Its text form is "12.5%" or "0.125".
type Share float64

// UnmarshalText reads the text form.
func (s *Share) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(string(text)), "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("traffic: %.40q is no share; the form is 12.5%% or 0.125", text)
	}
	*s = Share(f)
	return nil
}

// MarshalText writes the text form.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is the text form in per cent.
func (s Share) String() string {
	return strconv.FormatFloat(math.Round(float64(s)*1e8)/1e6, 'f', -1, 64) + "%"
}

// Begin is when the scenario begins.
func (s *Scenario) Begin() time.Time {
	if !s.Start.IsZero() {
		return s.Start
	}
	if t, err := time.Parse(time.DateOnly, s.Agreed.On); err == nil {
		return t
	}
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}

// Load shapes by name.
const (
	Flat  = "steady"
	Step  = "step"
	Climb = "ramp"
	Spike = "spike"
	Daily = "daily"
)

var shapes = []string{Flat, Step, Climb, Spike, Daily}

// perSecond is r as arrivals a second.
func perSecond(r weir.Rate) float64 {
	if r.Period <= 0 {
		return 0
	}
	return float64(r.Units) / r.Period.Seconds()
}

// defaultPeakOfDay is when Daily has its peak.
const defaultPeakOfDay = 14 * time.Hour

// Profile is the load over the time of a scenario that begins at midnight.
func (s *Shape) Profile(length time.Duration) Profile {
	return s.profile(length, 0, perSecond(s.Normal), perSecond(s.Peak))
}

// profile is the shape between two other rates, from a time of day on.
func (s *Shape) profile(length, from time.Duration, normal, peak float64) Profile {
	if peak == 0 {
		peak = normal
	}
	shape := s.Shape
	if shape == "" {
		shape = Step
	}
	at, rise, hold := cmp.Or(s.At, length/4), cmp.Or(s.Rise, length/8), cmp.Or(s.For, length/2)
	p := Profile{{0, normal}}
	add := func(at time.Duration, rate float64) { p = append(p, Point{at, rate}) }
	switch {
	case peak == normal || shape == Flat:
	case shape == Step:
		add(at, normal)
		add(at, peak)
		add(at+hold, peak)
		add(at+hold, normal)
	case shape == Climb:
		add(at, normal)
		add(at+rise, peak)
		add(at+rise+hold, peak)
		add(at+2*rise+hold, normal)
	case shape == Spike: // up at once, then half of what is left in each eighth
		add(at, normal)
		const parts = 8
		for i := range parts {
			add(at+hold*time.Duration(i)/parts, normal+(peak-normal)/float64(int(1)<<i))
		}
		add(at+hold, normal)
	case shape == Daily:
		p = p[:0]
		at = cmp.Or(s.At, defaultPeakOfDay) - from
		const step = 15 * time.Minute
		for t := time.Duration(0); t < length+step; t += step {
			day := 2 * math.Pi * float64(t-at) / float64(24*time.Hour)
			add(t, normal+(peak-normal)*(1+math.Cos(day))/2)
		}
	}
	add(max(length, p.End()), p[len(p)-1].Rate)
	return p.until(length)
}

// until is p up to an instant.
func (p Profile) until(end time.Duration) Profile {
	for i := range p {
		if p[i].At < end {
			continue
		}
		if i == 0 {
			return nil
		}
		a, b := p[i-1], p[i]
		rate := b.Rate
		if b.At > end {
			rate = a.Rate + (b.Rate-a.Rate)*float64(end-a.At)/float64(b.At-a.At)
		}
		return append(p[:i:i], Point{end, rate})
	}
	return p
}

// Profile is the load of class i over the time of the scenario, without the runaway.
func (s *Scenario) Profile(i int) Profile {
	c := &s.Classes[i]
	if c.Rate.Units > 0 {
		return s.Load.profile(s.Duration, s.timeOfDay(), perSecond(c.Rate), perSecond(c.Peak))
	}
	return s.Load.profile(s.Duration, s.timeOfDay(), perSecond(s.Load.Normal), perSecond(s.Load.Peak)).Scale(float64(c.Share))
}

// timeOfDay is when the scenario begins, since midnight in the zone of Start.
func (s *Scenario) timeOfDay() time.Duration {
	hour, minute, second := s.Begin().Clock()
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second
}

// Class is the class of a name, or nil.
func (s *Scenario) Class(name string) *Class {
	for i := range s.Classes {
		if s.Classes[i].Name == name {
			return &s.Classes[i]
		}
	}
	return nil
}
