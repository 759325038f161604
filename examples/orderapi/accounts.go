package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"

	"github.com/weir-go/weir/httplimit"
)

// Accounts know who may sign in, and who has. It stands for whatever authentication the application has; to weir only
// the result matters, a user in the request's context. It is safe for concurrent use.
type Accounts struct {
	passwords map[string]string // by name; a real shop keeps slow, salted hashes

	mu    sync.Mutex
	users map[string]string // by token, one token a user
}

func newAccounts() *Accounts {
	return &Accounts{
		passwords: map[string]string{"alice": "wonderland", "bob": "builder", officer: "backstage"},
		users:     map[string]string{},
	}
}

// officer is the user who may read everybody's orders.
const officer = "office"

// Login is a fresh token for the user, who has to name the right password. It ends the token before.
func (a *Accounts) Login(name, password string) (token string, ok bool) {
	want, known := a.passwords[name]
	// Hashed and compared in constant time, whether or not the name is known: how long it takes tells nothing.
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(w[:], g[:]) != 1 || !known {
		return "", false
	}
	token = rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	for old, user := range a.users {
		if user == name {
			delete(a.users, old)
		}
	}
	a.users[token] = name
	return token, true
}

// Identify puts the user that a request's token stands for into its context, for the limits and for the handlers. Without a
// valid token it leaves the request anonymous: then its address is counted, and a handler that needs a user answers 401.
func (a *Accounts) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			a.mu.Lock()
			user, ok := a.users[token]
			a.mu.Unlock()
			if ok {
				r = r.WithContext(httplimit.WithUser(r.Context(), user))
			}
		}
		next.ServeHTTP(w, r)
	})
}
