package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weir-go/weir"
)

// A login that counts failures only.
func TestOnly(t *testing.T) {
	login := &weir.Limit{Name: "login", Rate: rate(t, "3/h")}
	url := serve(t, &Handler{
		Rules: []Rule{{Limit: login, Key: ClientIP{}.Key, Only: func(status int) bool { return status == 401 || status == 500 }}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/wrong":
				w.WriteHeader(http.StatusEarlyHints) // no answer yet
				w.WriteHeader(http.StatusUnauthorized)
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/silent":
			default:
				w.WriteHeader(http.StatusOK)
				w.WriteHeader(http.StatusUnauthorized) // too late to count
			}
		}),
	})
	for i := range 10 {
		for _, path := range []string{"/right", "/silent"} {
			if a := ask(t, "GET", url+path); a.status != 200 || !strings.HasPrefix(a.header.Get("RateLimit"), `"login";r=2;`) {
				t.Fatalf("%s %d: %d, RateLimit %s", path, i, a.status, a.header.Get("RateLimit"))
			}
		}
	}
	if _, err := http.Post(url+"/panic", "", nil); err == nil { // a GET would be sent again
		t.Error("the panic did not reach the server")
	}
	for i, want := range []int{401, 401, 429} {
		if a := ask(t, "GET", url+"/wrong"); a.status != want {
			t.Errorf("wrong %d: %d, want %d", i, a.status, want)
		}
	}
	if a := ask(t, "GET", url+"/right"); a.status != 429 {
		t.Errorf("right password after too many wrong ones: %d, want 429", a.status)
	}
}

// However many guesses come at once, no more than the limit are looked at.
func TestOnlyAtOnce(t *testing.T) {
	login := &weir.Limit{Name: "login", Rate: rate(t, "3/h")}
	var mu sync.Mutex
	looked, gate := 0, make(chan struct{})
	url := serve(t, &Handler{
		Rules: []Rule{{Limit: login, Only: func(status int) bool { return status == 401 }}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			looked++
			mu.Unlock()
			<-gate
			w.WriteHeader(401)
		}),
	})
	var wg sync.WaitGroup
	statuses := make(chan int, 20)
	for range 20 {
		wg.Go(func() { statuses <- ask(t, "GET", url).status })
	}
	for range 17 {
		if s := <-statuses; s != 429 {
			t.Errorf("answered %d while three guesses are open", s)
		}
	}
	close(gate)
	wg.Wait()
	if looked != 3 {
		t.Errorf("%d guesses were looked at, want 3", looked)
	}
}

// A concurrency unit comes back when the handler returns, or panics, and not before; a shadow one that was never
// taken does not.
func TestConcurrency(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "2/h")}
	total := &weir.Limit{Name: "total", Rate: rate(t, "1000/h")}
	started, gate := make(chan struct{}, 2), make(chan struct{})
	var lim weir.Limiter
	url := serve(t, &Handler{
		Limiter: &lim,
		Rules:   []Rule{{Limit: total}, {Limit: open}},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, wraps := w.(interface{ Unwrap() http.ResponseWriter }); wraps {
				t.Error("the ResponseWriter is wrapped though no answer is looked at")
			}
			switch r.URL.Path {
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/slow":
				started <- struct{}{}
				<-gate
			}
		}),
	})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { ask(t, "GET", url+"/slow") })
		<-started
	}
	a := ask(t, "GET", url)
	if p := readProblem(t, a); a.status != 429 || a.header.Get("Retry-After") != "1" || p.Violated[0] != "open" {
		t.Errorf("a third at once: %d %v %s", a.status, a.header, a.body)
	}
	if got := a.header.Get("RateLimit"); got != `"open";r=0` {
		t.Errorf("RateLimit %s", got)
	}
	close(gate)
	wg.Wait()
	for range 5 {
		http.Post(url+"/panic", "", nil)
	}
	if a := ask(t, "GET", url); a.status != 200 {
		t.Errorf("after all have ended: %d", a.status)
	}
	if d := take(t, &lim, open.For("").Costing(0), total.For("").Costing(0)); d.Outcomes()[0].Remaining != 2 || d.Outcomes()[1].Remaining != 1000-8 {
		t.Errorf("left: %d open, %d total; want 2, %d", d.Outcomes()[0].Remaining, d.Outcomes()[1].Remaining, 1000-8)
	}
}

// distant is a Store that, as one behind a network does, stops when its caller has.
type distant struct{ weir.Store }

func (s distant) Apply(ctx context.Context, tx *weir.Tx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Apply(ctx, tx)
}

// A client that leaves does not keep its unit.
func TestConcurrencyClientLeaves(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "1/h")}
	lim := weir.Limiter{Store: distant{&weir.Memory{}}}
	h := &Handler{Limiter: &lim, Rules: []Rule{{Limit: open}}}
	ctx, leave := context.WithCancel(context.Background())
	h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leave() })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if d := take(t, &lim, open.For("").Costing(0)); d.Outcomes()[0].Remaining != 1 {
		t.Error("the unit has not come back")
	}
}

// A shadow limit that would have refused has taken nothing, and nothing is given back: here it would be the unit of
// another request of the same microsecond.
func TestConcurrencyShadow(t *testing.T) {
	open := &weir.Limit{Name: "open", Algorithm: weir.Concurrency, Rate: rate(t, "1/h"), Shadow: true}
	lim := (&clock{now: noon}).limiter()
	take(t, lim, open.For(""))
	h := &Handler{Limiter: lim, Rules: []Rule{{Limit: open}}, Next: http.HandlerFunc(ok)}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if d := take(t, lim, open.For("").Costing(0)); w.Code != 200 || d.Outcomes()[0].Remaining != 0 {
		t.Errorf("status %d, %d units left; want 200, 0", w.Code, d.Outcomes()[0].Remaining)
	}
}
