package vulnwatch

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// shared is where real records lie on the developers' machines. They are not part of the product.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join("..", "..", "shared", "data")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no folder of real NVD and KEV data beside the repository")
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

func nvdFile(t *testing.T, path string) map[string]*Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Vulnerabilities []struct{ CVE json.RawMessage }
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*Record)
	for _, v := range envelope.Vulnerabilities {
		r, err := ParseRecord(v.CVE)
		if err != nil {
			t.Fatal(err)
		}
		all[r.ID] = r
	}
	return all
}

func readKEV(t *testing.T, path string) *Catalogue {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := io.Reader(f)
	if filepath.Ext(path) == ".gz" {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCatalogue(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRealRecordsBeforeAndAfter: the same 47 records five months apart, in which the KEV fields were renamed, two changed their
// status, and three got new references. Nothing else is a change.
func TestRealRecordsBeforeAndAfter(t *testing.T) {
	before := nvdFile(t, shared(t, "nvd", "nvdlib-before", "search_full_page.json"))
	now := nvdFile(t, shared(t, "nvd", "nvdlib", "search_full_page.json"))
	var got []string
	for id, r := range now {
		for _, c := range DiffRecords(before[id], r) {
			got = append(got, id+" "+string(c.Kind)+": "+c.Text)
		}
		if d := Disagreement(before[id], nil); (r.KEV == nil) != (before[id].KEV == nil) || r.KEV != nil && *r.KEV != *before[id].KEV {
			t.Errorf("%s: renamed KEV fields are read differently: %v", id, d)
		}
	}
	slices.Sort(got)
	for _, line := range got {
		t.Log(line)
	}
	if len(now) != 47 {
		t.Errorf("%d records", len(now))
	}
	kinds := map[string][]string{}
	for id, r := range now {
		for _, c := range DiffRecords(before[id], r) {
			kinds[string(c.Kind)] = append(kinds[string(c.Kind)], id)
		}
	}
	for _, ids := range kinds {
		slices.Sort(ids)
	}
	want := map[string][]string{
		"status":     {"CVE-2022-20705", "CVE-2022-20707"},
		"references": {"CVE-2022-0554", "CVE-2022-20705", "CVE-2022-20707"},
	}
	if len(kinds) != len(want) || !slices.Equal(kinds["status"], want["status"]) || !slices.Equal(kinds["references"], want["references"]) {
		t.Errorf("changes %v, want %v", kinds, want)
	}
}

func TestRealCatalogues(t *testing.T) {
	diff := func(a, b string) map[Kind]int {
		before := readKEV(t, shared(t, "kev", "versions", a+".json.gz"))
		now := readKEV(t, shared(t, "kev", "versions", b+".json.gz"))
		if err := now.Shrunk(before.Entries, 0.01); err != nil {
			t.Error(err)
		}
		kinds := map[Kind]int{}
		ids := map[string]bool{}
		for id := range before.Entries {
			ids[id] = true
		}
		for id := range now.Entries {
			ids[id] = true
		}
		for id := range ids {
			var x, y *Entry
			if e, ok := before.Entries[id]; ok {
				x = &e
			}
			if e, ok := now.Entries[id]; ok {
				y = &e
			}
			for _, c := range DiffKEV(id, x, y) {
				kinds[c.Kind]++
				if c.Kind == KEVRemoved && id != "CVE-2025-4664" {
					t.Errorf("%s was removed", id)
				}
				if c.Kind == KEVDue && (id != "CVE-2025-0108" || c.Old != "2025-04-08" || c.New != "2025-03-11") {
					t.Errorf("%s: %s", id, c.Text)
				}
			}
		}
		return kinds
	}
	if k := diff("5e51cd84", "2790dea9"); k[KEVListed] != 9 || k[KEVRemoved] != 1 {
		t.Errorf("June 2025: %v; want 9 listed, 1 removed", k)
	} else {
		t.Log(k)
	}
	if k := diff("aabf332a", "c1a93886"); k[KEVDue] != 1 || k[KEVListed]+k[KEVRemoved] != 0 {
		t.Errorf("February 2025: %v; want one due date moved", k)
	}
	whole := readKEV(t, shared(t, "kev", "known_exploited_vulnerabilities.json"))
	if len(whole.Entries) != 1404 || whole.Released.IsZero() {
		t.Errorf("%d entries, released %v", len(whole.Entries), whole.Released)
	}
	old := readKEV(t, shared(t, "kev", "other", "vuln-list-update-happy.json"))
	if len(old.Entries) != 2 {
		t.Errorf("the old form: %d entries", len(old.Entries))
	}
}

// TestEveryRealRecordIsUnderstood: all records at hand parse with nothing left out.
func TestEveryRealRecordIsUnderstood(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(shared(t, "nvd"), func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		for id, r := range nvdFile(t, path) {
			seen[id] = true
			if r.Drift != 0 {
				t.Errorf("%s: %s has %d values that were not understood", path, id, r.Drift)
			}
			if r.LastModified.IsZero() || r.Published.IsZero() || r.Description == "" || r.Status == "" {
				t.Errorf("%s: %s lacks something: %+v", path, id, r)
			}
		}
		return nil
	})
	if err != nil || len(seen) < 100 {
		t.Errorf("%d records: %v", len(seen), err)
	}
}

// TestRealDaysOverHTTP: the same two days of 47 records, served as the NVD serves them, and published.
func TestRealDaysOverHTTP(t *testing.T) {
	day := func(folder string) *nvdtest.World {
		files := make(fstest.MapFS)
		for name, path := range map[string]string{
			"page.json":                            shared(t, "nvd", folder, "search_full_page.json"),
			"known_exploited_vulnerabilities.json": shared(t, "kev", "known_exploited_vulnerabilities.json"),
		} {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = &fstest.MapFile{Data: data}
		}
		w, err := nvdtest.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	b := newBench(t, 1)
	b.server.World = day("nvdlib-before")
	b.watch.IDs = b.server.World.IDs()
	if e := b.run(); len(e.Snapshots) != 47 || e.Report.Ledger.Requests != 2 || e.Report.KEV.Entries != 1404 {
		t.Fatalf("%s; %+v", &e.Report.Ledger, e.Report.KEV)
	}
	b.server.World = day("nvdlib")
	var got []string
	for _, c := range b.run().New {
		got = append(got, c.CVE+" "+string(c.Kind))
	}
	slices.Sort(got)
	want := []string{"CVE-2022-0554 references", "CVE-2022-20705 references", "CVE-2022-20705 status", "CVE-2022-20707 references", "CVE-2022-20707 status"}
	if !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
}
