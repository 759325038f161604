package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	ip := ClientIP{}.Key
	none := func(*http.Request) string { return "" }
	as := func(key string) KeyFunc { return func(*http.Request) string { return key } }

	r := httptest.NewRequest("GET", "/orders/7", nil)
	r.RemoteAddr = "198.51.100.7:40000"
	r.Header.Set("X-Tenant", "acme")
	r.Header.Add("X-Tenant", "other")
	r.Header.Set("X-API-Key", "s3cret")
	r.Pattern = "GET /orders/{id}"
	user := r.WithContext(WithUser(r.Context(), "42"))

	for _, c := range []struct {
		name string
		key  KeyFunc
		r    *http.Request
		want string
	}{
		{"Global", Global, r, ""},
		{"User", User, user, "user:42"},
		{"User, none", User, r, ""},
		{"User, empty id", User, r.WithContext(WithUser(r.Context(), "")), ""},
		{"Header", Header("x-tenant"), r, "header:X-Tenant:acme"},
		{"Header, none", Header("X-Other"), r, ""},
		{"APIKey", APIKey(""), r, "apikey:s3cret"},
		{"APIKey, other header", APIKey("X-Tenant"), r, "apikey:acme"},
		{"Route", Route, r, "route:GET /orders/{id}"},
		{"Route, no match", Route, httptest.NewRequest("GET", "/", nil), "route:"},
		{"RouteOf", RouteOf(mux), httptest.NewRequest("GET", "/order%73/7", nil), "route:GET /orders/{id}"},
		{"RouteOf, absolute form", RouteOf(mux), httptest.NewRequest("GET", "http://evil.example/orders/7", nil), "route:GET /orders/{id}"},
		{"RouteOf, no match", RouteOf(mux), httptest.NewRequest("GET", "/ORDERS/7", nil), "route:"},
		{"FirstOf, user", FirstOf(User, ip), user, "user:42"},
		{"FirstOf, address", FirstOf(User, ip), r, "ip:198.51.100.7"},
		{"FirstOf, nothing", FirstOf(User, none), r, ""},
		{"Join", Join(User, Route), user, "7:user:4222:route:GET /orders/{id}"},
		{"Join, one is empty", Join(User, Route), r, ""},
		{"Join, ambiguous parts", Join(as("a"), as("b1:c")), r, "1:a4:b1:c"},
	} {
		if got := c.key(c.r); got != c.want {
			t.Errorf("%s: key %q, want %q", c.name, got, c.want)
		}
	}
}

// A client's own text can neither make a key long nor pass for another kind or for a hash.
func TestKeysOfHostileText(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	texts := []string{
		long, long + "y", strings.Repeat("x", longest), strings.Repeat("x", longest+1),
		"42", "user:42", "ip:198.51.100.7", "\xff\xfe", "\xff\xfd", "a:b", ":", "=", "Tenant:42",
	}
	for _, text := range slices.Clone(texts[:2]) {
		_, hash, _ := strings.Cut(keyed("user", text), "=")
		texts = append(texts, hash, "="+hash)
	}
	seen := map[string]string{}
	for _, text := range texts {
		r := &http.Request{RemoteAddr: "198.51.100.7:1", Header: http.Header{"X": {text}, "X-Tenant": {text}, "X-Api-Key": {text}}}
		r = r.WithContext(WithUser(r.Context(), text))
		for i, key := range []KeyFunc{User, Header("X"), Header("X-Tenant"), APIKey("")} {
			k := key(r)
			if len(k) > 300 || k == "" {
				t.Errorf("text of %d bytes: key of %d bytes", len(text), len(k))
			}
			from := fmt.Sprintf("%d %s", i, text)
			if other, ok := seen[k]; ok {
				t.Errorf("key %.80q for %.40q and for %.40q", k, from, other)
			}
			seen[k] = from
		}
	}
}

// Join of different parts is different.
func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "c", "a", "bc", "")
	f.Add("1:a", "", "", "1", "a", "")
	f.Fuzz(func(t *testing.T, a1, a2, a3, b1, b2, b3 string) {
		join := func(parts ...string) (string, []string) {
			parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
			var keys []KeyFunc
			for _, p := range parts {
				keys = append(keys, func(*http.Request) string { return p })
			}
			return Join(keys...)(nil), parts
		}
		a, as := join(a1, a2, a3)
		b, bs := join(b1, b2, b3)
		if (a == b) != slices.Equal(as, bs) {
			t.Fatalf("%q gives %q, %q gives %q", as, a, bs, b)
		}
	})
}
