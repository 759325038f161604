package vulnwatch

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// TestWhatCannotBeReadIsNoChange: a day on which the NVD writes properties in another form is no news, nor is the one on
// which it writes them as before.
func TestWhatCannotBeReadIsNoChange(t *testing.T) {
	b := newBench(t, 100)
	b.run()
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Shape})
	if e := b.run(); len(e.New) != 0 || e.Report.Drift < 200 || e.Report.Ledger.Same != 100 {
		t.Errorf("another form: %d changes, the first %+v; %d values; %s", len(e.New), e.New[:min(1, len(e.New))], e.Report.Drift, &e.Report.Ledger)
	}
	b.server.Clear()
	if e := b.run(); len(e.New) != 0 || e.Report.Drift != 0 || e.Report.Ledger.Same != 100 {
		t.Errorf("as before: %d changes, %d values; %s", len(e.New), e.Report.Drift, &e.Report.Ledger)
	}
}

// TestPropertiesThatAreKept: of a property that cannot be read today stays what was known, and all else is told.
func TestPropertiesThatAreKept(t *testing.T) {
	for _, change := range [][2]string{
		{`"vulnStatus":"Analyzed"`, `"vulnStatus":{"state":"Analyzed"}`},
		{`"vulnStatus":"Analyzed"`, `"status":"Analyzed"`},
		{`"vulnStatus":"Analyzed"`, `"vulnStatus":null`},
		{`"2026-01-05T10:15:00.123"`, `1767621600`},
		{`"descriptions":[`, `"descriptions":{"en":"x"},"descriptionsOfOld":[`},
		{`"descriptions":[`, `"descriptionsOfNew":[`},
		{`"references":[`, `"referencesOfNew":[`},
		{`"tags":["Patch"]`, `"tags":"Patch"`},
		{`"metrics":{`, `"metrics":[],"metricsOfOld":{`},
		{`"baseScore":9.8`, `"baseScore":"high"`},
		{`"vectorString":"CVSS:3.1/A"`, `"vectorText":"CVSS:3.1/A"`},
		{`"weaknesses":[`, `"weaknesses":{"CWE-79":true},"weaknessesOfOld":[`},
		{`"cisaExploitAdd":"`, `"cisaExploitAdd":20260105,"cisaExploitAddOfOld":"`},
	} {
		text := strings.Replace(madeUp, change[0], change[1], 1)
		if text == madeUp {
			t.Errorf("%s: nothing was replaced", change[1])
			continue
		}
		before, now := parse(t, madeUp), parse(t, text)
		if now.Drift != 1 {
			t.Errorf("%s: %d values counted", change[1], now.Drift)
		}
		now.keep(before)
		if c := DiffRecords(before, now); len(c) != 0 || !now.Same(before) {
			t.Errorf("%s: changes %+v", change[1], c)
		}
	}

	before := parse(t, madeUp)
	now := parse(t, strings.NewReplacer(`"vectorString":"CVSS:3.1/A"`, `"vectorText":"CVSS:3.1/A"`, `"Analyzed"`, `"Rejected"`).Replace(madeUp))
	now.keep(before)
	if c := DiffRecords(before, now); len(c) != 1 || c[0].Kind != StatusChanged {
		t.Errorf("what could be read beside it: %+v", c)
	}

	// Of several scores one has another form, and another has a new value.
	now = parse(t, strings.NewReplacer(`"vectorString":"CVSS:3.1/A"`, `"vectorText":"CVSS:3.1/A"`, `"baseScore":0.0`, `"baseScore":5.5`).Replace(madeUp))
	now.keep(before)
	if c := DiffRecords(before, now); len(c) != 1 || c[0].Text != "CVSS 3.1 of cna@x.example: 0.0 NONE → 5.5 MEDIUM" {
		t.Errorf("a score beside one that could not be read: %+v", c)
	}
}
