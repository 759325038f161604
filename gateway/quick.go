package gateway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/words"
)

// quickUpstream is the name of the upstream of a Quick configuration.
const quickUpstream = "upstream"

// Quick is the configuration of a proxy in one line: every request goes to the upstream, a URL, and is charged on every
// limit, in the text form of [ParseLimit]. An empty listen is the default. The error is a [*ConfigError].
func Quick(upstream string, limits []string, listen string) (*Config, error) {
	c := &Config{Upstreams: map[string]*Upstream{quickUpstream: {URL: upstream}}}
	route := &Route{Pattern: "/", Upstream: quickUpstream}
	var ps problems
	if listen != "" {
		c.Listen = []Listener{{Address: listen}}
		if why := badAddress(listen); why != "" {
			ps = append(ps, Problem{Field: "--listen", Text: why})
		}
	}
	if why := badURL(upstream); why != "" {
		ps = append(ps, Problem{Field: "--upstream", Text: why})
	}
	for _, text := range limits {
		l, key, err := ParseLimit(text)
		switch {
		case err != nil:
			ps = append(ps, Problem{Field: "--limit", Text: err.Error(), Err: err})
		case c.Limit(l.Name) != nil:
			ps = append(ps, Problem{Field: "--limit", Text: fmt.Sprintf("%s: a second limit called %s", words.Quoted(text), words.Quoted(l.Name))})
		default:
			c.Limits = append(c.Limits, &Limit{Limit: *l})
			route.Limits = append(route.Limits, Charge{Limit: l.Name, Key: key})
		}
	}
	c.Routes = []*Route{route}
	if len(ps) == 0 {
		ps = c.check()
	}
	if err := ps.err(); err != nil {
		return nil, err
	}
	return c, nil
}

const limitForm = "the form is name=rate [burst=N] [algorithm=A] [headroom=N] [key=K] [shadow], as client=100/m burst=20"

// ParseLimit reads a limit in one line, and what it is charged on:
//
//	name=rate [burst=N] [algorithm=A] [headroom=N] [key=K] [shadow]
//
// Without a key, a limit called global has the key global, and any other the key client.
func ParseLimit(text string) (l *weir.Limit, key string, err error) {
	fail := func(format string, args ...any) (*weir.Limit, string, error) {
		return nil, "", fmt.Errorf("%s: %s; %s", words.Quoted(text), fmt.Sprintf(format, args...), limitForm)
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return fail("no limit")
	}
	name, rate, ok := strings.Cut(fields[0], "=")
	if !ok {
		return fail("%s is not name=rate", words.Quoted(fields[0]))
	}
	l = &weir.Limit{Name: name}
	if err := l.Rate.UnmarshalText([]byte(rate)); err != nil {
		return nil, "", fmt.Errorf("%s: %s", words.Quoted(text), words.Fact(err, "rate"))
	}
	given := map[string]bool{}
	for _, word := range fields[1:] {
		option, value, hasValue := strings.Cut(word, "=")
		if given[option] {
			return fail("%s twice", words.Quoted(option))
		}
		given[option] = true
		switch option {
		case "burst", "headroom":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 || strconv.FormatInt(n, 10) != value {
				return fail("%s is no whole number", words.Quoted(word))
			}
			if option == "burst" {
				l.Burst = n
			} else {
				l.Headroom = n
			}
		case "algorithm":
			if err := l.Algorithm.UnmarshalText([]byte(value)); err != nil || value == "" {
				return fail("%s is none of token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-log, concurrency", words.Quoted(value))
			}
		case "key":
			if _, err := ParseKey(value); err != nil || value == "" {
				return fail("key %s; %s", words.Quoted(value), keyForm)
			}
			key = value
		case "shadow":
			if hasValue {
				return fail("%s takes no value", words.Quoted(option))
			}
			l.Shadow = true
		default:
			return fail("%s is no option", words.Quoted(option))
		}
	}
	if key == "" {
		key = string(KeyClient)
		if name == "global" {
			key = string(KeyGlobal)
		}
	}
	k := &checker{c: &Config{}}
	if k.limit("limit", l); len(k.ps) > 0 {
		return fail("%s", k.ps[0].Text)
	}
	return l, key, nil
}
