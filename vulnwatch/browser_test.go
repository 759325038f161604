package vulnwatch

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browse opens a browser, or skips the test.
func browse(t *testing.T) *tab {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no chromium on PATH; `apt-get install chromium` brings it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", false),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-pings", true),
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	return &tab{t, ctx}
}

type tab struct {
	t   *testing.T
	ctx context.Context
}

func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func eval[T any](b *tab, js string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits for something to become true on the page, whichever page that is by then.
func (b *tab) until(js string) {
	b.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](js)); err == nil && ok {
			return
		}
		select {
		case <-look.C:
		case <-b.ctx.Done():
			b.t.Fatalf("waiting for %s: %v", js, b.ctx.Err())
		}
	}
}

func (b *tab) size(width, height int64) { b.do("resize", chromedp.EmulateViewport(width, height)) }

func (b *tab) scheme(name string) {
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
}

// picture keeps a picture of the page where WEIR_PICTURES names a folder.
func (b *tab) picture(name string) {
	dir := os.Getenv("WEIR_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

const shownRows = `Array.from(document.querySelectorAll("#rows tr")).filter(r => r.offsetParent !== null || r.getClientRects().length).length`

// TestBrowser reads the pages as people do: it filters, opens a CVE, finds its timeline, and does so on a phone too.
func TestBrowser(t *testing.T) {
	b := browse(t)
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
		b.size(1280, 900)
		b.scheme("light")
		b.do("open the index", chromedp.Navigate(origin+"/index.html"))
		if got := eval[int](b, shownRows); got != 60 {
			t.Errorf("%s: %d rows of 60", origin, got)
		}
		if got := eval[string](b, `getComputedStyle(document.querySelector(".tiles")).display`); got != "grid" {
			t.Errorf("%s: the style sheet does not apply: display %s", origin, got)
		}
		b.picture("index-light")

		b.do("choose KEV", chromedp.SetValue(`select[name=show]`, "kev"))
		eval[bool](b, `document.querySelector("select[name=show]").dispatchEvent(new Event("input", {bubbles: true}))`)
		b.until(`document.querySelector("output").value.startsWith("` + fmt.Sprint(listed) + ` of 60")`)
		if got := eval[int](b, shownRows); got != listed {
			t.Errorf("%s: %d rows in KEV, want %d", origin, got, listed)
		}
		b.do("search", chromedp.SendKeys(`input[name=q]`, strings.ToLower(id)))
		b.until(`document.querySelector("output").value.startsWith("1 of 60")`)
		if hash := eval[string](b, "location.hash"); !strings.Contains(hash, "show=kev") || !strings.Contains(hash, "q=cve-") {
			t.Errorf("%s: the address keeps %q of the filter", origin, hash)
		}
		b.do("follow the link", chromedp.Click(`#rows tr:not([hidden]) a`), chromedp.WaitVisible("#timeline"))
		if got := eval[string](b, `document.querySelector("h1").textContent`); got != id {
			t.Errorf("%s: the page of %s, want %s", origin, got, id)
		}
		first := eval[string](b, `document.querySelector("#timeline li").innerText`)
		if !strings.Contains(first, "listed by CISA as exploited") || !strings.Contains(first, "2026-11-30 06:00 UTC") {
			t.Errorf("%s: the timeline begins with %q", origin, first)
		}
		if n := eval[int](b, `document.querySelectorAll("#timeline li").length`); n < 4 {
			t.Errorf("%s: a timeline of %d lines", origin, n)
		}
		b.picture("cve-light")
		eval[bool](b, `setTimeout(() => history.back()), true`)
		b.until(`document.querySelector("output") !== null && document.querySelector("output").value.startsWith("1 of 60")`)
	}

	// Nothing sticks out on a phone, nor is anything lost in the dark.
	for _, path := range []string{"/index.html", "/cve/" + id + ".html", "/cve/" + e.Snapshots[11].ID + ".html"} {
		for _, width := range []int64{360, 768, 1280} {
			b.size(width, 1400)
			b.scheme("dark")
			b.do("open "+path, chromedp.Navigate(server.URL+path))
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s at %d px: %d px wider than the page", path, width, over)
			}
			b.do("scroll", chromedp.Evaluate[chromedp.Void](`(document.getElementById("all-head") || document.getElementById("timeline")).scrollIntoView()`))
			b.picture(fmt.Sprintf("%s-%d", strings.Trim(strings.ReplaceAll(strings.TrimSuffix(path, ".html"), "/", "-"), "-"), width))
		}
	}
}

// TestBrowserStale: that a check failed is seen on pages that nobody has rewritten.
func TestBrowserStale(t *testing.T) {
	b := browse(t)
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
		b.do("open "+path, chromedp.Navigate(server.URL+path))
		if eval[bool](b, visible) {
			t.Errorf("%s: marked stale while it is fresh", path)
		}
	}
	failed := &Report{Started: checkTime.AddDate(0, 0, 1), Verdict: `batch: 3 items not fetched; "} body { display: none } \ ` + "\u202Eback"}
	if err := writeStatus(dir, failed, checkTime); err != nil {
		t.Fatal(err)
	}
	b.size(1280, 900)
	b.scheme("light")
	for _, origin := range []string{server.URL, "file://" + dir} {
		for _, path := range []string{"/index.html", "/cve/" + e.Snapshots[0].ID + ".html"} {
			b.do("open "+path, chromedp.Navigate(origin+path), chromedp.Reload())
			text := eval[string](b, says)
			if !eval[bool](b, visible) || !strings.Contains(text, "3 items not fetched; ") || strings.ContainsFunc(text, hidden) || !strings.Contains(text, "} body { display: none } ") || !strings.Contains(text, "2026-12-01 06:00 UTC") || !strings.Contains(text, "2026-11-30 06:00 UTC") {
				t.Errorf("%s%s: the mark says %s", origin, path, text)
			}
			b.picture("stale")
		}
	}
}

// TestBrowserManyRows: ten thousand rows stay usable. The bound is far above what a slow machine needs.
func TestBrowserManyRows(t *testing.T) {
	b := browse(t)
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
	b.do("open the index", chromedp.Navigate(server.URL+"/index.html"))
	t.Logf("%d rows opened in %v", n, time.Since(begin).Round(time.Millisecond))
	if got := eval[int](b, shownRows); got != 300 {
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
	took, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64](measure, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sorted and filtered in %.0f ms, of which 120 are the pause after the last key", took)
	all := `(() => { const q = document.querySelector("input[name=q]"); q.value = ""; const begin = performance.now(); document.querySelector("#more button").click(); document.body.offsetHeight; return performance.now() - begin; })()`
	t.Logf("all rows laid out in %.0f ms", eval[float64](b, all))
	if got := eval[int](b, shownRows); got != n {
		t.Errorf("%d rows after asking for all", got)
	}
	if took > 15_000 {
		t.Errorf("a filter took %.0f ms", took)
	}
}
