package vulnwatch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is what matters of a CVE in the NVD, in one canonical form: lists are sorted, absent is empty.
type Record struct {
	ID           string      `json:"id"`
	Status       string      `json:"status"` // Analyzed, Modified, Deferred …: an open set
	Published    time.Time   `json:"published,omitzero"`
	LastModified time.Time   `json:"last_modified,omitzero"`
	Description  string      `json:"description,omitempty"` // the English one
	Scores       []Score     `json:"scores,omitempty"`
	CWEs         []string    `json:"cwes,omitempty"`
	References   []Reference `json:"references,omitempty"`
	KEV          *NVDKEV     `json:"kev,omitempty"`

	// Drift counts what this program did not understand: values of another shape, which were not read.
	Drift int `json:"drift,omitempty"`

	unread []property // those of them; see keep
}

// property names one of the NVD's that could not be read.
type property int

const (
	statusProperty property = iota
	publishedProperty
	modifiedProperty
	descriptionProperty
	scoreProperty
	weaknessProperty
	referenceProperty
	kevProperty
)

// Score is one CVSS assessment. Its source, type and version say which.
type Score struct {
	Source  string `json:"source"`
	Type    string `json:"type"`    // Primary or Secondary
	Version string `json:"version"` // 2.0, 3.0, 3.1, 4.0
	Tenths  int    `json:"tenths"`  // the base score times ten, so that 7.5 is 7.5
	Vector  string `json:"vector"`
}

// NVDSource is the source of the NVD's own scores.
const NVDSource = "nvd@nist.gov"

// String is as people write it: "CVSS 3.1 9.8 CRITICAL".
func (s Score) String() string {
	return fmt.Sprintf("CVSS %s %s %s", s.Version, s.Number(), s.Severity())
}

// Number is the base score, as "7.5".
func (s Score) Number() string { return strconv.Itoa(s.Tenths/10) + "." + strconv.Itoa(s.Tenths%10) }

// Severity is the rating of the score by the scale of its version.
func (s Score) Severity() string {
	switch {
	case s.Tenths == 0 && s.Version != "2.0":
		return "NONE"
	case s.Tenths < 40:
		return "LOW"
	case s.Tenths < 70:
		return "MEDIUM"
	case s.Tenths < 90 || s.Version == "2.0":
		return "HIGH"
	}
	return "CRITICAL"
}

// Reference is a link, with the tags that the NVD gave it.
type Reference struct {
	URL  string   `json:"url"`
	Tags []string `json:"tags,omitempty"`
}

// NVDKEV is what the NVD says of the CVE's place in the KEV catalogue.
type NVDKEV struct {
	Added string `json:"added"` // a date, as 2025-09-03
	Due   string `json:"due,omitempty"`
}

var idForm = regexp.MustCompile(`^CVE-[0-9]{4}-[0-9]{4,19}$`)

// ParseID reads a CVE id in any case, with blanks around it.
func ParseID(s string) (string, error) {
	id := strings.ToUpper(strings.TrimSpace(s))
	if !idForm.MatchString(id) {
		return "", fmt.Errorf("%.40q is no CVE id; the form is CVE-2024-3094", s)
	}
	return id, nil
}

// nvdRecord is the part of NVD's API 2.0 that is read. Its properties are read one by one, so that one whose shape differs
// cannot spoil the record.
type nvdRecord struct {
	ID           json.RawMessage
	VulnStatus   json.RawMessage
	Published    json.RawMessage
	LastModified json.RawMessage
	Descriptions json.RawMessage
	Metrics      json.RawMessage
	Weaknesses   json.RawMessage
	References   json.RawMessage

	CISAExploitAdd json.RawMessage
	CISAActionDue  json.RawMessage
	ExploitAdd     json.RawMessage // until the end of 2022
	ActionDue      json.RawMessage
}

type nvdText struct{ Lang, Value string }

type nvdMetric struct {
	Source, Type string
	CVSSData     struct {
		Version      string
		VectorString string
		BaseScore    json.Number
	} `json:"cvssData"`
}

// ParseRecord reads the cve object of an NVD answer.
func ParseRecord(data []byte) (*Record, error) {
	var in nvdRecord
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("vulnwatch: not an NVD record: %w", err)
	}
	r := &Record{}
	var name string
	if len(in.ID) > 0 && json.Unmarshal(in.ID, &name) != nil {
		return nil, fmt.Errorf("vulnwatch: not an NVD record: its id is %.40q", in.ID)
	}
	id, err := ParseID(name)
	if err != nil {
		return nil, fmt.Errorf("vulnwatch: not an NVD record: %w", err)
	}
	r.ID = id
	r.always(statusProperty, in.VulnStatus)
	r.always(descriptionProperty, in.Descriptions)
	r.always(referenceProperty, in.References)
	r.Status = squeeze(r.text(statusProperty, in.VulnStatus))
	r.Published = parseTime(r.text(publishedProperty, in.Published))
	r.LastModified = parseTime(r.text(modifiedProperty, in.LastModified))

	var texts []nvdText
	r.part(descriptionProperty, in.Descriptions, &texts)
	r.Description = english(texts)

	var metrics map[string]json.RawMessage
	r.part(scoreProperty, in.Metrics, &metrics)
	for name, raw := range metrics {
		if strings.HasPrefix(name, "cvssMetricV") {
			r.scores(raw)
		}
	}
	slices.SortFunc(r.Scores, compareScores)
	r.Scores = slices.Compact(r.Scores)

	var weaknesses []struct{ Description []nvdText }
	r.part(weaknessProperty, in.Weaknesses, &weaknesses)
	for _, w := range weaknesses {
		for _, d := range w.Description {
			if strings.HasPrefix(d.Value, "CWE-") {
				r.CWEs = append(r.CWEs, d.Value)
			}
		}
	}
	slices.Sort(r.CWEs)
	r.CWEs = slices.Compact(r.CWEs)

	var refs []struct {
		URL  string
		Tags []string
	}
	r.part(referenceProperty, in.References, &refs)
	tags := make(map[string][]string)
	for _, ref := range refs {
		if ref.URL != "" {
			tags[ref.URL] = append(tags[ref.URL], ref.Tags...)
		}
	}
	for url, t := range tags {
		slices.Sort(t)
		r.References = append(r.References, Reference{url, slices.Compact(t)})
	}
	slices.SortFunc(r.References, func(a, b Reference) int { return cmp.Compare(a.URL, b.URL) })

	if added := cmp.Or(r.text(kevProperty, in.CISAExploitAdd), r.text(kevProperty, in.ExploitAdd)); added != "" {
		r.KEV = &NVDKEV{Added: added, Due: cmp.Or(r.text(kevProperty, in.CISAActionDue), r.text(kevProperty, in.ActionDue))}
	}
	return r, nil
}

// Same reports whether two records say the same. When they were last modified does not count: the NVD touches records without
// an edit, and edits them without a touch.
func (r *Record) Same(other *Record) bool {
	if r == nil || other == nil {
		return r == other
	}
	a, b := *r, *other
	a.LastModified, a.Drift, a.unread = b.LastModified, b.Drift, b.unread
	return reflect.DeepEqual(&a, &b)
}

// keep takes over from an earlier record what could not be read of this one: a property that has another form, or
// another name, today is no word on whether it changed.
func (r *Record) keep(before *Record) {
	if before == nil {
		return
	}
	for _, p := range r.unread {
		switch p {
		case statusProperty:
			r.Status = before.Status
		case publishedProperty:
			r.Published = before.Published
		case modifiedProperty:
			r.LastModified = before.LastModified
		case descriptionProperty:
			r.Description = before.Description
		case scoreProperty: // of some perhaps; the others are told
			has := byAssessor(r.Scores)
			for _, s := range before.Scores {
				if has[s.assessor()] == nil {
					r.Scores = append(r.Scores, s)
				}
			}
			slices.SortFunc(r.Scores, compareScores)
			r.Scores = slices.Compact(r.Scores)
		case weaknessProperty:
			r.CWEs = before.CWEs
		case referenceProperty:
			r.References = before.References
		case kevProperty:
			r.KEV = before.KEV
		}
	}
}

// text reads a property that is text.
func (r *Record) text(of property, raw json.RawMessage) (s string) {
	r.part(of, raw, &s)
	return s
}

// part reads one property; one that is not what it was is counted and left out.
func (r *Record) part(of property, raw json.RawMessage, into any) {
	if len(raw) > 0 && json.Unmarshal(raw, into) != nil {
		reflect.ValueOf(into).Elem().SetZero() // what was read until it broke
		r.drifted(of)
	}
}

// always counts a property that every record of the NVD has, and that is not there: it may have another name now.
func (r *Record) always(of property, raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		r.drifted(of)
	}
}

func (r *Record) drifted(of property) {
	r.Drift++
	r.unread = append(r.unread, of)
}

func (r *Record) scores(raw json.RawMessage) {
	var each []json.RawMessage
	r.part(scoreProperty, raw, &each)
	for _, one := range each {
		var m nvdMetric
		if json.Unmarshal(one, &m) != nil || m.CVSSData.VectorString == "" {
			r.drifted(scoreProperty)
			continue
		}
		score, err := m.CVSSData.BaseScore.Float64()
		if err != nil || score < 0 || score > 10 {
			r.drifted(scoreProperty)
			continue
		}
		r.Scores = append(r.Scores, Score{
			Source: m.Source, Type: m.Type, Version: m.CVSSData.Version,
			Tenths: int(score*10 + 0.5), Vector: m.CVSSData.VectorString,
		})
	}
}

func compareScores(a, b Score) int {
	return cmp.Or(
		cmp.Compare(b.Version, a.Version), // the newest first
		cmp.Compare(a.Type, b.Type),       // Primary before Secondary
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Vector, b.Vector),
		cmp.Compare(a.Tenths, b.Tenths),
	)
}

// Best is the score to show for the record: the newest version, the NVD's own before others. ok is false if
// there is none.
func (r *Record) Best() (s Score, ok bool) {
	for _, s := range r.Scores {
		if s.Source == NVDSource {
			return s, true
		}
	}
	if len(r.Scores) == 0 {
		return Score{}, false
	}
	return r.Scores[0], true
}

// english is the English description, in single blanks.
func english(texts []nvdText) string {
	for _, t := range texts {
		if t.Lang == "en" {
			return strings.Join(strings.Fields(t.Value), " ")
		}
	}
	return ""
}

// parseTime reads NVD's times, which are UTC and mostly say no zone. What is absent, does not parse or is the
// epoch is no time.
func parseTime(s string) time.Time {
	for _, layout := range []string{"2006-01-02T15:04:05", time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			t = t.UTC()
			if t.Unix() <= 0 || t.Year() > 9999 { // which JSON cannot write
				return time.Time{}
			}
			return t
		}
	}
	return time.Time{}
}
