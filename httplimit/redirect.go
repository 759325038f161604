package httplimit

import (
	"errors"
	"net/http"
)

// StripOnRedirect is an http.Client's CheckRedirect that keeps header fields with secrets, such as an API key, from following a
// redirect to another host, or from https to http: the client itself drops Authorization and Cookie there, and no others, and it says
// as Referer which URL it comes from, with the key that may stand in its query. That goes too. Once
// dropped they stay so, even if a later redirect leads back. It follows 10 redirects, as the client does.
func StripOnRedirect(fields ...string) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("weir: stopped after 10 redirects")
		}
		home := via[0]
		left := false
		for _, hop := range append(via[1:len(via):len(via)], r) {
			if Host(hop) != Host(home) || home.URL.Scheme == "https" && hop.URL.Scheme != "https" {
				left = true
			}
		}
		if left {
			r.Header.Del("Referer")
			for _, f := range fields {
				r.Header.Del(f)
			}
		}
		return nil
	}
}
