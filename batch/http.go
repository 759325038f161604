package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// HTTP fetches items from a URL each. Its Fetch is for [Run.Fetch].
type HTTP struct {
	// Client sends the requests; nil means http.DefaultClient. Limits, retries and timeouts are its transport's.
	Client *http.Client

	// URL is where an item is: every {id} in it stands for the item, escaped for a path segment, or for a query behind
	// the question mark.
	URL string

	Header http.Header // sent with each request; its Host, if there is one, instead of the URL's

	// MaxBody is the most bytes of a body, after decompression; 0 means 16 MiB.
	MaxBody int64

	// JSON refuses answers that are not whole and valid JSON, whatever they are declared as.
	JSON bool

	// Check, if not nil, says whether a body is the answer for the item: an error ends it as not fetched (parse).
	Check func(id string, body []byte) error

	// Refused says whether an answer is a refusal by a limit; nil: status 429.
	Refused func(*http.Response) bool

	// Reason, if not nil, knows errors of the client; "" leaves an error to the ordinary reading.
	Reason func(error) Reason
}

const maxBody = 16 << 20

// Fetch gets one item, on the condition that it is not what it was before.
func (h *HTTP) Fetch(ctx context.Context, id string, before Before) Result {
	target := h.url(id)
	if path, _, _ := strings.Cut(target, "?"); (id == "." || id == "..") && strings.Contains(path+"/", "/"+id+"/") {
		return Lost(Parse, "no item can be %q: as a part of a path it means another one", id)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return Lost(Parse, "%v", err)
	}
	for name, values := range h.Header {
		req.Header[name] = values
	}
	req.Host = cmp.Or(h.Header.Get("Host"), req.Host)
	if before.ETag != "" {
		req.Header.Set("If-None-Match", before.ETag)
	}
	if before.LastModified != "" {
		req.Header.Set("If-Modified-Since", before.LastModified)
	}
	resp, err := h.client().Do(req)
	if err != nil {
		return h.lost(ctx, err)
	}
	defer resp.Body.Close()
	res := h.read(ctx, id, resp)
	res.Status = resp.StatusCode
	if res.Column != NotFetched {
		res.ETag, res.LastModified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	}
	return res
}

// client is Client, with redirects that take no header along to another host or out of TLS, nor on the way back: net/http drops only
// those it knows to be secret, and a key may stand in any, as in the URL that it would give as Referer.
func (h *HTTP) client() *http.Client {
	client := http.Client{}
	if h.Client != nil {
		client = *h.Client
	}
	check := client.CheckRedirect
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		first, left := via[0].URL, false
		for _, hop := range append(via[1:len(via):len(via)], req) {
			left = left || hop.URL.Host != first.Host || hop.URL.Scheme != first.Scheme
		}
		if left {
			for name := range h.Header {
				req.Header.Del(name)
			}
			req.Header.Del("Referer")
		}
		if check != nil {
			return check(req, via)
		}
		if len(via) >= 5 {
			return errors.New("over 5 redirects")
		}
		return nil
	}
	return &client
}

func (h *HTTP) url(id string) string {
	path, query, ok := strings.Cut(h.URL, "?")
	path = strings.ReplaceAll(path, "{id}", url.PathEscape(id))
	if ok {
		path += "?" + strings.ReplaceAll(query, "{id}", url.QueryEscape(id))
	}
	return path
}

// lost reads the error of a request or of reading its answer.
func (h *HTTP) lost(ctx context.Context, err error) Result {
	if h.Reason != nil {
		if r := h.Reason(err); r != "" {
			return Lost(r, "%v", clean(err))
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Lost(Interrupted, "%v", clean(err))
	case ctx.Err() != nil:
		return Lost(GaveUp, "the time for one item was over: %v", clean(err))
	}
	return Lost(Network, "%v", clean(err))
}

// clean is an error without the URL, in which a secret may stand.
func clean(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (h *HTTP) read(ctx context.Context, id string, resp *http.Response) Result {
	refused := resp.StatusCode == http.StatusTooManyRequests
	if h.Refused != nil {
		refused = h.Refused(resp)
	}
	switch code := resp.StatusCode; {
	case refused:
		return Lost(RateLimited, "%s", resp.Status)
	case code == http.StatusNotModified:
		return Result{Column: NotModified}
	case code == http.StatusNotFound || code == http.StatusGone:
		return Result{Column: Unknown, Detail: resp.Status}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return Lost(Denied, "%s", resp.Status)
	case code != http.StatusOK:
		return Lost(Server, "%s", resp.Status)
	}
	most := h.MaxBody
	if most <= 0 {
		most = maxBody
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return h.lost(ctx, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err))
	}
	if int64(len(body)) > most {
		return Lost(TooLarge, "a body of over %d bytes", most)
	}
	if h.JSON {
		if !json.Valid(body) {
			return Lost(Parse, "%d bytes of %q that are not JSON, or not all of it", len(body), resp.Header.Get("Content-Type"))
		}
	}
	if h.Check != nil {
		if err := h.Check(id, body); err != nil {
			return Lost(Parse, "%v", err)
		}
	}
	return Result{Column: Changed, Body: body}
}
