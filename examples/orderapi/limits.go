package main

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

// Limits are what the API takes on.
type Limits struct {
	Global *weir.Limit // all requests together
	Client *weir.Limit // each user, or each address that has not signed in
	Login  *weir.Limit // wrong passwords, each address
}

// defaultLimits are small, so that they can be reached with curl.
func defaultLimits() Limits {
	return Limits{
		// What the shop can serve. Of the 40, back-office reads may use 20 and customers without an order 30: the last 10
		// are for orders.
		Global: &weir.Limit{Name: "global", Rate: weir.Rate{Units: 5, Period: time.Second}, Burst: 40, Headroom: 10},

		// One client's fair share. A burst lets a page load its parts at once.
		Client: &weir.Limit{Name: "client", Rate: weir.Rate{Units: 120, Period: time.Minute}, Burst: 60},

		// Nobody forgets a password five times in a quarter of an hour; who guesses tries thousands.
		Login: &weir.Limit{Name: "login", Rate: weir.Rate{Units: 5, Period: 15 * time.Minute}},
	}
}

// limited puts the limits in front of mux. They stand in front of all of it, so that no route, known or not, is forgotten.
// A request is charged to all its limits at once or, if one of them refuses, to none.
func limited(limits Limits, mux *http.ServeMux) *httplimit.Handler {
	// A program on the internet, without a proxy in front: the peer is the client, and no header is believed.
	address := httplimit.ClientIP{}.Key

	return &httplimit.Handler{
		Limiter: &weir.Limiter{},
		Rules: []httplimit.Rule{
			{Limit: limits.Global, Priority: priority(mux)},

			// Users behind one address do not spend each other's units, and a user has no more of them for
			// using many addresses.
			{Limit: limits.Client, Key: httplimit.FirstOf(httplimit.User, address)},

			// By address, since nobody has signed in yet: by name, a stranger could lock users out. Only wrong
			// passwords count, so that an office behind one address can sign in each morning.
			{Limit: limits.Login, Key: address, When: route(mux, "POST /login"), Only: func(status int) bool {
				return status == http.StatusUnauthorized || status == http.StatusForbidden
			}},
		},
		Next: mux,
	}
}

// priority is who gives way first when the shop as a whole runs short: reads of the back office can wait, orders cannot.
// Only users' orders go first. Else anybody could use up the headroom with orders that end in 401.
func priority(mux *http.ServeMux) func(*http.Request) weir.Priority {
	order, office := route(mux, "POST /orders"), route(mux, "GET /backoffice/orders")
	return func(r *http.Request) weir.Priority {
		switch {
		case office(r):
			return weir.Low
		case order(r) && httplimit.UserFrom(r.Context()) != "":
			return weir.High
		}
		return weir.Normal
	}
}

// route tells requests that mux will match by a pattern, however their path is spelled.
func route(mux *http.ServeMux, pattern string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		_, matched := mux.Handler(r)
		return matched == pattern
	}
}
