package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// bodyPause is how long a client of HTTP/1 may be silent in the middle of a body. Without a bound, clients that stop there hold a
// connection, a place at the upstream, and what concurrency limits lend, for as long as they like. A stream of HTTP/2 may be silent
// for longer, as gRPC's are.
const bodyPause = time.Minute

// cutOffSlow makes reading a body fail where its client is silent for longer than pause. A client that is merely slow passes.
func cutOffSlow(h http.Handler, pause time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
			body := &pausingBody{body: r.Body, conn: http.NewResponseController(w), pause: pause}
			body.extend() // also for a handler that reads nothing: the server itself reads a little of what it left
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
			r.Body = body
		}
		h.ServeHTTP(w, r)
	})
}

// pausingBody moves the deadline of its connection on with each Read. Reading and closing take turns, so that it never touches the
// deadline of the connection's next request: once the body is closed, or was read to its end, it leaves it alone.
type pausingBody struct {
	conn  *http.ResponseController
	pause time.Duration

	mu      sync.Mutex
	body    io.ReadCloser
	over    bool
	stopped bool // the client did, for longer than pause
}

type bodyKey struct{}

// bodyStopped reports whether r, which has been cancelled, was so because its client stopped in the middle of the body. The server
// cancels before it returns from reading, so this waits for that.
func bodyStopped(r *http.Request) bool {
	b, ok := r.Context().Value(bodyKey{}).(*pausingBody)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

func (b *pausingBody) extend() { b.conn.SetReadDeadline(time.Now().Add(b.pause)) }

func (b *pausingBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return b.body.Read(p)
	}
	b.extend()
	n, err := b.body.Read(p)
	b.stopped = errors.Is(err, os.ErrDeadlineExceeded)
	if err == io.EOF { // what the client does from now on, such as leaving, may take its time
		b.over = true
		b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *pausingBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return b.body.Close()
}
