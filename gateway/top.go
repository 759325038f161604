package gateway

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

const (
	topShards = 8   // locks of a top
	topSlots  = 32  // keys that a shard knows in a window
	topText   = 256 // bytes of a key's text that are kept
)

// topWindow is how long a window of a top is: what is shown is of this and the last one.
const topWindow = 5 * time.Minute

// top finds the keys that make up most of a stream, in bounded memory: the space-saving algorithm of Metwally, Agrawal
// and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT 2005), with weights. It
// counts topSlots keys; another one takes the place of the smallest and starts with its count, which it may owe to others.
//
// For a shard that has been given W in a window: no count is too small; none is too large by more than its Over, which is at most
// W/topSlots; and every key that has more than W/topSlots is there. Keys are spread over topShards shards by a keyed hash, so that W is
// about an eighth of the whole, and nobody outside can choose a key's shard. Two windows are added up when they are
// read, and with them their bounds. Each shard is 1.5 KiB a window, and up to topText bytes for each key.
//
// Keys are told apart by 64 bits of that hash: that two of n keys are taken for one has a chance of n²/2⁶⁵.
//
// The zero top is ready and safe for concurrent use. Nobody waits to be counted: who finds the shard busy is not, and that is
// counted, in missed. The bounds hold for what was counted.
type top struct {
	shards [topShards]topShard
	missed atomic.Int64
}

type topShard struct {
	mu        sync.Mutex
	now, last *sketch  // nil: nothing yet
	_         [40]byte // shards do not share cache lines
}

// sketch is one window of one shard. What is looked through for each key is kept together.
type sketch struct {
	n     int
	hash  [topSlots]uint64
	count [topSlots]int64
	over  [topSlots]int64
	text  [topSlots]topKey
}

// topKey is the text of a key. The bytes are those of the slot, used again for the next key.
type topKey struct {
	text []byte
	cut  bool // there was more of it
}

// add counts a weight for a key, in a time that does not depend on what was counted before. It allocates only while new slots are used.
func (t *top) add(key string, weight int64) {
	if weight <= 0 {
		return
	}
	hash := hashOf(key)
	s := &t.shards[hash%topShards]
	if !s.mu.TryLock() {
		t.missed.Add(1)
		return
	}
	if s.now == nil {
		s.now = new(sketch)
	}
	s.now.add(hash, key, weight)
	s.mu.Unlock()
}

func (s *sketch) add(hash uint64, key string, weight int64) {
	for i := range s.n {
		if s.hash[i] == hash {
			s.count[i] = sum(s.count[i], weight)
			return
		}
	}
	var i int
	if s.n < topSlots {
		i = s.n
		s.n++
	} else {
		i = s.least()
		s.over[i] = s.count[i]
	}
	s.hash[i] = hash
	s.count[i] = sum(s.count[i], weight)
	k := &s.text[i]
	k.text = append(k.text[:0], key[:min(len(key), topText)]...)
	k.cut = len(key) > topText
}

// least is the slot with the smallest count.
func (s *sketch) least() int {
	least := 0
	for i, n := range s.count[:s.n] {
		if n < s.count[least] {
			least = i
		}
	}
	return least
}

// most is what a key that s does not know may have had at most.
func (s *sketch) most() int64 {
	if s == nil || s.n < topSlots {
		return 0
	}
	return s.count[s.least()]
}

// sum is a+b, neither negative, or the largest number.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// turn begins a window. What was counted in the last but one is forgotten.
func (t *top) turn() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.now, s.last = s.last, s.now
		if s.now != nil {
			for j := range s.now.n { // the bytes of the texts stay
				s.now.count[j], s.now.over[j] = 0, 0
			}
			s.now.n = 0
		}
		s.mu.Unlock()
	}
}

// topEntry is a key and what it had: no more than Count, and no less than Count − Over.
type topEntry struct {
	Hash        uint64
	Key         string
	Cut         bool // Key is only the beginning
	Count, Over int64
}

// list is the n keys with the largest counts, the largest first; those with the same count are in the order of their hashes.
func (t *top) list(n int) []topEntry {
	var all []topEntry
	for i := range t.shards {
		all = t.shards[i].list(all)
	}
	slices.SortFunc(all, func(a, b topEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Hash, b.Hash))
	})
	return all[:min(n, len(all))]
}

func (s *topShard) list(all []topEntry) []topEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := len(all)
	for _, w := range [...]*sketch{s.now, s.last} {
		if w == nil {
			continue
		}
		other := s.last
		if w == s.last {
			other = s.now
		}
		unknown := other.most()
		for i := range w.n {
			if w == s.last && slices.ContainsFunc(all[known:], func(e topEntry) bool { return e.Hash == w.hash[i] }) {
				continue // in both
			}
			e := topEntry{w.hash[i], string(w.text[i].text), w.text[i].cut, sum(w.count[i], unknown), sum(w.over[i], unknown)}
			if j := other.find(w.hash[i]); j >= 0 {
				e.Count, e.Over = sum(w.count[i], other.count[j]), sum(w.over[i], other.over[j])
			}
			all = append(all, e)
		}
	}
	return all
}

func (s *sketch) find(hash uint64) int {
	if s == nil {
		return -1
	}
	return slices.Index(s.hash[:s.n], hash)
}

// find is the key of a hash, if it is among those counted and all of its text is known.
func (t *top) find(hash uint64) (key string, ok bool) {
	s := &t.shards[hash%topShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range [...]*sketch{s.now, s.last} {
		if i := w.find(hash); i >= 0 && !w.text[i].cut {
			return string(w.text[i].text), true
		}
	}
	return "", false
}

// heat is which keys of a limit have used the most units, and which were refused most often.
type heat struct{ use, refusals top }

// count notes what the limit said to the request of a charge, as tally does.
func (h *heat) count(o *weir.Outcome, c *weir.Charge, allowed bool) {
	switch {
	case o.Refused():
		h.refusals.add(c.Key, 1)
	case allowed:
		h.use.add(c.Key, c.Cost)
	}
}
