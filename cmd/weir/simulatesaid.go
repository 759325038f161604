package main

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/gateway"
	"github.com/weir-go/weir/traffic"
)

// sayings counts how many requests say what keys are made of. A log in the combined format has no API keys: a limit for each of them
// would seem to be one for all, and the result would be wrong without a word.
type sayings struct {
	requests, clients, users int64
	headers                  map[string]int64
}

func (s *sayings) add(e *traffic.Event) {
	s.requests++
	if e.Client != "" {
		s.clients++
	}
	if e.User != "" {
		s.users++
	}
	for i := range e.Header {
		s.headers[e.Header[i].Name]++
	}
}

// notes are about what no request says, or not all do.
func (s *sayings) notes(configs []*gateway.Config, scenario bool) (notes []string) {
	if s.requests == 0 {
		return nil
	}
	add := func(format string, args ...any) {
		if note := fmt.Sprintf(format, args...); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	source, where := "the log", "$http_… in nginx's log format, or headers in Caddy's"
	if scenario {
		source, where = "the scenario", "header of a class"
	}
	look := func(cfg *gateway.Config, charges []gateway.Charge) {
		for i := range charges {
			c := &charges[i]
			parts, _ := gateway.ParseKey(c.Key)
			for _, part := range parts {
				switch part.Kind {
				case gateway.KeyHeader:
					if s.headers[part.Header] == 0 {
						add("The limit %q counts by the header %s, which no request of %s has (%s): all are counted as one.", c.Limit, part.Header, source, where)
					}
				case gateway.KeyUser:
					if s.users == 0 {
						add("The limit %q counts by user, and no request of %s has one: all are counted as one.", c.Limit, source)
					}
				case gateway.KeyClient, gateway.KeyIP:
					if part.Kind == gateway.KeyClient && s.users == 0 && cfg.Identity != (gateway.Identity{}) {
						add("The limit %q counts by user and else by address, and no request of %s has a user: all are counted by address.", c.Limit, source)
					}
					if without := s.requests - s.clients; without > 0 {
						add("%s no client's address: the limit %q counts what has none as one client.", traffic.CountOf(without, "request has", "requests have"), c.Limit)
					}
				}
			}
			if header := c.CostHeader(); header != "" && s.headers[header] == 0 {
				add("The limit %q takes costs from the header %s, which no request of %s has (%s): each costs %d.", c.Limit, header, source, where, max(1, c.Cost))
			}
		}
	}
	for _, cfg := range configs {
		look(cfg, cfg.Defaults)
		for i := range cfg.Routes {
			look(cfg, cfg.Routes[i].Limits)
		}
	}
	return notes
}
