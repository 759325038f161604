package benchmarks

import (
	"math/rand/v2"
	"strconv"
	"sync"
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
