package gateway

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
)

// charges checks the charges of a route, or the defaults.
func (k *checker) charges(field string, charges []Charge) {
	for i := range charges {
		c, at := &charges[i], strictyaml.Item(field, i)
		limit := k.named(at, c)
		if _, err := ParseKey(c.Key); err != nil {
			k.add(at+".key", "%v", err)
		}
		if _, err := parseCostFrom(c.CostFrom); err != nil {
			k.add(at+".cost_from", "%v", err)
		}
		if c.Priority < weir.Low || c.Priority > weir.High {
			k.add(at+".priority", "%v is none of low, normal, high", c.Priority)
		} else if limit != nil {
			k.cost(at, c, limit)
		}
		for j, status := range c.Only {
			if status != http.StatusSwitchingProtocols && (status < 200 || status > 599) {
				k.add(strictyaml.Item(at+".only", j), "%d is no status of an answer; it takes 101, or 200 to 599", status)
			}
		}
	}
}

// named is the limit that a charge names, or nil.
func (k *checker) named(at string, c *Charge) *weir.Limit {
	if c.Limit == "" {
		k.add(at+".limit", "no name; it takes one of %s", words.List(k.c.limitNames()))
		return nil
	}
	if l := k.c.Limit(c.Limit); l != nil {
		return l
	}
	if !k.anyBroken("limits") {
		k.add(at+".limit", "no limit is called %s; %s", words.Quoted(c.Limit), known(c.Limit, k.c.limitNames()))
	}
	return nil
}

func known(written string, names []string) string {
	if near := words.Nearest(written, names); near != "" {
		return "did you mean " + near + "?"
	}
	if len(names) == 0 {
		return "there are none"
	}
	return "there are " + words.List(names)
}

// cost refuses what no wait could ever admit.
func (k *checker) cost(at string, c *Charge, l *weir.Limit) {
	switch {
	case c.Cost < 0:
		k.add(at+".cost", "%d; it takes 1 or more, or 0 for 1", c.Cost)
	case c.Cost > math.MaxInt32:
		k.add(at+".cost", "%d; it takes up to %d", c.Cost, math.MaxInt32)
	case c.Shadow || l.Shadow || l.Rate.Units == 0 || l.Validate() != nil: // the limit is said to be wrong already, or refuses nobody
	case c.units() > spendable(l, c.Priority):
		what := "a burst"
		switch l.Algorithm {
		case weir.TokenBucket, weir.GCRA, weir.LeakyBucket:
		default:
			what = "a rate"
		}
		k.add(at+".cost", "%d units, where limit %s has at most %d at once for priority %v, so that nothing would ever pass; give the limit %s of %d or more",
			c.units(), words.Quoted(l.Name), spendable(l, c.Priority), c.Priority, what, c.units()+l.Capacity()-spendable(l, c.Priority))
	}
}

// units is the cost, with its default.
func (c *Charge) units() int64 {
	if c.Cost == 0 {
		return 1
	}
	return c.Cost
}

// spendable is how many units of a limit a priority can have at once.
func spendable(l *weir.Limit, p weir.Priority) int64 {
	return l.Capacity() - l.Headroom*int64(weir.High-p)
}

// Limit is the limit of a name, or nil.
func (c *Config) Limit(name string) *weir.Limit {
	for _, l := range c.Limits {
		if l != nil && l.Name == name {
			return &l.Limit
		}
	}
	return nil
}

func (c *Config) limitNames() []string {
	var names []string
	for _, l := range c.Limits {
		if l != nil && l.Name != "" {
			names = append(names, l.Name)
		}
	}
	return names
}

func (k *checker) routes() {
	if len(k.c.Routes) == 0 {
		k.add("routes", "none, so that everything would get 404; give one, as - pattern: /")
	}
	mux := http.NewServeMux()
	var registered []int
	for i, r := range k.c.Routes {
		field := strictyaml.Item("routes", i)
		if r == nil {
			k.add(field, "nothing in it; it takes at least pattern")
			continue
		}
		if why := register(mux, r.Pattern); why == "" {
			registered = append(registered, i)
		} else {
			k.add(field+".pattern", "%s", k.conflict(r.Pattern, why, registered))
		}
		k.routeUpstream(field, r)
		k.charges(field+".limits", r.Limits)
		together := append(slices.Clone(k.c.Defaults), r.Limits...)
		k.splitRoute(field+".limits", together)
		k.slots(field+".limits", together)
		if q := r.Queue; q != nil {
			k.positive(field+".queue.wait", q.Wait)
			k.count(field+".queue.length", q.Length)
		}
	}
}

func (k *checker) routeUpstream(field string, r *Route) {
	names := sortedKeys(k.c.Upstreams)
	if k.anyBroken("upstreams") || len(names) == 0 {
		return
	}
	if r.Upstream == "" {
		if len(names) > 1 {
			k.add(field+".upstream", "no name, where there is more than one upstream; it takes one of %s", words.List(names))
		}
	} else if _, ok := k.c.Upstreams[r.Upstream]; !ok {
		k.add(field+".upstream", "no upstream is called %s; %s", words.Quoted(r.Upstream), known(r.Upstream, names))
	}
}

// register puts a pattern into a mux, and says why it does not go in, or "". The mux panics on such patterns: there is no other way
// to ask it.
func register(mux *http.ServeMux, pattern string) (why string) {
	pattern = matchable(pattern)
	if pattern == "" {
		return `no pattern; the form is that of Go's net/http, as "/", "GET /orders/{id}" or "example.com/"`
	}
	defer func() {
		if r := recover(); r != nil {
			why = fmt.Sprint(r)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return ""
}

// conflict turns the mux's words into ours: without places in our source code, and with the other route's name.
func (k *checker) conflict(pattern, why string, registered []int) string {
	if pattern == "" {
		return why
	}
	if text, ok := strings.CutPrefix(why, "parsing "+strconv.Quote(matchable(pattern))+": "); ok {
		return fmt.Sprintf(`%s: %s; the form is that of Go's net/http, as "/", "GET /orders/{id}" or "example.com/"`, words.Quoted(pattern), text)
	}
	for _, i := range registered {
		mux := http.NewServeMux()
		other := k.c.Routes[i].Pattern
		register(mux, other)
		text := register(mux, pattern)
		if text == "" {
			continue
		}
		if matchable(other) == matchable(pattern) {
			return fmt.Sprintf("%s is the pattern of %s too", words.Quoted(pattern), strictyaml.Item("routes", i))
		}
		_, detail, _ := strings.Cut(text, "\n")
		detail, more, _ := strings.Cut(detail, ".\n")
		if strings.Contains(more, "neither is more specific") {
			detail += ", and neither is more specific"
		}
		return fmt.Sprintf("%s conflicts with %s of %s: %s", words.Quoted(pattern), words.Quoted(other), strictyaml.Item("routes", i), strings.TrimSuffix(words.OneLine(detail), "."))
	}
	return fmt.Sprintf("%s: %s", words.Quoted(pattern), words.OneLine(why))
}
