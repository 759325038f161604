package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/redisstore"
)

// server is a Redis server and its clients, which end with the test.
type server struct {
	*redistest.Server
	t testing.TB
}

func startRedis(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{redistest.Start(t, args...), t}
}

// newServer is a server that has not been started.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{redistest.New(t, args...), t}
}

// client is a connection that ends with the test.
func (s *server) client() *redisstore.Conn {
	s.t.Helper()
	return open(s.t, s.URL)
}

func open(t testing.TB, url string) *redisstore.Conn {
	t.Helper()
	c, err := redisstore.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// do sends a command over a connection of the test's own.
func do(t testing.TB, c redisstore.Client, args ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	v, err := c.Do(ctx, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return v
}

func keys(t testing.TB, c redisstore.Client) []string {
	t.Helper()
	var names []string
	for _, k := range do(t, c, "KEYS", "*").([]any) {
		names = append(names, fmt.Sprint(k))
	}
	return names
}

// do sends a command to the server.
func (s *server) do(args ...string) any {
	s.t.Helper()
	return do(s.t, s.client(), args...)
}
