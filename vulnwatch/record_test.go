package vulnwatch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

func parse(t testing.TB, text string) *Record {
	t.Helper()
	r, err := ParseRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const madeUp = `{"id":"CVE-2026-900001","vulnStatus":"Analyzed","published":"2026-01-05T10:15:00.123","lastModified":"2026-01-06T10:15:00.1234567",
"descriptions":[{"lang":"es","value":"otra"},{"lang":"en","value":"A  flaw\nin Examplesoft. "}],
"metrics":{"cvssMetricV2":[{"source":"nvd@nist.gov","type":"Primary","cvssData":{"version":"2.0","vectorString":"AV:N/AC:L/Au:N/C:P/I:P/A:P","baseScore":7.5},"baseSeverity":"HIGH"}],
"cvssMetricV31":[{"source":"cna@x.example","type":"Secondary","cvssData":{"version":"3.1","vectorString":"CVSS:3.1/B","baseScore":0.0}},
{"source":"nvd@nist.gov","type":"Primary","cvssData":{"version":"3.1","vectorString":"CVSS:3.1/A","baseScore":9.8,"baseSeverity":"CRITICAL"}}]},
"weaknesses":[{"description":[{"lang":"en","value":"CWE-79"},{"lang":"en","value":"NVD-CWE-noinfo"}]},{"description":[{"lang":"en","value":"CWE-79"}]}],
"references":[{"url":"https://b.example/","tags":["Patch"]},{"url":"https://a.example/"},{"url":"https://b.example/","tags":["Exploit","Patch"]}],
"cisaExploitAdd":"2026-01-07","cisaActionDue":"2026-01-28"}`

func TestParseRecord(t *testing.T) {
	got := parse(t, madeUp)
	want := &Record{
		ID: "CVE-2026-900001", Status: "Analyzed", Description: "A flaw in Examplesoft.",
		Published:    time.Date(2026, 1, 5, 10, 15, 0, 123e6, time.UTC),
		LastModified: time.Date(2026, 1, 6, 10, 15, 0, 123456700, time.UTC),
		Scores: []Score{
			{NVDSource, "Primary", "3.1", 98, "CVSS:3.1/A"},
			{"cna@x.example", "Secondary", "3.1", 0, "CVSS:3.1/B"},
			{NVDSource, "Primary", "2.0", 75, "AV:N/AC:L/Au:N/C:P/I:P/A:P"},
		},
		CWEs:       []string{"CWE-79"},
		References: []Reference{{"https://a.example/", nil}, {"https://b.example/", []string{"Exploit", "Patch"}}},
		KEV:        &NVDKEV{"2026-01-07", "2026-01-28"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if s, ok := got.Best(); !ok || s.String() != "CVSS 3.1 9.8 CRITICAL" {
		t.Errorf("best %v", s)
	}
}

// TestOnlyMeaningCounts: what is written otherwise and says the same is no change.
func TestOnlyMeaningCounts(t *testing.T) {
	before := parse(t, madeUp)
	for name, change := range map[string][2]string{
		"KEV properties of 2022":     {`"cisaExploitAdd":"2026-01-07","cisaActionDue"`, `"exploitAdd":"2026-01-07","actionDue"`},
		"white space":                {"A  flaw\\nin", "A flaw in"},
		"an unknown property":        {`"vulnStatus"`, `"ssvcV203":[{"x":1}],"affected":{},"vulnStatus"`},
		"a renamed metric property":  {`"baseSeverity":"CRITICAL"`, `"Safety":"NEGLIGIBLE"`},
		"an unknown severity":        {`"CRITICAL"`, `"SEVERE"`},
		"another time of its change": {"2026-01-06T10:15:00.1234567", "2026-02-06T10:15:00.000"},
		"an id in small letters":     {"CVE-2026-900001", "cve-2026-900001"},
		"the order of references":    {`{"url":"https://a.example/"},{"url":"https://b.example/","tags":["Exploit","Patch"]}`, `{"url":"https://b.example/","tags":["Patch","Exploit"]},{"url":"https://a.example/"}`},
		"another language":           {`"otra"`, `"otra cosa"`},
		"a tag list that is empty":   {`{"url":"https://a.example/"}`, `{"url":"https://a.example/","tags":[]}`},
		"a status of several blanks": {`"Analyzed"`, `" Analyzed "`},
	} {
		text := strings.Replace(madeUp, change[0], change[1], 1)
		if text == madeUp {
			t.Errorf("%s: nothing was replaced", name)
		}
		now := parse(t, text)
		if c := DiffRecords(before, now); len(c) != 0 || !now.Same(before) {
			t.Errorf("%s: is taken for a change: %+v", name, c)
		}
	}
}

// TestAnotherShape: a property of another type is left out and counted, and spoils nothing else.
func TestAnotherShape(t *testing.T) {
	for _, change := range [][2]string{
		{`"Analyzed"`, `{"state":"Analyzed"}`},
		{`"2026-01-05T10:15:00.123"`, `1767621600`},
		{`"descriptions":[`, `"descriptions":{"en":"x"},"descriptionsOfOld":[`},
		{`"metrics":{`, `"metrics":[],"metricsOfOld":{`},
		{`"baseScore":9.8`, `"baseScore":"high"`},
		{`"baseScore":9.8`, `"baseScore":98`},
		{`"baseScore":9.8`, `"baseScore":1e999`},
		{`"vectorString":"CVSS:3.1/A"`, `"vectorString":null`},
		{`"tags":["Patch"]`, `"tags":"Patch"`},
	} {
		text := strings.Replace(madeUp, change[0], change[1], 1)
		if text == madeUp {
			t.Errorf("%s: nothing was replaced", change[1])
		}
		r := parse(t, text)
		if r.Drift != 1 || r.ID != "CVE-2026-900001" || r.KEV == nil || len(r.CWEs) != 1 {
			t.Errorf("%s: %d values counted, %+v", change[1], r.Drift, r)
		}
	}
	// What was read of a list until it broke is not taken for all of it.
	if r := parse(t, strings.Replace(madeUp, `"tags":["Exploit","Patch"]`, `"tags":7`, 1)); len(r.References) != 0 || r.Drift != 1 {
		t.Errorf("a part of the references: %+v", r.References)
	}
	for _, text := range []string{`[]`, `{}`, `{"id":7}`, `{"id":"CVE-1"}`, `{"id":"CVE-2026-900001"`, `null`, ``} {
		if r, err := ParseRecord([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, r)
		}
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2025-02-12T21:15:16.800":      time.Date(2025, 2, 12, 21, 15, 16, 8e8, time.UTC),
		"2025-02-12T21:15:16.8001234":  time.Date(2025, 2, 12, 21, 15, 16, 800123400, time.UTC),
		"2025-02-12T21:15:16":          time.Date(2025, 2, 12, 21, 15, 16, 0, time.UTC),
		"2025-02-12T21:15:16Z":         time.Date(2025, 2, 12, 21, 15, 16, 0, time.UTC),
		"2025-02-12T21:15:16.5+02:00":  time.Date(2025, 2, 12, 19, 15, 16, 5e8, time.UTC),
		"2025-02-12T21:15Z":            time.Date(2025, 2, 12, 21, 15, 0, 0, time.UTC),
		"2025-02-12":                   time.Date(2025, 2, 12, 0, 0, 0, 0, time.UTC),
		"1970-01-01T00:00:00.000":      {},
		"0001-01-01T00:00:00Z":         {},
		"9999-12-31T23:59:59-23:00":    {},
		"":                             {},
		"yesterday":                    {},
		"2025-02-30T00:00:00":          {},
		"12/02/2025":                   {},
		"2025-02-12T21:15:16.800 UTC ": {},
	} {
		if got := parseTime(text); !got.Equal(want) {
			t.Errorf("%q is read as %v, want %v", text, got, want)
		}
	}
}

func TestSeverity(t *testing.T) {
	for _, tc := range []struct {
		version string
		tenths  int
		want    string
	}{
		{"3.1", 0, "NONE"}, {"3.1", 1, "LOW"}, {"3.1", 39, "LOW"}, {"3.1", 40, "MEDIUM"}, {"3.1", 69, "MEDIUM"}, {"3.1", 70, "HIGH"},
		{"3.1", 89, "HIGH"}, {"4.0", 90, "CRITICAL"}, {"3.0", 100, "CRITICAL"}, {"2.0", 0, "LOW"}, {"2.0", 69, "MEDIUM"}, {"2.0", 100, "HIGH"},
	} {
		if got := (Score{Version: tc.version, Tenths: tc.tenths}).Severity(); got != tc.want {
			t.Errorf("CVSS %s %d tenths: %s, want %s", tc.version, tc.tenths, got, tc.want)
		}
	}
}

func TestParseCatalogue(t *testing.T) {
	entry := `{"cveID":"CVE-2026-900001 ","vendorProject":" Acme","product":"VPN","vulnerabilityName":"Acme  VPN","dateAdded":"2026-01-02","shortDescription":"a","requiredAction":"b","dueDate":"2026-01-23","knownRansomwareCampaignUse":"Known","notes":"","cwes":[]}`
	whole := func(count int, entries ...string) string {
		return fmt.Sprintf(`{"catalogVersion":"2026.01.05","dateReleased":"2026-01-05T14:00:00.0000Z","count":%d,"vulnerabilities":[%s]}`, count, strings.Join(entries, ","))
	}
	c, err := ParseCatalogue([]byte(whole(1, entry)))
	want := Entry{"CVE-2026-900001", "2026-01-02", "2026-01-23", true, "Acme VPN", "Acme", "VPN", "a b"}
	if err != nil || c.Entries["CVE-2026-900001"] != want || !c.Released.Equal(time.Date(2026, 1, 5, 14, 0, 0, 0, time.UTC)) {
		t.Errorf("%v: %+v", err, c)
	}
	for text, says := range map[string]string{
		whole(2, entry):                  "its count is 2, and it has 1 entries",
		whole(2, entry, entry):           "CVE-2026-900001 stands in it twice",
		whole(0):                         "no count or no entries",
		whole(1, entry)[:300]:            "truncated or not one",
		`{"vulnerabilities":[{}]}`:       "no count",
		whole(1, `{"cveID":"GHSA-1"}`):   "entry 1",
		"<!DOCTYPE html>":                "truncated or not one",
		`{"count":-1,"title":"no list"}`: "no entries",
	} {
		if _, err := ParseCatalogue([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %v, want %q", text, err, says)
		}
	}
}

func TestShrunk(t *testing.T) {
	entries := func(from, to int) map[string]Entry {
		m := make(map[string]Entry)
		for i := from; i < to; i++ {
			m[fmt.Sprintf("CVE-2026-%d", 900000+i)] = Entry{}
		}
		return m
	}
	for _, tc := range []struct {
		before, now map[string]Entry
		refused     bool
	}{
		{entries(0, 1000), entries(0, 1000), false},
		{entries(0, 1000), entries(10, 1000), false}, // 1 %
		{entries(0, 1000), entries(11, 1000), true},
		{entries(0, 1000), entries(11, 2000), true}, // that others came does not bring them back
		{entries(0, 10), entries(1, 10), false},     // a single one is an event
		{entries(0, 10), entries(2, 10), true},
		{nil, entries(0, 5), false},
	} {
		c := &Catalogue{Entries: tc.now}
		if err := c.Shrunk(tc.before, 0.01); (err != nil) != tc.refused {
			t.Errorf("%d → %d: %v", len(tc.before), len(tc.now), err)
		}
	}
}

// TestChangesRead: the sentences of the history.
func TestChangesRead(t *testing.T) {
	nvd := func(tenths int, vector string) Score { return Score{NVDSource, "Primary", "3.1", tenths, vector} }
	cna := Score{"cna@x.example", "Secondary", "3.1", 75, "CVSS:3.1/C"}
	rec := func(scores ...Score) *Record {
		return &Record{ID: "CVE-2026-900001", Status: "Analyzed", Scores: scores}
	}
	for name, tc := range map[string]struct {
		before, now *Record
		want        []string
	}{
		"first by a CNA":      {rec(), rec(cna), []string{"first score, by cna@x.example and not the NVD: CVSS 3.1 7.5 HIGH"}},
		"then by the NVD":     {rec(cna), rec(nvd(98, "A"), cna), []string{"first score of the NVD: CVSS 3.1 9.8 CRITICAL"}},
		"one more CNA":        {rec(nvd(98, "A")), rec(nvd(98, "A"), cna), []string{"one more score: CVSS 3.1 7.5 HIGH by cna@x.example"}},
		"another score":       {rec(nvd(98, "A")), rec(nvd(75, "B")), []string{"CVSS 3.1 of nvd@nist.gov: 9.8 CRITICAL → 7.5 HIGH"}},
		"another vector":      {rec(nvd(98, "A")), rec(nvd(98, "B")), []string{"CVSS 3.1 9.8 CRITICAL: the vector changed: A → B"}},
		"withdrawn":           {rec(nvd(98, "A"), cna), rec(cna), []string{"a score was withdrawn: CVSS 3.1 9.8 CRITICAL"}},
		"two of one assessor": {rec(nvd(98, "A"), nvd(75, "B")), rec(nvd(98, "A"), nvd(60, "D")), []string{"one more score: CVSS 3.1 6.0 MEDIUM", "a score was withdrawn: CVSS 3.1 7.5 HIGH"}},
		"appeared":            {nil, rec(cna), []string{"known to the NVD: Analyzed, CVSS 3.1 7.5 HIGH by cna@x.example"}},
		"gone":                {rec(), nil, []string{"no longer known to the NVD"}},
		"neither":             {nil, nil, nil},
		"references": {
			&Record{References: []Reference{{"https://a.example/", nil}, {"https://b.example/", nil}}},
			&Record{References: []Reference{{"https://b.example/", []string{"Exploit"}}, {"https://c.example/", nil}, {"https://d.example/", []string{"Patch"}}}},
			[]string{"references: 2 new, 1 removed, 1 with other tags; Patch: https://d.example/"},
		},
	} {
		var got []string
		for _, c := range DiffRecords(tc.before, tc.now) {
			got = append(got, c.Text)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestFold(t *testing.T) {
	var changes []Change
	for i := range 12 {
		id := fmt.Sprintf("CVE-2026-%d", 900001+i)
		changes = append(changes,
			Change{CVE: id, Kind: StatusChanged, Old: "Analyzed", New: "Deferred", Text: "status: Analyzed → Deferred"},
			Change{CVE: id, Kind: KEVDue, Old: "a", New: "b", Text: "moved"})
		if i < 9 {
			changes = append(changes, Change{CVE: id, Kind: CWEChanged, New: "CWE-79", Text: "weakness"})
		}
	}
	folded := Fold(changes)
	n := map[Kind]int{}
	for _, c := range folded {
		n[c.Kind]++
		if c.Kind == StatusChanged && (len(c.Also) != 11 || c.CVE != "CVE-2026-900001" || c.Text != "mass edit of 12 CVEs: status: Analyzed → Deferred") {
			t.Errorf("%+v", c)
		}
	}
	if n[StatusChanged] != 1 || n[KEVDue] != 12 || n[CWEChanged] != 9 {
		t.Errorf("%v; what CISA does is never folded, nor are fewer than ten", n)
	}
	at := time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	stamp(folded, at)
	again := Fold(changes)
	stamp(again, at)
	ids := map[string]bool{}
	for i := range folded {
		if folded[i].ID != again[i].ID || ids[folded[i].ID] {
			t.Errorf("id %s of %+v is not its own, or not the same twice", folded[i].ID, folded[i])
		}
		ids[folded[i].ID] = true
	}
}

// TestFoldsLinksWithTheID: in October 2025 every CVE of the catalogue got a link to its place there.
func TestFoldsLinksWithTheID(t *testing.T) {
	const foldFrom = 10 // as the docs say
	var changes []Change
	for i := range foldFrom {
		id := fmt.Sprintf("CVE-2026-%d", 900001+i)
		now := &Record{ID: id, References: []Reference{{URL: "https://www.cisa.gov/known-exploited-vulnerabilities-catalog?field_cve=" + id, Tags: []string{"Vendor Advisory"}}}}
		changes = append(changes, DiffRecords(&Record{ID: id}, now)...)
	}
	if folded := Fold(changes[1:]); len(folded) != foldFrom-1 {
		t.Errorf("%d are folded into %d", foldFrom-1, len(folded))
	}
	folded := Fold(changes)
	if len(folded) != 1 || len(folded[0].Also) != foldFrom-1 || !strings.Contains(folded[0].Text, "field_cve={id}") || strings.Contains(folded[0].New, "CVE-2026") {
		t.Errorf("%d are folded into %d: %+v", foldFrom, len(folded), folded[0])
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(madeUp))
	for i := range 9 {
		data, err := json.Marshal(nvdtest.Record(1, i, fmt.Sprintf("CVE-2026-%d", 900001+i)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord(data)
		if err != nil {
			return
		}
		// What is stored and read again is the same, or every day would bring changes.
		stored, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("it cannot be stored: %v", err)
		}
		var back Record
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		if !back.Same(r) || len(DiffRecords(&back, r)) != 0 {
			t.Errorf("stored and read again: %+v\nit was %+v\n%+v", back, r, DiffRecords(&back, r))
		}
		if c := DiffRecords(&Record{ID: r.ID}, r); len(c) > 0 {
			stamp(c, time.Unix(1e9, 0))
		}
	})
}

func FuzzParseCatalogue(f *testing.F) {
	f.Add([]byte(`{"catalogVersion":"2026.01.05","dateReleased":"2026-01-05T14:00:00.0000Z","count":1,"vulnerabilities":[{"cveID":"CVE-2026-900001","dateAdded":"2026-01-02","dueDate":"2026-01-23","knownRansomwareCampaignUse":"Known"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCatalogue(data)
		if err != nil {
			return
		}
		if len(c.Entries) == 0 {
			t.Error("a catalogue without entries")
		}
		stored, err := json.Marshal(kevFile{Released: c.Released, Entries: c.Entries})
		if err != nil {
			t.Fatalf("it cannot be stored: %v", err)
		}
		var back kevFile
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		for id, e := range c.Entries {
			old, was := back.Entries[id], e
			if d := DiffKEV(id, &old, &was); len(d) != 0 {
				t.Errorf("stored and read again: %+v", d)
			}
		}
	})
}

func FuzzReadList(f *testing.F) {
	f.Add("CVE-2024-3094 # xz\n\ncve-2021-44228\r\nnope\n")
	f.Fuzz(func(t *testing.T, text string) {
		ids, _, err := ReadList(strings.NewReader(text))
		seen := map[string]bool{}
		for _, id := range ids {
			if again, err := ParseID(id); err != nil || again != id || seen[id] {
				t.Errorf("%q is in the list: %v", id, err)
			}
			seen[id] = true
		}
		if err != nil {
			return
		}
		if again, problems, err := ReadList(strings.NewReader(strings.Join(ids, "\n"))); err != nil || len(problems) != 0 || !slices.Equal(again, ids) {
			t.Errorf("the list read again: %q, %v, %v", again, problems, err)
		}
	})
}

// TestRemediesFirst: of many new links those that bring a remedy stand first, and the sentence names the first of them,
// but no other link.
func TestRemediesFirst(t *testing.T) {
	link := func(url string, tags ...string) Reference { return Reference{url, tags} }
	now := &Record{References: []Reference{
		link("https://a.example/blog"), link("https://b.example/exploit", "Exploit"),
		link("https://c.example/advisory", "Vendor Advisory"), link("https://d.example/patch", "Patch"),
	}}
	c := DiffRecords(&Record{}, now)
	if len(c) != 1 || c[0].Text != "references: 4 new; Vendor Advisory: https://c.example/advisory" {
		t.Fatalf("%+v", c)
	}
	if lines := strings.Split(c[0].New, "\n"); len(lines) != 4 || !strings.Contains(lines[0], "c.example") || !strings.Contains(lines[1], "d.example") {
		t.Errorf("%q", lines)
	}
	if c := DiffRecords(&Record{}, &Record{References: now.References[:2]}); len(c) != 1 || c[0].Text != "references: 2 new" {
		t.Errorf("no remedy: %+v", c)
	}
}

func TestScoresRead(t *testing.T) {
	nvd := func(version string, tenths int) Score {
		return Score{NVDSource, "Primary", version, tenths, "V" + version}
	}
	cna := Score{"cna@x.example", "Secondary", "3.1", 75, "C"}
	for _, tc := range []struct {
		before, now []Score
		want        string
	}{
		{nil, []Score{cna}, "first score, by cna@x.example and not the NVD: CVSS 3.1 7.5 HIGH"},
		{[]Score{cna}, []Score{nvd("3.1", 98), cna}, "first score of the NVD: CVSS 3.1 9.8 CRITICAL"},
		{[]Score{nvd("2.0", 75)}, []Score{nvd("3.1", 98), nvd("2.0", 75)}, "one more score: CVSS 3.1 9.8 CRITICAL"},
		{[]Score{nvd("3.1", 98)}, nil, "a score was withdrawn: CVSS 3.1 9.8 CRITICAL"},
		{[]Score{nvd("3.1", 98)}, []Score{nvd("3.1", 75)}, "CVSS 3.1 of nvd@nist.gov: 9.8 CRITICAL → 7.5 HIGH"},
	} {
		c := DiffRecords(&Record{Scores: tc.before}, &Record{Scores: tc.now})
		if len(c) != 1 || c[0].Text != tc.want {
			t.Errorf("%v → %v: %+v, want %q", tc.before, tc.now, c, tc.want)
		}
	}
}
