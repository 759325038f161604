package traffic

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// topKeys finds the keys that are counted most, in bounded memory: the space-saving sketch (Metwally, Agrawal, El Abbadi 2005). Any
// key that makes up more than 1/size of all is in it, and no count is too low.
type topKeys struct {
	size  int
	byKey map[string]*topKey
	least leastFirst
}

type topKey struct {
	key   string
	count int64
	over  int64 // the count may be too high by up to this
	at    int   // in the heap
}

func newTopKeys(size int) *topKeys {
	return &topKeys{size: size, byKey: make(map[string]*topKey, size)}
}

func (t *topKeys) add(key string, n int64) {
	if k := t.byKey[key]; k != nil {
		k.count += n
		heap.Fix(&t.least, k.at)
		return
	}
	key = strings.Clone(key) // it may be a part of a line
	if len(t.least) < t.size {
		k := &topKey{key: key, count: n}
		t.byKey[key] = k
		heap.Push(&t.least, k)
		return
	}
	k := t.least[0]
	delete(t.byKey, k.key)
	k.key, k.over = key, k.count
	k.count += n
	t.byKey[key] = k
	heap.Fix(&t.least, 0)
}

// top are the n keys with the greatest counts.
func (t *topKeys) top(n int) []*topKey {
	all := slices.Clone(t.least)
	slices.SortFunc(all, func(a, b *topKey) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return all[:min(n, len(all))]
}

type leastFirst []*topKey

func (h leastFirst) Len() int           { return len(h) }
func (h leastFirst) Less(i, j int) bool { return h[i].count < h[j].count }
func (h leastFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *leastFirst) Push(x any) {
	k := x.(*topKey)
	k.at = len(*h)
	*h = append(*h, k)
}
func (h *leastFirst) Pop() any { panic("traffic: a sketch forgets nothing") }
