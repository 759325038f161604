package weir

import "maps"

// Room for cells: it is bounded, and found by dropping cells at rest, never others.

// room reports whether p, which has no cell, can go on: with room set aside for one where op may make it. If not, p has to go
// to the shared cell of its limit.
func (s *memory) room(p *place, op Op, now Instant) bool {
	switch {
	case p.shared:
		if op == Take || op == Debit {
			s.cells.Add(1)
			p.state = reserved
		}
		return true
	case op == Take || op == Debit:
		for range 2 {
			if n := s.cells.Add(1); s.max < 0 || n <= s.max {
				p.state = reserved
				return true
			}
			s.cells.Add(-1)
			if !s.reclaim(now) {
				break
			}
		}
		s.overflowed.Add(1)
		return false
	case op == Peek: // as Take would
		return s.max < 0 || s.cells.Load() < s.max
	case op == Refund: // it may have been charged there; if not, it will not be found there
		return s.overflowed.Load() == 0
	}
	return true
}

// release gives back the room that was set aside and not used.
func (s *memory) release(places []place) {
	for i := range places {
		if p := &places[i]; p.state == reserved {
			p.state = absent
			s.cells.Add(-1)
		}
	}
}

// reclaim drops the cells at rest of the next shard that has some, and reports whether there was one. A round that finds none notes
// until when no other need be made, so that a flood of keys does not pay for one each.
func (s *memory) reclaim(now Instant) bool {
	if now < Instant(s.barren.Load()) {
		return false
	}
	const busy = 1000 // µs until a shard that somebody uses is looked at again
	earliest := Never
	for range len(s.shards) {
		sh := &s.shards[s.cursor.Add(1)%uint32(len(s.shards))]
		if !sh.mu.TryLock() { // one of the caller's own, or another's
			earliest = min(earliest, now+busy)
			continue
		}
		dropped := 0
		if now >= sh.due {
			dropped = s.sweep(sh, now)
		}
		earliest = min(earliest, sh.due)
		sh.mu.Unlock()
		if dropped > 0 {
			return true
		}
	}
	s.barren.Store(int64(earliest))
	return false
}

// sweep drops the cells at rest and the holds that have ended. The shard is locked.
func (s *memory) sweep(sh *shard, now Instant) (dropped int) {
	before := now - s.grace
	due := Never
	for i := range sh.tables {
		n, earliest := sh.tables[i].sweep(before, stride(i+1))
		dropped += n
		due = min(due, earliest)
	}
	for key, log := range sh.logs {
		if log.Rest <= before {
			delete(sh.logs, key)
			dropped++
		} else {
			due = min(due, log.Rest)
		}
	}
	maps.DeleteFunc(sh.holds, func(_ key128, until Instant) bool { return until <= before })
	s.cells.Add(int64(-dropped))
	sh.due, sh.swept = min(Never, due+s.grace), now
	return dropped
}
