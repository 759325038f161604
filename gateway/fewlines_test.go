package gateway

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// written are the lines of a log in JSON about refusals and the store: "limit key" where it is about one, "limit ×count in period" where it is about many.
func (j *journal) written(t *testing.T) []string {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for line := range strings.Lines(j.text.String()) {
		var l struct {
			Msg, Limit, Key, Route string
			Count                  int
			Period                 time.Duration
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		about := l.Limit
		if about == "" {
			about = l.Route
		}
		switch l.Msg {
		case "request refused":
			lines = append(lines, about+" "+l.Key)
		case "store failed":
			lines = append(lines, "store "+l.Route)
		case "requests refused, not logged one by one":
			lines = append(lines, fmt.Sprintf("%s ×%d in %v", about, l.Count, l.Period))
		case "failures of the store, not logged one by one":
			lines = append(lines, fmt.Sprintf("store ×%d in %v", l.Count, l.Period))
		}
	}
	j.text.Reset()
	return lines
}

// flooded is a gateway that is asked without a network, and its log.
type flooded struct {
	*Gateway
	log journal
}

func floodable(t *testing.T, level slog.Level, cfg *Config, opts Options) *flooded {
	t.Helper()
	f := new(flooded)
	opts.Logger, opts.LogKeys = slog.New(slog.NewJSONHandler(&f.log, &slog.HandlerOptions{Level: level})), true
	var err error
	if f.Gateway, err = New(cfg, opts); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *flooded) from(address string) int {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = address + ":1"
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	return w.Code
}

func (f *flooded) wrote(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := f.log.written(t); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// closed is a Config whose limit refuses all but the first request of a key, for a year, without anybody at the upstream.
func closed() *Config {
	return everything("http://127.0.0.1:1", []*weir.Limit{{Name: "client", Rate: weir.Rate{Units: 1, Period: 365 * 24 * time.Hour}}}, Charge{Limit: "client"})
}

func TestFloodsWriteFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := floodable(t, slog.LevelInfo, closed(), Options{})
		f.from("192.0.2.1")
		f.wrote(t)
		for range 5000 {
			if got := f.from("192.0.2.1"); got != 429 {
				t.Fatalf("got %d", got)
			}
			time.Sleep(2 * time.Millisecond)
		}
		f.wrote(t, "client ip:192.0.2.1")
		time.Sleep(50 * time.Second)
		f.wrote(t, "client ×4999 in 1m0s")
		time.Sleep(500 * time.Millisecond)

		// A flood that goes on has a line and a number each minute, and at its end there is nothing left to say.
		for range 90 {
			f.from("192.0.2.1")
			time.Sleep(time.Second)
		}
		f.wrote(t, "client ip:192.0.2.1", "client ×59 in 1m0s", "client ip:192.0.2.1")
		time.Sleep(time.Hour)
		f.wrote(t, "client ×29 in 1m0s")

		// Who comes later is not hidden by who was first, and a refusal now and then is a line each.
		for range 3 {
			f.from("192.0.2.1")
			time.Sleep(2 * time.Minute)
		}
		f.wrote(t, "client ip:192.0.2.1", "client ip:192.0.2.1", "client ip:192.0.2.1")
		f.from("192.0.2.1")
		f.from("192.0.2.1")
		f.from("192.0.2.2")
		f.from("192.0.2.2")
		f.wrote(t, "client ip:192.0.2.1", "client ip:192.0.2.2")
	})
}

// Strangers invent keys: neither lines nor memory grow with them.
func TestFloodsOfKeysWriteFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := floodable(t, slog.LevelInfo, closed(), Options{})
		var want []string
		for i := range 1000 {
			address := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
			f.from(address)
			f.from(address)
			if i < linesAPeriod {
				want = append(want, "client ip:"+address)
			}
		}
		f.wrote(t, want...)
		time.Sleep(linePeriod)
		f.wrote(t, "client ×990 in 1m0s")
	})
}

func TestDebugLogsEveryRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := floodable(t, slog.LevelDebug, closed(), Options{})
		for range 4 {
			f.from("192.0.2.1")
		}
		time.Sleep(time.Hour)
		f.wrote(t, "client ip:192.0.2.1", "client ip:192.0.2.1", "client ip:192.0.2.1")
	})
}

func TestStoreFailuresWriteFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := floodable(t, slog.LevelInfo, closed(), Options{Limiter: &weir.Limiter{Store: broken{}}})
		for i := range 100 {
			f.from(fmt.Sprintf("192.0.2.%d", i))
		}
		time.Sleep(time.Hour)
		f.wrote(t, "store /", "store ×99 in 1m0s")
	})
}

// An upstream that is away is a line for each way in which it is, not for each request.
func TestUpstreamFailuresWriteFewLines(t *testing.T) {
	var log journal
	g, stop := startStoppable(t, everything(dead(t), nil), Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	for range 20 {
		if res, _ := ask(t, "GET", g.URLs()[0]); res.StatusCode != 502 {
			t.Fatalf("got %s", res.Status)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	text := log.text.String()
	if n := strings.Count(text, `"upstream failed"`); n != 1 || !strings.Contains(text, `"failures of upstreams, not logged one by one","count":19,`) {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// A limit keeps its count when the configuration is read anew.
func TestReloadKeepsTheCountOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := floodable(t, slog.LevelInfo, closed(), Options{})
		for range 3 {
			f.from("192.0.2.1")
		}
		if err := f.Reload(closed()); err != nil {
			t.Fatal(err)
		}
		f.from("192.0.2.1")
		time.Sleep(time.Hour)
		f.wrote(t, "client ip:192.0.2.1", "client ×2 in 1m0s")
	})
}

func TestFullQueuesWriteFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := closed()
		cfg.Routes[0].Queue = &Queue{Wait: 400 * 24 * time.Hour, Length: 1}
		f := floodable(t, slog.LevelInfo, cfg, Options{})
		f.from("192.0.2.1")
		var waiting sync.WaitGroup
		waiting.Go(func() { f.from("192.0.2.1") })
		synctest.Wait()
		for range 4 { // no limit refuses it, but there is a line, and no room in it
			if got := f.from("192.0.2.2"); got != 429 {
				t.Fatalf("got %d", got)
			}
		}
		time.Sleep(time.Minute)
		f.wrote(t, "/ ", "/ ×3 in 1m0s")
		waiting.Wait()
	})
}

func TestStoppingSaysWhatWasNotLogged(t *testing.T) {
	var log journal
	g, stop := startStoppable(t, everything(backend(t, hello), []*weir.Limit{perHour("client", 1)}, Charge{Limit: "client"}),
		Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), LogKeys: true})
	for range 4 {
		ask(t, "GET", g.URLs()[0])
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := log.written(t); len(got) != 2 || got[0] != "client ip:127.0.0.1" || !strings.HasPrefix(got[1], "client ×2 in ") {
		t.Errorf("got %q", got)
	}
}
