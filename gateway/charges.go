package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Charged is what a request is charged: its route, and one charge for each of the route's limits, in the order of the configuration.
type Charged struct {
	Route   string        // the pattern as the configuration has it; "none" if it matches none
	Charges []weir.Charge // none: nothing limits it
	Wait    time.Duration // how long the route's queue lets it wait; 0: there is none

	route *route
}

// Known is what is known of a request beside what is in it: a log has no credentials.
type Known struct {
	User   string // who it is from, verified; empty: nobody signed in. It counts if the configuration knows users at all
	Client string // where RemoteAddr is no address: the client's name
}

// Charges says what the proxy would charge r, without charging it. The charges are appended to into, which may be nil. The error is
// a *httplimit.CostError if the request's header names a cost that is none: such a request is refused.
//
// What simulates a configuration gets from here exactly what requests are charged when it runs.
func (g *Gateway) Charges(r *http.Request, known Known, into []weir.Charge) (Charged, error) {
	x := exchange{g: g, site: g.site.Load(), r: r}
	x.user.found = true
	if id := &x.site.config.Identity; known.User != "" && (id.APIKeys != nil || id.JWT != nil || id.Header != nil) {
		x.user.key = "user:" + known.User
	}
	if known.Client != "" {
		if _, err := netip.ParseAddr(known.Client); err != nil {
			x.ip.found, x.ip.key = true, "ip:"+known.Client
		}
	}
	x.route = x.site.unmatched
	if r.Method != http.MethodConnect {
		x.route, _ = x.site.match(r)
	}
	x.charges = into[:0]
	err := x.charge()
	out := Charged{Route: x.route.name, Charges: x.charges, route: x.route}
	if x.route.queue != nil {
		out.Wait = x.route.queue.wait
	}
	return out, err
}

// charge fills in the charges of the route for the request of x.
func (x *exchange) charge() error {
	for i := range x.route.charges {
		c := &x.route.charges[i]
		cost, err := c.costOf(x)
		if err != nil {
			return err
		}
		x.charges = append(x.charges, weir.Charge{Limit: c.limit, Key: c.keyOf(x), Cost: cost, Priority: c.priority})
	}
	return nil
}

// Keeps reports whether charge i stays charged after an answer of this status. Of Concurrency none does.
func (c *Charged) Keeps(i, status int) bool {
	rc := &c.route.charges[i]
	return rc.limit.Algorithm != weir.Concurrency && (len(rc.only) == 0 || slices.Contains(rc.only, status))
}

// Settles reports whether any charge may be given back.
func (c *Charged) Settles() bool { return c.route.settles }

// KeyHeaders are the names of the request header fields, in canonical form, that the configuration's charges depend on.
func (c *Config) KeyHeaders() []string {
	var names []string
	add := func(charges []Charge) {
		for i := range charges {
			parts, _ := ParseKey(charges[i].Key)
			for _, p := range parts {
				names = append(names, p.Header)
			}
			names = append(names, charges[i].CostHeader())
		}
	}
	add(c.Defaults)
	for _, r := range c.Routes {
		add(r.Limits)
	}
	if len(c.Clients.TrustedProxies) > 0 {
		names = append(names, http.CanonicalHeaderKey(c.Clients.header()))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

func (c *Clients) header() string {
	if c.Header == "" {
		return "X-Forwarded-For"
	}
	return c.Header
}
