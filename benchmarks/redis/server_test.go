package redis

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/redistest"
)

// startRedis starts a redis-server that ends with the test, and gives the path of its socket.
func startRedis(tb testing.TB) string {
	tb.Helper()
	return strings.TrimPrefix(redistest.Start(tb).URL, "unix://")
}
