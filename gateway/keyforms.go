package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/words"
)

// keyUse is a place where a limit is charged: its key there, and the route's name.
type keyUse struct {
	parts []KeyPart
	route string
}

// keyUses are the places where the configuration charges a limit.
func (c *Config) keyUses(limit string) []keyUse {
	var uses []keyUse
	add := func(charges []Charge, route string) {
		for i := range charges {
			if charges[i].Limit == limit {
				parts, _ := ParseKey(charges[i].Key) // Validate has
				uses = append(uses, keyUse{parts, route})
			}
		}
	}
	add(c.Defaults, noRoute)
	for _, r := range c.Routes {
		if !r.Exempt {
			add(c.Defaults, r.Pattern)
		}
		add(r.Limits, r.Pattern)
	}
	return uses
}

// keyFault says why no request has this key of a limit, which then limits nobody, and which key may have been meant; or "". Of a limit that
// nothing charges every key is as good as any other.
func (c *Config) keyFault(limit, key string) string {
	const most = 8
	var forms []string
	var meant string
	for _, use := range c.keyUses(limit) {
		if c.keyFits(use, key) {
			return ""
		}
		for _, form := range c.keyForms(use) {
			if !slices.Contains(forms, form) {
				forms = append(forms, form)
			}
		}
		if meant == "" {
			meant = c.keyMeant(use, key)
		}
	}
	if len(forms) == 0 {
		return ""
	}
	fault := fmt.Sprintf("keys of limit %s %s", words.Quoted(limit), forms[0])
	for i, form := range forms[1:] {
		if i == most { // a key a route
			fault += fmt.Sprintf(" or %d more", len(forms)-1-i)
			break
		}
		if strings.HasPrefix(forms[i], beginning) {
			form = strings.TrimPrefix(form, beginning)
		}
		fault += " or " + form
	}
	switch address, isIP := strings.CutPrefix(key, "ip:"); {
	case meant != "":
		fault += "; did you mean " + strconv.Quote(meant) + "?"
	case isIP && slices.Contains(forms, beginWith("ip:")):
		fault += " and an address, and " + words.Quoted(address) + " is none"
	}
	return fault
}

// keyFits reports whether a request can have this key.
func (c *Config) keyFits(use keyUse, key string) bool {
	if len(use.parts) == 1 {
		return c.partFits(use.parts[0], use.route, key)
	}
	for _, p := range use.parts { // as keyOf writes them
		digits, rest, ok := strings.Cut(key, ":")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 || n > len(rest) || !c.partFits(p, use.route, rest[:n]) {
			return false
		}
		key = rest[n:]
	}
	return key == ""
}

func (c *Config) partFits(p KeyPart, route, key string) bool {
	user, isUser := strings.CutPrefix(key, "user:")
	isUser = isUser && badUser(user) == "" && c.Identity.any()
	address, isIP := strings.CutPrefix(key, "ip:")
	isIP = isIP && c.Clients.keyOf(address) == key || key == "" && c.onUnix()
	switch p.Kind {
	case KeyClient:
		return isUser || isIP
	case KeyUser:
		return isUser || key == ""
	case KeyIP:
		return isIP
	case KeyRoute:
		return key == "route:"+route
	case KeyHeader: // a long value is a hash, after "="
		return key == "" || strings.HasPrefix(key, "header:"+p.Header+":") || strings.HasPrefix(key, "header:"+p.Header+"=")
	}
	return key == "" // global
}

// onUnix reports whether requests can come from peers without an address.
func (c *Config) onUnix() bool {
	return slices.ContainsFunc(c.Listen, func(l Listener) bool { return strings.HasPrefix(l.Address, "unix:") })
}

// any reports whether users are known at all.
func (id *Identity) any() bool { return id.APIKeys != nil || id.JWT != nil || id.Header != nil }

const beginning = "begin with "

func beginWith(s string) string { return beginning + strconv.Quote(s) }

// keyForms say what keys look like, after "keys of the limit".
func (c *Config) keyForms(use keyUse) []string {
	if len(use.parts) > 1 {
		kinds, example := make([]string, len(use.parts)), ""
		for i, p := range use.parts {
			kinds[i] = string(p.Kind)
			part := map[KeyKind]string{KeyRoute: "route:" + use.route, KeyUser: "user:42", KeyHeader: "header:" + p.Header + ":x"}[p.Kind]
			if part == "" {
				part = "ip:203.0.113.7"
			}
			example += strconv.Itoa(len(part)) + ":" + part
		}
		return []string{fmt.Sprintf("are those of %s, each with its length in front, as %s", words.List(kinds), strconv.Quote(example))}
	}
	switch p := use.parts[0]; p.Kind {
	case KeyClient:
		if c.Identity.any() {
			return []string{beginWith("user:"), beginWith("ip:")}
		}
		return []string{beginWith("ip:")}
	case KeyUser:
		return []string{beginWith("user:")}
	case KeyIP:
		return []string{beginWith("ip:")}
	case KeyRoute:
		return []string{"are " + strconv.Quote("route:"+use.route)}
	case KeyHeader:
		return []string{beginWith("header:" + p.Header + ":")}
	}
	return []string{"are one, the empty one"}
}

// keyMeant is the key that somebody meant who left out its beginning, or gave an address in another form; or "".
func (c *Config) keyMeant(use keyUse, written string) string {
	if len(use.parts) > 1 || written == "" {
		return ""
	}
	address, isIP := strings.CutPrefix(written, "ip:")
	p, try := use.parts[0], []string{"user:" + written, "route:" + written}
	if byAddress := c.Clients.keyOf(address); byAddress != "" {
		try = append([]string{byAddress}, try...)
	}
	if p.Kind == KeyHeader {
		try = []string{"header:" + p.Header + ":" + written}
	}
	for _, key := range try {
		if len(key) < 100 && c.partFits(p, use.route, key) && (!isIP || strings.HasPrefix(key, "ip:")) {
			return key
		}
	}
	return ""
}

// keyOf is the key of a client with this address, or network; or "".
func (c *Clients) keyOf(address string) string {
	addr, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		prefix, err := netip.ParsePrefix(address)
		if err != nil {
			return ""
		}
		addr = prefix.Addr()
	}
	from := httplimit.ClientIP{IPv6Prefix: c.IPv6Prefix}
	return from.Key(&http.Request{RemoteAddr: netip.AddrPortFrom(addr, 1).String()})
}
