// Package httplimit puts rate limits on HTTP: [Handler] in front of an http.Handler, for a service that is
// called, and [Transport] behind an http.Client, for a caller.
//
//	limits := &httplimit.Handler{
//		Limiter: &lim,
//		Rules: []httplimit.Rule{
//			{Limit: global},
//			{Limit: client, Key: httplimit.FirstOf(httplimit.User, httplimit.ClientIP{}.Key)},
//		},
//		Next: mux,
//	}
//
// All the limits of a request are decided at once, all or none. A request that is refused gets status 429 with
// Retry-After, the RateLimit fields and a problem+json body; one that could not be decided gets 503.
//
// Limit by address before a request is authenticated, and by user after: a credential that nobody has verified must not
// spend the units of the user that it names. An order that holds for most services, from the outside in:
//
//	addresses := &httplimit.Handler{Limiter: &lim, Rules: byAddress, Next: authenticate(users)}
//	users     := &httplimit.Handler{Limiter: &lim, Rules: byUser, Next: mux} // reads what WithUser has set
//
// The header fields are those of draft-ietf-httpapi-ratelimit-headers-10, or of an older [Form]. Names are written as Go
// canonicalises them (Ratelimit-Policy), which is the same name to every HTTP implementation.
//
// A caller keeps the limits of what it calls, and listens to what the answers say:
//
//	client := &http.Client{Transport: &httplimit.Transport{
//		Gates: []httplimit.Gate{{Limit: fivePer30s}}, // a host, by default
//		Retry: &httplimit.Retry{},
//	}}
//
// [ReadAnswer] is how answers are read, for those who have a client of their own.
package httplimit
