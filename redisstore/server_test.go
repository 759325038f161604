package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/redisstore"
)

// server is a redis-server of a test's own, on a Unix socket in a directory of its own, or on a port of the loopback.
type server struct {
	t    testing.TB
	dir  string
	url  string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// startRedis starts a server that ends with the test.
func startRedis(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.start()
	return s
}

// newServer is a server that has not been started.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server on the PATH; install it to run this test")
	}
	dir, err := os.MkdirTemp("", "weir") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, url: "unix://" + filepath.Join(dir, "redis.sock")}
	s.args = append([]string{"--port", "0", "--unixsocket", "redis.sock", "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	t.Cleanup(func() {
		s.kill()
		os.RemoveAll(dir)
	})
	return s
}

// onPort makes the server listen on a port of the loopback too.
func (s *server) onPort() string {
	s.t.Helper()
	port := freePort(s.t)
	s.args = append(s.args, "--port", port, "--bind", "127.0.0.1")
	return port
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	// The server ends with the test binary even if that is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c, err := redisstore.Open(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := c.Ping(s.t.Context())
		if err == nil || strings.Contains(err.Error(), "NOAUTH") || strings.Contains(err.Error(), "LOADING") {
			return
		}
		if time.Now().After(end) {
			s.kill()
			s.t.Fatalf("redis-server does not answer: %v\n%s", err, &s.log)
		}
	}
}

// kill ends the server at once, without a word to its clients.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) freeze() { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) thaw()   { s.cmd.Process.Signal(syscall.SIGCONT) }

// client is a connection that ends with the test.
func (s *server) client() *redisstore.Conn {
	s.t.Helper()
	return open(s.t, s.url)
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

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
