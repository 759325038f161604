package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// recorder is a ResponseWriter that remembers the status. The types below it claim to be a Flusher, and a Hijacker, where the
// one inside does; everything else is found by Unwrap.
type recorder struct {
	inner  http.ResponseWriter
	status int // 0: none yet
}

type flushRecorder struct{ *recorder }
type hijackRecorder struct{ flushRecorder }

// writer is the recorder with as many methods as the ResponseWriter inside.
func (c *recorder) writer() http.ResponseWriter {
	_, flush := c.inner.(http.Flusher)
	_, hijack := c.inner.(http.Hijacker)
	switch {
	case flush && hijack:
		return hijackRecorder{flushRecorder{c}}
	case flush:
		return flushRecorder{c}
	}
	return c
}

func (c *recorder) Header() http.Header         { return c.inner.Header() }
func (c *recorder) Unwrap() http.ResponseWriter { return c.inner }

func (c *recorder) WriteHeader(status int) {
	if c.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		c.status = status
	}
	c.inner.WriteHeader(status)
}

func (c *recorder) implicit() {
	if c.status == 0 {
		c.status = http.StatusOK
	}
}

func (c *recorder) Write(p []byte) (int, error) {
	c.implicit()
	return c.inner.Write(p)
}

func (c *recorder) WriteString(s string) (int, error) {
	c.implicit()
	return io.WriteString(c.inner, s)
}

// ReadFrom keeps the way by which net/http copies files without looking at them.
func (c *recorder) ReadFrom(r io.Reader) (int64, error) {
	c.implicit()
	return io.Copy(c.inner, r)
}

// Flush implements http.Flusher.
func (c flushRecorder) Flush() {
	c.implicit()
	c.inner.(http.Flusher).Flush()
}

// FlushError is what http.ResponseController prefers to Flush.
func (c flushRecorder) FlushError() error {
	c.implicit()
	return http.NewResponseController(c.inner).Flush()
}

// Hijack implements http.Hijacker.
func (c hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := c.inner.(http.Hijacker).Hijack()
	if err == nil && c.status == 0 {
		c.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
