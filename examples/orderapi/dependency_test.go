package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"
)

// reguard puts other lines of defence around one service.
func (s *site) reguard(service string, d Defence) {
	log := slog.New(slog.DiscardHandler)
	switch service {
	case "inventory":
		s.shop.Inventory = Guard(service, s.base+"/inventory", BackOrder, d, log)
	case "payment":
		s.shop.Payment = Guard(service, s.base+"/payment", PaymentPending, d, log)
	case "shipping":
		s.shop.Shipping = Guard(service, s.base+"/shipping", ToBeArranged, d, log)
	}
}

// Whatever a service does, the customer gets an order, and the service is tried so often and not more.
func TestTroubleEndsInTheFallback(t *testing.T) {
	for _, c := range []struct {
		service                  string
		goods, payment, shipping Status
	}{
		{"inventory", BackOrder, Paid, ToBeArranged},
		{"payment", Reserved, PaymentPending, ToBeArranged},
		{"shipping", Reserved, Paid, ToBeArranged},
	} {
		for _, mode := range []string{"failing", "slow"} {
			t.Run(c.service+"="+mode, func(t *testing.T) {
				s := open(t, calm(), nil)
				alice := s.token("alice")
				if mode == "slow" {
					d := calm()
					d.Timeout = 20 * time.Millisecond
					s.reguard(c.service, d)
				}
				s.mode(c.service, mode)
				o := s.order(alice)
				if o.Goods != c.goods || o.Payment != c.payment || o.Shipping != c.shipping {
					t.Errorf("goods %s, payment %s, shipping %s; want %s, %s, %s",
						o.Goods, o.Payment, o.Shipping, c.goods, c.payment, c.shipping)
				}
				calls, _ := s.worked(c.service)
				if mode == "slow" && calls < 3 {
					calls = 3 // a try may run out of time before it gets there
				}
				if calls != 3 {
					t.Errorf("%d calls, want 3", calls)
				}
			})
		}
	}
}

// A payment whose answer never comes is asked for three times, and made once.
func TestRetriesChargeOnce(t *testing.T) {
	s := open(t, calm(), nil)
	d := calm()
	d.Timeout = 300 * time.Millisecond // enough for one of three to do the work; none gets an answer
	s.reguard("payment", d)
	s.mode("payment", "slow")
	s.order(s.token("alice"))
	if calls, charges := s.worked("payment"); calls > 3 || charges != 1 {
		t.Errorf("%d calls, %d charges; want at most 3, and 1", calls, charges)
	}
}

// The timeout is that of one try: the first one hangs, a later one answers.
func TestStuckTryLeavesTimeForTheNext(t *testing.T) {
	var calls atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server would not notice that the caller gives up
		if calls.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		writeJSON(w, http.StatusOK, map[string]Status{"status": Paid})
	}))
	defer service.Close()
	d := calm()
	d.Timeout, d.Tries = 200*time.Millisecond, 20
	payment := Guard("payment", service.URL, PaymentPending, d, slog.New(slog.DiscardHandler))
	if got := payment.Ask(t.Context(), "POST", "/charges", Order{ID: "1"}); got != Paid {
		t.Errorf("%s, want %s", got, Paid)
	}
}

func TestDeclinedPaymentIsAnAnswer(t *testing.T) {
	s := open(t, calm(), nil)
	got := s.ask("POST", "/orders", s.token("alice"), `{"item":"kettle","quantity":51}`)
	if got.code != http.StatusPaymentRequired {
		t.Errorf("%d %s, want 402", got.code, got.body)
	}
	if calls, _ := s.worked("payment"); calls != 1 {
		t.Errorf("payment: %d calls, want 1: no retry", calls)
	}
	if calls, _ := s.worked("shipping"); calls != 0 {
		t.Errorf("shipping: %d calls, want 0", calls)
	}
	if calls, kept := s.worked("inventory"); calls != 2 || kept != 0 {
		t.Errorf("inventory: %d calls, %d reservations; want 2, 0: it is released", calls, kept)
	}
	if n := len(s.shop.Orders()); n != 0 {
		t.Errorf("%d orders are kept, want 0", n)
	}
}

func TestOpenBreakerLeavesTheServiceAlone(t *testing.T) {
	d := calm()
	d.Failures = 5
	s := open(t, d, nil)
	alice := s.token("alice")
	s.mode("payment", "failing")
	for range 6 {
		if o := s.order(alice); o.Payment != PaymentPending {
			t.Fatalf("payment %s", o.Payment)
		}
	}
	// Three tries and two more. The third of the second order was not made.
	if calls, _ := s.worked("payment"); calls != 5 {
		t.Errorf("%d calls, want 5", calls)
	}
	s.mode("payment", "ok")
	s.order(alice) // in the hour of rest
	if calls, _ := s.worked("payment"); calls != 5 {
		t.Errorf("%d calls while the breaker rests, want 5", calls)
	}
	// Each service has a breaker of its own.
	if calls, _ := s.worked("inventory"); calls != 7 {
		t.Errorf("inventory: %d calls, want 7", calls)
	}
}

func TestBreakerClosesWhenTheServiceIsBack(t *testing.T) {
	d := calm()
	d.Failures, d.Rest = 5, time.Millisecond
	s := open(t, d, nil)
	alice := s.token("alice")
	s.mode("payment", "failing")
	for range 3 {
		s.order(alice)
	}
	s.mode("payment", "ok")
	for s.order(alice).Payment != Paid { // until the rest is over; the test's own timeout bounds it
	}
	for range 10 {
		if o := s.order(alice); o.Payment != Paid {
			t.Fatalf("payment %s after it was back", o.Payment)
		}
	}
}

// While one retry is under way, a budget of one lets nobody else retry.
func TestBudgetBoundsRetries(t *testing.T) {
	var calls atomic.Int32
	retried, release := make(chan struct{}), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 2 { // the first order's second try
			close(retried)
			<-release
			writeJSON(w, http.StatusOK, map[string]Status{"status": Paid})
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer service.Close()
	d := calm()
	d.Budget = budget.NewBuilder().WithMaxRate(0).WithMinConcurrency(1).Build()
	payment := Guard("payment", service.URL, PaymentPending, d, slog.New(slog.DiscardHandler))
	ask := func(id string) Status { return payment.Ask(t.Context(), "POST", "/charges", Order{ID: id}) }

	first := make(chan Status, 1)
	go func() { first <- ask("1") }()
	<-retried
	for _, id := range []string{"2", "3", "4"} {
		if got := ask(id); got != PaymentPending {
			t.Errorf("order %s: %s, want %s", id, got, PaymentPending)
		}
	}
	if n := calls.Load(); n != 5 {
		t.Errorf("%d calls, want 5: two of the first order, one of each other", n)
	}
	close(release)
	if got := <-first; got != Paid {
		t.Errorf("the first order: %s, want %s", got, Paid)
	}
}

func TestAnswersThatAreTrouble(t *testing.T) {
	for _, c := range []struct {
		what  string
		code  int
		body  string
		calls int32
	}{
		{"too many requests: no retry", 429, `{"status":"paid"}`, 1},
		{"unavailable", 503, `{"status":"paid"}`, 3},
		{"no JSON", 200, `<html>`, 3},
		{"no status", 200, `{}`, 3},
	} {
		var calls atomic.Int32
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			w.WriteHeader(c.code)
			w.Write([]byte(c.body))
		}))
		payment := Guard("payment", service.URL, PaymentPending, calm(), slog.New(slog.DiscardHandler))
		got := payment.Ask(t.Context(), "POST", "/charges", Order{ID: "1"})
		service.Close()
		if got != PaymentPending || calls.Load() != c.calls {
			t.Errorf("%s: %s after %d calls; want %s after %d", c.what, got, calls.Load(), PaymentPending, c.calls)
		}
	}
}

// A customer who hangs up leaves a whole order behind, not half of one.
func TestHangingUpLeavesAWholeOrder(t *testing.T) {
	s := open(t, calm(), nil)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	o, err := s.shop.Place(ctx, Order{Customer: "alice", Item: "kettle", Quantity: 1})
	if err != nil || o.Goods != Reserved || o.Payment != Paid || o.Shipping != Booked {
		t.Errorf("%+v, %v; want an order with nothing left to do", o, err)
	}
}

func TestShopKeepsTheLastOrders(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	d := calm()
	d.Tries, d.Failures = 1, 1
	shop := newAPI(down.URL, d, Limits{}, slog.New(slog.DiscardHandler)).Shop
	var first, last Order
	for i := range ordersKept + 1 {
		o, err := shop.Place(t.Context(), Order{Customer: "alice"})
		if err != nil && !errors.Is(err, ErrDeclined) {
			t.Fatal(err)
		}
		if i == 0 {
			first = o
		}
		last = o
	}
	if _, ok := shop.Order(first.ID); ok {
		t.Error("the oldest order is still there")
	}
	if _, ok := shop.Order(last.ID); !ok {
		t.Error("the newest order is not there")
	}
	if n := len(shop.Orders()); n != ordersKept {
		t.Errorf("%d orders, want %d", n, ordersKept)
	}
}
