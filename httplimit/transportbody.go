package httplimit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// watch lets go of what the attempt holds when the answer's body ends.
func (t *Transport) watch(c *call, resp *http.Response, s *slot, cancel context.CancelCauseFunc) {
	if resp.Body == nil || resp.Body == http.NoBody {
		resp.Body = http.NoBody
		s.release()
		cancel(nil)
		return
	}
	// A caller that forgets the body holds the unit no longer than its context.
	stop := context.AfterFunc(c.req.Context(), s.release)
	b := &watched{ReadCloser: resp.Body, end: sync.OnceFunc(func() {
		stop()
		s.release()
		cancel(nil)
	})}
	resp.Body = b
	if w, ok := b.ReadCloser.(io.Writer); ok { // after 101 Switching Protocols
		resp.Body = struct {
			*watched
			io.Writer
		}{b, w}
	}
}

// watched is a body whose end somebody wants to know of.
type watched struct {
	io.ReadCloser
	end func()
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// peekBody is the start of the body, nil if there is none. The body can be read from its start still.
func peekBody(resp *http.Response) []byte {
	const most = 4 << 10
	start, err := io.ReadAll(io.LimitReader(resp.Body, most))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = &replaced{io.MultiReader(bytes.NewReader(start), rest), resp.Body}
	if len(start) == 0 {
		return nil
	}
	return start
}

// replaced reads from elsewhere than it closes.
type replaced struct {
	io.Reader
	io.Closer
}

// failing is the end of a body that broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// readBody reads the body where that is part of the attempt, and checks the answer.
func (t *Transport) readBody(resp *http.Response) error {
	var body []byte
	if t.ReadBody > 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		var err error
		body, err = io.ReadAll(io.LimitReader(resp.Body, t.ReadBody))
		if err == nil && int64(len(body)) == t.ReadBody {
			n, end := io.ReadFull(resp.Body, make([]byte, 1))
			if n > 0 {
				err = ErrBodyTooLarge
			} else if end != io.EOF {
				err = end
			}
		}
		if err != nil && resp.StatusCode >= 400 {
			// The status says enough: its page need not be whole, and must not hide it.
			resp.Body.Close()
			resp.Body = keptBody{io.MultiReader(bytes.NewReader(body), failing{err})}
			return nil
		}
		if err != nil {
			return &BodyError{Status: resp.StatusCode, Read: int64(len(body)), Err: err}
		}
		resp.Body.Close()
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	if t.Check != nil && resp.StatusCode < 300 {
		if err := t.Check(resp, body); err != nil {
			return &BodyError{Status: resp.StatusCode, Read: int64(len(body)), Err: err}
		}
	}
	return nil
}
