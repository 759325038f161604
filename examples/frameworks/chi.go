package frameworks

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/weir-go/weir/httplimit"
)

// ChiShop is a shop on chi.
func ChiShop(limits *httplimit.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(identify, limits.Middleware)
	r.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(chi.URLParam(r, "id")))
	})
	r.Post("/login", func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	return r
}

// identify is the application's authentication, here without a password. It comes before the limits, which take the user from
// the context.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, identified(r))
	})
}

func identified(r *http.Request) *http.Request {
	return r.WithContext(httplimit.WithUser(r.Context(), r.Header.Get("X-Demo-User")))
}

// allowed is the password check of the login.
func allowed(r *http.Request) bool { return r.Header.Get("X-Demo-Password") == "open sesame" }
