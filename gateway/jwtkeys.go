package gateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/weir-go/weir/internal/words"
)

// A key belongs to algorithms by its kind, and is never offered to another: the text of a public key can then not be
// taken for the secret of an HMAC.

const (
	maxSecretFile = 1 << 20 // bytes of a key file or a JWKS
	minRSABits    = 2048    // RFC 7518, section 3.3
)

// jwtAlgorithms are the algorithms that tokens can be signed with, each with the kind of its keys.
var jwtAlgorithms = map[string]string{
	"HS256": "secret", "HS384": "secret", "HS512": "secret",
	"RS256": "RSA", "RS384": "RSA", "RS512": "RSA",
	"PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
	"ES256": "P-256", "ES384": "P-384", "ES512": "P-521",
}

// minSecret is the length of the shortest secret of an HMAC: that of its hash (RFC 7518, section 3.2).
var minSecret = map[string]int{"HS256": 32, "HS384": 48, "HS512": 64}

// jwtKey is a key that tokens are verified with.
type jwtKey struct {
	id   string // empty: the only one, for tokens with any kid or none
	alg  string // empty: every configured algorithm of its kind
	kind string // as in jwtAlgorithms
	key  any    // []byte, *rsa.PublicKey or *ecdsa.PublicKey
}

// fits reports whether a token of an algorithm may be verified with k.
func (k *jwtKey) fits(alg string) bool {
	if b, secret := k.key.([]byte); secret && len(b) < minSecret[alg] {
		return false
	}
	return jwtAlgorithms[alg] == k.kind && (k.alg == "" || k.alg == alg)
}

// parseKeyFile reads a key file for tokens of these algorithms.
func parseKeyFile(data []byte, algorithms []string) (*jwtKey, error) {
	kind := jwtAlgorithms[algorithms[0]]
	for _, alg := range algorithms {
		if jwtAlgorithms[alg] != kind {
			return nil, fmt.Errorf("one key cannot serve both %s and %s; give the algorithms of one kind of key, or a jwks_file", algorithms[0], alg)
		}
	}
	if kind == "secret" {
		return parseSecret(data, algorithms)
	}
	k, err := parsePublicKey(data)
	if err != nil {
		return nil, err
	}
	if k.kind != kind {
		return nil, fmt.Errorf("a key of kind %s; %s takes %s", k.kind, algorithms[0], kind)
	}
	return k, nil
}

// parseSecret takes all bytes but the line break at the end. What looks like a published key is no secret: with it, whoever
// knows the public key could sign.
func parseSecret(data []byte, algorithms []string) (*jwtKey, error) {
	secret := bytes.TrimRight(data, "\r\n")
	start := bytes.TrimLeft(secret, "\ufeff \t\r\n")
	for _, published := range []string{"ssh-", "ecdsa-", "{", "["} {
		if bytes.HasPrefix(start, []byte(published)) {
			return nil, fmt.Errorf("no secret for %s, but what looks like a key in SSH or JSON form; a JWK belongs in jwks_file", algorithms[0])
		}
	}
	if bytes.Contains(secret, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("a PEM file is no secret for %s: whoever knows a public key could sign with it; for a public key give its algorithms, as RS256 or ES256", algorithms[0])
	}
	if _, err := x509.ParsePKIXPublicKey(secret); err == nil {
		return nil, fmt.Errorf("a public key is no secret for %s", algorithms[0])
	}
	for _, alg := range algorithms {
		if n := minSecret[alg]; len(secret) < n {
			return nil, fmt.Errorf("a secret of %d bytes; %s takes %d or more, as from: openssl rand -hex %d", len(secret), alg, n, n)
		}
	}
	return &jwtKey{kind: "secret", key: secret}, nil
}

func parsePublicKey(data []byte) (*jwtKey, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM; it takes a public key between -----BEGIN PUBLIC KEY----- and -----END PUBLIC KEY-----")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("more than one PEM block; for several keys use a jwks_file")
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return nil, errors.New("a private key, which has no place on the side that verifies; give its public key, as from: openssl pkey -pubout")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	default:
		return nil, fmt.Errorf("a PEM block of type %s; it takes PUBLIC KEY", words.Quoted(block.Type))
	}
	if err != nil {
		return nil, fmt.Errorf("not understood as a %s: %w", block.Type, err)
	}
	return newJWTKey(key)
}

// newJWTKey checks the strength of a public key.
func newJWTKey(key any) (*jwtKey, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits; it takes %d or more", n, minRSABits)
		}
		if key.E < 3 || key.E%2 == 0 {
			return nil, fmt.Errorf("an RSA key with the exponent %d, which is not odd from 3 up", key.E)
		}
		return &jwtKey{kind: "RSA", key: key}, nil
	case *ecdsa.PublicKey:
		switch name := key.Params().Name; name {
		case "P-256", "P-384", "P-521":
			return &jwtKey{kind: name, key: key}, nil
		default:
			return nil, fmt.Errorf("a key on the curve %s; it takes P-256, P-384 or P-521", name)
		}
	}
	return nil, fmt.Errorf("a key of type %T; it takes RSA, or ECDSA on P-256, P-384 or P-521", key)
}

// jwk is a JSON web key (RFC 7517), as far as it matters here.
type jwk struct {
	Kty string   `json:"kty"`
	Kid string   `json:"kid"`
	Alg string   `json:"alg"`
	Use string   `json:"use"`
	Ops []string `json:"key_ops"`
	N   string   `json:"n"`
	E   string   `json:"e"`
	Crv string   `json:"crv"`
	X   string   `json:"x"`
	Y   string   `json:"y"`
	K   string   `json:"k"`
	D   string   `json:"d"`
}

// parseJWKS reads the keys of a JSON web key set that can verify tokens of these algorithms. Keys for other things, as
// encryption, are passed over; a key that is meant for this and wrong is an error.
func parseJWKS(data []byte, algorithms []string) ([]*jwtKey, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("not understood as a JSON web key set: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New(`no JSON web key set; the form is {"keys": […]}`)
	}
	var keys []*jwtKey
	seen := map[string]bool{}
	for i := range set.Keys {
		j := &set.Keys[i]
		k, err := j.verifier()
		if err != nil {
			return nil, fmt.Errorf("keys[%d] (kid %s): %w", i, words.Quoted(j.Kid), err)
		}
		if k == nil || !k.serves(algorithms) {
			continue
		}
		if len(j.Kid) > maxUser {
			return nil, fmt.Errorf("keys[%d]: a kid of %d bytes; it takes up to %d", i, len(j.Kid), maxUser)
		}
		if seen[j.Kid] {
			return nil, fmt.Errorf("keys[%d]: a second key with kid %s", i, words.Quoted(j.Kid))
		}
		seen[j.Kid] = true
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key among %d that verifies %s", len(set.Keys), words.List(algorithms))
	}
	if len(keys) > 1 && seen[""] {
		return nil, errors.New("several keys, and one of them without a kid; each takes one, so that a token can say which it is signed with")
	}
	return keys, nil
}

func (k *jwtKey) serves(algorithms []string) bool {
	for _, alg := range algorithms {
		if k.fits(alg) {
			return true
		}
	}
	return false
}

// verifier is the key of j, or nil if it is of another kind or for something else.
func (j *jwk) verifier() (*jwtKey, error) {
	if j.Use != "" && j.Use != "sig" {
		return nil, nil
	}
	verify := len(j.Ops) == 0
	for _, op := range j.Ops {
		verify = verify || op == "verify"
	}
	if !verify {
		return nil, nil
	}
	if j.D != "" {
		return nil, errors.New("a private key, which has no place on the side that verifies")
	}
	var k *jwtKey
	var err error
	switch j.Kty {
	case "RSA":
		k, err = j.rsa()
	case "EC":
		k, err = j.ecdsa()
	case "oct":
		var secret []byte
		if secret, err = decode64("k", j.K); err == nil && len(secret) < minSecret["HS256"] {
			err = fmt.Errorf("a secret of %d bytes; it takes %d or more", len(secret), minSecret["HS256"])
		}
		k = &jwtKey{kind: "secret", key: secret}
	default:
		return nil, nil
	}
	if k == nil || err != nil { // nil: a curve that no algorithm here is for
		return nil, err
	}
	k.id, k.alg = j.Kid, j.Alg
	return k, nil
}

func (j *jwk) rsa() (*jwtKey, error) {
	n, err := decode64("n", j.N)
	if err != nil {
		return nil, err
	}
	e, err := decode64("e", j.E)
	if err != nil {
		return nil, err
	}
	exponent := new(big.Int).SetBytes(e)
	if len(n) > 2048 || exponent.BitLen() > 31 {
		return nil, errors.New("an RSA key larger than anybody uses")
	}
	return newJWTKey(&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())})
}

func (j *jwk) ecdsa() (*jwtKey, error) {
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	curve, ok := curves[j.Crv]
	if !ok {
		return nil, nil
	}
	point := []byte{4} // uncompressed
	for _, c := range []struct{ name, text string }{{"x", j.X}, {"y", j.Y}} {
		b, err := decode64(c.name, c.text)
		if err != nil {
			return nil, err
		}
		if len(b) != (curve.Params().BitSize+7)/8 {
			return nil, fmt.Errorf("%s of %d bytes on %s", c.name, len(b), j.Crv)
		}
		point = append(point, b...)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, fmt.Errorf("no point on %s", j.Crv)
	}
	return newJWTKey(key)
}

func decode64(name, text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%s is no base64url", name)
	}
	return b, nil
}
