package benchmarks

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"unsafe"
)

// Million is how many keys the large rows have.
const Million = 1_000_000

// Keys are n keys such as services have, "user:" and a number.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(10_000_000+i)
	}
	return keys
}

var millionKeys = sync.OnceValue(func() []string { return Keys(Million) })

// fresh makes key i of Keys in memory that is at hand, as that of a request is: fetching it from a list of a million
// would be a good part of what is measured, and more so for the store with the shortest way through the processor. The key
// is good until the next one is made; no store keeps a key that it already has.
type fresh [13]byte

func (f *fresh) key(i uint32) string {
	copy(f[:], "user:")
	n := 10_000_000 + i
	for at := len(f) - 1; at >= len("user:"); at-- {
		f[at] = byte('0' + n%10)
		n /= 10
	}
	return unsafe.String(&f[0], len(f))
}

// order is in which keys are asked for: 2^21 places, so that the list itself stays a small part of the cost.
func order(dist string) []uint32 {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.07, 1, Million-1)
	at := make([]uint32, 1<<21)
	for i := range at {
		if dist == "zipf" {
			at[i] = uint32(zipf.Uint64() * 7919 % Million) // the frequent ones apart
		} else {
			at[i] = rng.Uint32N(Million)
		}
	}
	return at
}

var orders = map[string]func() []uint32{
	"uniform": sync.OnceValue(func() []uint32 { return order("uniform") }),
	"zipf":    sync.OnceValue(func() []uint32 { return order("zipf") }),
}
