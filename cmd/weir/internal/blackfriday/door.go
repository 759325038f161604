package blackfriday

import (
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gateway"
)

// config is the proxy that is shown: what a weir.yaml would say. Without limits it is the same proxy and path.
func (p plan) config(upstream string, limited bool) *gateway.Config {
	c := &gateway.Config{
		Clients:   gateway.Clients{TrustedProxies: []string{"127.0.0.0/8"}}, // the clients say who they are
		Upstreams: map[string]*gateway.Upstream{"shop": {URL: upstream}},
		Routes:    []*gateway.Route{{Pattern: "POST /orders"}, {Pattern: "GET /reports/"}},
	}
	if !limited {
		return c
	}
	backend, client := p.limits()
	c.Limits = gateway.Limits(backend, client)
	c.Defaults = []gateway.Charge{{Limit: client.Name, Key: "ip"}}
	c.Routes[0].Limits = []gateway.Charge{{Limit: backend.Name, Key: "global", Priority: weir.High}}
	c.Routes[1].Limits = []gateway.Charge{{Limit: backend.Name, Key: "global", Priority: weir.Low}}
	return c
}

// newDoor is the data plane of weir serve.
func newDoor(upstream string, p plan, limited bool) (http.Handler, error) {
	g, err := gateway.New(p.config(upstream, limited), gateway.Options{})
	if err != nil {
		return nil, err
	}
	return g.Handler(), nil
}
