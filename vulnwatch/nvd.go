package vulnwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/weir-go/weir/batch"
)

// The official source, and the most ids that one request may ask for.
const (
	NVDURL    = "https://services.nvd.nist.gov/rest/json/cves/2.0"
	nvdIDs    = 100
	maxAnswer = 256 << 20
)

// NVD asks for records. Its limits and retries are those of its Client.
type NVD struct {
	URL     string // empty: NVDURL
	Key     string // an API key; empty: none
	Client  *http.Client
	Workers int // requests at once; 0: 4
	Batch   int // ids in one request; 0: 100, which is the most

	// Progress, if not nil, is told how many ids are settled. Calls are one at a time.
	Progress func(settled int)
}

// Answer is what the NVD said of one id. Of a Changed one there is a Record; whether it did change is not the NVD's to say.
type Answer struct {
	Record *Record
	Result batch.Result
}

// BadKeyError is the NVD's word on its API key, or on a parameter: no request can succeed.
type BadKeyError struct{ Message string }

func (e *BadKeyError) Error() string { return "vulnwatch: the NVD refuses the request: " + e.Message }

// Fetch asks for all ids, a hundred in a request, and gives each one Answer. A request that times out or fails is
// halved, down to single ids. An id that is missing in an answer is asked for once more before it is taken for
// unknown. Fetch fails as a whole only where no request can succeed, or ctx ends.
func (n *NVD) Fetch(ctx context.Context, ids []string) (map[string]Answer, error) {
	f := &fetching{nvd: n, answers: make(map[string]Answer, len(ids))}
	missing, err := f.all(ctx, ids)
	if err != nil {
		return f.answers, err
	}
	if len(missing) > 0 {
		if missing, err = f.all(ctx, missing); err != nil {
			return f.answers, err
		}
		for _, id := range missing {
			f.settle(id, Answer{Result: batch.Result{Column: batch.Unknown, Status: http.StatusOK, Detail: "not in two answers of the NVD"}})
		}
	}
	return f.answers, nil
}

type fetching struct {
	nvd     *NVD
	mu      sync.Mutex
	answers map[string]Answer
	missing []string
	fatal   error
}

// all asks for ids and returns those that were missing in whole answers.
func (f *fetching) all(ctx context.Context, ids []string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	size, workers := f.nvd.Batch, f.nvd.Workers
	if size <= 0 || size > nvdIDs {
		size = nvdIDs
	}
	if workers <= 0 {
		workers = 4
	}
	f.missing = nil
	queue := make(chan []string)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for some := range queue {
				if err := f.some(ctx, some); err != nil {
					f.mu.Lock()
					if f.fatal == nil {
						f.fatal = err
					}
					f.mu.Unlock()
					cancel()
				}
			}
		})
	}
	for len(ids) > 0 && ctx.Err() == nil {
		some := ids[:min(size, len(ids))]
		ids = ids[len(some):]
		select {
		case queue <- some:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
	if f.fatal != nil {
		return nil, f.fatal
	}
	return f.missing, ctx.Err()
}

func (f *fetching) settle(id string, a Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[id] = a
	if f.nvd.Progress != nil {
		f.nvd.Progress(len(f.answers))
	}
}

// some settles the ids of one request, halving it where that may help.
func (f *fetching) some(ctx context.Context, ids []string) error {
	records, lost := f.nvd.ask(ctx, ids)
	switch {
	case lost == nil:
		for _, id := range ids {
			if r := records[id]; r != nil {
				f.settle(id, Answer{Record: r, Result: batch.Result{Column: batch.Changed, Status: http.StatusOK}})
			} else {
				f.mu.Lock()
				f.missing = append(f.missing, id)
				f.mu.Unlock()
			}
		}
		return nil
	case lost.fatal != nil:
		return lost.fatal
	case ctx.Err() != nil:
		return nil
	case lost.halve && len(ids) > 1:
		if err := f.some(ctx, ids[:len(ids)/2]); err != nil {
			return err
		}
		return f.some(ctx, ids[len(ids)/2:])
	}
	for _, id := range ids {
		f.settle(id, Answer{Result: lost.result})
	}
	return nil
}

// loss is a request that brought nothing.
type loss struct {
	result batch.Result
	halve  bool  // a smaller request may succeed
	fatal  error // no request can
}

func lose(halve bool, status int, reason batch.Reason, format string, args ...any) *loss {
	l := &loss{result: batch.Lost(reason, format, args...), halve: halve}
	l.result.Status = status
	return l
}

// envelope is an answer of the NVD.
type envelope struct {
	Format          string
	TotalResults    *int
	Vulnerabilities []struct{ CVE json.RawMessage }
}

// ask sends one request. The classes of answers are those that the NVD has really given; see the package's tests.
func (n *NVD) ask(ctx context.Context, ids []string) (map[string]*Record, *loss) {
	url := n.URL
	if url == "" {
		url = NVDURL
	}
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	// The ids need no escaping, and the commas must have none.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+sep+"cveIds="+strings.Join(ids, ","), nil)
	if err != nil {
		return nil, &loss{fatal: fmt.Errorf("vulnwatch: NVD URL: %w", err)}
	}
	if n.Key != "" {
		req.Header.Set("apiKey", n.Key)
	}
	client := n.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := noRedirects(client).Do(req)
	if err != nil {
		return nil, n.broken(err)
	}
	defer resp.Body.Close()
	if l := refused(resp); l != nil {
		return nil, l
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, n.broken(fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err))
	}
	if len(body) > maxAnswer {
		return nil, lose(true, resp.StatusCode, batch.TooLarge, "an answer of over %d bytes", maxAnswer)
	}
	return read(body, ids)
}

// noRedirects is client without following redirects, which would take the key along.
func noRedirects(client *http.Client) *http.Client {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// broken reads an error of the connection, or of what gave up on it.
func (n *NVD) broken(err error) *loss {
	var limited interface{ RateLimited() bool }
	if errors.As(err, &limited) && limited.RateLimited() {
		return lose(false, 0, batch.RateLimited, "%v", err)
	}
	return lose(true, 0, batch.Network, "%v", err)
}

func refused(resp *http.Response) *loss {
	message := resp.Header.Get("message")
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusTooManyRequests:
		return lose(false, code, batch.RateLimited, "%s", resp.Status)
	case code == http.StatusForbidden:
		// Until the end of 2025 this was how the NVD refused for its limit, with a page of HTML.
		return lose(false, code, batch.RateLimited, "%s; the NVD says so for its rate limit", resp.Status)
	case code == http.StatusNotFound && strings.Contains(strings.ToLower(message), "apikey"):
		return &loss{fatal: &BadKeyError{message}}
	case code == http.StatusNotFound && message != "":
		// One odd id can spoil a request; alone, the id is at fault.
		return lose(true, code, batch.Server, "%s: %s", resp.Status, message)
	case code >= 300 && code < 400:
		return lose(false, code, batch.Server, "%s: redirects are not followed", resp.Status)
	}
	return lose(true, resp.StatusCode, batch.Server, "%s", resp.Status)
}

// read takes the records out of an answer. What is not for an id that was asked is no answer.
func read(body []byte, ids []string) (map[string]*Record, *loss) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, lose(true, http.StatusOK, batch.Parse, "not JSON, or not all of it: %v", err)
	}
	if e.Format != "NVD_CVE" || e.TotalResults == nil {
		return nil, lose(true, http.StatusOK, batch.Parse, "JSON, but no answer of the NVD: format %.20q", e.Format)
	}
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	records := make(map[string]*Record, len(ids))
	stray := ""
	for _, v := range e.Vulnerabilities {
		r, err := ParseRecord(v.CVE)
		switch {
		case err != nil:
			return nil, lose(true, http.StatusOK, batch.Parse, "%v", err)
		case !asked[r.ID]:
			stray = r.ID
		default:
			records[r.ID] = r
		}
	}
	if stray != "" && len(records) == 0 {
		return nil, lose(true, http.StatusOK, batch.Parse, "an answer for %s, which was not asked for", stray)
	}
	return records, nil
}
