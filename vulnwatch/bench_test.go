package vulnwatch

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/vulnwatch/nvdtest"
)

// bench is a Watch of a made-up world over loopback. There is no limit unless a test sets one.
type bench struct {
	*testing.T
	world  *nvdtest.World
	server *nvdtest.Server
	url    string
	watch  *Watch
	client *httplimit.Transport
}

func newBench(t *testing.T, cves int) *bench {
	t.Helper()
	b := &bench{T: t, world: nvdtest.Synthetic(1, cves)}
	b.server = &nvdtest.Server{World: b.world, Key: "good-key", Units: -1, KeyUnits: -1}
	ts := httptest.NewServer(b.server)
	t.Cleanup(ts.Close)
	b.url = ts.URL
	nvd := &NVD{URL: ts.URL + nvdtest.NVDPath, Rate: weir.Rate{Units: 100_000, Period: time.Second}}
	b.client = nvd.Transport(&http.Transport{})
	b.client.Retry.Base, b.client.Retry.Max, b.client.Retry.Budget = time.Millisecond, time.Millisecond, -1
	nvd.Client = &http.Client{Transport: b.client}
	kev := KEVTransport(&http.Transport{})
	kev.Retry.Base = time.Millisecond
	t.Cleanup(func() { b.client.CloseIdleConnections(); kev.CloseIdleConnections() })
	b.watch = &Watch{
		IDs: b.world.IDs(), Out: filepath.Join(t.TempDir(), "site"), NVD: nvd,
		KEV: &KEV{URLs: []string{ts.URL + nvdtest.KEVPath, ts.URL + nvdtest.MirrorPath}, Client: &http.Client{Transport: kev}},
	}
	return b
}

// run is a check that must succeed.
func (b *bench) run() *Edition {
	b.Helper()
	e, err := b.watch.Run(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Report.Ledger.Check(); err != nil {
		b.Error(err)
	}
	return e
}

// refused is a check that must publish nothing.
func (b *bench) refused() (*Edition, error) {
	b.Helper()
	before := tree(b.T, b.watch.Out)
	e, err := b.watch.Run(b.Context())
	if !errors.Is(err, ErrIncomplete) {
		b.Fatalf("got %v, want a refusal", err)
	}
	if e.Report.Complete || len(e.New) != 0 || e.Report.Verdict == "ok" {
		b.Errorf("report %+v with %d changes", e.Report, len(e.New))
	}
	if before == nil {
		return e, err
	}
	after := tree(b.T, b.watch.Out)
	for _, name := range []string{"status.json", "status.css"} {
		if before[name] == after[name] {
			b.Errorf("%s does not tell that the check failed", name)
		}
		delete(before, name)
		delete(after, name)
	}
	if !maps.Equal(before, after) {
		b.Error("the site has changed beside its stale mark")
	}
	return e, err
}

// tree is every file below a folder; nil if there is none.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	root, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files := make(map[string]string)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
