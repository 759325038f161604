package nvdtest

import (
	"slices"
	"time"
)

// Endpoint is one of what a Server serves.
type Endpoint string

// What a Server serves.
const (
	NVD    Endpoint = "nvd"    // the zero Fault is of it
	KEV    Endpoint = "kev"    // CISA's catalogue
	Mirror Endpoint = "mirror" // the copy of the catalogue
)

// FaultKind is what goes wrong with an answer. Those from Status on may happen at each Endpoint; those of records only at
// the NVD, those of the catalogue only at KEV and Mirror.
type FaultKind string

// What goes wrong. Each has been seen at the real servers.
const (
	Status    FaultKind = "status"    // Fault.Status instead of 200, with Fault.RetryAfter and Fault.Message if given
	Forbidden FaultKind = "forbidden" // 403 and a page of HTML: how the NVD refused for its limit until 2025, and how CISA turns networks away
	BadKey    FaultKind = "bad_key"   // 404 without a body, and the header message: Invalid apiKey.
	HTML      FaultKind = "html"      // 200, and a page of HTML
	OtherJSON FaultKind = "json"      // 200, and JSON of another shape
	Truncated FaultKind = "truncated" // 200, and the first half of the JSON
	Reset     FaultKind = "reset"     // 200, and the connection is reset in the middle of the body
	Stall     FaultKind = "stall"     // no answer until the client leaves, or for Fault.Wait

	Empty   FaultKind = "empty"   // 200, totalResults 0, and no vulnerabilities at all
	Omit    FaultKind = "omit"    // records of Fault.IDs are left out, without a word
	Paged   FaultKind = "paged"   // only half of the records, while totalResults counts all
	OtherID FaultKind = "other"   // records of Fault.IDs bear the id of another CVE
	Twice   FaultKind = "twice"   // records of Fault.IDs come twice, and differ
	Unknown FaultKind = "unknown" // properties, statuses and metrics that nobody knows yet
	Shape   FaultKind = "shape"   // properties of other types than documented

	Shrunk     FaultKind = "shrunk"     // a tenth of the entries is missing, and count agrees
	Miscounted FaultKind = "miscounted" // count is one more than there are
	Behind     FaultKind = "behind"     // the catalogue of yesterday
)

// Fault is something that goes wrong.
type Fault struct {
	Kind FaultKind

	At    Endpoint // empty: NVD
	IDs   []string // only where one of these is asked for; empty: always
	Above int      // only where more than so many ids are asked for
	Times int      // so often, and then no more; 0: until Clear

	Status     int
	RetryAfter string // the header field; empty: none
	Message    string // the header field; empty: none
	Wait       time.Duration
}

// matches reports whether the fault is for a request.
func (f *Fault) matches(at Endpoint, ids []string) bool {
	of := f.At
	if of == "" {
		of = NVD
	}
	if of != at || len(ids) <= f.Above && f.Above > 0 {
		return false
	}
	return len(f.IDs) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(f.IDs, id) })
}

// Inject makes a fault happen from now on. Of several that fit a request, the first does.
func (s *Server) Inject(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = append(s.faults, &f)
	}
}

// Clear takes all faults away.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// fault takes the fault for a request, nil if there is none.
func (s *Server) fault(at Endpoint, ids []string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if !f.matches(at, ids) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

// spoil edits a record as the fault says.
func (f *Fault) spoil(rec object) object {
	id, _ := rec["id"].(string)
	if len(f.IDs) > 0 && !slices.Contains(f.IDs, id) {
		return rec
	}
	switch f.Kind {
	case OtherID:
		rec["id"] = "CVE-2022-999999"
	case Unknown:
		rec["vulnStatus"] = "Triaged By Committee"
		rec["affected"] = []any{object{"vendor": "n/a"}}
		rec["quantumRisk"] = object{"level": "UNCLEAR"}
		metrics, _ := rec["metrics"].(object)
		if metrics == nil {
			metrics = object{}
		}
		metrics["ssvcV203"] = []any{object{"exploitation": "poc"}}
		metrics["cvssMetricV50"] = []any{metric("nvd@nist.gov", "Primary", vector{"CVSS:5.0/X:Y", "5.0", 5.5, "SEVERE-ISH"})}
		rec["metrics"] = metrics
	case Shape:
		rec["published"] = 1767621600
		rec["cveTags"] = "none"
		rec["weaknesses"] = object{"CWE-79": true}
		if metrics, ok := rec["metrics"].(object); ok {
			metrics["cvssMetricV2"] = object{"baseScore": "high"}
		}
	}
	return rec
}
