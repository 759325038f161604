package weir

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a Store in this process. The zero Memory is ready; it must not be copied after its first
// use. It has no goroutine and needs no closing.
//
// It keeps a keyed hash of each key, never the key's text, in flat tables without pointers: 32 to 41 bytes a key
// for the algorithms of one number. Cells at rest are dropped as others come. A cell that is not at rest is never
// dropped: when MaxCells are in use, new keys of a limit share one cell until there is room, and Stats counts
// these decisions.
//
// Its clock is the monotonic one, from the wall clock's reading at first use on: setting the wall clock changes nothing,
// and a machine that was suspended finds its windows later by that time.
type Memory struct {
	// MaxCells bounds how many keys are remembered; zero means 16,777,216 (up to 700 MB where all are busy),
	// negative means no bound. A key of SlidingLog or Concurrency is one cell whatever the length of its log. Set
	// it before first use.
	MaxCells int

	// Now, if not nil, is the clock instead: for simulations. Set it before first use. It is called
	// with locks held, and must not use the Memory.
	Now func() time.Time

	once  sync.Once
	state atomic.Pointer[memory]
}

// MemoryStats is what a Memory holds.
type MemoryStats struct {
	Cells    int // keys remembered now, those at rest that have not been dropped yet among them
	MaxCells int // the bound; negative if there is none
	// Overflowed counts the charges that were decided on a limit's shared cell because MaxCells
	// were in use. It only grows.
	Overflowed int64
}

const (
	defaultMaxCells = 1 << 24
	shardBits       = 10
	sweepInterval   = Instant(time.Minute / time.Microsecond)
)

// memory is the state of a Memory that has been used.
type memory struct {
	start      time.Time // with its monotonic reading
	base       Instant   // the same
	now        func() time.Time
	grace      Instant // how long after their Rest cells stay, for a clock that may step back
	max        int64
	cells      atomic.Int64
	overflowed atomic.Int64
	cursor     atomic.Uint32                      // the next shard to look for cells at rest
	barren     atomic.Int64                       // the Instant before which no shard has any
	every      atomic.Pointer[map[key128]Instant] // holds of whole limits, by the limit's hash; replaced, never changed
	everyMu    sync.Mutex                         // held to replace it
	shards     [1 << shardBits]shard
}

// shard is the part of the cells whose hashes end alike. Rebuilding one table stalls only its callers, and only for as
// long as a thousandth of the cells takes.
type shard struct {
	mu     sync.Mutex
	holds  map[key128]Instant
	tables [3]table         // cells of one, two and three words
	logs   map[key128]*Cell // of sliding logs and concurrency limits
	due    Instant          // no cell can be at rest before
	swept  Instant          // when cells at rest were last dropped
	_      [56]byte
}

// Apply implements Store. It never fails and never waits for anything but other callers.
func (m *Memory) Apply(_ context.Context, tx *Tx) error {
	m.apply(tx)
	return nil
}

// Stats is what m holds now.
func (m *Memory) Stats() MemoryStats {
	s := m.use()
	return MemoryStats{Cells: int(s.cells.Load()), MaxCells: int(s.max), Overflowed: s.overflowed.Load()}
}

func (m *Memory) use() *memory {
	if s := m.state.Load(); s != nil {
		return s
	}
	m.once.Do(func() {
		start := time.Now()
		s := &memory{start: start, base: InstantOf(start), now: m.Now, max: int64(m.MaxCells)}
		if s.max == 0 {
			s.max = defaultMaxCells
		}
		if s.now != nil {
			s.grace = lateness
		}
		m.state.Store(s)
	})
	return m.state.Load()
}

func (s *memory) clock() Instant {
	if s.now != nil {
		return InstantOf(s.now())
	}
	return s.base + Instant(time.Since(s.start)/time.Microsecond)
}

// place is where the cell of one charge lives.
type place struct {
	key    key128
	shard  int32
	words  int8 // of the cell; 0 is a log
	state  int8
	pos    int
	held   Instant // the hold of the key
	was    Cell    // as loaded
	full   bool    // the key has no cell of its own, and there is no room for one
	shared bool    // this is the cell that such keys of the limit share
}

const (
	absent   int8 = iota // no cell, and none will be made
	found                // at pos, or in the logs
	reserved             // absent, with room set aside
	alias                // an earlier charge has the same cell
)

func (m *Memory) apply(tx *Tx) {
	s := m.use()
	switch n := len(tx.Charges); {
	case n == 1:
		var place [1]place
		var cell [1]Cell
		s.apply(tx, place[:], cell[:], nil)
	case n <= few:
		var places [few]place
		var cells [few]Cell
		var order [few]int32
		s.apply(tx, places[:n], cells[:n], order[:n])
	default:
		s.apply(tx, make([]place, n), make([]Cell, n), make([]int32, n))
	}
}

// one decides as [Decide] does over a single charge, which most decisions are. It returns false, with nothing
// done, where there is more to it: a log, a hold to look up, a bucket in another table, no room for a new cell.
func (s *memory) one(op Op, c *Charge, law *Law, d *Decision) bool {
	words := int(law.words)
	if words == 0 || s.every.Load() != nil {
		return false
	}
	k := law.hashKey(c.Key)
	sh := &s.shards[k.lo%uint64(len(s.shards))]
	t := &sh.tables[words-1]
	sh.mu.Lock()
	// The clock comes before the cell: reading it waits for what was loaded so far, and a cell often comes from far away.
	now := s.clock()
	pos, there := t.find(k, stride(words))
	if len(sh.holds) > 0 || !there && !s.vacant(sh, law, op) {
		sh.mu.Unlock()
		return false
	}
	var cell Cell
	if there {
		t.read(pos, words, &cell)
		law.settle(&cell, now)
	}
	when := law.when(&cell, now, c.Cost, law.floor(c.Priority))
	if op == Take {
		if when <= now {
			law.charge(&cell, now, c.Cost)
		}
		switch {
		case there:
			t.write(pos, words, &cell)
		case cell.Rest > now:
			s.put(sh, words, k, &cell, now)
		default: // refused, or nothing was charged
			s.cells.Add(-1)
		}
	}
	sh.mu.Unlock()
	left, next, _ := law.standing(&cell, now, c.Priority)
	d.one(c.Limit, now, when, left, next)
	return true
}

// vacant reports whether a key that is not in its table is new, with room for it; for a Take that room is set aside.
func (s *memory) vacant(sh *shard, law *Law, op Op) bool {
	switch {
	case law.Algorithm == TokenBucket && sh.tables[2-law.words].used > 0:
		return false
	case op == Peek || s.max < 0:
		if op == Take {
			s.cells.Add(1)
		}
		return s.max < 0 || s.cells.Load() < s.max
	}
	if s.cells.Add(1) > s.max {
		s.cells.Add(-1)
		return false
	}
	return true
}

func (s *memory) apply(tx *Tx, places []place, cells []Cell, order []int32) {
	for i := range tx.Charges {
		c, p := &tx.Charges[i], &places[i]
		p.words = c.Law.words
		p.put(c.Law.hashKey(c.Key))
	}
	s.lock(places, order)
	now := s.clock()
	for !s.load(tx, places, cells, now) {
		// Some keys have no room: go on with the shared cells of their limits, which live elsewhere.
		s.unlock(places, order)
		for i := range places {
			if p := &places[i]; p.full && !p.shared {
				p.shared = true
				p.put(tx.Charges[i].Law.hash)
			}
		}
		s.lock(places, order)
		now = s.clock()
	}
	Decide(tx, cells, now)
	s.save(tx, places, cells, now)
	s.unlock(places, order)
}

func (p *place) put(k key128) {
	p.key, p.shard = k, int32(k.lo&(1<<shardBits-1))
}

// lock locks the shards of the places, each once, in ascending order.
func (s *memory) lock(places []place, order []int32) {
	if len(places) == 1 {
		s.shards[places[0].shard].mu.Lock()
		return
	}
	for i := range places {
		j := i
		for ; j > 0 && order[j-1] > places[i].shard; j-- {
			order[j] = order[j-1]
		}
		order[j] = places[i].shard
	}
	for i, n := range order {
		if i == 0 || order[i-1] != n {
			s.shards[n].mu.Lock()
		}
	}
}

func (s *memory) unlock(places []place, order []int32) {
	if len(places) == 1 {
		s.shards[places[0].shard].mu.Unlock()
		return
	}
	for i, n := range order {
		if i == 0 || order[i-1] != n {
			s.shards[n].mu.Unlock()
		}
	}
}

// load finds the cells. It returns false, with nothing reserved, if some key has no room and no cell of its own.
func (s *memory) load(tx *Tx, places []place, cells []Cell, now Instant) bool {
	every := s.every.Load()
	fits := true
	for i := range places {
		c, p, cell := &tx.Charges[i], &places[i], &cells[i]
		sh := &s.shards[p.shard]
		*cell, p.state = Cell{}, absent
		if c.Every {
			if every != nil {
				cell.Held = (*every)[c.Law.hash]
			}
			continue
		}
		if p.shared {
			meet(tx, places, i)
		}
		if c.Cell != i {
			p.state = alias
			continue
		}
		if p.words == 0 {
			if log := sh.logs[p.key]; log != nil {
				*cell, p.state = *log, found
			}
		} else if sh.read(p, cell) {
			p.state = found
		} else if c.Law.Algorithm == TokenBucket && sh.elsewhere(p, cell) {
			if tx.Op != Peek {
				sh.move(p)
				return s.load(tx, places, cells, now) // from the start: cells may have moved
			}
			p.state = found
		}
		if !p.shared { // else the key's own hold was read when it was found to have no room
			p.held = sh.holds[p.key]
		}
		cell.Held = p.held
		if every != nil && tx.Op != Hold {
			cell.Held = max(cell.Held, (*every)[c.Law.hash])
		}
		p.was = *cell
		if p.state == absent && !s.room(p, tx.Op, now) {
			p.full, fits = true, false
		}
	}
	if !fits {
		s.release(places)
	}
	return fits
}

// meet gives charge i the cell of an earlier one that was sent to the same shared cell.
func meet(tx *Tx, places []place, i int) {
	for j := range i {
		if places[j].key == places[i].key && !tx.Charges[j].Every {
			tx.Charges[i].Cell = tx.Charges[j].Cell
			return
		}
	}
}

// read finds the cell of p in its table.
func (sh *shard) read(p *place, cell *Cell) bool {
	t, stride := &sh.tables[p.words-1], stride(int(p.words))
	pos, ok := t.find(p.key, stride)
	if !ok {
		return false
	}
	p.pos = pos
	t.read(pos, int(p.words), cell)
	return true
}

// elsewhere reads a token bucket from the table for the other kind of rate, where it is when the rate has changed.
func (sh *shard) elsewhere(p *place, cell *Cell) bool {
	p.words = 3 - p.words
	ok := sh.read(p, cell)
	p.words = 3 - p.words
	return ok
}

// move moves the token bucket of p, which is elsewhere, to where its law keeps it. It keeps what is spent.
func (sh *shard) move(p *place) {
	from, stride := &sh.tables[2-p.words], stride(3-int(p.words))
	rest := Instant(from.slots[p.pos+2])
	from.remove(p.pos, stride)
	sh.add(int(p.words), p.key, &Cell{Rest: rest})
}

// save writes back what Decide has changed. Cells that are there come first, as new ones move them.
func (s *memory) save(tx *Tx, places []place, cells []Cell, now Instant) {
	if tx.Op == Peek {
		return
	}
	for i := range places {
		p, cell := &places[i], &cells[i]
		if p.state != found {
			continue
		}
		if p.words == 0 {
			*s.shards[p.shard].logs[p.key] = *cell
		} else if cell.Rest != p.was.Rest || cell.A != p.was.A || cell.B != p.was.B {
			s.shards[p.shard].tables[p.words-1].write(p.pos, int(p.words), cell)
		}
	}
	if tx.Op == Hold || tx.Op == Reset {
		s.saveHolds(tx, places, cells, now) // which may sweep, so that cells move
		return
	}
	for i := range places {
		p, cell := &places[i], &cells[i]
		if p.state != reserved {
			continue
		}
		if cell.Rest <= now { // refused, or nothing was charged
			s.cells.Add(-1)
			continue
		}
		sh := &s.shards[p.shard]
		s.put(sh, int(p.words), p.key, cell, now)
	}
}

// put keeps the cell of a new key, for which room has been set aside. First it drops cells at rest, if that is due.
func (s *memory) put(sh *shard, words int, k key128, cell *Cell, now Instant) {
	if now >= sh.swept+sweepInterval {
		s.sweep(sh, now)
	}
	if words > 0 {
		if t := &sh.tables[words-1]; t.full() {
			if now >= sh.due {
				s.sweep(sh, now)
			}
			if t.used*4 > t.buckets*3 { // or each of the next few keys would sweep again
				t.resize(stride(words))
			}
		}
		sh.add(words, k, cell)
	} else {
		if sh.logs == nil {
			sh.logs = make(map[key128]*Cell)
		}
		log := *cell
		sh.logs[k] = &log
	}
	due := cell.Rest + s.grace
	sh.due = min(sh.due, due)
	for barren := s.barren.Load(); due < Instant(barren) && !s.barren.CompareAndSwap(barren, int64(due)); {
		barren = s.barren.Load()
	}
}

func (s *memory) saveHolds(tx *Tx, places []place, cells []Cell, now Instant) {
	for i := range places {
		c, p, cell := &tx.Charges[i], &places[i], &cells[i]
		sh := &s.shards[p.shard]
		switch {
		case c.Cell != i: // an earlier charge has the same cell
		case c.Every:
			s.holdEvery(c.Law.hash, cell.Held, now)
		case tx.Op == Reset || cell.Held <= now-s.grace:
			delete(sh.holds, p.key)
		default:
			if sh.holds == nil {
				sh.holds = make(map[key128]Instant)
			}
			if now >= sh.swept+sweepInterval {
				s.sweep(sh, now)
			}
			sh.holds[p.key] = cell.Held
		}
	}
}

// holdEvery replaces the hold of a whole limit.
func (s *memory) holdEvery(limit key128, until, now Instant) {
	s.everyMu.Lock()
	defer s.everyMu.Unlock()
	next := make(map[key128]Instant)
	if old := s.every.Load(); old != nil {
		maps.Copy(next, *old)
	}
	next[limit] = until
	maps.DeleteFunc(next, func(_ key128, until Instant) bool { return until <= now-s.grace })
	if len(next) == 0 {
		s.every.Store(nil)
		return
	}
	s.every.Store(&next)
}

// add puts a new cell into its table.
func (sh *shard) add(words int, k key128, cell *Cell) {
	t, stride := &sh.tables[words-1], stride(words)
	if t.full() {
		t.resize(stride)
	}
	pos, _ := t.find(k, stride)
	for !t.insert(k, pos, stride) {
		t.grow(t.buckets+t.buckets/8+4, stride)
		pos, _ = t.find(k, stride)
	}
	t.write(pos, words, cell)
}
