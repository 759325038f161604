package gateway

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/words"
)

const (
	maxKeyFile = 16 << 20 // bytes of an API key file, about 150,000 keys
	maxUser    = 256      // bytes of a user's name
	maxAPIKey  = 1024     // bytes of a presented key

	// MinAPIKey is the length of the shortest API key that hash-key accepts, in bytes. The hashes are fast and without salt, so
	// only a key that nobody can guess is safe in a file of them.
	MinAPIKey = 20
)

// HashAPIKey is what an API key file holds of a key: its SHA-256 in hexadecimal.
func HashAPIKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// keyring has users by the hash of their key.
type keyring map[[sha256.Size]byte]keyEntry

// keyEntry is one line of an API key file.
type keyEntry struct {
	hash [sha256.Size]byte
	user string
	line int
}

// user is whose key this is.
func (k keyring) user(key string) (string, bool) {
	sum := sha256.Sum256([]byte(key))
	// The time of the map's look-up depends on a hash that nobody can steer; the comparison is constant in any case.
	entry, ok := k[sum]
	if !ok || subtle.ConstantTimeCompare(sum[:], entry.hash[:]) != 1 {
		return "", false
	}
	return entry.user, true
}

// guessable are keys that no line may hold the hash of: the empty one, and those of every tutorial.
var guessable = func() map[string]string {
	hashes := map[string]string{}
	for _, key := range []string{
		"", "admin", "apikey", "api-key", "api_key", "changeme", "default", "demo", "key", "password", "secret",
		"test", "test-key", "testkey", "token", "user", "weir", "123", "1234", "12345", "123456", "12345678", "123456789",
	} {
		hashes[HashAPIKey(key)] = key
		hashes[HashAPIKey(key+"\n")] = key // echo key | sha256sum
	}
	return hashes
}()

// loadKeyring reads an API key file: lines of a user, blanks and the hexadecimal SHA-256 of the user's key. A user may have several
// lines, as while a key is being replaced. Each fault is a Problem with the file and the line.
func loadKeyring(path string) (keyring, problems, error) {
	data, err := readFile(path, maxKeyFile)
	if err != nil {
		return nil, nil, err
	}
	keys, ps := parseKeyring(path, data)
	return keys, ps, nil
}

func parseKeyring(path string, data []byte) (keyring, problems) {
	keys := keyring{}
	var ps problems
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		number++
		entry, why := parseKeyLine(string(line))
		entry.line = number
		if first, twice := keys[entry.hash]; why == "" && entry.user != "" && twice {
			why = fmt.Sprintf("the key of line %d again", first.line)
		}
		switch {
		case why != "":
			ps = append(ps, Problem{File: path, Line: number, Text: why})
		case entry.user != "":
			keys[entry.hash] = entry
		}
	}
	if len(keys) == 0 && len(ps) == 0 {
		ps = append(ps, Problem{File: path, Line: 1, Text: "no keys; weir hash-key makes the lines"})
	}
	return keys, ps
}

// parseKeyLine reads one line; a line without content has no user.
func parseKeyLine(line string) (entry keyEntry, why string) {
	const form = "the form is: user, blanks, 64 hexadecimal digits of the key's SHA-256; weir hash-key makes it"
	if at := strings.IndexByte(line, '#'); at == 0 || at > 0 && (line[at-1] == ' ' || line[at-1] == '\t') {
		line = line[:at]
	}
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return entry, ""
	case len(fields) != 2: // what is in them may be a key, so it is not shown
		return entry, fmt.Sprintf("%d words; %s", len(fields), form)
	}
	user, hash := fields[0], strings.ToLower(fields[1])
	if why := badUser(user); why != "" {
		return entry, why
	}
	sum, err := hex.DecodeString(hash)
	if err != nil || len(sum) != sha256.Size {
		return entry, "the second word is no SHA-256; " + form
	}
	if key, weak := guessable[hash]; weak {
		return entry, fmt.Sprintf("the hash of %q, which anybody would try first; weir hash-key makes a key", key)
	}
	entry.user = user
	copy(entry.hash[:], sum)
	return entry, ""
}

// badUser says what is wrong with the name of a user, or "".
func badUser(user string) string {
	switch {
	case user == "":
		return "an empty user"
	case len(user) > maxUser:
		return fmt.Sprintf("a user of %d bytes; it takes up to %d", len(user), maxUser)
	case !utf8.ValidString(user):
		return "a user that is not UTF-8 text"
	case strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a user with control characters"
	}
	return ""
}

// APIKeyLine is the line of an API key file for a user's key. It refuses keys that requests could not present or that
// somebody could guess, and names that the file could not hold.
func APIKeyLine(user, key string) (string, error) {
	if why := badUser(user); why != "" {
		return "", fmt.Errorf("gateway: %s", why)
	}
	if strings.ContainsFunc(user, unicode.IsSpace) || user[0] == '#' {
		return "", fmt.Errorf("gateway: user %s; a name in an API key file has no blanks and does not begin with #", words.Quoted(user))
	}
	switch {
	case len(key) < MinAPIKey:
		return "", fmt.Errorf("gateway: a key of %d bytes; it takes %d or more that nobody can guess, as from: openssl rand -hex 32", len(key), MinAPIKey)
	case len(key) > maxAPIKey:
		return "", fmt.Errorf("gateway: a key of %d bytes; it takes up to %d", len(key), maxAPIKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("gateway: a key with other characters than printable ASCII, which a header cannot carry")
	}
	return user + " " + HashAPIKey(key), nil
}
