package vulnwatch

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/browsertest"
)

const shownRows = `Array.from(document.querySelectorAll("#rows tr")).filter(r => r.offsetParent !== null || r.getClientRects().length).length`

// TestBrowser reads the pages as people do: it filters, opens a CVE, finds its timeline, and does so on a phone too.
func TestBrowser(t *testing.T) {
	b := browsertest.Open(t)
	e := madeEdition(60)
	dir := publishMade(t, e)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()

	listed := 0
	for _, s := range e.Snapshots {
		if s.KEV != nil {
			listed++
		}
	}
	id := e.Snapshots[3].ID

	for _, origin := range []string{server.URL, "file://" + dir} {
		// Errors of the page, those of its policy among them, would be told here.
		b.Size(1280, 900)
		b.Scheme("light")
		b.Visit(origin + "/index.html")
		if got := browsertest.Eval[int](b, shownRows); got != 60 {
			t.Errorf("%s: %d rows of 60", origin, got)
		}
		if got := browsertest.Eval[string](b, `getComputedStyle(document.querySelector(".tiles")).display`); got != "grid" {
			t.Errorf("%s: the style sheet does not apply: display %s", origin, got)
		}
		b.Picture("index-light")

		b.Set(`select[name=show]`, "kev")
		b.Run(`document.querySelector("select[name=show]").dispatchEvent(new Event("input", {bubbles: true}))`)
		b.Until(`document.querySelector("output").value.startsWith("` + fmt.Sprint(listed) + ` of 60")`)
		if got := browsertest.Eval[int](b, shownRows); got != listed {
			t.Errorf("%s: %d rows in KEV, want %d", origin, got, listed)
		}
		b.Type(`input[name=q]`, strings.ToLower(id))
		b.Until(`document.querySelector("output").value.startsWith("1 of 60")`)
		b.Until(`location.hash.includes("show=kev") && location.hash.includes("q=cve-")`) // the address keeps the filter
		b.Click(`#rows tr:not([hidden]) a`)
		b.Until(`document.querySelector("#timeline") && document.readyState == "complete"`)
		if got := browsertest.Eval[string](b, `document.querySelector("h1").textContent`); got != id {
			t.Errorf("%s: the page of %s, want %s", origin, got, id)
		}
		first := browsertest.Eval[string](b, `document.querySelector("#timeline li").innerText`)
		if !strings.Contains(first, "listed by CISA as exploited") || !strings.Contains(first, "2026-11-30 06:00 UTC") {
			t.Errorf("%s: the timeline begins with %q", origin, first)
		}
		if n := browsertest.Eval[int](b, `document.querySelectorAll("#timeline li").length`); n < 4 {
			t.Errorf("%s: a timeline of %d lines", origin, n)
		}
		b.Picture("cve-light")
		b.Run(`setTimeout(() => history.back())`)
		b.Until(`document.querySelector("output") !== null && document.querySelector("output").value.startsWith("1 of 60")`)
	}

	// Nothing sticks out on a phone, nor is anything lost in the dark.
	for _, path := range []string{"/index.html", "/cve/" + id + ".html", "/cve/" + e.Snapshots[11].ID + ".html"} {
		for _, width := range []int64{360, 768, 1280} {
			b.Size(width, 1400)
			b.Scheme("dark")
			b.Visit(server.URL + path)
			if over := browsertest.Eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s at %d px: %d px wider than the page", path, width, over)
			}
			b.Run(`(document.getElementById("all-head") || document.getElementById("timeline")).scrollIntoView()`)
			b.Picture(fmt.Sprintf("%s-%d", strings.Trim(strings.ReplaceAll(strings.TrimSuffix(path, ".html"), "/", "-"), "-"), width))
		}
	}
}

// TestBrowserStale: that a check failed is seen on pages that nobody has rewritten.
func TestBrowserStale(t *testing.T) {
	b := browsertest.Open(t)
	e := madeEdition(20)
	dir := publishMade(t, e)
	// The pages are a day old when the check fails, as they would be: Last-Modified counts seconds, so a browser that
	// asks again within the second of publishing is told 304. no-cache is what docs/watch.md has a server send.
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		yesterday := time.Now().AddDate(0, 0, -1)
		return os.Chtimes(path, yesterday, yesterday)
	})
	if err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	says := `getComputedStyle(document.getElementById("stale"), "::before").content`
	visible := `document.getElementById("stale").getClientRects().length > 0`
	for _, path := range []string{"/index.html", "/cve/" + e.Snapshots[0].ID + ".html"} {
		b.Visit(server.URL + path)
		if browsertest.Eval[bool](b, visible) {
			t.Errorf("%s: marked stale while it is fresh", path)
		}
	}
	failed := &Report{Started: checkTime.AddDate(0, 0, 1), Verdict: `batch: 3 items not fetched; "} body { display: none } \ ` + "\u202Eback"}
	if err := writeStatus(dir, failed, checkTime); err != nil {
		t.Fatal(err)
	}
	b.Size(1280, 900)
	b.Scheme("light")
	for _, origin := range []string{server.URL, "file://" + dir} {
		for _, path := range []string{"/index.html", "/cve/" + e.Snapshots[0].ID + ".html"} {
			b.Visit(origin + path)
			b.Reload()
			text := browsertest.Eval[string](b, says)
			if !browsertest.Eval[bool](b, visible) || !strings.Contains(text, "3 items not fetched; ") || strings.ContainsFunc(text, hidden) || !strings.Contains(text, "} body { display: none } ") || !strings.Contains(text, "2026-12-01 06:00 UTC") || !strings.Contains(text, "2026-11-30 06:00 UTC") {
				t.Errorf("%s%s: the mark says %s", origin, path, text)
			}
			b.Picture("stale")
		}
	}
}

// TestBrowserManyRows: ten thousand rows stay usable. The bound is far above what a slow machine needs.
func TestBrowserManyRows(t *testing.T) {
	b := browsertest.Open(t)
	const n = 10_000
	p, err := madeEdition(n).pages(t.TempDir())
	if err == nil {
		err = p.index()
	}
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(p.dir)))
	defer server.Close()
	begin := time.Now()
	b.Visit(server.URL + "/index.html")
	t.Logf("%d rows opened in %v", n, time.Since(begin).Round(time.Millisecond))
	if got := browsertest.Eval[int](b, shownRows); got != 300 {
		t.Errorf("%d rows are laid out at first", got)
	}
	measure := `(async () => {
		const q = document.querySelector("input[name=q]"), out = document.querySelector("output"), was = out.value;
		document.querySelector("select[name=order]").value = "s";
		q.value = "identity portal";
		const begin = performance.now();
		q.dispatchEvent(new Event("input", {bubbles: true}));
		while (out.value === was) await new Promise(r => setTimeout(r, 5));
		document.body.offsetHeight;
		return performance.now() - begin;
	})()`
	took := browsertest.Eval[float64](b, measure)
	t.Logf("sorted and filtered in %.0f ms, of which 120 are the pause after the last key", took)
	all := `(() => { const q = document.querySelector("input[name=q]"); q.value = ""; const begin = performance.now(); document.querySelector("#more button").click(); document.body.offsetHeight; return performance.now() - begin; })()`
	t.Logf("all rows laid out in %.0f ms", browsertest.Eval[float64](b, all))
	if got := browsertest.Eval[int](b, shownRows); got != n {
		t.Errorf("%d rows after asking for all", got)
	}
	if took > 60_000 {
		t.Errorf("a filter took %.0f ms", took)
	}
}
