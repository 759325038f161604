package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"

	"github.com/weir-go/weir"
)

const (
	defaultPrefix = "weir:"
	defaultSecret = "github.com/weir-go/weir/redisstore"
	mostRules     = 4096 // limits whose text is kept; a program with more of them makes it anew
)

// What a key is hashed from starts with what it stands for.
const (
	cellKey = 'c' // what one key of a limit has spent
	holdKey = 'h' // until when all keys of a limit are held
)

// namer makes the names of keys in Redis: prefix, {tag}, and 128 bits of an HMAC-SHA-256 in hexadecimal. What is
// hashed has its length in front, so that no two (algorithm, limit, key) are the same text.
type namer struct {
	prefix string
	secret []byte
	macs   sync.Pool
}

func newNamer(prefix string, secret []byte) *namer {
	n := &namer{prefix: prefix, secret: secret}
	if prefix == "" {
		n.prefix = defaultPrefix
	}
	if len(secret) == 0 {
		n.secret = []byte(defaultSecret)
	}
	n.macs.New = func() any { return hmac.New(sha256.New, n.secret) }
	return n
}

func (n *namer) name(tag string, parts ...string) string {
	mac := n.macs.Get().(hash.Hash)
	mac.Reset()
	buf := make([]byte, 0, 256)
	for _, p := range parts {
		buf = binary.AppendUvarint(buf, uint64(len(p)))
		if len(p) > cap(buf)-len(buf) {
			mac.Write(buf)
			mac.Write([]byte(p))
			buf = buf[:0]
			continue
		}
		buf = append(buf, p...)
	}
	mac.Write(buf)
	sum := mac.Sum(buf[:0])
	name := make([]byte, 0, len(n.prefix)+len(tag)+2+32)
	name = append(name, n.prefix...)
	name = append(name, '{')
	name = append(name, tag...)
	name = append(name, '}')
	name = hex.AppendEncode(name, sum[:16])
	n.macs.Put(mac)
	return string(name)
}

// rule is the text of a law, made once.
type rule struct {
	tag       string
	algorithm string
	hold      string       // the key with the hold of the whole limit
	floor     [3]string    // by priority, from Low
	law       [4][4]string // by kindBits: kind, capacity, x, y, to which a call adds where hold is among its keys
}

func (n *namer) rule(tag string, c *weir.TxCharge) *rule {
	law := c.Law
	x, y := law.N, law.P
	if law.Algorithm > weir.LeakyBucket {
		x, y = law.Window, law.Tick
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	r := &rule{
		tag:       tag,
		algorithm: law.Algorithm.String(),
		floor:     [3]string{number(2 * law.Headroom), number(law.Headroom), "0"},
	}
	r.hold = n.name(tag, string(holdKey), r.algorithm, c.Limit.Name)
	for bits := range r.law {
		r.law[bits] = [4]string{number(8*int64(law.Algorithm) + int64(bits)), number(law.Capacity), number(x), number(y)}
	}
	return r
}

// kindBits are what a charge adds to the algorithm of its law.
func kindBits(c *weir.TxCharge) (bits int) {
	if c.Every {
		bits |= 2
	}
	if c.Limit.Shadow {
		bits |= 1
	}
	return bits
}

// rules remembers the text of laws. A Law never changes, so its address stands for it.
type rules struct {
	mu sync.RWMutex
	of map[*weir.Law]*rule
}

func (rs *rules) get(c *weir.TxCharge, make func(*weir.TxCharge) *rule) *rule {
	rs.mu.RLock()
	r := rs.of[c.Law]
	rs.mu.RUnlock()
	if r != nil {
		return r
	}
	r = make(c)
	rs.mu.Lock()
	if len(rs.of) >= mostRules || rs.of == nil {
		rs.of = map[*weir.Law]*rule{}
	}
	rs.of[c.Law] = r
	rs.mu.Unlock()
	return r
}
