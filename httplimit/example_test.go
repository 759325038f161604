package httplimit_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

func orders(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ordered\n") }

// A limit for all requests together, and one for each client.
func Example() {
	var (
		global = &weir.Limit{Name: "global", Rate: weir.Rate{Units: 5000, Period: time.Hour}}
		client = &weir.Limit{Name: "client", Rate: weir.Rate{Units: 1, Period: time.Hour}}
		ip     = httplimit.ClientIP{}
	)
	h := &httplimit.Handler{
		Rules: []httplimit.Rule{
			{Limit: global},
			{Limit: client, Key: httplimit.FirstOf(httplimit.User, ip.Key)},
		},
		Next: http.HandlerFunc(orders),
	}
	if err := h.Validate(); err != nil {
		fmt.Println(err)
		return
	}

	server := httptest.NewServer(h)
	defer server.Close()
	for range 2 {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status, resp.Header.Get("Content-Type"))
		fmt.Println(resp.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 200 OK text/plain; charset=utf-8
	// "global";q=5000;w=3600, "client";q=1;w=3600
	// 429 Too Many Requests application/problem+json
	// "client";q=1;w=3600
}

// A login that counts wrong passwords only, by address.
func ExampleRule_only() {
	h := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: &weir.Limit{Name: "login", Rate: weir.Rate{Units: 2, Period: time.Hour}},
			Key:   httplimit.ClientIP{}.Key,
			Only:  func(status int) bool { return status == http.StatusUnauthorized },
		}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("password") != "open sesame" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}),
	}
	for _, password := range []string{"open+sesame", "open+sesame", "open+sesame", "guess", "guess", "guess"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login?password="+password, nil))
		fmt.Print(w.Code, " ")
	}
	// Output: 200 200 200 401 401 429
}

// The items of a batch are what it costs.
func ExampleRule_cost() {
	h := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: &weir.Limit{Name: "items", Rate: weir.Rate{Units: 100, Period: time.Hour}},
			Cost: func(r *http.Request) (int64, error) {
				n, err := strconv.ParseInt(r.Header.Get("X-Items"), 10, 64)
				if err != nil {
					return 0, errors.New("no number of items")
				}
				return n, nil
			},
		}},
		Next: http.HandlerFunc(orders),
	}
	for _, items := range []string{"60", "", "500"} {
		r := httptest.NewRequest("POST", "/batch", nil)
		r.Header.Set("X-Items", items)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 ordered
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"The cost of the request cannot be determined."}
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"Limit items: cost 500 exceeds capacity 100.","violated-policies":["items"],"retryable":false}
}

// Behind a proxy at 10.0.0.1, what the client wrote into the header itself does not count.
func ExampleClientIP() {
	ip := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:40000"
	r.Header.Set("X-Forwarded-For", "1.2.3.4, 2001:db8:1:2::3")
	addr, _ := ip.Addr(r)
	fmt.Println(addr)
	fmt.Println(ip.Key(r))
	// Output:
	// 2001:db8:1:2::3
	// ip:2001:db8:1:2::/64
}

// Handler.Middleware has the form that routers take: chi's Use, or echo's and gin's adapters for net/http.
func ExampleHandler_Middleware() {
	limits := &httplimit.Handler{
		Rules: []httplimit.Rule{{
			Limit: &weir.Limit{Name: "route", Rate: weir.Rate{Units: 1, Period: time.Hour}},
			Key:   httplimit.Route,
		}},
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limits.Middleware(http.HandlerFunc(orders)))
	mux.Handle("GET /invoices/{id}", limits.Middleware(http.HandlerFunc(orders)))
	for _, path := range []string{"/orders/1", "/orders/2", "/invoices/1"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /orders/1 200
	// /orders/2 429
	// /invoices/1 200
}
