package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/weir-go/weir"
)

// site is the whole shop on loopback: the API, and the services behind it.
type site struct {
	t     *testing.T
	url   string
	base  string // of the services
	shop  *Shop
	fakes *Fakes
}

// open starts a site. Its limits are what the test sets in edit, and else so wide that they do not matter.
func open(t *testing.T, d Defence, edit func(*Limits)) *site {
	t.Helper()
	fakes := newFakes()
	services := httptest.NewServer(fakes)
	t.Cleanup(services.Close)
	limits := Limits{Global: anHour("global", 1e5), Client: anHour("client", 1e5), Login: anHour("login", 1e5)}
	if edit != nil {
		edit(&limits)
	}
	api := newAPI(services.URL, d, limits, slog.New(slog.DiscardHandler))
	handler, err := api.Handler()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &site{t: t, url: server.URL, base: services.URL, shop: api.Shop, fakes: fakes}
}

// anHour is a limit of so many at once, of which one an hour comes back: during a test, none.
func anHour(name string, burst int64) *weir.Limit {
	return &weir.Limit{Name: name, Rate: weir.Rate{Units: 1, Period: time.Hour}, Burst: burst}
}

// calm is a Defence that no healthy service runs into, however slow the machine.
func calm() Defence {
	return Defence{
		Timeout:  time.Minute,
		Tries:    3,
		Pause:    time.Millisecond,
		Failures: 1000,
		Rest:     time.Hour,
		Budget:   budget.New(),
	}
}

// mode tells a service how to behave.
func (s *site) mode(service, mode string) {
	s.t.Helper()
	req, _ := http.NewRequest(http.MethodPut, s.base+"/"+service+"/mode", strings.NewReader(mode))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("mode %s of %s: status %d", mode, service, res.StatusCode)
	}
}

// worked is how often a service was called, and for how many orders it did its work.
func (s *site) worked(service string) (calls, orders int) {
	f := s.fakes.services[service]
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, len(f.done)
}

// answer is what the API said.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (s *site) ask(method, path, token, body string) answer {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

func (s *site) login(name, password string) answer {
	s.t.Helper()
	body, _ := json.Marshal(map[string]string{"name": name, "password": password})
	return s.ask(http.MethodPost, "/login", "", string(body))
}

// token signs a user in.
func (s *site) token(name string) string {
	s.t.Helper()
	a := s.login(name, newAccounts().passwords[name])
	var in struct{ Token string }
	if err := json.Unmarshal([]byte(a.body), &in); a.code != http.StatusOK || err != nil {
		s.t.Fatalf("login of %s: %d %s", name, a.code, a.body)
	}
	return in.Token
}

const kettle = `{"item":"kettle","quantity":1}`

// order places an order that must succeed.
func (s *site) order(token string) Order {
	s.t.Helper()
	a := s.ask(http.MethodPost, "/orders", token, kettle)
	var o Order
	if err := json.Unmarshal([]byte(a.body), &o); a.code != http.StatusCreated || err != nil {
		s.t.Fatalf("order: %d %s", a.code, a.body)
	}
	return o
}

func TestOrderIsFoundByItsCustomerOnly(t *testing.T) {
	s := open(t, calm(), nil)
	alice, bob, office := s.token("alice"), s.token("bob"), s.token(officer)
	a := s.ask(http.MethodPost, "/orders", alice, kettle)
	if a.code != http.StatusCreated {
		t.Fatalf("order: %d %s", a.code, a.body)
	}
	where := a.header.Get("Location")
	for _, want := range []string{`"customer":"alice"`, `"goods":"reserved"`, `"payment":"paid"`, `"shipping":"booked"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the order has no %s: %s", want, a.body)
		}
	}
	if got := s.ask(http.MethodGet, where, alice, ""); got.code != http.StatusOK || got.body != a.body {
		t.Errorf("to its customer: %d %s; want 200 and the order", got.code, got.body)
	}
	if got := s.ask(http.MethodGet, where, bob, ""); got.code != http.StatusNotFound {
		t.Errorf("to another customer: %d, want 404", got.code)
	}
	if got := s.ask(http.MethodGet, "/backoffice/orders", office, ""); got.code != http.StatusOK || !strings.Contains(got.body, `"alice"`) {
		t.Errorf("to the back office: %d %s; want 200 and the order", got.code, got.body)
	}
}

func TestWrongRequests(t *testing.T) {
	s := open(t, calm(), nil)
	alice := s.token("alice")
	for _, c := range []struct {
		what, method, path, token, body string
		want                            int
	}{
		{"without token", "POST", "/orders", "", kettle, 401},
		{"made-up token", "POST", "/orders", "open-sesame", kettle, 401},
		{"customer in the back office", "GET", "/backoffice/orders", alice, "", 403},
		{"no such order", "GET", "/orders/1", alice, "", 404},
		{"no such route", "GET", "/", alice, "", 404},
		{"wrong method", "DELETE", "/orders", alice, "", 405},
		{"no JSON", "POST", "/orders", alice, "kettle", 400},
		{"unknown field", "POST", "/orders", alice, `{"item":"kettle","quantity":1,"price":0}`, 400},
		{"no item", "POST", "/orders", alice, `{"quantity":1}`, 422},
		{"negative quantity", "POST", "/orders", alice, `{"item":"kettle","quantity":-1}`, 422},
		{"huge body", "POST", "/orders", alice, `{"item":"` + strings.Repeat("k", 1<<20) + `"}`, 413},
		{"too many for the card", "POST", "/orders", alice, `{"item":"kettle","quantity":51}`, 402},
	} {
		if got := s.ask(c.method, c.path, c.token, c.body); got.code != c.want {
			t.Errorf("%s: %d %s; want %d", c.what, got.code, got.body, c.want)
		}
	}
}

// A token is worth nothing once its user has signed in again.
func TestLoginEndsTheTokenBefore(t *testing.T) {
	s := open(t, calm(), nil)
	old, fresh := s.token("alice"), s.token("alice")
	if got := s.ask(http.MethodPost, "/orders", old, kettle); got.code != http.StatusUnauthorized {
		t.Errorf("with the old token: %d, want 401", got.code)
	}
	s.order(fresh)
}

// The program as a user runs it: it says where it is, serves, and on a signal finishes what it has begun.
func TestProgramFinishesItsOrders(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-fakes", "127.0.0.1:0"}, stdout, io.Discard)
		stdout.Close()
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	urls := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindAllString(first, -1)
	if err != nil || len(urls) != 2 {
		t.Fatalf("first line %q, %v; want two URLs", first, err)
	}
	go io.Copy(io.Discard, lines)
	s := &site{t: t, url: urls[0], base: urls[1]}

	alice := s.token("alice")
	s.mode("payment", "slow")
	placed := make(chan answer, 1)
	go func() { placed <- s.ask(http.MethodPost, "/orders", alice, kettle) }()
	services := &site{t: t, url: s.base}
	for strings.Contains(services.ask(http.MethodGet, "/payment/mode", "", "").body, " 0 calls") {
	}
	interrupt()
	if got := <-placed; got.code != http.StatusCreated || !strings.Contains(got.body, string(PaymentPending)) {
		t.Errorf("the open order: %d %s; want 201, payment pending", got.code, got.body)
	}
	if err := <-ended; err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestProgramRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-nonsense"}, {"-addr", "127.0.0.1:99999", "-fakes", "127.0.0.1:0"}, {"-fakes", "nowhere"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
