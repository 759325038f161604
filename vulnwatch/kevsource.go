package vulnwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The official catalogue, and CISA's own copy of it elsewhere, for networks that cisa.gov turns away.
const (
	KEVURL    = "https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json"
	KEVMirror = "https://raw.githubusercontent.com/cisagov/kev-data/develop/known_exploited_vulnerabilities.json"
	maxKEV    = 64 << 20
)

// KEV asks for the catalogue.
type KEV struct {
	URLs   []string     // in the order to try; empty: KEVURL, KEVMirror
	Client *http.Client // nil: one over [KEVTransport]
	Shrink float64      // the largest share of entries that may vanish at once; 0: 0.01, negative: none but a single one
}

// KEVAnswer is a catalogue and where it is from.
type KEVAnswer struct {
	Catalogue    *Catalogue // nil if it is NotModified
	NotModified  bool
	URL          string // without a user and a query, which may be secret
	ETag         string
	LastModified string
	Released     time.Time     // by CISA; zero if the catalogue does not say
	Age          time.Duration // since then
	Tried        []string      // what the sources before it said
}

// Fetch gets the catalogue from the first source that has a whole one. before are the entries of the last one, and known where that was
// from: the same source is asked on the condition that it changed. A catalogue that is older than that is refused: a
// mirror lags behind, and what it does not have yet is not removed.
func (k *KEV) Fetch(ctx context.Context, before map[string]Entry, known KEVAnswer) (KEVAnswer, error) {
	urls := k.URLs
	if len(urls) == 0 {
		urls = []string{KEVURL, KEVMirror}
	}
	client := k.Client
	if client == nil {
		client = &http.Client{Transport: KEVTransport(nil)}
	}
	failed := &sourcesError{}
	for _, source := range urls {
		condition := KEVAnswer{Released: known.Released}
		if publicURL(source) == known.URL && len(before) > 0 {
			condition = known
		}
		a, err := k.from(ctx, client, source, before, condition)
		if err == nil {
			a.Tried = failed.tried
			if !a.Released.IsZero() {
				a.Age = time.Since(a.Released).Round(time.Second)
			}
			return a, nil
		}
		failed.add(source, err)
	}
	return KEVAnswer{Tried: failed.tried}, failed
}

// sourcesError is why each source gave no catalogue.
type sourcesError struct {
	tried   []string // a source and its reason, for the account
	reasons []string // each once, in the order of the sources
	hosts   map[string][]string
	errs    []error
}

func (e *sourcesError) add(source string, err error) {
	host := publicURL(source)
	if u, err := url.Parse(source); err == nil {
		host = u.Host
	}
	reason := clip(300, brief(err, host))
	if e.hosts == nil {
		e.hosts = make(map[string][]string)
	}
	if e.hosts[reason] == nil {
		e.reasons = append(e.reasons, reason)
	}
	e.hosts[reason] = append(e.hosts[reason], host)
	e.tried = append(e.tried, publicURL(source)+": "+reason)
	e.errs = append(e.errs, err)
}

// Error is short, as it stands on pages and in mails: hosts instead of whole URLs, and what several say alike once.
func (e *sourcesError) Error() string {
	var parts []string
	for _, reason := range e.reasons {
		parts = append(parts, fmt.Sprintf("%s (%s)", reason, strings.Join(slices.Compact(slices.Clone(e.hosts[reason])), ", ")))
	}
	return strings.Join(parts, "; ")
}

func (e *sourcesError) Unwrap() []error { return e.errs }

// brief is an error for readers. What the network says is shortened: by which name server and from which port it was asked helps
// nobody. A host that is named beside it already is left out.
func brief(err error, host string) string {
	text := verdictText(err)
	short, long := "", ""
	var dns *net.DNSError
	var op *net.OpError
	if errors.As(err, &dns) {
		short, long = dns.Err, dns.Error()
		if host != dns.Name && !strings.HasPrefix(host, dns.Name+":") {
			short = dns.Name + ": " + short
		}
	}
	if errors.As(err, &op) {
		long = op.Error()
		if dns == nil {
			short = op.Err.Error()
			if op.Addr != nil && op.Addr.String() != host {
				short = op.Addr.String() + ": " + short
			}
		}
	}
	if long == "" {
		return text
	}
	return strings.ReplaceAll(text, long, short)
}

func (k *KEV) from(ctx context.Context, client *http.Client, source string, before map[string]Entry, known KEVAnswer) (KEVAnswer, error) {
	a := KEVAnswer{URL: publicURL(source)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("User-Agent", userAgent)
	if known.ETag != "" {
		req.Header.Set("If-None-Match", known.ETag)
	}
	if known.LastModified != "" {
		req.Header.Set("If-Modified-Since", known.LastModified)
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return a, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && (known.ETag != "" || known.LastModified != ""):
		known.NotModified, known.Tried = true, nil
		return known, nil
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("status %s", clip(100, plain(resp.Status)))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKEV+1))
	if err != nil {
		return a, fmt.Errorf("it broke off after %d bytes: %w", len(body), err)
	}
	if len(body) > maxKEV {
		return a, fmt.Errorf("over %d bytes", maxKEV)
	}
	c, err := ParseCatalogue(body)
	if err != nil {
		return a, err
	}
	most := k.Shrink
	if most == 0 {
		most = 0.01
	}
	if err := c.Shrunk(before, most); err != nil {
		return a, err
	}
	// A date in the future was a slip, of CISA or of this machine's clock, and must not bar what comes after.
	if c.Released.Before(known.Released) && !c.Released.IsZero() && !known.Released.After(time.Now()) {
		return a, fmt.Errorf("vulnwatch: KEV catalogue of %s: older than the one of the last check, of %s", c.Released.Format(time.RFC3339), known.Released.Format(time.RFC3339))
	}
	a.Catalogue, a.ETag, a.LastModified, a.Released = c, resp.Header.Get("ETag"), resp.Header.Get("Last-Modified"), c.Released
	return a, nil
}

// publicURL is a URL without what may be secret in it: where a catalogue is from is published.
func publicURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "a URL that cannot be read"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
