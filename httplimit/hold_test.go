package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
)

// askedAgain is when a Transport asks again after one refusal, by the script's clock.
func askedAgain(t *testing.T, rt *Transport, header http.Header) (after time.Duration, err error) {
	t.Helper()
	s := &script{steps: []step{{status: 429, header: header}, {status: 200}}}
	rt.Base, rt.Retry = s, &Retry{}
	r, _ := http.NewRequest("GET", "https://api.example/", nil)
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return s.at[1], nil
}

// TestHoldsByProfile: what is known of a provider says how long a wait is taken, and how long one is where the server is silent.
func TestHoldsByProfile(t *testing.T) {
	half := http.Header{"Retry-After": {"1800"}}
	for _, c := range []struct {
		name    string
		rt      *Transport
		header  http.Header
		atLeast time.Duration // and at most 5 % more; 0: a HoldError
	}{
		{"half an hour", &Transport{}, half, 0},
		{"half an hour at GitHub", &Transport{Profile: ProfileNamed("github")}, half, 30 * time.Minute},
		{"half an hour at GitHub, with a bound", &Transport{Profile: ProfileNamed("github"), MaxHold: time.Minute}, half, 0},
		{"silence", &Transport{}, nil, time.Second},
		{"silence at the NVD", &Transport{Profile: ProfileNamed("nvd")}, nil, 30 * time.Second},
		{"silence behind a gate", &Transport{Gates: []Gate{{Limit: window(5, 20*time.Second), Guard: -1}}}, nil, 20 * time.Second},
		{"too many at once, behind a gate", &Transport{Gates: []Gate{{Limit: window(5, 20*time.Second), Guard: -1}}},
			http.Header{"Stripe-Rate-Limited-Reason": {"endpoint-concurrency"}}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				after, err := askedAgain(t, c.rt, c.header)
				if c.atLeast == 0 {
					var hold *HoldError
					if !errors.As(err, &hold) || hold.Asked != 30*time.Minute {
						t.Errorf("%v after %v, want a HoldError", err, after)
					}
					return
				}
				if err != nil || after < c.atLeast || after > c.atLeast+c.atLeast/20 {
					t.Errorf("asked again after %v, %v; want %v", after, err, c.atLeast)
				}
			})
		})
	}
}

// TestNoHold: a refusal that is not this gate's closes the host, and nothing else that the gate is for.
func TestNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 429, header: http.Header{"Retry-After": {"20"}}}, {status: 200}}}
		rt := &Transport{Base: s, Gates: []Gate{{Limit: window(50, time.Minute), Key: Global, NoHold: true}}}
		for _, c := range []struct {
			url string
			at  time.Duration
		}{{"https://a.example/", 0}, {"https://b.example/", 0}, {"https://a.example/", 20 * time.Second}} {
			r, _ := http.NewRequest("GET", c.url, nil)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if at := s.at[len(s.at)-1]; at < c.at || at > c.at+time.Second {
				t.Errorf("%s was asked at %v, want %v", c.url, at, c.at)
			}
		}
	})
}

// TestErrorGivesBackTheUnit: a request without an answer is under way no longer.
func TestErrorGivesBackTheUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{err: errReset}, {status: 200}}}
		one := &weir.Limit{Name: "at-once", Algorithm: weir.Concurrency, Rate: weir.Rate{Units: 1, Period: time.Minute}}
		rt := &Transport{Base: s, Gates: []Gate{{Limit: one}}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		if _, err := rt.RoundTrip(r); !errors.Is(err, errReset) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := rt.RoundTrip(r.WithContext(ctx))
		if err != nil || s.at[1] != 0 {
			t.Fatalf("%v, at %v", err, s.at)
		}
		resp.Body.Close()
	})
}

// TestSlowRefusal: the page of a refusal that never ends does not keep its request from being tried again.
func TestSlowRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if at = append(at, time.Since(begin)); len(at) > 1 {
				return respond(r, 200, nil, "ok"), nil
			}
			resp := respond(r, 503, http.Header{"Retry-After": {"1"}}, "")
			read, write := io.Pipe()
			context.AfterFunc(r.Context(), func() { write.CloseWithError(r.Context().Err()) })
			resp.Body, resp.ContentLength = read, -1
			return resp, nil
		})
		rt := &Transport{Base: base, Retry: &Retry{}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		resp, err := rt.RoundTrip(r)
		if err != nil || resp.StatusCode != 200 || at[1] > keepTime+2*time.Second {
			t.Fatalf("%v, %v, at %v", resp, err, at)
		}
		resp.Body.Close()
	})
}

// TestBreakerByDefault: five failures in a row open the zero Breaker for ten seconds; callers who give up are none.
func TestBreakerByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 502, takes: time.Second}}}
		rt := &Transport{Base: s, Breaker: &Breaker{}}
		r, _ := http.NewRequest("GET", "https://api.example/", nil)
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := rt.RoundTrip(r.WithContext(ctx)); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		for range 5 {
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		var open *BreakerError
		if _, err := rt.RoundTrip(r); !errors.As(err, &open) || open.RetryAfter != 10*time.Second {
			t.Errorf("after five failures: %v", err)
		}
	})
}
