package frameworks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

var shops = map[string]func(*httplimit.Handler) http.Handler{
	"chi": ChiShop, "echo": EchoShop, "gin": GinShop,
}

// limits admit three requests of a user or an address, and two wrong passwords of an address, an hour.
func limits(t *testing.T) *httplimit.Handler {
	address := httplimit.ClientIP{}.Key
	h := &httplimit.Handler{Rules: []httplimit.Rule{
		{
			Limit: &weir.Limit{Name: "client", Rate: weir.Rate{Units: 3, Period: time.Hour}},
			Key:   httplimit.FirstOf(httplimit.User, address),
			When:  func(r *http.Request) bool { return r.URL.Path != "/login" },
		}, {
			Limit: &weir.Limit{Name: "login", Rate: weir.Rate{Units: 2, Period: time.Hour}},
			Key:   address,
			When:  func(r *http.Request) bool { return r.URL.Path == "/login" },
			Only:  func(status int) bool { return status == http.StatusUnauthorized },
		},
	}}
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	return h
}

func open(t *testing.T, shop func(*httplimit.Handler) http.Handler) (ask func(method, path, user, password string) (*http.Response, string)) {
	server := httptest.NewServer(shop(limits(t)))
	t.Cleanup(server.Close)
	return func(method, path, user, password string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest(method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Demo-User", user)
		req.Header.Set("X-Demo-Password", password)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}
}

func TestRefusedRequestsDoNotReachTheShop(t *testing.T) {
	for name, shop := range shops {
		t.Run(name, func(t *testing.T) {
			ask := open(t, shop)
			for range 3 {
				res, body := ask("GET", "/orders/42", "alice", "")
				if res.StatusCode != http.StatusOK || body != "42" || res.Header.Get("RateLimit") == "" {
					t.Fatalf("%d %q, RateLimit %q; want 200, 42 and a RateLimit", res.StatusCode, body, res.Header.Get("RateLimit"))
				}
			}
			res, body := ask("GET", "/orders/42", "alice", "")
			if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" ||
				!strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") ||
				!strings.HasSuffix(strings.TrimSpace(body), "}") {
				t.Errorf("%d %q, %v; want 429 with Retry-After and nothing but a problem", res.StatusCode, body, res.Header)
			}
			if res, _ := ask("GET", "/orders/42", "bob", ""); res.StatusCode != http.StatusOK {
				t.Errorf("another user: %d, want 200", res.StatusCode)
			}
			if res, _ := ask("GET", "/nowhere", "bob", ""); res.StatusCode != http.StatusNotFound {
				t.Errorf("no such route: %d, want 404", res.StatusCode)
			}
		})
	}
}

func TestOnlyWrongPasswordsCount(t *testing.T) {
	for name, shop := range shops {
		t.Run(name, func(t *testing.T) {
			ask := open(t, shop)
			for range 5 {
				if res, _ := ask("POST", "/login", "", "open sesame"); res.StatusCode != http.StatusOK {
					t.Fatalf("the right password: %d, want 200", res.StatusCode)
				}
			}
			for range 2 {
				if res, _ := ask("POST", "/login", "", "open barley"); res.StatusCode != http.StatusUnauthorized {
					t.Fatalf("a wrong password: %d, want 401", res.StatusCode)
				}
			}
			if res, _ := ask("POST", "/login", "", "open barley"); res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("the third wrong password: %d, want 429", res.StatusCode)
			}
		})
	}
}

// In front of the router there is nothing to adapt.
func TestInFrontOfTheRouter(t *testing.T) {
	for name, shop := range shops {
		t.Run(name, func(t *testing.T) {
			ask := open(t, func(h *httplimit.Handler) http.Handler {
				return identify(h.Middleware(shop(&httplimit.Handler{})))
			})
			for _, want := range []int{401, 401, 429} {
				if res, _ := ask("POST", "/login", "", "open barley"); res.StatusCode != want {
					t.Errorf("%d, want %d", res.StatusCode, want)
				}
			}
		})
	}
}
