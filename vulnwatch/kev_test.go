package vulnwatch

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

func TestKEVIsRefused(t *testing.T) {
	both := func(f nvdtest.Fault) []nvdtest.Fault {
		f.At = nvdtest.KEV
		g := f
		g.At = nvdtest.Mirror
		return []nvdtest.Fault{f, g}
	}
	for name, tc := range map[string]struct {
		fault nvdtest.Fault
		says  string
	}{
		"truncated":        {nvdtest.Fault{Kind: nvdtest.Truncated}, "truncated"},
		"miscounted":       {nvdtest.Fault{Kind: nvdtest.Miscounted}, "its count is"},
		"shrunk":           {nvdtest.Fault{Kind: nvdtest.Shrunk}, "entries are gone, over 1.0 %"},
		"older":            {nvdtest.Fault{Kind: nvdtest.Behind}, "older than the one of the last check"},
		"a page of HTML":   {nvdtest.Fault{Kind: nvdtest.HTML}, "truncated or not one"},
		"JSON of others":   {nvdtest.Fault{Kind: nvdtest.OtherJSON}, "no count or no entries"},
		"down":             {nvdtest.Fault{Kind: nvdtest.Status, Status: 503}, "503"},
		"turns us away":    {nvdtest.Fault{Kind: nvdtest.Forbidden}, "403"},
		"breaks off":       {nvdtest.Fault{Kind: nvdtest.Reset}, "body of a 200 answer"},
		"empty with a 304": {nvdtest.Fault{Kind: nvdtest.Status, Status: 304}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 40)
			b.run()
			if name != "older" {
				b.world.Skip()
			}
			b.server.Inject(both(tc.fault)...)
			if tc.says == "" {
				if e := b.run(); !e.Report.KEV.NotModified || e.Report.KEV.Entries < 300 {
					t.Errorf("KEV %+v", e.Report.KEV)
				}
				return
			}
			e, err := b.refused()
			if !strings.Contains(err.Error(), tc.says) || !strings.Contains(e.Report.KEV.Error, tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
			if e.Report.Ledger.NotFetched != 0 {
				t.Errorf("%s", &e.Report.Ledger)
			}
			// The mirror alone suffices.
			b.server.Clear()
			f := tc.fault
			f.At = nvdtest.KEV
			b.server.Inject(f)
			e = b.run()
			if k := e.Report.KEV; k.URL != b.url+nvdtest.MirrorPath || len(k.Tried) != 1 || !strings.Contains(k.Tried[0], tc.says) || len(e.New) != 0 {
				t.Errorf("with the mirror: %+v, changes %+v", k, e.New)
			}
		})
	}
}

// TestLaggingMirror: what a mirror does not have yet has not been removed.
func TestLaggingMirror(t *testing.T) {
	b := newBench(t, 40)
	b.run()
	b.world.NextDay()
	b.run()
	b.server.Inject(
		nvdtest.Fault{Kind: nvdtest.Forbidden, At: nvdtest.KEV},
		nvdtest.Fault{Kind: nvdtest.Behind, At: nvdtest.Mirror},
	)
	if _, err := b.refused(); !strings.Contains(err.Error(), "older than") {
		t.Error(err)
	}
}

func TestSingleRemovalFromKEVIsAnEvent(t *testing.T) {
	b := newBench(t, 40)
	b.run()
	var id string
	for _, s := range b.run().Snapshots {
		if s.KEV != nil {
			id = s.ID
		}
	}
	b.world.Skip()
	if !b.world.Apply(nvdtest.KEVRemoved, id) {
		t.Fatal(id)
	}
	e := b.run()
	if len(e.New) != 2 || e.New[0].Kind != KEVRemoved || e.New[1].Kind != KEVDisagrees || e.New[0].CVE != id {
		t.Errorf("%+v", e.New)
	}
}

func TestNVDAndCISADisagree(t *testing.T) {
	listed := func(added, due string) *Record { return &Record{KEV: &NVDKEV{added, due}} }
	for name, tc := range map[string]struct {
		record *Record
		entry  *Entry
		want   string
	}{
		"neither":            {&Record{}, nil, ""},
		"unknown to the NVD": {nil, &Entry{Added: "2026-01-02"}, ""},
		"both":               {listed("2026-01-02", "2026-01-23"), &Entry{Added: "2026-01-02", Due: "2026-01-23"}, ""},
		"only CISA":          {&Record{}, &Entry{Added: "2026-01-02"}, "CISA lists it since 2026-01-02, the NVD does not say so"},
		"only the NVD":       {listed("2026-01-02", ""), nil, "the NVD says that CISA lists it since 2026-01-02, CISA does not"},
		"another date":       {listed("2026-01-03", ""), &Entry{Added: "2026-01-02"}, "CISA lists it since 2026-01-02, the NVD says 2026-01-03"},
		"another due date":   {listed("2026-01-02", "2026-02-01"), &Entry{Added: "2026-01-02", Due: "2026-01-23"}, "CISA's due date is 2026-01-23, the NVD's 2026-02-01"},
	} {
		if got := Disagreement(tc.record, tc.entry); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestCatalogueOfTheFuture: a release date that is a slip does not bar the catalogues after it.
func TestCatalogueOfTheFuture(t *testing.T) {
	b := newBench(t, 40)
	b.world.StartAt(time.Now().AddDate(0, 2, 0))
	b.run()
	b.world.StartAt(time.Now().AddDate(0, 0, -1))
	b.world.Skip()
	if e := b.run(); e.Report.KEV.NotModified || len(e.Report.KEV.Tried) != 0 {
		t.Errorf("%+v", e.Report.KEV)
	}
}

// TestSecretsOfSourcesAreNotPublished: a mirror may want a user or a token.
func TestSecretsOfSourcesAreNotPublished(t *testing.T) {
	b := newBench(t, 40)
	secret := func(path string) string {
		return strings.Replace(b.url, "http://", "http://user:hunter2@", 1) + path + "?token=hunter2#hunter2"
	}
	b.watch.KEV.URLs = []string{secret(nvdtest.KEVPath), secret(nvdtest.MirrorPath)}
	b.run()
	if e := b.run(); !e.Report.KEV.NotModified {
		t.Errorf("asked anew: %+v", e.Report.KEV)
	}
	b.world.Skip()
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Forbidden, At: nvdtest.KEV})
	if e := b.run(); e.Report.KEV.URL != b.url+nvdtest.MirrorPath || len(e.Report.KEV.Tried) != 1 {
		t.Errorf("%+v", e.Report.KEV)
	}
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.HTML, At: nvdtest.Mirror})
	_, err := b.refused()
	for name, text := range tree(t, filepath.Join(filepath.Dir(b.watch.Out), ".site-editions")) {
		if strings.Contains(text, "hunter2") {
			t.Errorf("it stands in %s", name)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// TestNoShareMayVanish: negative is none, as everywhere.
func TestNoShareMayVanish(t *testing.T) {
	b := newBench(t, 400)
	b.run()
	listed := 0
	b.world.Skip()
	for _, s := range b.run().Snapshots {
		if s.KEV != nil && listed < 2 && b.world.Apply(nvdtest.KEVRemoved, s.ID) {
			listed++
		}
	}
	b.watch.KEV.Shrink = -1
	if _, err := b.refused(); !strings.Contains(err.Error(), "2 of its") {
		t.Error(err)
	}
	b.watch.KEV.Shrink = 0
	b.world.Apply(nvdtest.Gone, b.watch.IDs[0])
	b.world.Apply(nvdtest.Gone, b.watch.IDs[1])
	b.watch.GoneShare = -1
	b.refused()
	b.watch.GoneShare = 0
	b.run()
}

// TestNotModifiedWithoutCondition: there is no catalogue yet that could not have been modified.
func TestNotModifiedWithoutCondition(t *testing.T) {
	b := newBench(t, 10)
	b.server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 304, At: nvdtest.KEV})
	if e := b.run(); e.Report.KEV.NotModified || len(e.Report.KEV.Tried) != 1 || e.Report.KEV.Entries == 0 {
		t.Errorf("%+v", e.Report.KEV)
	}
}
