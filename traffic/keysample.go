package traffic

import "math"

// keySample counts by key, of all keys if there are up to most, else of a part of them that is chosen by their hashes: half of them, a
// quarter, and so on, so that memory is bounded and shares stay right. The choice is the same in each run.
type keySample[V any] struct {
	most  int
	kept  map[uint64]*V
	below uint64 // keys with greater hashes are left out
	part  int    // one in 2^part keys is kept
}

func newKeySample[V any](most int) *keySample[V] {
	return &keySample[V]{most: most, kept: make(map[uint64]*V), below: math.MaxUint64}
}

// of is what is kept of a key; nil if it is left out.
func (s *keySample[V]) of(hash uint64) *V {
	if hash > s.below {
		return nil
	}
	v := s.kept[hash]
	if v == nil {
		if len(s.kept) >= s.most {
			s.halve()
			return s.of(hash)
		}
		v = new(V)
		s.kept[hash] = v
	}
	return v
}

// halve leaves out half of the keys.
func (s *keySample[V]) halve() {
	s.below >>= 1
	s.part++
	for hash := range s.kept {
		if hash > s.below {
			delete(s.kept, hash)
		}
	}
}

// all is how many keys there are, exactly if none is left out.
func (s *keySample[V]) all() int64 { return int64(len(s.kept)) << s.part }

// keyHash is the same in every run. It is no secret: somebody who chooses keys may make two of them meet, which makes a report
// about them wrong and nothing else.
func keyHash(key string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= h >> 33 // its high bits are poor; MurmurHash3's last steps mix them
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
