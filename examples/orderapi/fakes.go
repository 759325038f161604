package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Fakes stand in for inventory, payment and shipping, so that the program needs nothing else to run:
//
//	/inventory/…  has ten of everything; more are a back-order
//	/payment/…    declines more than fifty, and charges once for each Idempotency-Key
//	/shipping/…   ships everything
//
// Each behaves as it is told: PUT /payment/mode with ok, slow (works, but never answers) or failing (500). GET
// /payment/mode says how often it was called, and for how many keys it did its work.
type Fakes struct {
	http.Handler
	services map[string]*fake
}

// fake is one service.
type fake struct {
	answer func(Order) (code int, status Status)

	mu    sync.Mutex
	mode  string
	calls int
	done  map[string]Status // by Idempotency-Key
}

func newFakes() *Fakes {
	services := map[string]*fake{
		"inventory": {answer: func(o Order) (int, Status) {
			if o.Quantity > 10 {
				return http.StatusOK, BackOrder
			}
			return http.StatusOK, Reserved
		}},
		"payment": {answer: func(o Order) (int, Status) {
			if o.Quantity > 50 {
				return http.StatusPaymentRequired, Declined
			}
			return http.StatusOK, Paid
		}},
		"shipping": {answer: func(Order) (int, Status) { return http.StatusOK, Booked }},
	}
	mux := http.NewServeMux()
	for name, s := range services {
		s.mode, s.done = "ok", map[string]Status{}
		mux.HandleFunc("GET /"+name+"/mode", s.report)
		mux.HandleFunc("PUT /"+name+"/mode", s.set)
		mux.HandleFunc("/"+name+"/", s.work)
	}
	return &Fakes{Handler: mux, services: services}
}

func (s *fake) report(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, "mode %s, %d calls, work done for %d keys\n", s.mode, s.calls, len(s.done))
}

func (s *fake) set(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 16))
	switch mode := string(text); mode {
	case "ok", "slow", "failing":
		s.mu.Lock()
		s.mode = mode
		s.mu.Unlock()
		s.report(w, r)
	default:
		http.Error(w, "mode is ok, slow or failing", http.StatusBadRequest)
	}
}

func (s *fake) work(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mode, code, status := s.do(r.Method, r.Header.Get("Idempotency-Key"), o)
	if mode == "slow" {
		<-r.Context().Done() // the caller has given up
		return
	}
	writeJSON(w, code, map[string]Status{"status": status})
}

// do is the work, at most once for a key.
func (s *fake) do(method, key string, o Order) (mode string, code int, status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	code, status = s.answer(o)
	switch {
	case s.mode == "failing":
		return s.mode, http.StatusInternalServerError, ""
	case method == http.MethodDelete:
		delete(s.done, key)
	case code == http.StatusOK:
		s.done[key] = status
	}
	return s.mode, code, status
}
