// Package redis measures weir's decisions over Redis beside those of its peers, each against a redis-server of its own on the
// same machine, and tries the Redis clients that redisstore fits. Its tests need redis-server and, for one figure, redis-benchmark on the PATH.
//
//	go test -bench . -benchtime 1s ./redis
package redis
