package nvdtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// World is the NVD's records and CISA's catalogue on some day. It is safe for concurrent use.
type World struct {
	mu      sync.Mutex
	seed    uint64
	start   time.Time
	day     int
	ids     []string          // the CVEs of interest, in order
	made    map[string]int    // of those made up, their number, until they are edited
	records map[string]object // those that were read or edited
	gone    map[string]bool
	kev     []kevEntry // the newest first
	before  []kevEntry // of yesterday
	late    []string   // listed by CISA, and not yet so by the NVD
	renamed bool       // the KEV properties have the names of 2022
}

// object is a JSON object.
type object = map[string]any

// kevEntry is an entry of the catalogue, in CISA's form.
type kevEntry struct {
	CVEID                      string   `json:"cveID"`
	VendorProject              string   `json:"vendorProject"`
	Product                    string   `json:"product"`
	VulnerabilityName          string   `json:"vulnerabilityName"`
	DateAdded                  string   `json:"dateAdded"`
	ShortDescription           string   `json:"shortDescription"`
	RequiredAction             string   `json:"requiredAction"`
	DueDate                    string   `json:"dueDate"`
	KnownRansomwareCampaignUse string   `json:"knownRansomwareCampaignUse"`
	Notes                      string   `json:"notes"`
	CWEs                       []string `json:"cwes"`
}

// firstDay is day 0 of a World that is not told another.
var firstDay = time.Date(2026, time.January, 5, 14, 0, 0, 0, time.UTC)

// Load reads a World from a folder: files of NVD answers (API 2.0), named *.json, at any depth, and a catalogue named
// known_exploited_vulnerabilities.json. Of a record that is there several times, the last by file name counts.
func Load(folder fs.FS) (*World, error) {
	w := newWorld()
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".json" {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		if path.Base(name) == "known_exploited_vulnerabilities.json" {
			var c struct{ Vulnerabilities []kevEntry }
			if err := json.Unmarshal(data, &c); err != nil {
				return fmt.Errorf("nvdtest: %s: %w", name, err)
			}
			w.kev = c.Vulnerabilities
			return nil
		}
		var answer struct {
			Format          string
			Vulnerabilities []struct{ CVE object }
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber() // so that 7.50 stays what it was
		if err := dec.Decode(&answer); err != nil {
			return fmt.Errorf("nvdtest: %s: %w", name, err)
		}
		if answer.Format != "NVD_CVE" {
			return fmt.Errorf("nvdtest: %s: not an answer of the NVD's API 2.0", name)
		}
		for _, v := range answer.Vulnerabilities {
			id, ok := v.CVE["id"].(string)
			if !ok {
				return fmt.Errorf("nvdtest: %s: a record without an id", name)
			}
			if w.records[id] == nil {
				w.ids = append(w.ids, id)
			}
			w.records[id] = v.CVE
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(w.ids)
	w.before = slices.Clone(w.kev)
	return w, nil
}

func newWorld() *World {
	return &World{start: firstDay, made: make(map[string]int), records: make(map[string]object), gone: make(map[string]bool)}
}

// IDs are the CVEs of the World, whether the NVD knows them today or not.
func (w *World) IDs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ids)
}

// StartAt sets when day 0 is, if it is to be another than some day in January 2026. Call it before anything else.
func (w *World) StartAt(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start = t.UTC().Truncate(time.Second)
}

// Day is the number of days that have passed, and the time that it is in the World.
func (w *World) Day() (int, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.day, w.now()
}

func (w *World) now() time.Time { return w.start.AddDate(0, 0, w.day) }

// record is the record of a CVE today; nil if the NVD does not know it. The caller must not change it.
func (w *World) record(id string) object {
	if w.gone[id] {
		return nil
	}
	r := w.records[id]
	if r == nil {
		n, ok := w.made[id]
		if !ok {
			return nil
		}
		r = invent(w.seed, n, id)
		if k := w.entry(id); k != nil && !slices.Contains(w.late, id) {
			markListed(r, k)
		}
	}
	if w.renamed {
		r = oldNames(r)
	}
	return r
}

// change gives the record of a CVE to be edited, and moves its time on.
func (w *World) change(id string) object {
	renamed := w.renamed
	w.renamed = false
	r := w.record(id)
	w.renamed = renamed
	if r == nil {
		return nil
	}
	r = deepCopy(r).(object)
	w.records[id] = r
	r["lastModified"] = nvdTime(w.now())
	return r
}

func (w *World) entry(id string) *kevEntry {
	for i := range w.kev {
		if w.kev[i].CVEID == id {
			return &w.kev[i]
		}
	}
	return nil
}

// nvdTime is a time as the NVD writes it: UTC, and no zone.
func nvdTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000") }

func deepCopy(v any) any {
	switch v := v.(type) {
	case object:
		c := make(object, len(v))
		for k, e := range v {
			c[k] = deepCopy(e)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = deepCopy(e)
		}
		return c
	}
	return v
}

// oldNames is a record with the names of 2022 for the KEV properties, and those of 2024 for the metrics of CVSS 4.0.
func oldNames(r object) object {
	c := maps.Clone(r)
	for now, old := range map[string]string{
		"cisaExploitAdd": "exploitAdd", "cisaActionDue": "actionDue",
		"cisaRequiredAction": "requiredAction", "cisaVulnerabilityName": "vulnerabilityName",
	} {
		if v, ok := c[now]; ok {
			c[old] = v
			delete(c, now)
		}
	}
	if m, ok := c["metrics"].(object); ok {
		m = deepCopy(m).(object)
		v40, _ := m["cvssMetricV40"].([]any)
		for _, metric := range v40 {
			if metric, ok := metric.(object); ok {
				if data, ok := metric["cvssData"].(object); ok {
					if v, ok := data["vulnConfidentialityImpact"]; ok {
						data["vulnerableSystemConfidentiality"] = v
						delete(data, "vulnConfidentialityImpact")
					}
					if v, ok := data["Safety"]; ok {
						data["safety"] = v
						delete(data, "Safety")
					}
				}
			}
		}
		c["metrics"] = m
	}
	return c
}

// answer is the NVD's answer for ids: the records that it knows, in an order of its own.
func (w *World) answer(ids []string, edit func(object) object) object {
	w.mu.Lock()
	defer w.mu.Unlock()
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(b, a) })
	list := []any{}
	for _, id := range slices.Compact(sorted) {
		r := w.record(id)
		if r == nil {
			continue
		}
		if edit != nil {
			r = edit(deepCopy(r).(object))
		}
		list = append(list, object{"cve": r})
	}
	return object{
		"resultsPerPage": len(list), "startIndex": 0, "totalResults": len(list),
		"format": "NVD_CVE", "version": "2.0", "timestamp": nvdTime(w.now()),
		"vulnerabilities": list,
	}
}

// catalogue is CISA's catalogue of today, or of yesterday.
func (w *World) catalogue(yesterday bool) (object, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, at := w.kev, w.now()
	if yesterday {
		entries, at = w.before, at.AddDate(0, 0, -1)
	}
	return object{
		"title":          "CISA Catalog of Known Exploited Vulnerabilities",
		"catalogVersion": at.Format("2006.01.02"), "dateReleased": at.Format("2006-01-02T15:04:05.0000Z"),
		"count": len(entries), "vulnerabilities": slices.Clone(entries),
	}, at
}
