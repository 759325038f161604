package weir

import "math/bits"

// table is a flat hash table from key128 to a cell of one, two or three words, without pointers for the
// collector to follow. It is linear probing with the slots in order of their hash (Amble and Knuth,
// "Ordered hash tables", 1974): a search for a key that is not there ends as early as one for a key that is, and
// growing or dropping idle cells is one pass from left to right. The first word of a cell is its Rest.
//
// The capacity is any number and grows by a third, so that a large table is 62 to 85 % full: by a sixth, a new key took 1.3 times
// as long, as each cell was moved twice as often.
type table struct {
	slots   []uint64 // stride words a slot: hash hi (0: empty), hash lo, the cell; the last slot stays empty
	buckets int      // slots that hashes map to; the rest take what overflows at the end
	used    int
}

// stride is the words of a slot for cells of so many words.
func stride(words int) int { return 2 + words }

func (t *table) home(hi uint64) int {
	home, _ := bits.Mul64(hi, uint64(t.buckets))
	return int(home)
}

// find is the position of k, or the one at which to insert it.
func (t *table) find(k key128, stride int) (pos int, ok bool) {
	if t.buckets == 0 {
		return 0, false
	}
	pos = t.home(k.hi) * stride
	for {
		hi := t.slots[pos]
		if hi == k.hi && t.slots[pos+1] == k.lo {
			return pos, true
		}
		if hi == 0 || hi > k.hi {
			return pos, false
		}
		pos += stride
	}
}

// full reports whether the table must be rebuilt before one more insert.
func (t *table) full() bool { return t.used*100 >= t.buckets*85 }

// insert makes room for k at pos, which find gave, with a cell of zeros. It fails where the
// overflow at the end is used up.
func (t *table) insert(k key128, pos, stride int) bool {
	end := pos
	for t.slots[end] != 0 {
		end += stride
	}
	if end+stride == len(t.slots) {
		return false
	}
	copy(t.slots[pos+stride:end+stride], t.slots[pos:end])
	slot := t.slots[pos : pos+stride]
	clear(slot)
	slot[0], slot[1] = k.hi, k.lo
	t.used++
	return true
}

// remove takes out the slot at pos and moves back those behind it that are not at home.
func (t *table) remove(pos, stride int) {
	end := pos + stride
	for t.slots[end] != 0 && t.home(t.slots[end])*stride < end {
		end += stride
	}
	copy(t.slots[pos:], t.slots[pos+stride:end])
	clear(t.slots[end-stride : end])
	t.used--
}

// sweep drops the cells whose Rest is not after an instant, and reports how many they were and the earliest Rest of
// those that stay.
func (t *table) sweep(before Instant, stride int) (dropped int, earliest Instant) {
	earliest = Never
	next := 0
	for pos := 0; pos < len(t.slots); pos += stride {
		hi := t.slots[pos]
		if hi == 0 {
			continue
		}
		rest := Instant(t.slots[pos+2])
		if rest <= before {
			clear(t.slots[pos : pos+stride])
			dropped++
			continue
		}
		earliest = min(earliest, rest)
		to := max(next, t.home(hi)*stride)
		if to != pos {
			copy(t.slots[to:to+stride], t.slots[pos:pos+stride])
			clear(t.slots[pos : pos+stride])
		}
		next = to + stride
	}
	t.used -= dropped
	if t.used < t.buckets/4 && t.buckets > 64 {
		t.resize(stride)
	}
	return dropped, earliest
}

// read gives the words of the cell in the slot at pos.
func (t *table) read(pos, words int, c *Cell) {
	c.Rest = Instant(t.slots[pos+2])
	if words > 1 {
		c.A = int64(t.slots[pos+3])
	}
	if words > 2 {
		c.B = int64(t.slots[pos+4])
	}
}

// write sets the words of the cell in the slot at pos.
func (t *table) write(pos, words int, c *Cell) {
	t.slots[pos+2] = uint64(c.Rest)
	if words > 1 {
		t.slots[pos+3] = uint64(c.A)
	}
	if words > 2 {
		t.slots[pos+4] = uint64(c.B)
	}
}

// resize moves all cells into a table of which they fill 62 %.
func (t *table) resize(stride int) { t.grow(t.used*160/100+4, stride) }

// grow moves all cells into a table of so many buckets, or more if they do not fit.
func (t *table) grow(buckets, stride int) {
	for !t.move(buckets, stride) {
		buckets += buckets/4 + 4
	}
}

func (t *table) move(buckets, stride int) bool {
	n := table{slots: make([]uint64, (buckets+buckets/32+5)*stride), buckets: buckets, used: t.used}
	next, last := 0, len(n.slots)-stride
	for pos := 0; pos < len(t.slots); pos += stride {
		if t.slots[pos] == 0 {
			continue
		}
		to := max(next, n.home(t.slots[pos])*stride)
		if to >= last {
			return false
		}
		copy(n.slots[to:to+stride], t.slots[pos:pos+stride])
		next = to + stride
	}
	*t = n
	return true
}
