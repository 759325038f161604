// Package browsertest opens pages in a real browser without a window, for tests. Every wait has minutes: a page that is slow on a busy machine is
// no failure, and one that is wrong fails with what it says.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

const (
	patience = 2 * time.Minute // for one thing to happen on a page
	lifetime = 8 * time.Minute // of a browser, less than go test gives a package
)

// Page is a page in a browser of a test's own, which ends with the test and leaves no file behind. Its methods end the test if they
// fail. It is not safe for concurrent use.
type Page struct {
	t   testing.TB
	ctx context.Context
}

// Open opens a browser with an empty page, or skips the test where there is none.
func Open(t testing.TB) *Page {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no chromium on PATH; apt-get install chromium brings it")
	}
	// The browser ends by a signal and leaves what it keeps in TMPDIR: the socket of its profile, and shared memory.
	// t.TempDir is too long for a socket.
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, dir) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), lifetime)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.Env("TMPDIR="+dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", false), chromedp.Flag("disable-component-update", true), chromedp.Flag("no-pings", true),
		chromedp.WSURLReadTimeout(patience))...)
	t.Cleanup(stop) // and waits
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(leave)
	p := &Page{t, ctx}
	p.do("open a browser")
	return p
}

// remove removes the directory of a browser that has ended, whose last processes may still be about to.
func remove(t testing.TB, dir string) {
	var err error
	for range 100 {
		if err = os.RemoveAll(dir); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("what the browser left behind: %v", err)
}

func (p *Page) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.fail(what, err)
	}
}

func (p *Page) fail(what string, err error) {
	p.t.Helper()
	text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("location + '\\n' + document.body.innerText"))
	p.t.Fatalf("%s: %v; the page says:\n%s", what, err, text)
}

// Visit loads a page, with its scripts and style sheets.
func (p *Page) Visit(url string) {
	p.t.Helper()
	p.do("visit "+url, chromedp.Navigate(url))
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.do("reload", chromedp.Reload())
}

// Until waits until an expression of JavaScript is true, on whatever page there is by then.
func (p *Page) Until(js string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		// A page that is just being left gives an error, as does one without the element that is meant.
		if ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && ok {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			p.fail("waiting for "+js, ctx.Err())
		}
	}
}

// Run runs statements of JavaScript, and does not wait for what they start.
func (p *Page) Run(js string) {
	p.t.Helper()
	p.do(js, chromedp.Evaluate[chromedp.Void](js))
}

// Eval is the value of an expression of JavaScript, or of its promise.
func Eval[T any](p *Page, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.fail(js, err)
	}
	return v
}

// Set gives a field of a form a value, without an event.
func (p *Page) Set(selector, value string) {
	p.t.Helper()
	p.do("set "+selector, chromedp.SetValue(selector, value))
}

// Type presses keys in a field of a form.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.do("type in "+selector, chromedp.SendKeys(selector, text))
}

// Click clicks with the mouse what is seen.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.Click(selector))
}

// Size is how large the page is, in pixels.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	p.do("resize", chromedp.EmulateViewport(width, height))
}

// Scheme is the color scheme that the reader prefers: light or dark.
func (p *Page) Scheme(name string) {
	p.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.fail("prefer "+name, err)
	}
}

// Pictures reports whether pictures are kept: where WEIR_PICTURES names a directory.
func Pictures() bool { return os.Getenv("WEIR_PICTURES") != "" }

// Picture keeps a picture of the page, if pictures are kept.
func (p *Page) Picture(name string) {
	p.t.Helper()
	if !Pictures() {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("WEIR_PICTURES"), name+".png"), png, 0o644)
	}
	if err != nil {
		p.fail("a picture of "+name, err)
	}
}
