// Package redistest runs real Redis servers for tests.
package redistest

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a redis-server of a test's own, which keeps nothing: on a Unix socket in a directory of its own, and on a port of the
// loopback if OnPort says so. It ends with the test, even if the test's process is killed. It is not safe for concurrent use.
type Server struct {
	Dir  string // of the server, for files that its arguments name
	URL  string // of its socket
	Args []string

	t   testing.TB
	cmd *exec.Cmd
	log bytes.Buffer
}

// Start starts a server with more arguments, or skips the test where there is no redis-server.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	s.Start()
	return s
}

// New is a server that has not been started: nobody listens at its URL.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server on the PATH; install it to run this test")
	}
	dir, err := os.MkdirTemp("", "weir") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, Dir: dir, URL: "unix://" + filepath.Join(dir, "redis.sock")}
	s.Args = append([]string{"--port", "0", "--unixsocket", "redis.sock", "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	return s
}

// OnPort makes the server listen on a port of the loopback too, from its next start on.
func (s *Server) OnPort() (port string) {
	s.t.Helper()
	port = FreePort(s.t)
	s.Args = append(s.Args, "--port", port, "--bind", "127.0.0.1")
	return port
}

// Start starts the server and waits until it answers, if only that it wants a password.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.Args...)
	s.cmd.Dir = s.Dir
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !s.answers(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Kill()
			s.t.Fatalf("redis-server does not answer:\n%s", &s.log)
		}
	}
}

func (s *Server) answers() bool {
	conn, err := net.Dial("unix", filepath.Join(s.Dir, "redis.sock"))
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.HasPrefix(answer, "+PONG") || strings.HasPrefix(answer, "-NOAUTH")
}

// Kill ends the server at once, without a word to its clients. Start starts it again, empty.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Freeze stops the server without closing its connections, until Thaw.
func (s *Server) Freeze() { s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets the server go on.
func (s *Server) Thaw() { s.cmd.Process.Signal(syscall.SIGCONT) }

// FreePort is a TCP port of the loopback that nobody listens on.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
