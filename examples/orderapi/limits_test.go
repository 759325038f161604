package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// admitted asks until the API refuses, and is how often it did not. It fails the test if that is more than most.
func (s *site) admitted(method, path, token, body string, most int) int {
	s.t.Helper()
	for n := range most + 1 {
		if s.ask(method, path, token, body).code == http.StatusTooManyRequests {
			return n
		}
	}
	s.t.Fatalf("%s %s is still admitted after %d", method, path, most)
	return 0
}

// A flood of back-office reads, then of customers' reads, each stop where the room of those before them begins.
func TestFloodLeavesRoomForOrders(t *testing.T) {
	s := open(t, calm(), func(l *Limits) {
		l.Global = anHour("global", 40)
		l.Global.Headroom = 10
	})
	alice, office := s.token("alice"), s.token(officer) // 38 units left

	if got := s.admitted("GET", "/backoffice/orders", office, "", 40); got != 18 {
		t.Errorf("%d back-office reads, want 18: they leave 20", got)
	}
	s.order(alice) // 19 left
	if got := s.admitted("GET", "/orders/1", alice, "", 40); got != 9 {
		t.Errorf("%d customers' reads, want 9: they leave 10", got)
	}
	if got := s.ask("POST", "/orders", "", kettle).code; got != http.StatusTooManyRequests {
		t.Errorf("an order of nobody: %d, want 429: the room is for customers", got)
	}
	if got := s.admitted("POST", "/orders", alice, kettle, 40); got != 10 {
		t.Errorf("%d orders, want 10: they may take all", got)
	}
}

func TestUsersDoNotShareTheirAddress(t *testing.T) {
	s := open(t, calm(), func(l *Limits) { l.Client = anHour("client", 5) })
	alice, bob := s.token("alice"), s.token("bob") // two of the address

	if got := s.admitted("GET", "/orders/1", "", "", 9); got != 3 {
		t.Errorf("%d more of the address, want 3", got)
	}
	if got := s.admitted("GET", "/orders/1", alice, "", 9); got != 5 {
		t.Errorf("%d of alice, want 5", got)
	}
	if got := s.admitted("GET", "/orders/1", bob, "", 9); got != 5 {
		t.Errorf("%d of bob, want 5", got)
	}
	// Making up tokens makes nobody a new client.
	if got := s.ask("GET", "/orders/1", "made-up", "").code; got != http.StatusTooManyRequests {
		t.Errorf("a made-up token: %d, want 429", got)
	}
}

func TestLoginCountsOnlyWrongPasswords(t *testing.T) {
	s := open(t, calm(), func(l *Limits) { l.Login = anHour("login", 5) })
	for range 20 {
		s.token("alice")
	}
	if got := s.ask("POST", "/login", "", "not JSON").code; got != http.StatusBadRequest {
		t.Errorf("no JSON: %d, want 400", got)
	}
	for n := range 5 {
		if got := s.login("alice", "guess "+strconv.Itoa(n)); got.code != http.StatusUnauthorized {
			t.Errorf("guess %d: %d, want 401", n, got.code)
		}
	}
	if got := s.login("alice", "guess 6"); got.code != http.StatusTooManyRequests {
		t.Errorf("the sixth guess: %d, want 429", got.code)
	}
	if got := s.ask("POST", "/%6Cogin", "", `{"name":"alice","password":"guess"}`); got.code != http.StatusTooManyRequests {
		t.Errorf("a guess by another spelling of the path: %d, want 429", got.code)
	}
	// Else a guesser would see which password is right.
	if got := s.login("alice", "wonderland"); got.code != http.StatusTooManyRequests {
		t.Errorf("the right password after that: %d, want 429", got.code)
	}
	// Other routes are not the login's concern.
	if got := s.ask("GET", "/orders/1", "", "").code; got != http.StatusUnauthorized {
		t.Errorf("another route: %d, want 401", got)
	}
}

// Guesses that are made all at once are counted before any of them is answered.
func TestLoginLimitHoldsAgainstManyAtOnce(t *testing.T) {
	s := open(t, calm(), func(l *Limits) { l.Login = anHour("login", 5) })
	var tried sync.WaitGroup
	codes := make([]int, 50)
	for i := range codes {
		tried.Go(func() { codes[i] = s.login("alice", "guess").code })
	}
	tried.Wait()
	var wrong int
	for _, code := range codes {
		if code == http.StatusUnauthorized {
			wrong++
		}
	}
	if wrong != 5 {
		t.Errorf("%d of 50 guesses were tried, want 5", wrong)
	}
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	s := open(t, calm(), func(l *Limits) { l.Client = anHour("client", 1) })
	s.ask("GET", "/orders/1", "", "")
	got := s.ask("GET", "/orders/1", "", "")
	if got.code != http.StatusTooManyRequests {
		t.Fatalf("%d %s, want 429", got.code, got.body)
	}
	after, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil || after < 1 || after > int(time.Hour/time.Second) {
		t.Errorf("Retry-After %q; want whole seconds, at most an hour", got.header.Get("Retry-After"))
	}
	if kind := got.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/problem+json") {
		t.Errorf("Content-Type %q, want application/problem+json", kind)
	}
	var problem struct {
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
		t.Fatalf("%v in %s", err, got.body)
	}
	if problem.Status != 429 || !slices.Equal(problem.Violated, []string{"client"}) {
		t.Errorf("problem %+v; want status 429, violated client", problem)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q; want no-store", got.header.Get("Cache-Control"))
	}
}

// The limits that the program runs with are valid, and leave something for everybody.
func TestDefaultLimits(t *testing.T) {
	l := defaultLimits()
	if err := limited(l, http.NewServeMux()).Validate(); err != nil {
		t.Error(err)
	}
	if l.Global.Capacity() <= 2*l.Global.Headroom {
		t.Error("back-office reads are never admitted")
	}
}
