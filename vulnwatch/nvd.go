package vulnwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// The official source, and the most ids that one request may ask for.
const (
	NVDURL    = "https://services.nvd.nist.gov/rest/json/cves/2.0"
	nvdIDs    = 100
	maxAnswer = 32 << 20 // there are as many in memory as workers; a larger one is halved
)

// NVD asks for records.
type NVD struct {
	URL     string // empty: NVDURL
	Key     string // an API key; empty: none
	Workers int    // requests at once; 0: 5, as many as the NVD lets start together without a key
	Batch   int    // ids in one request; 0: 100, which is the most

	// Rate is what the source lets one address ask. Zero: NVDRate.
	Rate weir.Rate

	// Client sends the requests; limits, retries and timeouts are its transport's. Nil: one over [NVD.Transport].
	Client *http.Client

	// Progress, if not nil, is told how many ids are settled. Calls are one at a time.
	Progress func(settled int)
}

// userAgent says who asks.
const userAgent = "weir-watch (+https://github.com/weir-go/weir)"

// Answer is what the NVD said of one id. Of a Changed one there is a Record; whether it did change is not the NVD's to say.
type Answer struct {
	Record *Record
	Result batch.Result
}

// BadKeyError is the NVD's word on its API key, or on a parameter: no request can succeed.
type BadKeyError struct{ Message string }

func (e *BadKeyError) Error() string {
	return "vulnwatch: the NVD refuses the request: " + clip(300, plain(e.Message))
}

// Fetch asks for all ids, a hundred in a request, and gives each one Answer. known, if not nil, says which the NVD had
// at the last check.
//
// A request that times out or fails is halved, down to single ids; what is lost even so is asked for once more at the
// end. An id that is missing in an answer is asked for again before it is taken for unknown, and one that was known a third
// time. When so many requests in a row have failed that it cannot be for their ids, the others are not sent. Fetch
// fails as a whole only where no request can succeed, or ctx ends.
func (n *NVD) Fetch(ctx context.Context, ids []string, known func(id string) bool) (map[string]Answer, error) {
	f := &fetching{nvd: *n, answers: make(map[string]Answer, len(ids)), missed: make(map[string]int)}
	if f.nvd.URL == "" {
		f.nvd.URL = NVDURL
	}
	client := http.Client{Transport: n.Transport(nil)}
	if n.Client != nil {
		client = *n.Client
	}
	// A redirect would take the key along.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	f.nvd.Client = &client
	if f.nvd.Workers <= 0 {
		f.nvd.Workers = 5
	}
	size := n.Batch
	if size <= 0 || size > nvdIDs {
		size = nvdIDs
	}
	suspicious := func(id string) bool { return known != nil && known(id) }

	if err := f.pass(ctx, ids, size); err != nil {
		return f.answers, err
	}
	again := f.only(ids, func(id string) bool { return f.missed[id] == 1 || f.answers[id].lostByChance() })
	if err := f.pass(ctx, again, size); err != nil {
		return f.answers, err
	}
	// A source that forgets many records at once may do better with few at a time.
	again = f.only(ids, func(id string) bool { return f.missed[id] == 1 || f.missed[id] == 2 && suspicious(id) })
	if err := f.pass(ctx, again, min(size, nvdIDs/10)); err != nil {
		return f.answers, err
	}
	for id, n := range f.missed {
		if _, found := f.answers[id]; !found {
			f.settle(id, Answer{Result: batch.Result{Column: batch.Unknown, Status: http.StatusOK, Detail: fmt.Sprintf("not in %d answers of the NVD", n)}})
		}
	}
	return f.answers, nil
}

// lostByChance reports whether to ask again may help.
func (a Answer) lostByChance() bool {
	switch a.Result.Reason {
	case batch.Server, batch.Network, batch.Parse, batch.TooLarge:
		return true
	}
	return false
}

type fetching struct {
	nvd NVD

	mu      sync.Mutex
	answers map[string]Answer
	missed  map[string]int // in how many whole answers an id was missing; none for those in answers
	fatal   error
	failed  int // requests in a row without an answer
	refused int // of those, by the limit to the last
	last    *loss
}

func (f *fetching) only(ids []string, want func(string) bool) []string {
	var some []string
	for _, id := range ids {
		if want(id) {
			some = append(some, id)
		}
	}
	return some
}

// pass asks for ids.
func (f *fetching) pass(ctx context.Context, ids []string, size int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A source that was down in the last pass may be up again: one request finds out.
	f.failed, f.refused = min(f.failed, f.mostFailed()-1), min(f.refused, f.mostRefused()-1)
	queue := make(chan []string)
	var wg sync.WaitGroup
	for range min(f.nvd.Workers, (len(ids)+size-1)/size) {
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
		select {
		case queue <- some:
			ids = ids[len(some):]
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
	if f.fatal != nil {
		return f.fatal
	}
	return ctx.Err()
}

func (f *fetching) settle(id string, a Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[id] = a
	delete(f.missed, id)
	if f.nvd.Progress != nil {
		f.nvd.Progress(len(f.answers))
	}
}

// some settles the ids of one request, halving it where that may help.
func (f *fetching) some(ctx context.Context, ids []string) error {
	lost := f.down()
	var records map[string]*Record
	if lost == nil {
		records, lost = f.nvd.ask(ctx, ids)
		f.heard(lost)
	}
	switch {
	case lost == nil:
		for _, id := range ids {
			if r := records[id]; r != nil {
				f.settle(id, Answer{Record: r, Result: batch.Result{Column: batch.Changed, Status: http.StatusOK}})
				continue
			}
			f.mu.Lock()
			f.missed[id]++
			delete(f.answers, id) // it may be there as lost
			f.mu.Unlock()
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

// heard counts the requests that have failed in a row.
func (f *fetching) heard(lost *loss) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost == nil {
		f.failed, f.refused, f.last = 0, 0, nil
		return
	}
	f.failed++
	if lost.result.Reason == batch.RateLimited {
		f.refused++
	}
	f.last = lost
}

// mostFailed is how many requests in a row may fail: one odd id fails eight on the way down to it, and each worker may have one.
func (f *fetching) mostFailed() int { return 10 * f.nvd.Workers }

// mostRefused is how many in a row may be refused for good: each has waited for minutes, several times.
func (f *fetching) mostRefused() int { return max(3, f.nvd.Workers) }

// down is the loss of a request that is not worth sending, nil for one that is.
func (f *fetching) down() *loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed < f.mostFailed() && f.refused < f.mostRefused() {
		return nil
	}
	l := &loss{result: f.last.result}
	l.result.Detail = fmt.Sprintf("not asked for, as %d requests in a row have failed; the last: %s", f.failed, l.result.Detail)
	return l
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
	sep := "?"
	if strings.Contains(n.URL, "?") {
		sep = "&"
	}
	// The ids need no escaping, and the commas must have none.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+sep+"cveIds="+strings.Join(ids, ","), nil)
	if err != nil {
		return nil, &loss{fatal: fmt.Errorf("vulnwatch: NVD URL: %w", err)}
	}
	req.Header.Set("User-Agent", userAgent)
	if n.Key != "" {
		req.Header.Set("apiKey", n.Key)
	}
	resp, err := n.Client.Do(req)
	if err != nil {
		return nil, broken(ctx, err)
	}
	defer resp.Body.Close()
	if l := refused(resp); l != nil {
		return nil, l
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, broken(ctx, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err))
	}
	if len(body) > maxAnswer {
		return nil, lose(true, resp.StatusCode, batch.TooLarge, "an answer of over %d bytes", maxAnswer)
	}
	return read(body, ids)
}

// broken reads an error of the connection, or of what gave up on it.
func broken(ctx context.Context, err error) *loss {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the URL has a hundred ids in it
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return lose(false, 0, batch.Interrupted, "the run was stopped")
	case ctx.Err() != nil:
		return lose(false, 0, batch.GaveUp, "the time for the run was over")
	}
	why, halve := reason(err)
	l := lose(halve, 0, why, "%s", brief(err, ""))
	var body *httplimit.BodyError
	if errors.As(err, &body) {
		l.result.Status = body.Status
	}
	return l
}

// neverSent reports whether an error says that there was not even a connection.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
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
	return lose(mayBeSize(resp.StatusCode), resp.StatusCode, batch.Server, "%s", resp.Status)
}

// mayBeSize reports whether a smaller request may get another status. A 404 that gives no reason is for the URL.
func mayBeSize(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return status >= 500
}

// read takes the records out of an answer. What is not for an id that was asked is no answer.
func read(body []byte, ids []string) (map[string]*Record, *loss) {
	bad := func(format string, args ...any) (map[string]*Record, *loss) {
		return nil, lose(true, http.StatusOK, batch.Parse, format, args...)
	}
	if err := looksRight(body); err != nil {
		return bad("%v", err)
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return bad("an answer of another shape: %v", err)
	}
	if e.Format != "NVD_CVE" || e.TotalResults == nil {
		return bad("JSON, but no answer of the NVD: format %.20q", e.Format)
	}
	if *e.TotalResults > len(e.Vulnerabilities) || *e.TotalResults < 0 {
		return bad("%d records, where totalResults says %d", len(e.Vulnerabilities), *e.TotalResults)
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
			return bad("%v", err)
		case !asked[r.ID]:
			stray = r.ID
		case records[r.ID] != nil && !reflect.DeepEqual(records[r.ID], r):
			return bad("two records for %s, which differ", r.ID)
		default:
			records[r.ID] = r
		}
	}
	if stray != "" && len(records) < len(ids) {
		// The record of one that was asked for may bear the wrong name.
		return bad("an answer for %s, which was not asked for", stray)
	}
	return records, nil
}
