package nvdtest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
)

// RoundTripper is the Server without a network between: it answers whatever is asked through it, in the goroutine of
// the request. It is for tests in a bubble of testing/synctest, in which there are no sockets.
func (s *Server) RoundTripper() http.RoundTripper { return direct{s} }

type direct struct{ s *Server }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &answer{header: make(http.Header)}
	broke := func() (broke bool) {
		defer func() {
			if e := recover(); e != nil {
				if e != http.ErrAbortHandler {
					panic(e)
				}
				broke = true
			}
		}()
		d.s.ServeHTTP(w, r)
		return false
	}()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	body := io.Reader(&w.body)
	if broke {
		body = io.MultiReader(body, brokenOff{})
	}
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(body), ContentLength: -1, Request: r,
	}, nil
}

type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() {}
