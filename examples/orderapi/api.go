package main

import (
	"encoding/json"
	"net/http"

	"github.com/weir-go/weir/httplimit"
)

// API is the shop over HTTP:
//
//	POST /login              {"name": …, "password": …}  → {"token": …}
//	POST /orders             {"item": …, "quantity": …}  → the order
//	GET  /orders/{id}        an order of one's own
//	GET  /backoffice/orders  all orders, for the back office
type API struct {
	Shop     *Shop
	Accounts *Accounts
	Limits   Limits
}

// Handler is the API with its limits. A request goes through three layers: who is it, may it come in, and what does it want.
// The error says which limit is wrong.
func (a *API) Handler() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", a.login)
	mux.HandleFunc("POST /orders", signedIn(a.place))
	mux.HandleFunc("GET /orders/{id}", signedIn(a.order))
	mux.HandleFunc("GET /backoffice/orders", signedIn(a.orders))
	limits := limited(a.Limits, mux)
	return a.Accounts.Identify(limits), limits.Validate()
}

func (a *API) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ Name, Password string }
	if !readJSON(w, r, &in) {
		return
	}
	token, ok := a.Accounts.Login(in.Name, in.Password)
	if !ok {
		problem(w, http.StatusUnauthorized, "name or password is wrong")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, map[string]string{"token": token})
}

func (a *API) place(w http.ResponseWriter, r *http.Request, user string) {
	var in struct {
		Item     string
		Quantity int
	}
	if !readJSON(w, r, &in) {
		return
	}
	if in.Item == "" || in.Quantity < 1 || in.Quantity > 100 {
		problem(w, http.StatusUnprocessableEntity, "an order has an item, and a quantity from 1 to 100")
		return
	}
	o, err := a.Shop.Place(r.Context(), Order{Customer: user, Item: in.Item, Quantity: in.Quantity})
	if err != nil {
		problem(w, http.StatusPaymentRequired, err.Error())
		return
	}
	w.Header().Set("Location", "/orders/"+o.ID)
	writeJSON(w, http.StatusCreated, o)
}

func (a *API) order(w http.ResponseWriter, r *http.Request, user string) {
	o, ok := a.Shop.Order(r.PathValue("id"))
	if !ok || o.Customer != user { // of others' orders not even the existence is told
		problem(w, http.StatusNotFound, "no such order")
		return
	}
	writeJSON(w, http.StatusOK, o)
}

func (a *API) orders(w http.ResponseWriter, _ *http.Request, user string) {
	if user != officer {
		problem(w, http.StatusForbidden, "for the back office only")
		return
	}
	writeJSON(w, http.StatusOK, a.Shop.Orders())
}

// signedIn refuses whoever is not.
func signedIn(next func(w http.ResponseWriter, r *http.Request, user string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user := httplimit.UserFrom(r.Context())
		if user == "" {
			problem(w, http.StatusUnauthorized, "sign in at POST /login, and send Authorization: Bearer with the token")
			return
		}
		next(w, r, user)
	}
}

// readJSON reads a small JSON body, or answers 400 or 413.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	switch err.(type) {
	case nil:
		return true
	case *http.MaxBytesError:
		problem(w, http.StatusRequestEntityTooLarge, err.Error())
	default:
		problem(w, http.StatusBadRequest, err.Error())
	}
	return false
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // an error here means that the client has gone
}

// problem answers with an RFC 9457 problem, the form that weir's own refusals have.
func problem(w http.ResponseWriter, code int, detail string) {
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{
		"title":  http.StatusText(code),
		"status": code,
		"detail": detail,
	})
}
