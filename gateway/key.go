package gateway

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/weir-go/weir/internal/words"
)

// KeyKind is one thing that the units of a limit can belong to.
type KeyKind string

const (
	KeyClient KeyKind = "client" // the verified user, else the client's address
	KeyUser   KeyKind = "user"   // the verified user; all that have none share
	KeyIP     KeyKind = "ip"     // the client's address
	KeyRoute  KeyKind = "route"  // the route's pattern
	KeyGlobal KeyKind = "global" // everybody together
	KeyHeader KeyKind = "header" // the value of a header; all that have none share
)

// KeyPart is a part of a key. A key of several parts is one for each combination of their values.
type KeyPart struct {
	Kind   KeyKind
	Header string // of KeyHeader, in canonical form
}

const keyForm = "the form is client, user, ip, route, global or header:NAME, or several joined by +"

// ParseKey reads the text of a key: "client", "ip+route", "header:X-Tenant". The empty text is client.
func ParseKey(text string) ([]KeyPart, error) {
	if text == "" {
		return []KeyPart{{Kind: KeyClient}}, nil
	}
	var parts []KeyPart
	for s := range strings.SplitSeq(text, "+") {
		part := KeyPart{Kind: KeyKind(s)}
		if name, ok := strings.CutPrefix(s, "header:"); ok {
			if !isToken(name) {
				return nil, fmt.Errorf("%s: %s is no header name; %s", words.Quoted(text), words.Quoted(name), keyForm)
			}
			part = KeyPart{Kind: KeyHeader, Header: textproto.CanonicalMIMEHeaderKey(name)}
		}
		switch part.Kind {
		case KeyClient, KeyUser, KeyIP, KeyRoute, KeyGlobal, KeyHeader:
		default:
			return nil, fmt.Errorf("%s: %s is no key; %s", words.Quoted(text), words.Quoted(s), keyForm)
		}
		for _, p := range parts {
			if p == part {
				return nil, fmt.Errorf("%s: %s twice; %s", words.Quoted(text), s, keyForm)
			}
			if p.Kind == KeyGlobal || part.Kind == KeyGlobal {
				return nil, fmt.Errorf("%s: global is everybody together, and goes with nothing else; %s", words.Quoted(text), keyForm)
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// parseCostFrom reads header:NAME; the empty text is no header.
func parseCostFrom(text string) (header string, err error) {
	if text == "" {
		return "", nil
	}
	name, ok := strings.CutPrefix(text, "header:")
	if !ok || !isToken(name) {
		return "", fmt.Errorf("%s; the form is header:NAME", words.Quoted(text))
	}
	return textproto.CanonicalMIMEHeaderKey(name), nil
}

// CostHeader is the header of CostFrom in canonical form, or "" if there is none.
func (c *Charge) CostHeader() string {
	header, _ := parseCostFrom(c.CostFrom)
	return header
}

// isToken reports whether name can be the name of a header (RFC 9110, section 5.6.2), of a sensible length.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return name != "" && len(name) <= 256
}
