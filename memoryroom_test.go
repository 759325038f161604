package weir

import (
	"strconv"
	"testing"
	"time"
)

// Holds that have ended are dropped as others come: whoever makes a client hold keys cannot fill its memory with them.
func TestMemoryDropsHoldsThatHaveEnded(t *testing.T) {
	lim, clock := newLimiter()
	l := &Limit{Name: "x", Rate: Rate{10, time.Second}}
	const n = 20_000
	for round := range 4 {
		at := time.Duration(round) * 10 * time.Minute
		clock.set(at)
		for i := range n {
			lim.Hold(background, epoch.Add(at+time.Second), l.For(strconv.Itoa(round*n+i)))
		}
	}
	kept := 0
	s := lim.Store.(*Memory).use()
	for i := range s.shards {
		kept += len(s.shards[i].holds)
	}
	if kept != n {
		t.Errorf("%d holds kept, of which %d have not ended", kept, n)
	}
}

// A table gives back what it needed for a flood that is over.
func TestTableShrinks(t *testing.T) {
	lim, clock := newLimiter()
	l := &Limit{Name: "x", Rate: Rate{10, time.Second}}
	slots := func() (n int) {
		s := lim.Store.(*Memory).use()
		for i := range s.shards {
			for _, table := range s.shards[i].tables {
				n += len(table.slots)
			}
		}
		return n
	}
	const n = 300_000
	for i := range n {
		lim.Take(background, l.For(strconv.Itoa(i)))
	}
	flooded := slots()
	clock.set(time.Hour)
	for i := range n / 30 {
		lim.Take(background, l.For("late "+strconv.Itoa(i)))
	}
	if now := slots(); now > flooded/4 {
		t.Errorf("%d words for %d keys, %d words for the %d that came an hour later", flooded, n, now, n/30)
	}
}
