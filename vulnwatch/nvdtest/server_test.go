package nvdtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// answer is what came.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the connection, or of the body
}

func get(t testing.TB, rt http.RoundTripper, url string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

func ask(ids ...string) string {
	return "http://nvd.test" + nvdtest.NVDPath + "?cveIds=" + strings.Join(ids, ",")
}

// TestTheLimit is a script: when a request arrives, and whether it is admitted.
func TestTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nvdtest.Server{World: nvdtest.Synthetic(1, 10), Key: "k", RetryAfter: "30"}
		rt := s.RoundTripper()
		began := time.Now()
		for _, step := range []struct {
			at       time.Duration
			requests int
			key      string
			admitted int
		}{
			{0, 5, "", 5},
			{0, 50, "k", 50},
			{29999 * time.Millisecond, 1, "", 0}, // and it counts
			{29999 * time.Millisecond, 1, "k", 0},
			{30 * time.Second, 5, "", 4},
			{60 * time.Second, 5, "", 5},
			{89 * time.Second, 1, "", 0},
			{3 * time.Minute, 6, "", 5},
		} {
			time.Sleep(step.at - time.Since(began))
			admitted := 0
			for range step.requests {
				var header []string
				if step.key != "" {
					header = []string{"apiKey", step.key}
				}
				switch a := get(t, rt, ask("CVE-2024-900001"), header...); {
				case a.status == http.StatusOK:
					admitted++
				case a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "30":
					t.Errorf("%v: %+v", step.at, a)
				}
			}
			if admitted != step.admitted {
				t.Errorf("at %v with the key %q: %d of %d admitted, want %d", step.at, step.key, admitted, step.requests, step.admitted)
			}
		}
	})
}

func TestWhatTheNVDRefuses(t *testing.T) {
	s := &nvdtest.Server{World: nvdtest.Synthetic(1, 300), Key: "k", Units: -1, KeyUnits: -1}
	ids := s.World.IDs()
	for name, tc := range map[string]struct {
		url     string
		header  []string
		message string
	}{
		"101 ids":    {ask(ids[:101]...), nil, "cannot exceed 100"},
		"no ids":     {"http://nvd.test" + nvdtest.NVDPath, nil, "cveIds"},
		"no id":      {ask("CVE-1"), nil, "Invalid cveIds"},
		"a bad key":  {ask(ids[0]), []string{"apiKey", "x"}, "Invalid apiKey."},
		"an odd one": {ask(ids[0], "x y"), nil, "Invalid"},
	} {
		a := get(t, s.RoundTripper(), strings.ReplaceAll(tc.url, " ", "%20"), tc.header...)
		if a.status != http.StatusNotFound || a.body != "" || !strings.Contains(a.header.Get("message"), tc.message) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := get(t, s.RoundTripper(), ask(append(ids[:99:99], "CVE-1999-0001")...), "apiKey", "k")
	var got struct {
		TotalResults    int
		Format          string
		Vulnerabilities []struct{ CVE struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK || got.TotalResults != 99 || len(got.Vulnerabilities) != 99 || got.Format != "NVD_CVE" || a.header.Get("apiKey") != "Yes" {
		t.Errorf("an id that it does not know is left out without a word; got %d, %v, %d records", a.status, err, got.TotalResults)
	}
}

// TestFaults: each of them over a real connection.
func TestFaults(t *testing.T) {
	s := &nvdtest.Server{World: nvdtest.Synthetic(1, 20), Units: -1}
	ts := httptest.NewServer(s)
	defer ts.Close()
	ids := s.World.IDs()
	valid := func(a answer) bool { return json.Valid([]byte(a.body)) }
	for _, tc := range []struct {
		fault nvdtest.Fault
		right func(answer) bool
	}{
		{nvdtest.Fault{Kind: nvdtest.Status, Status: 524}, func(a answer) bool { return a.status == 524 }},
		{nvdtest.Fault{Kind: nvdtest.Status, Status: 429, RetryAfter: "0"}, func(a answer) bool { return a.status == 429 && a.header.Get("Retry-After") == "0" }},
		{nvdtest.Fault{Kind: nvdtest.Forbidden}, func(a answer) bool { return a.status == 403 && strings.Contains(a.body, "administrative rules") }},
		{nvdtest.Fault{Kind: nvdtest.BadKey}, func(a answer) bool { return a.status == 404 && a.header.Get("message") == "Invalid apiKey." }},
		{nvdtest.Fault{Kind: nvdtest.HTML}, func(a answer) bool { return a.status == 200 && strings.HasPrefix(a.body, "<!DOCTYPE") }},
		{nvdtest.Fault{Kind: nvdtest.OtherJSON}, func(a answer) bool { return a.status == 200 && valid(a) && !strings.Contains(a.body, "NVD_CVE") }},
		{nvdtest.Fault{Kind: nvdtest.Truncated}, func(a answer) bool { return a.status == 200 && a.err == nil && !valid(a) }},
		{nvdtest.Fault{Kind: nvdtest.Reset}, func(a answer) bool { return a.status == 200 && errors.Is(a.err, io.ErrUnexpectedEOF) }},
		{nvdtest.Fault{Kind: nvdtest.Stall, Wait: time.Millisecond}, func(a answer) bool { return a.status == 200 && valid(a) }},
		{nvdtest.Fault{Kind: nvdtest.Empty}, func(a answer) bool { return a.status == 200 && !strings.Contains(a.body, "vulnerabilities") }},
		{nvdtest.Fault{Kind: nvdtest.Omit, IDs: ids[:1]}, func(a answer) bool { return !strings.Contains(a.body, ids[0]) && strings.Contains(a.body, ids[1]) }},
		{nvdtest.Fault{Kind: nvdtest.Paged}, func(a answer) bool {
			return strings.Contains(a.body, `"totalResults":3`) && strings.Count(a.body, `"cve":`) == 1
		}},
		{nvdtest.Fault{Kind: nvdtest.OtherID, IDs: ids[:1]}, func(a answer) bool { return strings.Contains(a.body, `"id":"CVE-2022-999999"`) }},
		{nvdtest.Fault{Kind: nvdtest.Twice, IDs: ids[:1]}, func(a answer) bool { return strings.Count(a.body, `"id":"`+ids[0]) == 2 }},
		{nvdtest.Fault{Kind: nvdtest.Unknown}, func(a answer) bool { return valid(a) && strings.Contains(a.body, "cvssMetricV50") }},
		{nvdtest.Fault{Kind: nvdtest.Shape}, func(a answer) bool { return valid(a) && strings.Contains(a.body, `"published":1767621600`) }},
	} {
		s.Clear()
		s.Inject(tc.fault)
		url := ts.URL + nvdtest.NVDPath + "?cveIds=" + strings.Join(ids[:3], ",")
		if a := get(t, http.DefaultTransport, url); !tc.right(a) {
			t.Errorf("%s: %d, %v, %.200q", tc.fault.Kind, a.status, a.err, a.body)
		}
		if a := get(t, s.RoundTripper(), url); !tc.right(a) {
			t.Errorf("%s without a network: %d, %v, %.200q", tc.fault.Kind, a.status, a.err, a.body)
		}
	}
	s.Clear()
	s.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 500, Above: 2, Times: 1})
	for i, want := range []int{200, 500, 200} {
		n := []int{2, 3, 3}[i]
		if a := get(t, s.RoundTripper(), ask(ids[:n]...)); a.status != want {
			t.Errorf("%d ids: %d, want %d: only above 2, and only once", n, a.status, want)
		}
	}
}

func TestCatalogue(t *testing.T) {
	s := &nvdtest.Server{World: nvdtest.Synthetic(1, 20)}
	rt := s.RoundTripper()
	type catalogue struct {
		Count           int
		DateReleased    time.Time
		Vulnerabilities []struct{ CVEID string }
	}
	read := func(url string, header ...string) (catalogue, answer) {
		a := get(t, rt, "http://kev.test"+url, header...)
		var c catalogue
		if a.status == http.StatusOK {
			if err := json.Unmarshal([]byte(a.body), &c); err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
		return c, a
	}
	c, a := read(nvdtest.KEVPath)
	if c.Count != len(c.Vulnerabilities) || c.Count < 300 {
		t.Errorf("%d entries, count %d", len(c.Vulnerabilities), c.Count)
	}
	if _, b := read(nvdtest.KEVPath, "If-None-Match", a.header.Get("ETag")); b.status != http.StatusNotModified || b.body != "" {
		t.Errorf("unchanged: %d", b.status)
	}
	if _, b := read(nvdtest.KEVPath, "If-Modified-Since", a.header.Get("Last-Modified")); b.status != http.StatusNotModified {
		t.Errorf("unchanged since: %d", b.status)
	}
	s.World.NextDay()
	today, b := read(nvdtest.KEVPath, "If-None-Match", a.header.Get("ETag"))
	if b.status != http.StatusOK || today.Count != c.Count+1 || !today.DateReleased.After(c.DateReleased) {
		t.Errorf("a day later: %d, %d entries", b.status, today.Count)
	}
	s.Inject(nvdtest.Fault{Kind: nvdtest.Behind, At: nvdtest.Mirror}, nvdtest.Fault{Kind: nvdtest.Shrunk, At: nvdtest.KEV})
	if m, _ := read(nvdtest.MirrorPath); m.Count != c.Count || !m.DateReleased.Equal(c.DateReleased) {
		t.Errorf("the mirror has %d entries of %v", m.Count, m.DateReleased)
	}
	if m, _ := read(nvdtest.KEVPath); m.Count != len(m.Vulnerabilities) || m.Count > today.Count*9/10 {
		t.Errorf("shrunk: %d entries", m.Count)
	}
}

// TestTheSameForTheSameSeed: two worlds of one seed live the same life.
func TestTheSameForTheSameSeed(t *testing.T) {
	life := func(seed uint64) string {
		w := nvdtest.Synthetic(seed, 60)
		s := &nvdtest.Server{World: w, Units: -1}
		var b strings.Builder
		for range 8 {
			fmt.Fprintln(&b, w.NextDay())
			fmt.Fprintln(&b, get(t, s.RoundTripper(), ask(w.IDs()...)).body)
			fmt.Fprintln(&b, get(t, s.RoundTripper(), "http://x.test"+nvdtest.KEVPath).body)
		}
		return b.String()
	}
	one := life(1)
	if one != life(1) {
		t.Error("not the same twice")
	}
	if one == life(2) {
		t.Error("another seed is no other life")
	}
}

func TestEditsThatCannotBe(t *testing.T) {
	w := nvdtest.Synthetic(1, 30)
	if w.Apply(nvdtest.Reworded, "CVE-1999-0001") || w.Apply(nvdtest.Back, w.IDs()[0]) || w.Apply("flattered", w.IDs()[0]) {
		t.Error("an edit of nothing, or of no kind")
	}
	id := w.IDs()[0]
	if !w.Apply(nvdtest.Gone, id) || w.Apply(nvdtest.Reworded, id) || !w.Apply(nvdtest.Back, id) || !w.Apply(nvdtest.Reworded, id) {
		t.Error("gone, and back")
	}
}

func TestLoad(t *testing.T) {
	folder := fstest.MapFS{
		"a.json":                               {Data: []byte(`{"format":"NVD_CVE","vulnerabilities":[{"cve":{"id":"CVE-2026-900001","x":7.50}}]}`)},
		"b/b.json":                             {Data: []byte(`{"format":"NVD_CVE","vulnerabilities":[{"cve":{"id":"CVE-2026-900002"}}]}`)},
		"known_exploited_vulnerabilities.json": {Data: []byte(`{"vulnerabilities":[{"cveID":"CVE-2026-900002"}]}`)},
		"README.md":                            {Data: []byte("not read")},
	}
	w, err := nvdtest.Load(folder)
	if err != nil || len(w.IDs()) != 2 {
		t.Fatal(w, err)
	}
	s := &nvdtest.Server{World: w}
	if a := get(t, s.RoundTripper(), ask(w.IDs()...)); !strings.Contains(a.body, `{"id":"CVE-2026-900001","x":7.50}`) {
		t.Errorf("not as it was: %s", a.body)
	}
	folder["c.json"] = &fstest.MapFile{Data: []byte(`{"hello":"world"}`)}
	if _, err := nvdtest.Load(folder); err == nil || !strings.Contains(err.Error(), "c.json") {
		t.Errorf("got %v", err)
	}
}

// TestLoadReal serves real records where they lie beside the repository.
func TestLoadReal(t *testing.T) {
	folder := os.DirFS("../../../shared/data/nvd/nvdlib")
	if _, err := os.Stat("../../../shared/data/nvd/nvdlib"); err != nil {
		t.Skip("no folder of real NVD data beside the repository")
	}
	w, err := nvdtest.Load(folder)
	if err != nil || len(w.IDs()) < 40 {
		t.Fatal(err)
	}
	t.Logf("%d records", len(w.IDs()))
}

func Example() {
	world := nvdtest.Synthetic(1, 271)
	server := &nvdtest.Server{World: world} // with a Window of 30 s
	ts := httptest.NewServer(server)
	defer ts.Close()

	ids := world.IDs()[:100]
	for range 6 {
		resp, err := http.Get(ts.URL + nvdtest.NVDPath + "?cveIds=" + strings.Join(ids, ","))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println(world.NextDay()[0])
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
	// CVE-2025-900014 score_added
}
