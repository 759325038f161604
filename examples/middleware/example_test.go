package middleware_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

// The limits of the examples are per hour, so that what they print does not depend on the machine.
func perHour(name string, units int64) *weir.Limit {
	return &weir.Limit{Name: name, Rate: weir.Rate{Units: units, Period: time.Hour}}
}

// shop is what is to be protected.
func shop() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "kettle") })
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux.HandleFunc("GET /reports", func(w http.ResponseWriter, r *http.Request) {})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "wonderland" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	return mux
}

// ask sends a request to h and prints how it is answered.
func ask(h http.Handler, method, target string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	res := w.Result()
	fmt.Println(method, target, "→", res.StatusCode)
	return res
}

// A Handler stands in front of another. What it refuses does not reach that one, and the answer says when to come back.
func Example() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{
			{Limit: perHour("client", 2), Key: httplimit.ClientIP{}.Key},
		},
		Next: shop(),
	}
	if err := limits.Validate(); err != nil { // names what is wrong, before the first request
		fmt.Println(err)
		return
	}

	ask(limits, "GET", "/items")
	ask(limits, "GET", "/items")
	res := ask(limits, "GET", "/items")

	fmt.Println(res.Header.Get("RateLimit-Policy"))
	fmt.Println(res.Header.Get("Content-Type"))
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	json.NewDecoder(res.Body).Decode(&problem)
	fmt.Println(problem.Violated, res.Header.Get("Retry-After") != "")
	// Output:
	// GET /items → 200
	// GET /items → 200
	// GET /items → 429
	// "client";q=2;w=3600
	// application/problem+json
	// [client] true
}

// Middleware takes the form that routers and chains expect. Here only one route has a limit.
func Example_oneRoute() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{Limit: perHour("reports", 1)}},
	}
	reports := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})

	mux := http.NewServeMux()
	mux.Handle("GET /reports", limits.Middleware(reports))
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, r *http.Request) {})

	ask(mux, "GET", "/reports")
	ask(mux, "GET", "/reports")
	ask(mux, "GET", "/items")
	// Output:
	// GET /reports → 200
	// GET /reports → 429
	// GET /items → 200
}

// Whoever is signed in is counted by name, everybody else by address. The user comes from the application's own
// authentication, which stands in front and calls WithUser once it has verified who it is.
func Example_users() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: perHour("client", 1),
			Key:   httplimit.FirstOf(httplimit.User, httplimit.ClientIP{}.Key),
		}},
		Next: shop(),
	}
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.FormValue("as"); user != "" { // stands for a verified session
			r = r.WithContext(httplimit.WithUser(r.Context(), user))
		}
		limits.ServeHTTP(w, r)
	})

	ask(authenticated, "GET", "/items?as=alice")
	ask(authenticated, "GET", "/items?as=alice")
	ask(authenticated, "GET", "/items?as=bob")
	ask(authenticated, "GET", "/items")
	// Output:
	// GET /items?as=alice → 200
	// GET /items?as=alice → 429
	// GET /items?as=bob → 200
	// GET /items → 200
}

// Only counts certain answers: wrong passwords cost, right ones do not.
func Example_login() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: perHour("login", 2),
			Key:   httplimit.ClientIP{}.Key,
			When:  func(r *http.Request) bool { return r.URL.Path == "/login" },
			Only:  func(status int) bool { return status == http.StatusUnauthorized },
		}},
		Next: shop(),
	}

	for range 3 {
		ask(limits, "POST", "/login?password=wonderland")
	}
	for range 3 {
		ask(limits, "POST", "/login?password=guess")
	}
	// Output:
	// POST /login?password=wonderland → 200
	// POST /login?password=wonderland → 200
	// POST /login?password=wonderland → 200
	// POST /login?password=guess → 401
	// POST /login?password=guess → 401
	// POST /login?password=guess → 429
}

// Headroom keeps the last units of one bucket for what matters most. Of six, reports leave four, reads two, and orders
// none.
func Example_priorities() {
	global := perHour("global", 6)
	global.Headroom = 2
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: global,
			Priority: func(r *http.Request) weir.Priority {
				switch r.URL.Path {
				case "/orders":
					return weir.High
				case "/reports":
					return weir.Low
				}
				return weir.Normal
			},
		}},
		Next: shop(),
	}

	for _, request := range []string{"GET /reports", "GET /items", "POST /orders"} {
		method, path, _ := strings.Cut(request, " ")
		for range 3 {
			ask(limits, method, path)
		}
	}
	// Output:
	// GET /reports → 200
	// GET /reports → 200
	// GET /reports → 429
	// GET /items → 200
	// GET /items → 200
	// GET /items → 429
	// POST /orders → 201
	// POST /orders → 201
	// POST /orders → 429
}

// A batch costs as much as it has parts. What the limit can never admit is refused as such: no wait will help.
func Example_cost() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: perHour("items", 5),
			Cost: func(r *http.Request) (int64, error) {
				return int64(len(strings.Split(r.FormValue("ids"), ","))), nil
			},
		}},
		Next: shop(),
	}

	ask(limits, "GET", "/items?ids=1,2,3")
	ask(limits, "GET", "/items?ids=4,5,6")
	ask(limits, "GET", "/items?ids=4,5")
	res := ask(limits, "GET", "/items?ids=1,2,3,4,5,6")
	fmt.Printf("Retry-After %q\n", res.Header.Get("Retry-After"))
	// Output:
	// GET /items?ids=1,2,3 → 200
	// GET /items?ids=4,5,6 → 429
	// GET /items?ids=4,5 → 200
	// GET /items?ids=1,2,3,4,5,6 → 429
	// Retry-After ""
}

// All limits of a request are charged, or none: what one limit refuses costs nothing in the others.
func Example_allOrNothing() {
	daily, reports := perHour("daily", 3), perHour("reports", 1)
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{
			{Limit: daily},
			{Limit: reports, When: func(r *http.Request) bool { return r.URL.Path == "/reports" }},
		},
		Next: shop(),
	}

	for range 9 { // one is admitted
		limits.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/reports", nil))
	}
	ask(limits, "GET", "/items")
	ask(limits, "GET", "/items")
	ask(limits, "GET", "/items")
	// Output:
	// GET /items → 200
	// GET /items → 200
	// GET /items → 429
}

// A Shadow limit refuses nobody. Observe is told what it would have done, before it is switched on for real.
func Example_shadow() {
	trial := perHour("trial", 1)
	trial.Shadow = true
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{Limit: trial}},
		Next:  shop(),
		Observe: func(r *http.Request, d weir.Decision, err error) {
			for _, o := range d.Outcomes() {
				if o.Refused() {
					fmt.Println(o.Limit.Name, "would refuse", r.URL.Path)
				}
			}
		},
	}

	ask(limits, "GET", "/items")
	ask(limits, "GET", "/items")
	// Output:
	// GET /items → 200
	// trial would refuse /items
	// GET /items → 200
}

// Refuse writes the refusal in the application's own form.
func Example_refusal() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{Limit: perHour("global", 1)}},
		Next:  shop(),
		Form:  httplimit.FormNone,
		Refuse: func(w http.ResponseWriter, r *http.Request, f *httplimit.Refusal) {
			w.WriteHeader(f.Status())
			fmt.Fprint(w, "Come back later.")
		},
	}

	ask(limits, "GET", "/items")
	res := ask(limits, "GET", "/items")
	body, _ := io.ReadAll(res.Body)
	fmt.Printf("%s %q\n", body, res.Header.Get("RateLimit"))
	// Output:
	// GET /items → 200
	// GET /items → 429
	// Come back later. ""
}
