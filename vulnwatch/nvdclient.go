package vulnwatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/batch"
	"github.com/weir-go/weir/httplimit"
)

// NVDRate is what the NVD lets one address ask, without a key and with one.
func NVDRate(withKey bool) weir.Rate {
	rate := httplimit.ProfileNamed("nvd").Rate
	if withKey {
		rate.Units *= 10
	}
	return rate
}

func (n *NVD) rate() weir.Rate {
	if n.Rate.Units > 0 {
		return n.Rate
	}
	return NVDRate(n.Key != "")
}

// Transport is a new one that keeps n's Rate, over base; nil is http.DefaultTransport. It can be changed, and observed,
// before it is given to n.Client. What it sends is counted for the [batch.Ledger] of the run.
//
// The gate counts starts, as answers of a hundred records can take half a minute, with a margin of a sixtieth of the
// period for ways of different length, which grows by itself where the NVD refuses all the same. The reading of the body is part of
// an attempt, for which there are two and a half minutes. An attempt that failed is made once more, then it is for
// Fetch to halve the request.
func (n *NVD) Transport(base http.RoundTripper) *httplimit.Transport {
	rate := n.rate()
	profile := *httplimit.ProfileNamed("nvd") // by name, as the URL may be that of a mirror
	profile.Floor = rate.Period
	return &httplimit.Transport{
		Base: &batch.Meter{Base: base, Refused: func(resp *http.Response) bool {
			a := httplimit.ReadAnswer(resp.StatusCode, resp.Header, nil, time.Now(), &profile)
			return a.Refused()
		}},
		Gates: []httplimit.Gate{{
			Limit:  &weir.Limit{Name: "nvd", Algorithm: weir.SlidingLog, Rate: rate},
			Reopen: httplimit.AfterStart,
			Guard:  rate.Period / 60,
		}},
		Profile:  &profile,
		Timeout:  150 * time.Second,
		ReadBody: maxAnswer,
		Check:    func(_ *http.Response, body []byte) error { return looksRight(body) },
		Retry:    &httplimit.Retry{Attempts: 2, Refusals: 4},
	}
}

// shapeError says that an answer is none of the NVD.
type shapeError struct{ what string }

func (e *shapeError) Error() string { return e.what }

// looksRight says whether an answer with status 200 is worth reading.
func looksRight(body []byte) error {
	if !json.Valid(body) {
		start := bytes.TrimSpace(body)
		if len(start) > 0 && start[0] != '{' {
			return &shapeError{fmt.Sprintf("not JSON: it begins with %.20q", start)}
		}
		return &shapeError{fmt.Sprintf("%d bytes that are not JSON, or not all of it", len(body))}
	}
	if !bytes.Contains(body, []byte(`"NVD_CVE"`)) {
		return &shapeError{"JSON, but no answer of the NVD"}
	}
	return nil
}

// KEVTransport is a new one for the catalogue, over base: a failed attempt is made again twice, but a server that turns
// this network away is not asked again. What it sends is counted for the [batch.Ledger] of the run.
func KEVTransport(base http.RoundTripper) *httplimit.Transport {
	return &httplimit.Transport{
		Base:     &batch.Meter{Base: base},
		Timeout:  2 * time.Minute,
		ReadBody: maxKEV,
		Retry:    &httplimit.Retry{Attempts: 3, Refusals: 2},
	}
}

// reason reads an error of the client.
func reason(err error) (why batch.Reason, halve bool) {
	var hold *httplimit.HoldError
	var limited *weir.LimitedError
	var open *httplimit.BreakerError
	var shape *shapeError
	switch {
	case errors.As(err, &hold):
		return batch.RateLimited, false
	case errors.As(err, &limited):
		return batch.GaveUp, false
	case errors.Is(err, httplimit.ErrBodyTooLarge):
		return batch.TooLarge, true
	case errors.As(err, &open):
		return batch.Server, false
	case errors.As(err, &shape):
		return batch.Parse, true
	case neverSent(err):
		return batch.Network, false // smaller requests will have no connection either
	}
	return batch.Network, true
}
