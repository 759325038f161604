// Package weir is the core of weir, rate limiting for both sides of HTTP 429: the laws that decide how many units a key
// may spend, and the memory they decide over.
//
// A [Limit] is a rule. A request is a list of [Charge]s on Limits, each for a key. A [Limiter] decides them
// all or none:
//
//	var (
//		global = &weir.Limit{Name: "global", Rate: weir.Rate{Units: 5000, Period: time.Second}}
//		client = &weir.Limit{Name: "client", Rate: weir.Rate{Units: 100, Period: time.Minute}, Burst: 20}
//		lim    weir.Limiter
//	)
//
//	d, err := lim.Take(ctx, global.For(""), client.For(id))
//	switch {
//	case err != nil:    // no decision could be made
//	case d.Never:       // it costs more than a limit ever has
//	case !d.Allowed:    // ask again in d.RetryAfter
//	}
//
// The zero Limiter keeps its own [Memory]; any [Store] can stand in its place, so that many processes share
// the limits. A Store loads cells, calls [Decide] and saves them: all arithmetic is in this package, on integers, without a clock.
// You need [Tx], [TxCharge], [Cell], [Entry], [Law], [Instant] and [Op] only to write a Store.
//
// Package httplimit puts a Limiter in front of an http.Handler, or behind an http.Client; package gateway in front of any
// server. Package redisstore has a Store that many processes share, and package storetest the tests for a Store of your own.
package weir
