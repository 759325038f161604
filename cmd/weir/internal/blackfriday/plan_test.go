package blackfriday

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// Whatever a machine can do, the plan is one that runs.
func TestPlansAreSound(t *testing.T) {
	for _, capacity := range []float64{20, 50, 90, 333, 1500, 1e6} {
		for _, factor := range []float64{0.1, 1, 3.5, 20} {
			p := plan{capacity, factor, 12 * time.Second}
			b := p.backend()
			if got := float64(b.Workers) / b.Service.Seconds(); math.Abs(got/capacity-1) > 1e-6 || b.Service > within {
				t.Errorf("capacity %v: %d workers × %v make %v", capacity, b.Workers, b.Service, got)
			}
			if err := p.wave().Validate(); err != nil || p.wave().Peak() != factor*capacity || p.wave().End() != p.length {
				t.Errorf("capacity %v, factor %v: %v, wave %v", capacity, factor, err, p.wave())
			}
			backend, client := p.limits()
			for _, l := range []*weir.Limit{backend, client} {
				if err := l.Validate(); err != nil {
					t.Errorf("capacity %v: %v", capacity, err)
				}
			}
			if 2*backend.Headroom >= backend.Burst || backend.Headroom == 0 {
				t.Errorf("capacity %v: burst %d and headroom %d: want some for all and more for orders", capacity, backend.Burst, backend.Headroom)
			}
		}
	}
}

func TestShots(t *testing.T) {
	wave := traffic.Steady(2000, 3*time.Second)
	var last time.Duration
	var sent [3]int
	addresses := make(map[string]int) // class
	again := make([]string, 0, 6000)
	for s := range shots(wave, "127.0.0.1:1") {
		if s.At < last {
			t.Fatalf("%v comes after %v", s.At, last)
		}
		last = s.At
		sent[s.Class]++
		address := s.Request.Header.Get("X-Forwarded-For")
		again = append(again, address)
		if _, err := netip.ParseAddr(address); err != nil {
			t.Fatal(err)
		}
		if class, ok := addresses[address]; ok && class != s.Class {
			t.Fatalf("%s is of two classes", address)
		}
		addresses[address] = s.Class
		if c := classes[s.Class]; s.Request.Method != c.method || s.Request.URL.Path != c.path {
			t.Fatalf("%s: %s %s", c.name, s.Request.Method, s.Request.URL)
		}
	}
	for i, n := range sent {
		if want := wave.Total() * classes[i].share; math.Abs(float64(n)-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: %d, want about %.0f", classes[i].name, n, want)
		}
	}
	i := 0
	for s := range shots(wave, "127.0.0.1:1") {
		if address := s.Request.Header.Get("X-Forwarded-For"); address != again[i] {
			t.Fatalf("request %d comes from %s in the first act and from %s in the second", i, again[i], address)
		}
		i++
	}
}

func TestNiceBelow(t *testing.T) {
	for x, want := range map[float64]float64{5: 0, 19: 10, 199: 190, 249: 200, 1500: 1500, 1499: 1450} {
		if got := niceBelow(x); got != want {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}
