package httplimit

import (
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// guards are the margins of gates: limits with a longer period. A limit of the same name has the same keys, so that what
// is spent stays spent when the margin changes.
type guards struct {
	mu    sync.Mutex
	first map[*Gate]*weir.Limit // with Gate.Guard
	grown map[guardOf]*guard    // the margins that have grown
}

type guardOf struct {
	gate *Gate
	key  string
}

// guard is the margin of one key.
type guard struct {
	pad     time.Duration
	changed time.Time // when it last grew, or shrank
	limit   *weir.Limit
}

const mostGuards = 1024 // keys with a margin of their own

// limit is the gate's limit with its margin for a key.
func (g *guards) limit(gate *Gate, key string, now time.Time) *weir.Limit {
	if gate.Limit.Algorithm != weir.SlidingLog || gate.Guard < 0 {
		return gate.Limit
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := guardOf{gate, key}
	p := g.grown[k]
	if p == nil {
		return g.least(gate)
	}
	period := gate.Limit.Rate.Period
	for now.Sub(p.changed) >= period {
		pad := p.pad - p.pad/10
		if pad <= max(gate.Guard, period/200) {
			delete(g.grown, k)
			return g.least(gate)
		}
		p = g.put(k, pad, p.changed.Add(period))
	}
	return p.limit
}

// least is the limit with the margin that the gate begins with.
func (g *guards) least(gate *Gate) *weir.Limit {
	if gate.Guard == 0 {
		return gate.Limit
	}
	l := g.first[gate]
	if l == nil {
		if g.first == nil {
			g.first = make(map[*Gate]*weir.Limit)
		}
		l = padLimit(gate.Limit, gate.Guard)
		g.first[gate] = l
	}
	return l
}

// refused widens the margin of a key whose request, sent at a time, was refused although the gate had let it pass. Requests
// that were under way when it last grew share the cause of that.
func (g *guards) refused(gate *Gate, key string, sent, now time.Time) {
	if gate.Limit.Algorithm != weir.SlidingLog || gate.Guard < 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := guardOf{gate, key}
	pad, period := gate.Guard, gate.Limit.Rate.Period
	if p := g.grown[k]; p != nil {
		if !sent.After(p.changed) {
			return
		}
		pad = p.pad
	}
	g.put(k, min(max(2*pad, period/100), max(period/8, gate.Guard)), now)
}

func (g *guards) put(k guardOf, pad time.Duration, now time.Time) *guard {
	p := &guard{pad: pad, changed: now, limit: padLimit(k.gate.Limit, pad)}
	if g.grown == nil {
		g.grown = make(map[guardOf]*guard)
	}
	for old := range g.grown {
		if len(g.grown) < mostGuards {
			break
		}
		delete(g.grown, old)
	}
	g.grown[k] = p
	return p
}

// padLimit is l with a longer period, or l itself if there is no such period.
func padLimit(l *weir.Limit, pad time.Duration) *weir.Limit {
	padded := &weir.Limit{
		Name: l.Name, Algorithm: l.Algorithm, Headroom: l.Headroom, Shadow: l.Shadow,
		Rate: weir.Rate{Units: l.Rate.Units, Period: (l.Rate.Period + pad).Truncate(time.Microsecond)},
	}
	if padded.Validate() != nil {
		return l
	}
	return padded
}
