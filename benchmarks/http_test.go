package benchmarks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/weir-go/weir"
	weirhttp "github.com/weir-go/weir/httplimit"
)

const many = 1_000_000_000 // in a minute: nobody is refused

// handlers are middlewares by client address, each with the headers that it sends.
var handlers = []struct {
	store  string
	limits int
	wrap   func(http.Handler) http.Handler
}{
	{"none", 0, func(next http.Handler) http.Handler { return next }},
	{"weir", 1, func(next http.Handler) http.Handler { return &weirhttp.Handler{Next: next, Rules: byClient[1:]} }},
	{"weir", 2, func(next http.Handler) http.Handler { return &weirhttp.Handler{Next: next, Rules: byClient} }},
	{"httprate", 1, httprate.Limit(many, time.Minute, httprate.WithKeyByIP())},
	{"throttled", 1, func(next http.Handler) http.Handler {
		s, err := memstore.NewCtx(0)
		if err != nil {
			panic(err)
		}
		l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(many, time.Minute), MaxBurst: many})
		if err != nil {
			panic(err)
		}
		return (&throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit(next)
	}},
	{"sethvargo", 1, func(next http.Handler) http.Handler {
		s, err := memorystore.New(&memorystore.Config{Tokens: many, Interval: time.Minute})
		if err != nil {
			panic(err)
		}
		m, err := httplimit.NewMiddleware(s, httplimit.IPKeyFunc())
		if err != nil {
			panic(err)
		}
		return m.Handle(next)
	}},
	{"ulule", 1, func(next http.Handler) http.Handler {
		return stdlib.NewMiddleware(limiter.New(memory.NewStore(), limiter.Rate{Limit: many, Period: time.Minute})).Handler(next)
	}},
}

var byClient = []weirhttp.Rule{
	{Limit: &weir.Limit{Name: "global", Rate: weir.Rate{Units: many, Period: time.Minute}}},
	{Limit: &weir.Limit{Name: "client", Rate: weir.Rate{Units: many, Period: time.Minute}}, Key: weirhttp.ClientIP{}.Key},
}

// response costs what that of net/http does: a new header map.
type response struct{ header http.Header }

func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *response) WriteHeader(int)             {}
func (w *response) Write(p []byte) (int, error) { return len(p), nil }

func BenchmarkHandler(b *testing.B) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		io.WriteString(w, "ok\n")
	})
	for _, m := range handlers {
		b.Run("store="+m.store+"/limits="+string(rune('0'+m.limits)), func(b *testing.B) {
			h := m.wrap(next)
			r := httptest.NewRequest("GET", "/orders", nil)
			r.RemoteAddr = "198.51.100.7:40000"
			report := cpu(b)
			for b.Loop() {
				var w response
				h.ServeHTTP(&w, r)
			}
			report()
		})
	}
}
