package vulnwatch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-go/weir/batch"
)

var checkTime = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

var (
	madeVendors  = []string{"Halvard", "Nordlys", "Quillon", "Tessera", "Oakhaven", "Brightmoor"}
	madeProducts = []string{"Mail Gateway", "VPN Concentrator", "File Transfer", "Print Spooler", "Build Server", "Identity Portal", "Log Collector"}
	madeFaults   = []string{"improper neutralization of special elements in a command", "a use after free", "an authentication bypass by an alternate path", "deserialization of untrusted data", "path traversal in the upload handler", "an out-of-bounds write"}
	madeWhere    = []string{"in the web management interface", "in the parser of configuration backups", "in its session handling", "in the handler of archived attachments"}
	madeEffects  = []string{"lets a remote attacker run code as root without signing in", "lets a local user gain the privileges of the service", "discloses the memory of other sessions", "lets a signed-in user read files outside of the share"}
	madeVectors  = []struct {
		tenths  int
		version string
		vector  string
	}{
		{98, "3.1", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"},
		{88, "3.1", "CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H"},
		{75, "3.1", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"},
		{55, "3.1", "CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:N/A:N"},
		{31, "3.1", "CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N"},
		{100, "3.1", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H"},
		{93, "4.0", "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N"},
	}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// madeEdition is a site of n made-up CVEs with three days of history. It is always the same.
func madeEdition(n int) *Edition {
	r := rand.New(rand.NewPCG(271, 31))
	e := &Edition{Title: "Watched CVEs"}
	days := []time.Time{checkTime.AddDate(0, 0, -12), checkTime.AddDate(0, 0, -1), checkTime}
	byDay := make([][]Change, len(days))
	add := func(day int, changes []Change) { byDay[day] = append(byDay[day], changes...) }
	ledger := &e.Report.Ledger
	for i := range n {
		id := fmt.Sprintf("CVE-%d-%05d", 2019+r.IntN(8), 10000+i*7)
		s := Snapshot{ID: id, Checked: checkTime.Add(71 * time.Second), Result: batch.Result{Column: batch.Same, Status: 200}}
		vendor, product := pick(r, madeVendors), pick(r, madeProducts)
		fault, effect := pick(r, madeFaults), pick(r, madeEffects)
		published := time.Date(2019+r.IntN(7), time.Month(1+r.IntN(12)), 1+r.IntN(28), 14, 15, 0, 0, time.UTC)
		rec := &Record{
			ID: id, Status: pick(r, []string{"Analyzed", "Analyzed", "Modified", "Deferred", "Awaiting Analysis"}), Published: published, LastModified: published.AddDate(0, 2, 3),
			Description: fmt.Sprintf("%s %s before %d.%d.%d has %s %s, which %s.", vendor, product, 1+r.IntN(9), r.IntN(20), r.IntN(9), fault, pick(r, madeWhere), effect),
			CWEs:        []string{pick(r, []string{"CWE-78", "CWE-416", "CWE-288", "CWE-502", "CWE-22", "CWE-787"})},
			References: []Reference{
				{URL: fmt.Sprintf("https://lists.example.org/archive/%d", i)},
				{URL: fmt.Sprintf("https://research.example.net/blog/%s", id), Tags: []string{"Exploit", "Third Party Advisory"}},
				{URL: fmt.Sprintf("https://security.example.com/advisories/%d", 1000+i), Tags: []string{"Patch", "Vendor Advisory"}},
			},
		}
		v := madeVectors[r.IntN(len(madeVectors))]
		switch r.IntN(10) {
		case 0:
		case 1, 2:
			rec.Scores = []Score{{Source: "security@" + pick(r, []string{"halvard.example", "nordlys.example"}), Type: "Secondary", Version: v.version, Tenths: v.tenths, Vector: v.vector}}
		default:
			rec.Scores = []Score{
				{Source: NVDSource, Type: "Primary", Version: v.version, Tenths: v.tenths, Vector: v.vector},
				{Source: cisaADP, Type: "Secondary", Version: "3.1", Tenths: 75, Vector: madeVectors[2].vector},
			}
		}
		s.Record = rec
		if r.IntN(5) == 0 {
			added := checkTime.AddDate(0, 0, -r.IntN(900))
			s.KEV = &Entry{ID: id, Added: added.Format(time.DateOnly), Due: added.AddDate(0, 0, 21).Format(time.DateOnly), Ransomware: r.IntN(4) == 0,
				Name: vendor + " " + product + " Vulnerability", Vendor: vendor, Product: product,
				Text: rec.Description + " Apply mitigations per vendor instructions or discontinue use of the product if mitigations are unavailable."}
			rec.KEV = &NVDKEV{Added: s.KEV.Added, Due: s.KEV.Due}
		}
		before := *rec
		switch day := r.IntN(3); i {
		case 3: // listed today, which the NVD does not know yet
			s.KEV = &Entry{ID: id, Added: "2026-11-29", Due: "2026-12-20", Name: vendor + " " + product + " Command Injection Vulnerability", Vendor: vendor, Product: product, Text: "Apply updates per vendor instructions.", Ransomware: true}
			rec.KEV = nil
			s.Disagrees = Disagreement(rec, s.KEV)
			add(2, DiffKEV(id, nil, s.KEV))
			add(2, []Change{{CVE: id, Kind: KEVDisagrees, New: s.Disagrees, Text: s.Disagrees}})
			before.Description = "A flaw has " + fault + ", which " + effect + "."
			add(1, DiffRecords(&before, rec))
			before.Status, before.Scores, before.Description = "Awaiting Analysis", nil, rec.Description
			add(0, DiffRecords(&before, rec))
		case 5, 6:
			s.Result = batch.Lost(batch.RateLimited, "429 Too Many Requests, five times")
			s.Result.Status = 429
			s.Checked = days[1].Add(time.Minute)
			e.Report.Lost = append(e.Report.Lost, Lost{id, s.Result.Reason, s.Result.Detail})
		case 8:
			s.Missing, s.Result.Column, s.Result.Detail = true, batch.Unknown, "not in two answers of the NVD"
			add(2, DiffRecords(rec, nil))
		case 11:
			s.Record, s.Checked = nil, time.Time{}
			s.Result = batch.Lost(batch.Network, "no answer within 30 s")
			e.Report.Lost = append(e.Report.Lost, Lost{id, s.Result.Reason, s.Result.Detail})
		default:
			switch {
			case i%17 == 4:
				before.Scores = []Score{{Source: NVDSource, Type: "Primary", Version: "3.1", Tenths: 61, Vector: "CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N"}}
				add(day, DiffRecords(&before, rec))
			case i%13 == 2:
				before.References = rec.References[:1]
				add(day, DiffRecords(&before, rec))
			case s.KEV != nil && i%3 == 0:
				old := *s.KEV
				old.Ransomware = !old.Ransomware
				add(day, DiffKEV(id, &old, s.KEV))
			case i%4 == 1:
				add(2, []Change{{CVE: id, Kind: StatusChanged, Old: "Modified", New: "Analyzed", Text: "status: Modified → Analyzed"}})
			}
		}
		if day := byDay[2]; s.Result.Column == batch.Same && len(day) > 0 && day[len(day)-1].CVE == id {
			s.Result.Column = batch.Changed
		}
		ledger.Add(s.Result)
		e.Snapshots = append(e.Snapshots, s)
	}
	for i, at := range days {
		changes := Fold(byDay[i])
		stamp(changes, at)
		e.History = append(e.History, changes...)
		e.New = changes
	}
	ledger.Requests, ledger.Refusals = n/100+3, 1
	e.Report.Started, e.Report.Ended = checkTime, checkTime.Add(71*time.Second)
	e.Report.Changes, e.Report.Complete, e.Report.Verdict = len(e.New), true, "ok"
	problem := Problem{Line: 7, Text: "CVE-24-1"}
	e.Report.Problems, e.Report.NoIDs = []string{problem.String()}, NoIDs([]Problem{problem})
	e.Report.KEV = KEVReport{URL: KEVURL, Released: checkTime.Add(-15 * time.Hour), Entries: 1404}
	return e
}

// publishMade renders an edition, with the files that the site writes beside it.
func publishMade(t testing.TB, e *Edition) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeLines(filepath.Join(dir, "data", "history.jsonl"), e.History); err != nil {
		t.Fatal(err)
	}
	if err := writeLines(filepath.Join(dir, "data", "snapshots.jsonl"), e.Snapshots); err != nil {
		t.Fatal(err)
	}
	if err := writeStatus(dir, nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := e.render(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
