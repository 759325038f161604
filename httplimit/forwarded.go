package httplimit

import (
	"net/netip"
	"strings"
)

// lastElement splits off the last element of a comma-separated list, looking at no more than the last most+1
// bytes. Where quoted is set, commas inside quoted strings do not count. It reads from the right, so that nothing
// further left, which the client may have written, can change where the elements of the proxies begin: an open quote, say.
func lastElement(list string, most int, quoted bool) (last, rest string, more bool) {
	inside := false
	for i := len(list) - 1; i >= 0 && len(list)-i <= most+1; i-- {
		switch list[i] {
		case '"':
			if quoted && !(inside && escaped(list[:i])) {
				inside = !inside
			}
		case ',':
			if !inside {
				return list[i+1:], list[:i], true
			}
		}
	}
	return list, "", false
}

// escaped reports whether s ends in an odd number of backslashes.
func escaped(s string) bool {
	n := len(s)
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (len(s)-n)%2 == 1
}

// parseForwarded is the address in the for parameter of one element of a Forwarded header (RFC 7239, section 4). It fails
// if the element is malformed, has no for or has two, or if the node is not an address ("unknown", "_hidden").
func parseForwarded(s string) (addr netip.Addr, ok bool) {
	seen := false
	for s != "" {
		if s = strings.TrimLeft(s, " \t"); s == "" {
			break
		}
		if s[0] == ';' {
			s = s[1:]
			continue
		}
		name, value, rest, good := forwardedPair(s)
		if !good {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return netip.Addr{}, false
			}
			seen = true
			if addr, ok = parseNode(value); !ok {
				return netip.Addr{}, false
			}
		}
		s = rest
	}
	return addr, ok
}

// forwardedPair reads name=value up to the next semicolon. A quoted value keeps its quotes off and its escapes in: no address
// has any.
func forwardedPair(s string) (name, value, rest string, ok bool) {
	eq := strings.IndexByte(s, '=')
	if eq < 0 || !isToken(s[:eq]) {
		return "", "", "", false
	}
	name, s = s[:eq], s[eq+1:]
	if strings.HasPrefix(s, `"`) {
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return "", "", "", false
		}
		value, rest = s[1:end], s[end+1:]
	} else {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		value, rest = s[:end], s[end:]
		if !isToken(value) {
			return "", "", "", false
		}
	}
	rest = strings.TrimLeft(rest, " \t")
	return name, value, rest, rest == "" || rest[0] == ';'
}

// parseNode reads a node of RFC 7239, section 6: an IPv4 address or an IPv6 address in brackets, and a port, which may be
// a hidden one.
func parseNode(s string) (netip.Addr, bool) {
	if i := strings.LastIndex(s, ":_"); i >= 0 {
		for j := i + 2; j < len(s); j++ {
			if !isAlnum(s[j]) && s[j] != '.' && s[j] != '_' && s[j] != '-' {
				return netip.Addr{}, false
			}
		}
		if i+2 == len(s) {
			return netip.Addr{}, false
		}
		s = s[:i]
	}
	if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
		return netip.Addr{}, false
	}
	return parseHop(s)
}

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
