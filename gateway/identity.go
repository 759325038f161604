package gateway

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
)

const (
	defaultAPIKeyHeader = "X-Api-Key" // canonical
	defaultClaim        = "sub"
	maxJWT              = 8 << 10 // bytes of a token
	jwtLeeway           = 30 * time.Second
)

// Why a credential names nobody. They are for logs and tests: none of them quotes what was presented.
var (
	ErrCredentialTwice   = errors.New("gateway: a credential given twice")
	ErrCredentialSize    = errors.New("gateway: a credential too large to look at")
	ErrUnknownAPIKey     = errors.New("gateway: an API key that nobody has")
	ErrBadToken          = errors.New("gateway: a token that is not valid")
	ErrTokenUser         = errors.New("gateway: a token without a user's name")
	ErrUntrustedIdentity = errors.New("gateway: an identity header from a peer that is no trusted proxy")
	ErrBadIdentity       = errors.New("gateway: an identity header without a user's name")
)

// Identifier says which user a request is from. It is safe for concurrent use. It refuses nobody: whether an invalid
// credential is a reason to is up to the upstream. Here it is only not believed, so that what comes with it counts against the address it
// comes from, and never against the user it names.
//
// Users of one name are one user, whichever credential says so.
type Identifier struct {
	keys      keyring // nil: no API keys
	keyHeader string  // canonical

	tokens *tokens // nil: no JWT

	header  string // of trusted proxies, canonical; empty: none
	proxies []netip.Prefix
	unix    bool // peers on unix sockets are trusted proxies
}

// NewIdentifier reads the files that c.Identity names. The error, if any, is a [*ConfigError].
func NewIdentifier(c *Config) (*Identifier, error) {
	k := &checker{c: c}
	id := k.identity()
	if err := k.ps.err(); err != nil {
		return nil, err
	}
	return id, nil
}

// Identify is the user of r, found by the first credential of API key, JWT and identity header that holds. If ok is false
// there is none, and the reason is the first credential that did not hold, or nil if none was presented.
func (id *Identifier) Identify(r *http.Request) (user string, ok bool, reason error) {
	for _, find := range [...]func(*http.Request) (string, error){id.byKey, id.byToken, id.byHeader} {
		user, err := find(r)
		if user != "" {
			return user, true, nil
		}
		if reason == nil {
			reason = err
		}
	}
	return "", false, reason
}

// StripHeaders are the names of the headers that name a user and that only a trusted proxy may write. Whoever passes a request on
// that is not from one takes them out, and with them the names that servers read as the same, as X_User for X-User.
func (id *Identifier) StripHeaders() []string {
	if id.header == "" {
		return nil
	}
	return []string{id.header}
}

// single is the value of a header that may be given once; empty if it is not given.
func single(r *http.Request, name string) (string, error) {
	switch values := r.Header[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", ErrCredentialTwice
}

// bearer is what follows "Bearer " in a value of Authorization; empty if that is another scheme.
func bearer(value string) string {
	const scheme = "bearer "
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return ""
	}
	return strings.Trim(value[len(scheme):], " ")
}

func (id *Identifier) byKey(r *http.Request) (string, error) {
	if id.keys == nil {
		return "", nil
	}
	key, err := single(r, id.keyHeader)
	if id.keyHeader == "Authorization" {
		key = bearer(key)
	}
	if err != nil || key == "" {
		return "", err
	}
	if len(key) > maxAPIKey {
		return "", ErrCredentialSize
	}
	user, ok := id.keys.user(key)
	if !ok {
		return "", ErrUnknownAPIKey
	}
	return user, nil
}

func (id *Identifier) byToken(r *http.Request) (string, error) {
	if id.tokens == nil {
		return "", nil
	}
	value, err := single(r, "Authorization")
	if err != nil {
		return "", err
	}
	token := bearer(value)
	switch {
	case token == "":
		return "", nil
	case len(token) > maxJWT:
		return "", ErrCredentialSize
	}
	return id.tokens.user(token)
}

func (id *Identifier) byHeader(r *http.Request) (string, error) {
	if id.header == "" {
		return "", nil
	}
	user, err := single(r, id.header)
	switch {
	case err == nil && user == "":
		return "", nil
	case !id.trusts(r):
		return "", ErrUntrustedIdentity
	case err != nil:
		return "", err
	case badUser(user) != "":
		return "", ErrBadIdentity
	}
	return user, nil
}

// trusts reports whether the peer of r is a trusted proxy.
func (id *Identifier) trusts(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return id.unix && onUnix(r)
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(id.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// onUnix reports whether r came in over a unix socket.
func onUnix(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && local.Network() == "unix"
}

// tokens verifies JSON web tokens (RFC 7519).
type tokens struct {
	parser *jwt.Parser
	keys   []*jwtKey
	claim  string
}

func newTokens(c *JWT, keys []*jwtKey) *tokens {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(c.Algorithms), // before any key is looked at
		jwt.WithLeeway(jwtLeeway),
		jwt.WithJSONNumber(),
	}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	t := &tokens{parser: jwt.NewParser(options...), keys: keys, claim: c.Claim}
	if t.claim == "" {
		t.claim = defaultClaim
	}
	return t
}

// user is whom a token names, if it is valid.
func (t *tokens) user(token string) (string, error) {
	claims := jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(token, claims, t.key); err != nil {
		return "", ErrBadToken
	}
	var user string
	switch v := claims[t.claim].(type) {
	case string:
		user = v
	case json.Number:
		if _, err := v.Int64(); err == nil {
			user = v.String()
		}
	}
	if badUser(user) != "" {
		return "", ErrTokenUser
	}
	return user, nil
}

// key is the key that a token has to be verified with: one that the token's kid names, and that is for the
// token's algorithm. The parser has already refused algorithms that are not configured.
func (t *tokens) key(token *jwt.Token) (any, error) {
	if _, critical := token.Header["crit"]; critical { // RFC 7515, section 4.1.11: nothing of it is understood here
		return nil, ErrBadToken
	}
	kid, given := token.Header["kid"]
	id, _ := kid.(string)
	for _, k := range t.keys {
		only := len(t.keys) == 1 && (k.id == "" || !given)
		if (only || given && id == k.id && id != "") && k.fits(token.Method.Alg()) {
			return k.key, nil
		}
	}
	return nil, ErrBadToken
}

// identity checks how users are known, and makes the Identifier of it.
func (k *checker) identity() *Identifier {
	c := &k.c.Identity
	id := &Identifier{}
	if c.APIKeys != nil {
		k.apiKeys(c.APIKeys, id)
	}
	if c.JWT != nil {
		k.jwt(c.JWT, id)
	}
	if c.Header != nil {
		k.trustHeader(c.Header, id)
	}
	return id
}

func (k *checker) apiKeys(c *APIKeys, id *Identifier) {
	const field = "identity.api_keys"
	id.keyHeader = defaultAPIKeyHeader
	if c.Header != "" {
		id.keyHeader = http.CanonicalHeaderKey(c.Header)
		if !isToken(c.Header) || slices.Contains(neverArrives, id.keyHeader) {
			k.add(field+".header", "%s cannot carry a key; it takes the name of a header, as X-API-Key", words.Quoted(c.Header))
		}
	}
	if c.File == "" {
		k.add(field+".file", "no file; its lines are made by weir hash-key")
		return
	}
	keys, ps, err := loadKeyring(c.File)
	if err != nil {
		k.addErr(field+".file", err, "%v", err)
		return
	}
	const most = 20 // a wrong file has as many faults as lines
	if len(ps) > most {
		more := len(ps) - most
		ps = ps[:most]
		k.add(field+".file", "%d faults in %s, of which the first %d are shown", more+most, words.Quoted(c.File), most)
	}
	k.ps = append(k.ps, ps...)
	id.keys = keys
}

func (k *checker) jwt(c *JWT, id *Identifier) {
	const field = "identity.jwt"
	if len(c.Algorithms) == 0 {
		if !k.anyBroken(field + ".algorithms") {
			k.add(field+".algorithms", "none; it takes those that the tokens are signed with, as [RS256], and no other is accepted")
		}
		return
	}
	ok := true
	for i, alg := range c.Algorithms {
		if _, known := jwtAlgorithms[alg]; !known {
			k.add(strictyaml.Item(field+".algorithms", i), "%s is none of %s", words.Quoted(alg), strings.Join(sortedKeys(jwtAlgorithms), ", "))
			ok = false
		}
	}
	var keys []*jwtKey
	file, from := ".key_file", c.KeyFile
	switch {
	case c.KeyFile != "" && c.JWKSFile != "":
		k.add(field+".jwks_file", "beside a key_file; it takes one of them")
		return
	case c.KeyFile == "" && c.JWKSFile == "":
		k.add(field, "no key; it takes a key_file or a jwks_file")
		return
	case c.JWKSFile != "":
		file, from = ".jwks_file", c.JWKSFile
	}
	data, err := readFile(from, maxSecretFile)
	if err != nil {
		k.addErr(field+file, err, "%v", err)
		return
	}
	if !ok {
		return
	}
	if c.JWKSFile != "" {
		keys, err = parseJWKS(data, c.Algorithms)
	} else {
		var key *jwtKey
		key, err = parseKeyFile(data, c.Algorithms)
		keys = []*jwtKey{key}
	}
	if err != nil {
		k.addErr(field+file, err, "%s: %v", words.Quoted(from), err)
		return
	}
	id.tokens = newTokens(c, keys)
}

func (k *checker) trustHeader(c *TrustHeader, id *Identifier) {
	const field = "identity.header"
	id.header = http.CanonicalHeaderKey(c.Name)
	reserved := []string{"Authorization", "Cookie", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}
	switch {
	case c.Name == "":
		k.add(field+".name", "no name; it takes the header that the trusted proxies write, as X-User")
	case !isToken(c.Name), slices.Contains(neverArrives, id.header), slices.Contains(reserved, id.header),
		strings.EqualFold(c.Name, k.c.Clients.Header):
		k.add(field+".name", "%s cannot carry a user; it takes a header of its own, as X-User", words.Quoted(c.Name))
	case len(k.c.Clients.TrustedProxies) == 0 && !k.anyBroken("clients"):
		k.add(field, "believed only from trusted proxies, and clients.trusted_proxies names none")
	}
	id.proxies, id.unix, _ = k.c.Clients.trusted() // what is wrong with them is said there
}
