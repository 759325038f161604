package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

func TestReloadKeepsWhatIsSpent(t *testing.T) {
	up := backend(t, hello)
	config := func(units int64) *Config {
		return everything(up, []*weir.Limit{perHour("client", units)}, Charge{Limit: "client", Key: "global"})
	}
	g, url := start(t, config(3))
	ask(t, "GET", url)
	ask(t, "GET", url)
	upstream := g.site.Load().upstreams["main"]
	if err := g.Reload(config(5)); err != nil {
		t.Fatal(err)
	}
	if g.site.Load().upstreams["main"] != upstream {
		t.Error("the upstream was replaced though nothing of it had changed")
	}
	if left := remaining(t, g, "client", ""); left < 1 || left > 3 { // 2 of 5 are spent, or as much as comes back in the time that 2 of 3 take
		t.Errorf("%d of 5 left", left)
	}
	if err := g.Reload(config(3)); err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", url)
	if res, _ := ask(t, "GET", url); res.StatusCode != 429 {
		t.Errorf("after reloads the fourth of 3: %s", res.Status)
	}
}

func TestReloadIsWholeOrNotAtAll(t *testing.T) {
	up := backend(t, hello)
	good := func() *Config {
		return everything(up, []*weir.Limit{perHour("client", 1)}, Charge{Limit: "client", Key: "global"})
	}
	g, url := start(t, good())
	before := g.site.Load()
	for name, spoil := range map[string]func(*Config){
		"no limit of that name": func(c *Config) { c.Routes[0].Limits[0].Limit = "other" },
		"a bad pattern":         func(c *Config) { c.Routes = append(c.Routes, &Route{Pattern: "/{"}) },
		"patterns that differ in letters only": func(c *Config) {
			c.Routes = append(c.Routes, &Route{Pattern: "a.example/"}, &Route{Pattern: "A.example/"})
		},
		"another listener": func(c *Config) { c.Listen = append(c.Listen, Listener{Address: "127.0.0.1:0"}) },
		"another admin":    func(c *Config) { c.Admin.Address = "127.0.0.1:0" },
		"another size":     func(c *Config) { c.MaxCells = 7 },
		"no token file":    func(c *Config) { c.Admin.TokenFile = "/nowhere/token" },
		"another header":   func(c *Config) { c.Headers = "draft-99" },
	} {
		cfg := good()
		spoil(cfg)
		if err := g.Reload(cfg); err == nil {
			t.Errorf("%s: reloaded", name)
		}
		if g.site.Load() != before {
			t.Fatalf("%s: something changed", name)
		}
	}
	for _, want := range []int{200, 429} {
		if res, _ := ask(t, "GET", url); res.StatusCode != want {
			t.Errorf("%s, want %d", res.Status, want)
		}
	}
}

// Requests see one configuration or the other, and none is lost, however often it changes.
func TestReloadUnderTraffic(t *testing.T) {
	up := backend(t, hello)
	g, url := start(t, everything(up, []*weir.Limit{perHour("client", 1_000_000)}, Charge{Limit: "client"}))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if res, body := ask(t, "GET", url); res.StatusCode != 200 || body != "hello" {
					t.Errorf("%s %s", res.Status, body)
					return
				}
			}
		})
	}
	for i := range 50 {
		cfg := everything(up, []*weir.Limit{perHour("client", int64(1_000_000+i))}, Charge{Limit: "client"})
		cfg.Upstreams["main"].Concurrency = 100 + i%2
		if err := g.Reload(cfg); err != nil {
			t.Error(err)
		}
	}
	stop()
	wg.Wait()
}

// journal is a log that tests can look into.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(part string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), part)
}

// watched is a gateway that watches its configuration file.
type watched struct {
	*Gateway
	t    *testing.T
	path string
	log  journal
	hup  chan os.Signal
}

func watch(t *testing.T, dir, text string) *watched {
	w := &watched{t: t, path: filepath.Join(dir, "weir.yaml"), hup: make(chan os.Signal, 1)}
	replaceFile(t, w.path, text)
	cfg, err := Load(w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway, _ = start(t, cfg, Options{Logger: slog.New(slog.NewTextHandler(&w.log, nil))})
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { w.Watch(ctx, w.path, w.hup) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	return w
}

func (w *watched) capacity() int64 { return w.site.Load().limits["client"].Capacity() }

func ofUnits(units int, more string) string {
	return fmt.Sprintf(`listen: [{address: "127.0.0.1:0"%s}]
admin: {address: "off"}
shutdown: 1s
upstreams: {main: {url: "http://127.0.0.1:1"}}
limits: [{name: client, rate: %d/h}]
routes: [{pattern: /, limits: [{limit: client}]}]
`, more, units)
}

func TestWatch(t *testing.T) {
	w := watch(t, t.TempDir(), ofUnits(1, ""))
	reach := func(what string, units int64) {
		t.Helper()
		await(t, what, func() bool { return w.capacity() == units })
	}
	// A file that is replaced before it is watched counts as the one that was loaded: have it seen first.
	w.hup <- syscall.SIGHUP
	await(t, "the first reload", func() bool { return w.log.has("configuration in force") })

	replaceFile(t, w.path, ofUnits(2, ""))
	reach("a file that was renamed into place", 2)
	if err := os.WriteFile(w.path, []byte(ofUnits(3, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	reach("a file that was written in place", 3)

	replaceFile(t, w.path, "limits: [{name: client, rate: 7/fortnight}]\n")
	await(t, "the refusal", func() bool { return w.log.has("fortnight") })
	reach("the old configuration", 3)
	replaceFile(t, w.path, ofUnits(4, ""))
	reach("the mended file", 4)

	os.Remove(w.path)
	await(t, "the refusal of nothing", func() bool { return w.log.has("no such file") })
	reach("the old configuration", 4)
	replaceFile(t, w.path, ofUnits(5, ""))
	w.hup <- syscall.SIGHUP
	reach("the file that is back, at a signal", 5)
}

// As a volume of Kubernetes: the file is a link through a directory that is swapped.
func TestWatchFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, name, "weir.yaml"), ofUnits(i+1, ""))
	}
	if err := os.Symlink("one", filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(dir, "mount")
	os.Mkdir(mount, 0o700)
	os.Symlink("../data/weir.yaml", filepath.Join(mount, "link"))
	os.Symlink("../one", filepath.Join(mount, "..data"))
	os.Symlink("..data/weir.yaml", filepath.Join(mount, "weir.yaml"))

	cfg, err := Load(filepath.Join(mount, "weir.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	g, _ := start(t, cfg)
	hup := make(chan os.Signal)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { g.Watch(ctx, filepath.Join(mount, "weir.yaml"), hup) })
	defer watching.Wait()
	defer stop()
	hup <- syscall.SIGHUP // taken once files are watched
	os.Symlink("../two", filepath.Join(mount, "..data.new"))
	if err := os.Rename(filepath.Join(mount, "..data.new"), filepath.Join(mount, "..data")); err != nil {
		t.Fatal(err)
	}
	await(t, "the other directory", func() bool { return g.site.Load().limits["client"].Capacity() == 2 })
}

// The beginning of a file may be a configuration of its own. It is given time to become whole.
func TestWatchDoesNotApplyHalfAFile(t *testing.T) {
	w := watch(t, t.TempDir(), ofUnits(1, ""))
	w.hup <- syscall.SIGHUP
	await(t, "the first reload", func() bool { return w.log.has("configuration in force") })
	whole := ofUnits(2, "") + "# the end\n"
	half := whole[:strings.Index(whole, "# the")-1]
	f, err := os.Create(w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString(half)
	<-time.After(3 * settleDelay)
	if got := w.capacity(); got != 1 {
		t.Fatalf("half a file was applied: %d", got)
	}
	f.WriteString(whole[len(half):])
	await(t, "the whole file", func() bool { return w.capacity() == 2 })
}

func TestWatchRenewsCertificates(t *testing.T) {
	dir := t.TempDir()
	writeCert(t, dir, "old.example")
	w := watch(t, dir, ofUnits(1, ", cert: cert.pem, key: key.pem"))
	w.hup <- syscall.SIGHUP
	await(t, "the first reload", func() bool { return w.log.has("configuration in force") })
	name := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(w.URLs()[0], "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := name(); got != "old.example" {
		t.Fatal(got)
	}
	writeCert(t, dir, "new.example")
	await(t, "the new certificate", func() bool { return name() == "new.example" })
}
