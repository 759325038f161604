package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()

	perHost := &weir.Limit{Name: "nvd", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 5, Period: 30 * time.Second}}
	client := &http.Client{
		Timeout: time.Second, // how long anybody is willing to wait, at the gate too
		Transport: &httplimit.Transport{
			Gates:    []httplimit.Gate{{Limit: perHost}},
			Retry:    &httplimit.Retry{},
			ReadBody: 10 << 20,
		},
	}
	for range 6 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println("the sixth would have to wait for half a minute")
			continue
		}
		fmt.Println(resp.Status)
		resp.Body.Close()
	}
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// the sixth would have to wait for half a minute
}

func ExampleReadAnswer() {
	h := http.Header{}
	h.Set("Retry-After", "30")
	h.Set("RateLimit-Policy", `"daily";q=1000;w=86400`)
	h.Set("RateLimit", `"daily";r=0;t=90`)
	a := httplimit.ReadAnswer(429, h, nil, time.Now(), nil)
	fmt.Println(a.Advice, a.Wait, a.Source)
	for _, n := range a.Notes {
		fmt.Printf("%s: %s\n", n.Field, n.Meaning)
	}
	// Output:
	// hold-on 1m30s RateLimit
	// RateLimit-Policy: quota "daily": 1000 in 24h0m0s, counting requests
	// RateLimit: quota "daily": 0 left, more in 1m30s
	// Retry-After: come back in 30s
}

func BenchmarkTransport(b *testing.B) {
	limit := &weir.Limit{Name: "api", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 1000, Period: time.Millisecond}}
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}
	base := trip(func(*http.Request) (*http.Response, error) { r := *resp; return &r, nil })
	r, _ := http.NewRequest("GET", "https://api.example/", nil)
	for name, rt := range map[string]http.RoundTripper{
		"gates=0": &httplimit.Transport{Base: base},
		"gates=1": &httplimit.Transport{Base: base, Gates: []httplimit.Gate{{Limit: limit}}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
