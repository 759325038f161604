package vulnwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	URLs   []string // in the order to try; empty: KEVURL, KEVMirror
	Client *http.Client
	Shrink float64 // the largest share of entries that may vanish at once; 0: 0.01
}

// KEVAnswer is a catalogue and where it is from.
type KEVAnswer struct {
	Catalogue    *Catalogue // nil if it is NotModified
	NotModified  bool
	URL          string
	ETag         string
	LastModified string
	Age          time.Duration // since the catalogue was released; 0 if it does not say
	Tried        []string      // what the sources before it said
}

// Fetch gets the catalogue from the first source that has a whole one. before are the entries of the last one, and known where that was
// from: the same source is asked on the condition that it changed.
func (k *KEV) Fetch(ctx context.Context, before map[string]Entry, known KEVAnswer) (KEVAnswer, error) {
	urls := k.URLs
	if len(urls) == 0 {
		urls = []string{KEVURL, KEVMirror}
	}
	var tried []string
	var failed []error
	for _, url := range urls {
		condition := KEVAnswer{}
		if url == known.URL && len(before) > 0 {
			condition = known
		}
		a, err := k.from(ctx, url, before, condition)
		if err == nil {
			a.Tried = tried
			return a, nil
		}
		tried = append(tried, fmt.Sprintf("%s: %v", url, err))
		failed = append(failed, fmt.Errorf("%s: %w", url, err))
	}
	return KEVAnswer{Tried: tried}, errors.Join(failed...)
}

func (k *KEV) from(ctx context.Context, url string, before map[string]Entry, known KEVAnswer) (KEVAnswer, error) {
	a := KEVAnswer{URL: url}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	if known.ETag != "" {
		req.Header.Set("If-None-Match", known.ETag)
	}
	if known.LastModified != "" {
		req.Header.Set("If-Modified-Since", known.LastModified)
	}
	client := k.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && (known.ETag != "" || known.LastModified != ""):
		known.NotModified, known.Tried = true, nil
		return known, nil
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("status %s", resp.Status)
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
	if most <= 0 {
		most = 0.01
	}
	if err := c.Shrunk(before, most); err != nil {
		return a, err
	}
	a.Catalogue, a.ETag, a.LastModified = c, resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	if !c.Released.IsZero() {
		a.Age = time.Since(c.Released).Round(time.Second)
	}
	return a, nil
}
