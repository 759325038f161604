// Package redisstore is a weir.Store in Redis or Valkey, so that many processes hold one limit as exactly as one does.
//
//	client, err := redisstore.Open("redis://localhost:6379")
//	...
//	lim := weir.Limiter{Store: &redisstore.Store{Client: client}}
//
// A decision over any number of limits is one call of one script, which is weir.Decide once more, in Lua, on the same whole
// numbers. The server's clock is the clock, so those of the processes do not matter. Keys are keyed
// hashes: nothing that a user sent is seen in Redis. Every key is written together with its end of life.
//
// A [Store] says so when Redis does not answer. What to do then is up to a [Guard] around it.
package redisstore
