package weir

import (
	"math/rand/v2"
	"testing"
)

// twin is a table beside the map that it stands for.
type twin struct {
	t     *testing.T
	words int
	table table
	cells map[key128]Cell
}

// check is every invariant that the rest of the table's code relies on.
func (w *twin) check() {
	w.t.Helper()
	t, stride := &w.table, stride(w.words)
	used, before := 0, uint64(0)
	for pos := 0; pos < len(t.slots); pos += stride {
		hi := t.slots[pos]
		if hi == 0 {
			for i := pos; i < pos+stride; i++ {
				if t.slots[i] != 0 {
					w.t.Fatalf("empty slot %d has word %d set", pos/stride, i-pos)
				}
			}
			continue
		}
		used++
		if hi < before {
			w.t.Fatalf("slot %d is out of order", pos/stride)
		}
		before = hi
		for from := t.home(hi) * stride; from < pos; from += stride {
			if t.slots[from] == 0 {
				w.t.Fatalf("slot %d cannot be reached: %d is empty, and its home is %d", pos/stride, from/stride, t.home(hi))
			}
		}
		if want, ok := w.cells[key128{hi, t.slots[pos+1]}]; !ok {
			w.t.Fatalf("slot %d holds a key that was never put there, or was taken out", pos/stride)
		} else if got := w.read(pos); got.Rest != want.Rest || got.A != want.A || got.B != want.B {
			w.t.Fatalf("slot %d holds %v, want %v", pos/stride, got, want)
		}
	}
	if used != t.used || used != len(w.cells) {
		w.t.Fatalf("%d slots in use, the table counts %d, there should be %d", used, t.used, len(w.cells))
	}
	if n := len(t.slots); n > 0 && t.slots[n-stride] != 0 {
		w.t.Fatal("the last slot is in use: a search would run off the end")
	}
}

func (w *twin) read(pos int) Cell {
	c := Cell{Rest: Instant(w.table.slots[pos+2])}
	if w.words > 1 {
		c.A = int64(w.table.slots[pos+3])
	}
	if w.words > 2 {
		c.B = int64(w.table.slots[pos+4])
	}
	return c
}

func (w *twin) put(k key128, c Cell) {
	var sh shard
	sh.tables[w.words-1] = w.table
	if pos, ok := w.table.find(k, stride(w.words)); ok {
		w.table.write(pos, w.words, &c)
	} else {
		sh.add(w.words, k, &c)
		w.table = sh.tables[w.words-1]
	}
	w.cells[k] = c
}

// TestTable runs random operations on a table and on a map. Keys come from a few hashes next to each other
// as well, so that runs are long, meet, and spill over the end.
func TestTable(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := &twin{t: t, words: 1 + int(seed%3), cells: make(map[key128]Cell)}
		var known []key128
		key := func() key128 {
			if len(known) > 0 && rng.IntN(3) == 0 {
				return known[rng.IntN(len(known))]
			}
			k := key128{rng.Uint64()>>1 + 1, rng.Uint64()}
			switch rng.IntN(4) {
			case 0:
				k.hi = ^uint64(0) - rng.Uint64N(3) // the end
			case 1:
				k.hi = 1<<40 + rng.Uint64N(3)<<50
			}
			known = append(known, k)
			return k
		}
		cell := func() Cell {
			c := Cell{Rest: Instant(1 + rng.Int64N(1000)), A: rng.Int64N(9), B: rng.Int64N(9)}
			if w.words < 3 {
				c.B = 0
			}
			if w.words < 2 {
				c.A = 0
			}
			return c
		}
		for range 600 {
			switch rng.IntN(20) {
			default:
				w.put(key(), cell())
			case 0, 1, 2, 3:
				k := key()
				pos, ok := w.table.find(k, stride(w.words))
				if _, want := w.cells[k]; ok != want {
					t.Fatalf("seed %d: find says %v, the map %v", seed, ok, want)
				}
				if ok {
					w.table.remove(pos, stride(w.words))
					delete(w.cells, k)
				}
			case 4:
				w.table.resize(stride(w.words))
			case 5:
				before := Instant(rng.Int64N(900))
				earliest, dropped := Never, 0
				for k, c := range w.cells {
					if c.Rest <= before {
						delete(w.cells, k)
						dropped++
					} else {
						earliest = min(earliest, c.Rest)
					}
				}
				n, e := w.table.sweep(before, stride(w.words))
				if n != dropped || e != earliest {
					t.Fatalf("seed %d: a sweep dropped %d, the earliest left is at %d; want %d and %d", seed, n, e, dropped, earliest)
				}
			}
			w.check()
		}
	}
}
