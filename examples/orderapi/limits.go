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
	// No proxy stands in front of this program: the peer is the client, and no header is believed.
	address := httplimit.ClientIP{}.Key

	// What mux will match, however the path is spelled: POST /%6Cogin is a login as well.
	route := func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}

	return &httplimit.Handler{
		Rules: []httplimit.Rule{
			// Who gives way first when the shop as a whole runs short: the back office can wait, orders cannot. Only orders of
			// users go first; else anybody could use up their room with orders that end in 401.
			{Limit: limits.Global, Priority: func(r *http.Request) weir.Priority {
				switch route(r) {
				case "GET /backoffice/orders":
					return weir.Low
				case "POST /orders":
					if httplimit.UserFrom(r.Context()) != "" {
						return weir.High
					}
				}
				return weir.Normal
			}},

			// Users behind one address do not spend each other's units, and a user has no more of them for
			// using many addresses.
			{Limit: limits.Client, Key: httplimit.FirstOf(httplimit.User, address)},

			// By address, since nobody has signed in yet; by name, a stranger could lock users out. Only wrong
			// passwords count, so that an office behind one address can sign in each morning.
			{
				Limit: limits.Login,
				Key:   address,
				When:  func(r *http.Request) bool { return route(r) == "POST /login" },
				Only: func(status int) bool {
					return status == http.StatusUnauthorized || status == http.StatusForbidden
				},
			},
		},
		Next: mux,
	}
}
