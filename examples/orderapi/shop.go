package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
)

// Order is what a customer asks for, and how far each step of it has come.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`

	Goods    Status `json:"goods"`    // Reserved or BackOrder
	Payment  Status `json:"payment"`  // Paid or PaymentPending
	Shipping Status `json:"shipping"` // Booked or ToBeArranged
}

// Status is how far a step has come, in the words of the service that does it.
type Status string

const (
	Reserved       Status = "reserved"
	BackOrder      Status = "back-order"
	Paid           Status = "paid"
	PaymentPending Status = "payment pending"
	Declined       Status = "declined"
	Booked         Status = "booked"
	ToBeArranged   Status = "to be arranged"
)

// ErrDeclined means that the customer's payment was refused. It is an answer, not an outage: no retry or fallback cures it.
var ErrDeclined = errors.New("payment declined")

// Shop takes orders. It is safe for concurrent use.
type Shop struct {
	Inventory, Payment, Shipping *Dependency

	mu     sync.Mutex
	orders []Order // the last ones, the newest at the end; a real shop has a database
}

const ordersKept = 1000

// Place carries an order through its steps. A dependency that is down or slow never fails the order: its fallback says
// what is left to do, and the shop does it later.
func (s *Shop) Place(ctx context.Context, o Order) (Order, error) {
	// Once begun, the steps are finished even if the customer hangs up: a charge without an order is worse than an answer
	// that nobody reads. The timeouts of the dependencies bound how long it takes.
	ctx = context.WithoutCancel(ctx)

	// One key for all steps and all their retries. It is what makes a retry safe: a payment whose answer was lost is
	// asked for again, and charged once.
	o.ID = rand.Text()

	o.Goods = s.Inventory.Ask(ctx, http.MethodPut, "/reservations/"+o.ID, o)
	o.Payment = s.Payment.Ask(ctx, http.MethodPost, "/charges", o)
	if o.Payment == Declined {
		// Best effort: a reservation that no order follows lapses in the inventory.
		s.Inventory.Ask(ctx, http.MethodDelete, "/reservations/"+o.ID, o)
		return o, ErrDeclined
	}
	// Nothing leaves the house that is not there, or not paid.
	o.Shipping = ToBeArranged
	if o.Goods == Reserved && o.Payment == Paid {
		o.Shipping = s.Shipping.Ask(ctx, http.MethodPut, "/shipments/"+o.ID, o)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orders) == ordersKept {
		s.orders = slices.Delete(s.orders, 0, 1)
	}
	s.orders = append(s.orders, o)
	return o, nil
}

// Order finds an order by its id.
func (s *Shop) Order(id string) (Order, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.orders, func(o Order) bool { return o.ID == id })
	if i < 0 {
		return Order{}, false
	}
	return s.orders[i], true
}

// Orders are the last orders of all customers, the oldest first.
func (s *Shop) Orders() []Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.orders)
}
