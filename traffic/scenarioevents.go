package traffic

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Where clients come from: networks that are set aside for measurements and examples, so that nobody's are meant.
const (
	OfficeClient  = "203.0.113.1"
	RunawayClient = "203.0.113.66"
)

const (
	defaultClients = 1000
	defaultPeople  = 200
	mostClients    = 1 << 20
)

// Events are the requests of the scenario in the order of time, from [Scenario.Begin] on: independent of each other, about as many as
// its profiles say, and the same ones each time. The scenario must be valid.
func (s *Scenario) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		streams := make([]iter.Seq[time.Duration], len(s.Classes), len(s.Classes)+1)
		for i := range s.Classes {
			streams[i] = s.Profile(i).Poisson(s.Seed<<8 + uint64(i))
		}
		if r := s.Clients.Runaway; r != nil {
			streams = append(streams, s.runaway(r).Even())
		}
		var (
			begin   = s.Begin()
			random  = rand.New(rand.NewPCG(s.Seed, 1))
			clients = s.Clients.compile(s.Seed)
			classes = make([]request, len(s.Classes))
		)
		for i := range classes {
			classes[i] = s.Classes[i].compile()
		}
		for i, at := range Merge(streams...) {
			var e Event
			if i < len(classes) {
				e = classes[i].event(random)
				e.Client, e.User = clients.pick(random)
			} else {
				class := max(0, slices.IndexFunc(s.Classes, func(c Class) bool { return c.Name == s.Clients.Runaway.Class }))
				e = classes[class].event(random)
				e.Client = RunawayClient
			}
			e.At = begin.Add(at)
			if !yield(e) {
				return
			}
		}
	}
}

func (s *Scenario) runaway(r *Runaway) Profile {
	end := s.Duration
	if r.For > 0 {
		end = min(end, r.At+r.For)
	}
	rate := perSecond(r.Rate)
	return Profile{{r.At, rate}, {max(r.At, end), rate}}
}

// Total is about how many requests the scenario has, with those of the runaway.
func (s *Scenario) Total() float64 {
	var sum float64
	for i := range s.Classes {
		sum += s.Profile(i).Total()
	}
	if r := s.Clients.Runaway; r != nil {
		sum += s.runaway(r).Total()
	}
	return sum
}

// PeakRate is the most requests a second that the scenario expects at any time, with those of the runaway.
func (s *Scenario) PeakRate() float64 {
	all := make([]Profile, 0, len(s.Classes)+1)
	for i := range s.Classes {
		all = append(all, s.Profile(i))
	}
	if r := s.Clients.Runaway; r != nil {
		all = append(all, s.runaway(r))
	}
	var peak float64
	for _, p := range all { // the sum is largest at a corner of one of them
		for _, corner := range p {
			for _, at := range []time.Duration{corner.At - 1, corner.At} { // at a step both sides count
				sum := 0.0
				for _, q := range all {
					sum += q.Rate(at)
				}
				peak = max(peak, sum)
			}
		}
	}
	return peak
}

// request is a Class, ready to make events of.
type request struct {
	class, method, host string
	path                []string // what stands around the placeholders
	header              []Field
}

func (c *Class) compile() request {
	r := request{class: c.Name, method: c.Method(), host: c.Host}
	rest := c.Path()
	for {
		open := strings.IndexByte(rest, '{')
		end := strings.IndexByte(rest, '}')
		if open < 0 || end < open {
			break
		}
		r.path = append(r.path, rest[:open])
		rest = rest[end+1:]
	}
	r.path = append(r.path, rest)
	for name, value := range c.Header {
		r.header = append(r.header, Field{http.CanonicalHeaderKey(name), value})
	}
	slices.SortFunc(r.header, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

func (r *request) event(random *rand.Rand) Event {
	path := r.path[0]
	for _, more := range r.path[1:] {
		path += strconv.Itoa(1+random.IntN(1000)) + more
	}
	return Event{Method: r.method, Host: r.host, Path: path, Header: r.header, Class: r.class}
}

// crowd is Clients, ready to pick from.
type crowd struct {
	conf   *Clients
	names  []string  // addresses
	sums   []float64 // of the weights, up to each client
	signed []bool    // who signs in
	people []bool    // the same of the office
}

func (c *Clients) compile(seed uint64) *crowd {
	random := rand.New(rand.NewPCG(seed, 2))
	n := cmp.Or(c.Count, defaultClients)
	out := &crowd{conf: c, names: make([]string, n), sums: make([]float64, n), signed: make([]bool, n)}
	sum := 0.0
	for k := range n {
		sum += math.Pow(float64(k+1), -c.Zipf)
		out.sums[k] = sum
		out.names[k] = clientAddress(k).String()
		out.signed[k] = random.Float64() < float64(c.Users)
	}
	if c.Office != nil {
		out.people = make([]bool, cmp.Or(c.Office.People, defaultPeople))
		for k := range out.people {
			out.people[k] = random.Float64() < float64(c.Users)
		}
	}
	return out
}

// clientAddress is the address of client k: in 198.18.0.0/15, and where that is full in 240.0.0.0/4.
func clientAddress(k int) netip.Addr {
	base := uint32(198)<<24 | 18<<16
	if k >= 1<<17 {
		base, k = 240<<24, k-1<<17
	}
	a := base + uint32(k)
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// pick is whom one request comes from.
func (c *crowd) pick(random *rand.Rand) (client, user string) {
	if o := c.conf.Office; o != nil && random.Float64() < float64(o.Share) {
		k := random.IntN(len(c.people))
		if c.people[k] {
			user = fmt.Sprintf("office-%d", k+1)
		}
		return OfficeClient, user
	}
	x := random.Float64() * c.sums[len(c.sums)-1]
	k := min(sort.SearchFloat64s(c.sums, x), len(c.sums)-1)
	if c.signed[k] {
		user = "user-" + strconv.Itoa(k+1)
	}
	return c.names[k], user
}
