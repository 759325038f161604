package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weir-go/weir"
)

// browser is a page in a browser without a window.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// browse opens a browser, or skips the test.
func browse(t *testing.T) *browser {
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute))...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	return &browser{t, ctx}
}

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// until waits until an expression is true on the page.
func (b *browser) until(js string) {
	b.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	for {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && ok {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("waiting for %s: %v; the page says:\n%s", js, ctx.Err(), text)
		}
	}
}

func eval[T any](b *browser, js string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// picture keeps a picture of the page where WEIR_PICTURES names a directory.
func (b *browser) picture(name string, width, height int64, scheme string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_PICTURES")
	if dir == "" {
		return
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
	b.do("resize", chromedp.EmulateViewport(width, height))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// An operator opens the dashboard, sees decisions move, looks at a key, holds it, and releases it; what strangers send
// as keys is text.
func TestDashboardInABrowser(t *testing.T) {
	b := browse(t)
	const secret = "0123456789abcdef0123456789abcdef"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := trustLoopback(everything(backend(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(len(r.URL.Path)) * time.Millisecond)
		fmt.Fprint(w, "hello")
	}), []*weir.Limit{
		{Name: "global", Rate: weir.Rate{Units: 1000, Period: time.Second}},
		{Name: "client", Rate: weir.Rate{Units: 600, Period: time.Minute}, Burst: 40},
		{Name: "tenant", Rate: weir.Rate{Units: 5000, Period: time.Hour}, Algorithm: weir.SlidingWindow},
		{Name: "trial", Rate: weir.Rate{Units: 5, Period: time.Second}, Shadow: true},
	}, Charge{Limit: "client"}, Charge{Limit: "tenant", Key: "header:X-Tenant"}, Charge{Limit: "trial"}))
	cfg.Defaults = []Charge{{Limit: "global", Key: "global"}}
	cfg.Admin = Admin{Address: "127.0.0.1:0", TokenFile: token, ShowKeys: true}
	g, url := start(t, cfg)

	// Clients of different eagerness.
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { leave(); clients.Wait() }()
	hostile := "<img src=x onerror=alert(1)>\u202etnanet"
	for i, each := range []time.Duration{15, 45, 70, 90, 120, 150, 200, 300, 500, 700, 900, 1000} {
		clients.Go(func() {
			tick := time.NewTicker(each * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s/%0*d", url, n%7*i, n), nil)
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i+1))
				req.Header.Set("X-Tenant", []string{"acme", "initech", hostile, "globex"}[i%4])
				if res, err := client.Do(req); err == nil {
					res.Body.Close()
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	const quiet = "X-Forwarded-For: 198.51.100.7"
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}

	b.do("open", chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(g.AdminURL()))
	const text = `document.body.innerText`
	b.until(text + `.includes("203.0.113.1") && document.querySelector("#state").textContent == "ready"`)
	b.until(`Number(document.querySelector(".limit .a b").textContent) > 0`)
	b.do("the limit of clients", chromedp.Evaluate[chromedp.Void](`document.querySelectorAll(".limit")[1].click()`))
	b.until(`document.querySelector("#use li button") && document.querySelector("#refusals li button")`)

	before := eval[string](b, `document.querySelector(".limit path").getAttribute("d")`)
	b.until(fmt.Sprintf(`document.querySelector(".limit path").getAttribute("d") != %q`, before))

	if os.Getenv("WEIR_PICTURES") != "" {
		time.Sleep(2 * time.Minute) // for a past to look at
	}

	// A key by its text: held, refused, released, admitted.
	b.do("look", chromedp.SetValue("#key", "ip:198.51.100.7"), chromedp.Evaluate[chromedp.Void](`document.querySelector("#look button").click()`))
	b.until(`document.querySelector("#said").textContent == "40 of 40 left"`)
	b.do("hold", chromedp.Evaluate[chromedp.Void](`document.querySelector("#hold").click()`))
	b.until(`document.querySelector("#result").textContent == "give the admin token first"`)
	b.do("hold", chromedp.SendKeys("#token", "not the token"), chromedp.Evaluate[chromedp.Void](`document.querySelector("#hold").click()`))
	b.until(`document.querySelector("#result").textContent == "this is not the admin token"`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 200 {
		t.Fatal("held with a wrong token:", res.Status)
	}
	b.do("hold", chromedp.SetValue("#token", secret), chromedp.Evaluate[chromedp.Void](`document.querySelector("#hold").click()`))
	b.until(`document.querySelector("#said").textContent.startsWith("held for another")`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 429 {
		t.Fatal("held, and answered with", res.Status)
	}
	b.until(`document.querySelector("#holds li") != null`)
	b.picture("dashboard", 1280, 1180, "light")
	b.picture("dashboard-dark", 1280, 1180, "dark")
	b.picture("dashboard-phone", 360, 2600, "light")
	b.do("release", chromedp.Evaluate[chromedp.Void](`document.querySelector("#holds button").click()`))
	b.until(`document.querySelector("#result").textContent == "released"`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 200 {
		t.Fatal("released, and answered with", res.Status)
	}

	// A key from the list.
	b.do("pick", chromedp.Evaluate[chromedp.Void](`document.querySelector("#refusals button").click()`))
	b.until(`document.querySelector("#shown").textContent == "ip:203.0.113.1" && document.querySelector("#said").textContent.includes("of 40 left")`)

	// A key that is markup.
	b.do("the limit of tenants", chromedp.Evaluate[chromedp.Void](`document.querySelectorAll(".limit")[2].click()`))
	b.until(`document.querySelector("#use").textContent.includes("<img src=x onerror=alert(1)>")`)
	if eval[bool](b, `document.querySelector("#use img") != null`) || strings.Contains(eval[string](b, text), "\u202e") {
		t.Error("a key is more than text")
	}

	// Nothing sticks out of a phone.
	b.do("phone", chromedp.EmulateViewport(360, 740))
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("%d pixels wide on a phone of 360", wide)
	}
	if kept := eval[int](b, `localStorage.length + sessionStorage.length + document.cookie.length`); kept != 0 {
		t.Error("the page keeps something in the browser")
	}
}
