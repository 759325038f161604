package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-go/weir/internal/words"
)

const aliceKey = "a key of alice that nobody guesses" // testdata/keys.txt has its hash

// identifier is what a configuration with this identity makes.
func identifier(t *testing.T, c Config) *Identifier {
	t.Helper()
	id, err := NewIdentifier(&c)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// request is from a stranger, with these header lines: "Name: value".
func request(lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	return r
}

func identified(t *testing.T, id *Identifier, r *http.Request, user string, reason error) {
	t.Helper()
	got, ok, err := id.Identify(r)
	if got != user || ok != (user != "") || !errors.Is(err, reason) || (reason == nil) != (err == nil) {
		t.Errorf("got %q, %v, %v; want %q, %v", got, ok, err, user, reason)
	}
}

func TestAPIKey(t *testing.T) {
	id := identifier(t, Config{Identity: Identity{APIKeys: &APIKeys{File: "testdata/keys.txt"}}})
	identified(t, id, request("X-Api-Key: "+aliceKey), "alice", nil)
	identified(t, id, request(), "", nil)
	identified(t, id, request("X-Api-Key: "), "", nil)
	identified(t, id, request("X-Api-Key: "+aliceKey+" "), "", ErrUnknownAPIKey)
	identified(t, id, request("X-Api-Key: "+HashAPIKey(aliceKey)), "", ErrUnknownAPIKey)
	identified(t, id, request("X-Api-Key: alice"), "", ErrUnknownAPIKey)
	identified(t, id, request("X-Api-Key: "+aliceKey, "X-Api-Key: "+aliceKey), "", ErrCredentialTwice)
	identified(t, id, request("X-Api-Key: "+strings.Repeat("a", maxAPIKey+1)), "", ErrCredentialSize)
	identified(t, id, request("Authorization: Bearer "+aliceKey), "", nil)

	id = identifier(t, Config{Identity: Identity{APIKeys: &APIKeys{File: "testdata/keys.txt", Header: "authorization"}}})
	identified(t, id, request("Authorization: bEARER  "+aliceKey), "alice", nil)
	identified(t, id, request("Authorization: Basic "+aliceKey), "", nil)
}

func TestAPIKeyFile(t *testing.T) {
	hash := HashAPIKey(aliceKey)
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, strings.Join([]string{
		"\ufeff# keys",
		"",
		"alice\t" + strings.ToUpper(hash) + "  # her laptop\r",
		"alice " + HashAPIKey("another key of alice, for her phone"),
		"bob " + hash,                   // 5
		"carol " + hash[:62],            // 6
		"dave",                          // 7
		"erin " + aliceKey,              // 8
		"frank " + HashAPIKey("secret"), // 9
		"grace " + HashAPIKey(""),       // 10
		strings.Repeat("h", 257) + " " + HashAPIKey("h"),
		"iv\x01an " + HashAPIKey("i"),
		"b#d " + HashAPIKey("a hash sign in a name is no comment"),
	}, "\n"))
	_, err := NewIdentifier(&Config{Identity: Identity{APIKeys: &APIKeys{File: path}}})
	form := "; the form is: user, blanks, 64 hexadecimal digits of the key's SHA-256; weir hash-key makes it"
	want := strings.Join([]string{
		path + ":5: the key of line 3 again",
		path + ":6: the second word is no SHA-256" + form,
		path + ":7: 1 words" + form,
		path + ":8: 8 words" + form,
		path + `:9: the hash of "secret", which anybody would try first; weir hash-key makes a key`,
		path + `:10: the hash of "", which anybody would try first; weir hash-key makes a key`,
		path + ":11: a user of 257 bytes; it takes up to 256",
		path + ":12: a user with control characters",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if err != nil && strings.Contains(err.Error(), aliceKey) {
		t.Error("the message shows a key")
	}
	write(t, path, "# none yet\n")
	if _, err := NewIdentifier(&Config{Identity: Identity{APIKeys: &APIKeys{File: path}}}); err == nil || !strings.HasSuffix(err.Error(), ":1: no keys; weir hash-key makes the lines") {
		t.Errorf("got %v", err)
	}
}

func TestAPIKeyLine(t *testing.T) {
	line, err := APIKeyLine("alice", aliceKey)
	if err == nil {
		t.Errorf("a key with spaces: got %q", line)
	}
	const key = "weir_0123456789abcdefghij"
	line, err = APIKeyLine("alice", key)
	if err != nil {
		t.Fatal(err)
	}
	keys, ps := parseKeyring("keys", []byte(line))
	if user, ok := keys.user(key); !ok || user != "alice" || len(ps) > 0 {
		t.Errorf("%q: got %q, %v, %v", line, user, ok, ps)
	}
	for _, bad := range [][2]string{{"", key}, {"a b", key}, {"#a", key}, {"a", "short"}, {"a", key + "\n"}, {"a", strings.Repeat("k", maxAPIKey+1)}} {
		if line, err := APIKeyLine(bad[0], bad[1]); err == nil {
			t.Errorf("%q: got %q", bad, line)
		}
	}
}

// jwtKeys are made once: RSA keys take their time.
var jwtKeys = sync.OnceValue(func() (k struct {
	rsa   *rsa.PrivateKey
	other *rsa.PrivateKey
	p256  *ecdsa.PrivateKey
	p384  *ecdsa.PrivateKey
}) {
	var err [4]error
	k.rsa, err[0] = rsa.GenerateKey(rand.Reader, 2048)
	k.other, err[1] = rsa.GenerateKey(rand.Reader, 2048)
	k.p256, err[2] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.p384, err[3] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err := errors.Join(err[:]...); err != nil {
		panic(err)
	}
	return k
})

func publicPEM(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign is the header line with a token. header adds to the token's header.
func sign(t *testing.T, alg string, key any, claims jwt.MapClaims, header ...string) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(alg), claims)
	for _, h := range header {
		name, value, _ := strings.Cut(h, "=")
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + text
}

// jwtIdentifier takes tokens by a key file with this text.
func jwtIdentifier(t *testing.T, key string, c JWT) *Identifier {
	t.Helper()
	c.KeyFile = filepath.Join(t.TempDir(), "key")
	write(t, c.KeyFile, key)
	return identifier(t, Config{Identity: Identity{JWT: &c}})
}

func TestJWT(t *testing.T) {
	k := jwtKeys()
	secret := strings.Repeat("s", 64)
	alice := jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	publicRSA := publicPEM(t, &k.rsa.PublicKey)
	rs := jwtIdentifier(t, publicRSA, JWT{Algorithms: []string{"RS256"}})
	es := jwtIdentifier(t, publicPEM(t, &k.p256.PublicKey), JWT{Algorithms: []string{"ES256"}})
	hs := jwtIdentifier(t, secret+"\n", JWT{Algorithms: []string{"HS256", "HS512"}})

	identified(t, rs, request(sign(t, "RS256", k.rsa, alice)), "alice", nil)
	identified(t, rs, request(sign(t, "RS256", k.rsa, alice, "kid=any")), "alice", nil)
	identified(t, es, request(sign(t, "ES256", k.p256, alice)), "alice", nil)
	identified(t, hs, request(sign(t, "HS256", []byte(secret), alice)), "alice", nil)
	identified(t, hs, request(sign(t, "HS512", []byte(secret), alice)), "alice", nil)

	t.Run("another key", func(t *testing.T) {
		identified(t, rs, request(sign(t, "RS256", k.other, alice)), "", ErrBadToken)
	})
	t.Run("another algorithm of the same key", func(t *testing.T) {
		identified(t, rs, request(sign(t, "RS512", k.rsa, alice)), "", ErrBadToken)
		identified(t, rs, request(sign(t, "PS256", k.rsa, alice)), "", ErrBadToken)
		identified(t, hs, request(sign(t, "HS384", []byte(secret), alice)), "", ErrBadToken)
	})
	t.Run("no algorithm", func(t *testing.T) {
		for _, id := range []*Identifier{rs, es, hs} {
			identified(t, id, request(sign(t, "none", jwt.UnsafeAllowNoneSignatureType, alice)), "", ErrBadToken)
		}
	})
	t.Run("the public key as a secret", func(t *testing.T) {
		der, _ := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
		for _, text := range []string{publicRSA, strings.TrimSpace(publicRSA), string(der)} {
			identified(t, rs, request(sign(t, "HS256", []byte(text), alice)), "", ErrBadToken)
		}
	})
	t.Run("a signature cut off, or changed", func(t *testing.T) {
		line := sign(t, "HS256", []byte(secret), alice)
		dot := strings.LastIndexByte(line, '.')
		identified(t, hs, request(line[:dot+1]), "", ErrBadToken)
		identified(t, hs, request(line[:dot]), "", ErrBadToken)
		parts := strings.Split(line, ".")
		parts[1] = base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"mallory"}`))
		identified(t, hs, request(strings.Join(parts, ".")), "", ErrBadToken)
	})
	t.Run("time", func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			claim string
			at    time.Time
			user  string
			err   error
		}{
			{"exp", now.Add(-time.Minute), "", ErrBadToken},
			{"exp", now.Add(-jwtLeeway / 2), "alice", nil},
			{"nbf", now.Add(time.Minute), "", ErrBadToken},
			{"nbf", now.Add(jwtLeeway / 2), "alice", nil},
		} {
			identified(t, hs, request(sign(t, "HS256", []byte(secret), jwt.MapClaims{"sub": "alice", tt.claim: tt.at.Unix()})), tt.user, tt.err)
		}
		identified(t, hs, request(sign(t, "HS256", []byte(secret), jwt.MapClaims{"sub": "alice", "exp": "never"})), "", ErrBadToken)
	})
	t.Run("issuer and audience", func(t *testing.T) {
		id := jwtIdentifier(t, secret, JWT{Algorithms: []string{"HS256"}, Issuer: "us", Audience: "orders"})
		for _, tt := range []struct {
			iss, aud any
			user     string
			err      error
		}{
			{"us", "orders", "alice", nil},
			{"us", []string{"other", "orders"}, "alice", nil},
			{"us", "other", "", ErrBadToken},
			{"us", nil, "", ErrBadToken},
			{"them", "orders", "", ErrBadToken},
			{nil, "orders", "", ErrBadToken},
		} {
			claims := jwt.MapClaims{"sub": "alice"}
			if tt.iss != nil {
				claims["iss"] = tt.iss
			}
			if tt.aud != nil {
				claims["aud"] = tt.aud
			}
			identified(t, id, request(sign(t, "HS256", []byte(secret), claims)), tt.user, tt.err)
		}
	})
	t.Run("the user", func(t *testing.T) {
		id := jwtIdentifier(t, secret, JWT{Algorithms: []string{"HS256"}, Claim: "uid"})
		for _, tt := range []struct {
			uid  any
			user string
			err  error
		}{
			{"bob", "bob", nil},
			{9007199254740993, "9007199254740993", nil},
			{1.5, "", ErrTokenUser},
			{true, "", ErrTokenUser},
			{[]string{"bob"}, "", ErrTokenUser},
			{"", "", ErrTokenUser},
			{"b\nob", "", ErrTokenUser},
			{strings.Repeat("b", maxUser+1), "", ErrTokenUser},
			{nil, "", ErrTokenUser},
		} {
			identified(t, id, request(sign(t, "HS256", []byte(secret), jwt.MapClaims{"sub": "alice", "uid": tt.uid})), tt.user, tt.err)
		}
	})
	t.Run("a header that must be understood", func(t *testing.T) {
		identified(t, hs, request(sign(t, "HS256", []byte(secret), alice, "crit=exp")), "", ErrBadToken)
	})
	t.Run("not a token", func(t *testing.T) {
		identified(t, hs, request("Authorization: Bearer x"), "", ErrBadToken)
		identified(t, hs, request("Authorization: Bearer"), "", nil)
		identified(t, hs, request("Authorization: Basic eDp5"), "", nil)
		identified(t, hs, request("Authorization: Bearer "+strings.Repeat("a", maxJWT+1)), "", ErrCredentialSize)
		line := sign(t, "HS256", []byte(secret), alice)
		identified(t, hs, request(line, line), "", ErrCredentialTwice)
	})
}

// keySet is a JSON web key set of these keys, by kid.
func keySet(t *testing.T, keys ...map[string]any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rsaJWK(kid string, key *rsa.PublicKey) map[string]any {
	return map[string]any{"kty": "RSA", "kid": kid, "use": "sig", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}
}

func ecJWK(t *testing.T, kid string, key *ecdsa.PublicKey) map[string]any {
	t.Helper()
	point, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	half := (len(point) - 1) / 2
	return map[string]any{"kty": "EC", "kid": kid, "crv": key.Params().Name, "x": b64(point[1 : 1+half]), "y": b64(point[1+half:])}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func TestJWKS(t *testing.T) {
	k := jwtKeys()
	secret := strings.Repeat("s", 64)
	alice := jwt.MapClaims{"sub": "alice"}
	path := filepath.Join(t.TempDir(), "jwks.json")
	with := func(algorithms []string, keys ...map[string]any) (*Identifier, error) {
		write(t, path, keySet(t, keys...))
		return NewIdentifier(&Config{Identity: Identity{JWT: &JWT{Algorithms: algorithms, JWKSFile: path}}})
	}
	oct := map[string]any{"kty": "oct", "kid": "h", "k": b64([]byte(secret))}
	id, err := with([]string{"RS256", "ES384", "HS256"},
		rsaJWK("r1", &k.rsa.PublicKey), rsaJWK("r2", &k.other.PublicKey), ecJWK(t, "e", &k.p384.PublicKey), oct,
		map[string]any{"kty": "OKP", "kid": "x", "crv": "Ed25519", "x": "AA"},
		map[string]any{"kty": "EC", "kid": "k1", "crv": "secp256k1", "x": "AA", "y": "AA"},
		map[string]any{"kty": "RSA", "kid": "enc", "use": "enc"},
		map[string]any{"kty": "RSA", "kid": "ops", "key_ops": []string{"encrypt"}})
	if err != nil {
		t.Fatal(err)
	}
	identified(t, id, request(sign(t, "RS256", k.rsa, alice, "kid=r1")), "alice", nil)
	identified(t, id, request(sign(t, "RS256", k.other, alice, "kid=r2")), "alice", nil)
	identified(t, id, request(sign(t, "ES384", k.p384, alice, "kid=e")), "alice", nil)
	identified(t, id, request(sign(t, "HS256", []byte(secret), alice, "kid=h")), "alice", nil)

	identified(t, id, request(sign(t, "RS256", k.rsa, alice)), "", ErrBadToken)           // no kid
	identified(t, id, request(sign(t, "RS256", k.rsa, alice, "kid=")), "", ErrBadToken)   // an empty one
	identified(t, id, request(sign(t, "RS256", k.rsa, alice, "kid=r2")), "", ErrBadToken) // that of another key
	identified(t, id, request(sign(t, "RS256", k.rsa, alice, "kid=r3")), "", ErrBadToken) // that of none
	identified(t, id, request(sign(t, "HS256", []byte(secret), alice, "kid=r1")), "", ErrBadToken)
	identified(t, id, request(sign(t, "HS256", []byte(publicPEM(t, &k.rsa.PublicKey)), alice, "kid=r1")), "", ErrBadToken)
	identified(t, id, request(sign(t, "HS256", k.rsa.N.Bytes(), alice, "kid=r1")), "", ErrBadToken)
	identified(t, id, request(sign(t, "HS512", []byte(secret), alice, "kid=h")), "", ErrBadToken)

	pinned := rsaJWK("r", &k.rsa.PublicKey)
	pinned["alg"] = "RS512"
	if id, err = with([]string{"RS256", "RS512"}, pinned); err != nil {
		t.Fatal(err)
	}
	identified(t, id, request(sign(t, "RS512", k.rsa, alice, "kid=r")), "alice", nil)
	identified(t, id, request(sign(t, "RS512", k.rsa, alice)), "alice", nil) // the only key
	identified(t, id, request(sign(t, "RS512", k.rsa, alice, "kid=s")), "", ErrBadToken)
	identified(t, id, request(sign(t, "RS256", k.rsa, alice, "kid=r")), "", ErrBadToken)

	private := rsaJWK("p", &k.rsa.PublicKey)
	private["d"] = "AA"
	offCurve := ecJWK(t, "e", &k.p256.PublicKey)
	offCurve["y"] = offCurve["x"]
	even := rsaJWK("r", &k.rsa.PublicKey)
	even["e"] = "Ag"
	for _, tt := range []struct {
		want string
		keys []map[string]any
	}{
		{`keys[0] (kid "p"): a private key, which has no place on the side that verifies`, []map[string]any{private}},
		{`keys[0] (kid "e"): no point on P-256`, []map[string]any{offCurve}},
		{`keys[0] (kid "r"): an RSA key with the exponent 2, which is not odd from 3 up`, []map[string]any{even}},
		{`keys[0] (kid "h"): a secret of 5 bytes; it takes 32 or more`, []map[string]any{{"kty": "oct", "kid": "h", "k": b64([]byte("short"))}}},
		{`keys[0] (kid "r"): n is no base64url`, []map[string]any{{"kty": "RSA", "kid": "r", "n": "?", "e": "AQAB"}}},
		{`keys[1]: a second key with kid "a"`, []map[string]any{rsaJWK("a", &k.rsa.PublicKey), rsaJWK("a", &k.other.PublicKey)}},
		{"several keys, and one of them without a kid; each takes one, so that a token can say which it is signed with",
			[]map[string]any{rsaJWK("", &k.rsa.PublicKey), rsaJWK("a", &k.other.PublicKey)}},
		{"no key among 1 that verifies RS256 and ES256", []map[string]any{ecJWK(t, "e", &k.p384.PublicKey)}},
		{"no key among 0 that verifies RS256 and ES256", []map[string]any{}},
	} {
		_, err := with([]string{"RS256", "ES256"}, tt.keys...)
		if want := fmt.Sprintf("identity.jwt.jwks_file: %s: %s", words.Quoted(path), tt.want); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestJWTKeyFile(t *testing.T) {
	k := jwtKeys()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, private := pairPEM(t)
	public := publicPEM(t, &k.rsa.PublicKey)
	for _, tt := range []struct {
		name, text, algs string
		want             string // empty: accepted
	}{
		{"a secret", strings.Repeat("s", 32), "HS256", ""},
		{"a short secret", strings.Repeat("s", 31), "HS256", "a secret of 31 bytes; HS256 takes 32 or more, as from: openssl rand -hex 32"},
		{"a secret short for one", strings.Repeat("s", 32), "HS256 HS512", "a secret of 32 bytes; HS512 takes 64 or more, as from: openssl rand -hex 64"},
		{"an empty secret", "\n\n", "HS256", "a secret of 0 bytes; HS256 takes 32 or more"},
		{"a public key as a secret", public, "HS256", "a PEM file is no secret for HS256: whoever knows a public key could sign with it"},
		{"a public key in DER as a secret", string(der), "HS256", "a public key is no secret for HS256"},
		{"an SSH key as a secret", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC", "HS256", "no secret for HS256, but what looks like a key in SSH or JSON form"},
		{"a JWKS as a secret", ` {"keys": [{"kty": "RSA", "n": "AAAAAAAAAAAAAAAA"}]}`, "HS256", "no secret for HS256, but what looks like a key in SSH or JSON form"},
		{"one key for both", public, "RS256 HS256", "one key cannot serve both RS256 and HS256"},
		{"an RSA key", public, "RS256 PS512", ""},
		{"an RSA key for ES256", public, "ES256", "a key of kind RSA; ES256 takes P-256"},
		{"P-256 for ES384", publicPEM(t, &k.p256.PublicKey), "ES384", "a key of kind P-256; ES384 takes P-384"},
		{"a certificate", cert, "ES256", ""},
		{"a private key", private, "ES256", "a private key, which has no place on the side that verifies"},
		{"two keys", public + public, "RS256", "more than one PEM block"},
		{"a weak key", publicPEM(t, &weak.PublicKey), "RS256", "an RSA key of 1024 bits; it takes 2048 or more"},
		{"no key", "hello", "RS256", "no PEM; it takes a public key between"},
		{"something else", "-----BEGIN X-----\nAA==\n-----END X-----\n", "RS256", `a PEM block of type "X"; it takes PUBLIC KEY`},
		{"a broken key", "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "RS256", "not understood as a PUBLIC KEY: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseKeyFile([]byte(tt.text), strings.Fields(tt.algs))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestIdentityHeader(t *testing.T) {
	id := identifier(t, Config{
		Clients:  Clients{TrustedProxies: []string{"10.0.0.0/8", "2001:db8::/32"}},
		Identity: Identity{Header: &TrustHeader{Name: "x-user"}},
	})
	from := func(peer string, r *http.Request) *http.Request { r.RemoteAddr = peer; return r }
	identified(t, id, from("10.1.2.3:80", request("X-User: bob")), "bob", nil)
	identified(t, id, from("[::ffff:10.1.2.3]:80", request("X-User: bob")), "bob", nil)
	identified(t, id, from("[2001:db8::1%eth0]:80", request("X-User: bob")), "bob", nil)
	identified(t, id, from("10.1.2.3:80", request()), "", nil)
	identified(t, id, request("X-User: bob"), "", ErrUntrustedIdentity)
	identified(t, id, request("X-User: bob", "X-Forwarded-For: 10.0.0.1"), "", ErrUntrustedIdentity)
	identified(t, id, from("", request("X-User: bob")), "", ErrUntrustedIdentity)
	identified(t, id, from("@", request("X-User: bob")), "", ErrUntrustedIdentity)
	identified(t, id, from("10.1.2.3:80", request("X-User: bob", "X-User: eve")), "", ErrCredentialTwice)
	identified(t, id, from("10.1.2.3:80", request("X-User: "+strings.Repeat("b", maxUser+1))), "", ErrBadIdentity)
	identified(t, id, from("10.1.2.3:80", request("X-User: b\xffb")), "", ErrBadIdentity)
	identified(t, id, from("10.1.2.3:80", request("X_User: bob")), "", nil)

	socket := from("@", request("X-User: bob"))
	socket = socket.WithContext(context.WithValue(socket.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Net: "unix", Name: "/run/weir"})))
	identified(t, id, socket, "bob", nil)

	if got := id.StripHeaders(); !reflect.DeepEqual(got, []string{"X-User"}) {
		t.Errorf("StripHeaders: got %v", got)
	}
}

func TestTheFirstCredentialThatHoldsWins(t *testing.T) {
	k := jwtKeys()
	path := filepath.Join(t.TempDir(), "key")
	write(t, path, publicPEM(t, &k.p256.PublicKey))
	id := identifier(t, Config{
		Clients: Clients{TrustedProxies: []string{"203.0.113.0/24"}},
		Identity: Identity{
			APIKeys: &APIKeys{File: "testdata/keys.txt"},
			JWT:     &JWT{Algorithms: []string{"ES256"}, KeyFile: path},
			Header:  &TrustHeader{Name: "X-User"},
		},
	})
	key, wrong := "X-Api-Key: "+aliceKey, "X-Api-Key: wrong"
	token := sign(t, "ES256", k.p256, jwt.MapClaims{"sub": "bob"})
	identified(t, id, request(key, token, "X-User: carol"), "alice", nil)
	identified(t, id, request(wrong, token, "X-User: carol"), "bob", nil)
	identified(t, id, request(wrong, token+"x", "X-User: carol"), "carol", nil)
	identified(t, id, request(wrong, token+"x"), "", ErrUnknownAPIKey)
	identified(t, new(Identifier), request(key, token, "X-User: carol"), "", nil)
}

func FuzzParseKeyring(f *testing.F) {
	f.Add([]byte("# keys\nalice " + HashAPIKey(aliceKey) + " # laptop\r\n\nbob x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, ps := parseKeyring("keys", data)
		for _, p := range ps {
			if p.Line < 1 || strings.ContainsAny(p.Error(), "\r\n") {
				t.Errorf("%q", p.Error())
			}
		}
		for hash, e := range keys {
			if hash != e.hash || badUser(e.user) != "" || e.line < 1 {
				t.Errorf("%+v", e)
			}
		}
		if len(keys)+len(ps) == 0 {
			t.Error("nothing found, and nothing said")
		}
	})
}

func FuzzParseJWKS(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"oct","k":"AA"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseJWKS(data, []string{"RS256", "ES256", "HS256"})
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("%d keys, %v", len(keys), err)
		}
	})
}

func FuzzIdentify(f *testing.F) {
	id, err := NewIdentifier(&Config{
		Clients:  Clients{TrustedProxies: []string{"10.0.0.0/8"}},
		Identity: Identity{APIKeys: &APIKeys{File: "testdata/keys.txt"}, Header: &TrustHeader{Name: "X-User"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	id.tokens = newTokens(&JWT{Algorithms: []string{"HS256"}}, []*jwtKey{{kind: "secret", key: []byte(strings.Repeat("s", 32))}})
	f.Add("203.0.113.9:1", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IifQ.", "key", "bob")
	f.Add("[::ffff:10.0.0.1%eth0]:1", "bearer ", "", "bob")
	f.Fuzz(func(t *testing.T, peer, authorization, key, header string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"Authorization": {authorization}, "X-Api-Key": {key}, "X-User": {header}}}
		user, ok, err := id.Identify(r)
		if ok && err != nil || ok != (user != "") || ok && badUser(user) != "" {
			t.Fatalf("got %q, %v, %v", user, ok, err)
		}
		if ok && user != "alice" && (user != header || !id.trusts(r)) {
			t.Errorf("%s is %q by %q, %q, %q", peer, user, authorization, key, header)
		}
	})
}
