package nvdtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Where a Server has what, as the real ones have.
const (
	NVDPath    = "/rest/json/cves/2.0"
	KEVPath    = "/sites/default/files/feeds/known_exploited_vulnerabilities.json"
	MirrorPath = "/cisagov/kev-data/develop/known_exploited_vulnerabilities.json"
)

// maxIDs is how many CVEs one request may ask for.
const maxIDs = 100

// Server is an http.Handler that serves a World as the NVD and CISA do. Set its fields before its first use.
type Server struct {
	World *World

	// Key is the API key that is right. Every other is refused; with an empty Key every one is.
	Key string

	Units    int           // requests in a Window without a key; 0: 5, negative: without limit
	KeyUnits int           // with the key; 0: 50
	Window   time.Duration // 0: 30 s

	// Latency is how long the NVD thinks before it answers. It never answers a refusal late.
	Latency time.Duration

	// RetryAfter is the header field of refusals; empty: none, which the NVD does as well.
	RetryAfter string

	mu       sync.Mutex
	faults   []*Fault
	arrivals map[string][]time.Time // of the last requests, by key
	requests []*Request
}

// Request is one that a Server has had.
type Request struct {
	At       time.Time // when it arrived
	Endpoint Endpoint
	IDs      []string  // of the NVD
	WithKey  bool      //
	Fault    FaultKind // that was injected; empty: none
	Refused  bool      // by the limit
	Status   int       // of the answer; 0: it had none yet, or never
}

// Requests are all that there were so far, in the order in which they arrived.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
	}
	return all
}

// Forget empties the list of requests. What counts for the limit goes on counting.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Asked counts the requests to the NVD, and those of them that its limit refused.
func (s *Server) Asked() (all, refused int) {
	for _, r := range s.Requests() {
		if r.Endpoint == NVD {
			all++
			if r.Refused {
				refused++
			}
		}
	}
	return all, refused
}

// ServeHTTP serves the NVD and both copies of the catalogue.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
		return
	}
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case NVDPath:
		s.nvd(w, r, at)
	case KEVPath:
		s.kev(w, r, at, KEV)
	case MirrorPath:
		s.kev(w, r, at, Mirror)
	default:
		http.NotFound(w, r)
	}
}

// note enters a request into the list and returns how to enter the rest of it.
func (s *Server) note(req Request) (set func(func(*Request))) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := &req
	s.requests = append(s.requests, entry)
	return func(change func(*Request)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		change(entry)
	}
}

// admit reports whether the limit lets a request through that arrived at an instant. Those that are refused count as well: who
// keeps asking is kept out.
func (s *Server) admit(key string, withKey bool, at time.Time) bool {
	units, window := s.Units, s.Window
	if withKey {
		units = s.KeyUnits
		if units == 0 {
			units = 50
		}
	} else if units == 0 {
		units = 5
	}
	if window == 0 {
		window = 30 * time.Second
	}
	if units < 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrivals == nil {
		s.arrivals = make(map[string][]time.Time)
	}
	last := append(s.arrivals[key], at)
	last = last[max(0, len(last)-units-1):]
	s.arrivals[key] = last
	return len(last) <= units || at.Sub(last[0]) >= window
}

var idForm = regexp.MustCompile(`^CVE-[0-9]{4}-[0-9]{4,19}$`)

func (s *Server) nvd(w http.ResponseWriter, r *http.Request, at time.Time) {
	query := r.URL.Query()
	var ids []string
	for _, list := range append(query["cveIds"], query["cveId"]...) {
		ids = append(ids, strings.Split(list, ",")...)
	}
	key := r.Header.Get("apiKey")
	f := s.fault(NVD, ids)
	req := Request{At: at, Endpoint: NVD, IDs: ids, WithKey: key != ""}
	if f != nil {
		req.Fault = f.Kind
	}
	set := s.note(req)
	answered := func(status int) { set(func(q *Request) { q.Status = status }) }

	if !s.admit(key, key != "" && key == s.Key, at) {
		set(func(q *Request) { q.Refused, q.Status = true, http.StatusTooManyRequests })
		if s.RetryAfter != "" {
			w.Header().Set("Retry-After", s.RetryAfter)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	wrong := func(format string, args ...any) {
		answered(http.StatusNotFound)
		w.Header().Set("message", fmt.Sprintf(format, args...))
		w.WriteHeader(http.StatusNotFound)
	}
	if key != "" {
		if key != s.Key {
			wrong("Invalid apiKey.")
			return
		}
		w.Header().Set("apiKey", "Yes")
	}
	if f != nil && s.broken(w, r, f, answered) {
		return
	}
	switch {
	case len(ids) > maxIDs:
		wrong("The cveIds parameter cannot exceed %d values.", maxIDs)
		return
	case len(ids) == 0:
		wrong("This server knows the parameter cveIds only.")
		return
	}
	for _, id := range ids {
		if !idForm.MatchString(id) {
			wrong("Invalid cveIds parameter value: %.40s", id)
			return
		}
	}
	if !pause(r, s.Latency) {
		return
	}
	answered(http.StatusOK)
	s.send(w, s.answer(ids, f), f, "application/json")
}

// answer is the NVD's answer, with what a fault makes of it.
func (s *Server) answer(ids []string, f *Fault) object {
	if f == nil {
		return s.World.answer(ids, nil)
	}
	switch f.Kind {
	case Empty:
		a := s.World.answer(nil, nil)
		delete(a, "vulnerabilities")
		return a
	case Omit:
		return s.World.answer(slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return len(f.IDs) == 0 || slices.Contains(f.IDs, id)
		}), nil)
	}
	a := s.World.answer(ids, f.spoil)
	list := a["vulnerabilities"].([]any)
	switch f.Kind {
	case Paged:
		a["vulnerabilities"] = list[:len(list)/2]
		a["resultsPerPage"] = len(list) / 2
	case Twice:
		for _, v := range list {
			rec := v.(object)["cve"].(object)
			if id, _ := rec["id"].(string); slices.Contains(f.IDs, id) {
				other := deepCopy(rec).(object)
				other["vulnStatus"] = "Analyzed Otherwise"
				list = append(list, object{"cve": other})
			}
		}
		a["vulnerabilities"], a["totalResults"], a["resultsPerPage"] = list, len(list), len(list)
	}
	return a
}

// broken answers with a fault that leaves nothing of the answer, and reports whether it did.
func (s *Server) broken(w http.ResponseWriter, r *http.Request, f *Fault, answered func(int)) bool {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Message != "" {
		w.Header().Set("message", f.Message)
	}
	page := func(status int, text string) {
		answered(status)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<!DOCTYPE html><html><body><h1>%s</h1></body></html>\n", text)
	}
	switch f.Kind {
	case Status:
		answered(f.Status)
		w.WriteHeader(f.Status)
	case Forbidden:
		page(http.StatusForbidden, "Request forbidden by administrative rules.")
	case BadKey:
		answered(http.StatusNotFound)
		w.Header().Set("message", "Invalid apiKey.")
		w.WriteHeader(http.StatusNotFound)
	case HTML:
		page(http.StatusOK, "The service is being updated. Please come back later.")
	case OtherJSON:
		answered(http.StatusOK)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"error": "backend", "code": 17}`)
	case Stall:
		wait := f.Wait
		if wait == 0 {
			wait = time.Hour
		}
		return !pause(r, wait)
	default:
		return false
	}
	return true
}

// pause waits, and reports whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// send sends JSON, whole or as a fault will have it.
func (s *Server) send(w http.ResponseWriter, v any, f *Fault, kind string) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	switch {
	case f != nil && f.Kind == Truncated:
		body = body[:len(body)/2]
	case f != nil && f.Kind == Reset:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // net/http then resets the connection, and logs nothing
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

func (s *Server) kev(w http.ResponseWriter, r *http.Request, at time.Time, endpoint Endpoint) {
	f := s.fault(endpoint, nil)
	req := Request{At: at, Endpoint: endpoint}
	if f != nil {
		req.Fault = f.Kind
	}
	set := s.note(req)
	answered := func(status int) { set(func(q *Request) { q.Status = status }) }
	if f != nil && s.broken(w, r, f, answered) {
		return
	}
	c, released := s.World.catalogue(f != nil && f.Kind == Behind)
	if f != nil {
		entries := c["vulnerabilities"].([]kevEntry)
		switch f.Kind {
		case Shrunk:
			entries = entries[len(entries)/10+1:]
			c["vulnerabilities"], c["count"] = entries, len(entries)
		case Miscounted:
			c["count"] = len(entries) + 1
		}
	}
	content, err := json.Marshal(c["vulnerabilities"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(fmt.Appendf(content, "%v %v", released, c["count"]))
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("ETag", etag)
	w.Header().Set("Last-Modified", released.Format(http.TimeFormat))
	if match := r.Header.Get("If-None-Match"); match != "" {
		if match == etag {
			answered(http.StatusNotModified)
			w.WriteHeader(http.StatusNotModified)
			return
		}
	} else if since, err := http.ParseTime(r.Header.Get("If-Modified-Since")); err == nil && !released.After(since) {
		answered(http.StatusNotModified)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	answered(http.StatusOK)
	s.send(w, c, f, "application/json")
}
