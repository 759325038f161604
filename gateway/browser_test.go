package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/browsertest"
)

// An operator opens the dashboard, sees decisions move, looks at a key, holds it, and releases it; what strangers send
// as keys is text.
func TestDashboardInABrowser(t *testing.T) {
	b := browsertest.Open(t)
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
		{Name: "client", Rate: weir.Rate{Units: 300, Period: time.Minute}, Burst: 40}, // few enough for a slow machine to go over
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

	b.Size(1280, 1000)
	b.Visit(g.AdminURL())
	const text = `document.body.innerText`
	b.Until(text + `.includes("203.0.113.1") && document.querySelector("#state").textContent == "ready"`)
	b.Until(`Number(document.querySelector(".limit .a b").textContent) > 0`)
	b.Run(`document.querySelectorAll(".limit")[1].click()`)
	b.Until(`document.querySelector("#use li button") && document.querySelector("#refusals li button")`)

	before := browsertest.Eval[string](b, `document.querySelector(".limit path").getAttribute("d")`)
	b.Until(fmt.Sprintf(`document.querySelector(".limit path").getAttribute("d") != %q`, before))

	if browsertest.Pictures() {
		time.Sleep(2 * time.Minute) // for a past to look at
	}

	// A key by its text: held, refused, released, admitted.
	b.Set("#key", "ip:198.51.100.7")
	b.Run(`document.querySelector("#look button").click()`)
	b.Until(`document.querySelector("#said").textContent == "40 of 40 left"`)
	b.Run(`document.querySelector("#hold").click()`)
	b.Until(`document.querySelector("#result").textContent == "give the admin token first"`)
	b.Type("#token", "not the token")
	b.Run(`document.querySelector("#hold").click()`)
	b.Until(`document.querySelector("#result").textContent == "this is not the admin token"`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 200 {
		t.Fatal("held with a wrong token:", res.Status)
	}
	b.Set("#token", secret)
	b.Run(`document.querySelector("#hold").click()`)
	b.Until(`document.querySelector("#said").textContent.startsWith("held for another")`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 429 {
		t.Fatal("held, and answered with", res.Status)
	}
	b.Until(`document.querySelector("#holds li") != null`)
	for _, shot := range []struct {
		name, scheme  string
		width, height int64
	}{{"dashboard", "light", 1280, 1180}, {"dashboard-dark", "dark", 1280, 1180}, {"dashboard-phone", "light", 360, 2600}} {
		b.Scheme(shot.scheme)
		b.Size(shot.width, shot.height)
		b.Picture(shot.name)
	}
	b.Run(`document.querySelector("#holds button").click()`)
	b.Until(`document.querySelector("#result").textContent == "released"`)
	if res, _ := ask(t, "GET", url, quiet); res.StatusCode != 200 {
		t.Fatal("released, and answered with", res.Status)
	}

	// A key from the list.
	b.Run(`var first = document.querySelector("#refusals button"), picked = first.querySelector("span").textContent; first.click()`)
	b.Until(`picked.startsWith("ip:203.0.113.") && document.querySelector("#shown").textContent == picked && document.querySelector("#said").textContent.includes("of 40 left")`)

	// A key that is markup.
	b.Run(`document.querySelectorAll(".limit")[2].click()`)
	b.Until(`document.querySelector("#use").textContent.includes("<img src=x onerror=alert(1)>")`)
	if browsertest.Eval[bool](b, `document.querySelector("#use img") != null`) || strings.Contains(browsertest.Eval[string](b, text), "\u202e") {
		t.Error("a key is more than text")
	}

	// Nothing sticks out of a phone.
	b.Size(360, 740)
	if wide := browsertest.Eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("%d pixels wide on a phone of 360", wide)
	}
	if kept := browsertest.Eval[int](b, `localStorage.length + sessionStorage.length + document.cookie.length`); kept != 0 {
		t.Error("the page keeps something in the browser")
	}
}
