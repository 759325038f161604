package httplimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
)

// KeyFunc says who a request is from, or what it is for: all requests of one key share their units of a limit. The key names
// its kind, as "user:42" or "ip:203.0.113.9", so that no kind can pass for another. An empty key
// means that the request has no such identity.
type KeyFunc func(*http.Request) string

// longest is how long a client's own text may be inside a key; longer text is replaced by its SHA-256.
const longest = 256

// keyed is a key of a kind. The hash of a long text follows "=" where the text itself follows ":", and neither can be part
// of a kind, so that no text passes for a hash.
func keyed(kind, text string) string {
	switch {
	case text == "":
		return ""
	case len(text) > longest:
		sum := sha256.Sum256([]byte(text))
		return kind + "=" + hex.EncodeToString(sum[:])
	}
	return kind + ":" + text
}

// Global is one key for all requests, the empty one: what limit.For("") charges.
func Global(*http.Request) string { return "" }

type userKey struct{}

// WithUser is ctx with the user that the application has authenticated, for [User]. It must be set before the Handler runs.
func WithUser(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, userKey{}, id)
}

// UserFrom is the id given to WithUser, or empty.
func UserFrom(ctx context.Context) string {
	id, _ := ctx.Value(userKey{}).(string)
	return id
}

// User is the key of the authenticated user, "user:42"; empty if there is none.
func User(r *http.Request) string { return keyed("user", UserFrom(r.Context())) }

// Header is the key of a header field, "header:X-Tenant:acme"; empty if r has none. Of several lines the first counts, as
// for [http.Header.Get]. Clients write headers: use one that a proxy sets or that is verified, else everybody can
// have as many keys as they like.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	kind := "header:" + name
	return func(r *http.Request) string {
		if lines := r.Header[name]; len(lines) > 0 {
			return keyed(kind, lines[0])
		}
		return ""
	}
}

// APIKey is the key of an API key in a header field, "apikey:…"; empty if r has none. An empty header name means
// X-API-Key. The API key must have been verified before: otherwise a client makes up a fresh one for each
// request, or spends the units of others. Where it has not been, use [User], set once it is, and the client's address
// before.
func APIKey(header string) KeyFunc {
	if header == "" {
		header = "X-Api-Key"
	}
	header = http.CanonicalHeaderKey(header)
	return func(r *http.Request) string {
		if lines := r.Header[header]; len(lines) > 0 {
			return keyed("apikey", lines[0])
		}
		return ""
	}
}

// Route is the key of the pattern that an [http.ServeMux] matched, "route:POST /orders/{id}", whatever way the path
// is spelled. It is for a Handler behind the mux; in front of it, use [RouteOf]. Requests that match
// no pattern share the key "route:".
func Route(r *http.Request) string { return "route:" + r.Pattern }

// RouteOf is Route for a Handler in front of a mux, which has not matched r yet and is asked what it would match.
func RouteOf(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return "route:" + pattern
	}
}

// FirstOf is the first key that is not empty: FirstOf(User, ip.Key) limits users by name and everybody else by address.
func FirstOf(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) string {
		for _, key := range keys {
			if k := key(r); k != "" {
				return k
			}
		}
		return ""
	}
}

// Join is the key of several things at once: Join(User, Route) counts each user on each route apart. It is empty if
// one of them is. Each part is written with its length in front, so that different parts never make the same key.
func Join(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) string {
		var few [128]byte
		b := few[:0]
		for _, key := range keys {
			k := key(r)
			if k == "" {
				return ""
			}
			b = strconv.AppendInt(b, int64(len(k)), 10)
			b = append(b, ':')
			b = append(b, k...)
		}
		return string(b)
	}
}
