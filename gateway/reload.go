package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Reload puts cfg in force, whole or not at all. Requests under way end under the configuration they began with. What
// keys have spent stays with limits of the same name, whatever their numbers are now, and so do the connections and breakers of
// upstreams that have not changed. It also reads the files anew that cfg names. Listeners, the admin address, MaxCells and the store cannot
// change while running: a Config in which they do is refused. The error is a *ConfigError.
func (g *Gateway) Reload(cfg *Config) error {
	g.reloadMu.Lock()
	defer g.reloadMu.Unlock()
	old := g.site.Load()
	s, err := g.reload(cfg, old)
	if err != nil {
		g.metrics.reloads.WithLabelValues("refused").Inc()
		return err
	}
	g.site.Store(s)
	g.metrics.reloads.WithLabelValues("applied").Inc()
	g.logFindings(cfg)
	for name, up := range old.upstreams {
		if s.upstreams[name] != up {
			up.closeIdle()
		}
	}
	return nil
}

func (g *Gateway) reload(cfg *Config, old *site) (*site, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if !slices.EqualFunc(cfg.listeners(), old.config.listeners(), func(a, b Listener) bool {
		// Certificates may come from other files.
		return a.Address == b.Address && a.H2C == b.H2C && (a.Cert == "") == (b.Cert == "")
	}) {
		return nil, needsRestart("listen")
	}
	if cfg.Admin.address() != old.config.Admin.address() {
		return nil, needsRestart("admin.address")
	}
	if cfg.MaxCells != old.config.MaxCells {
		return nil, needsRestart("max_cells")
	}
	if cfg.Store != old.config.Store || cfg.Redis != old.config.Redis || cfg.Replicas != old.config.Replicas {
		return nil, needsRestart("store")
	}
	for i, l := range cfg.Limits {
		if was := old.confs[l.Name]; was != nil && was.Tag != l.Tag {
			return nil, needsRestart(strictyaml.Item("limits", i) + ".tag") // its keys would be others
		}
	}
	if cfg.Tracing != old.config.Tracing {
		return nil, needsRestart("tracing")
	}
	return g.compile(cfg, old)
}

func needsRestart(field string) error {
	return fault(field, fmt.Errorf("cannot change while running; restart for that"))
}

const (
	// settleDelay is how long files have to stay as they are before they are read: editors write in several steps.
	settleDelay = 250 * time.Millisecond

	// doubtDelay is the same for a configuration that does not end with a line break, as one does whose writer is not done.
	// The part that is there may well be a valid configuration, of fewer limits.
	doubtDelay = 2 * time.Second
)

// Watch reloads the configuration of a file when the file changes, or one that it names (certificates, keys), and at each value
// of now, which may be nil, until ctx ends. A configuration that is not right is logged, and the one in force stays. Files are
// watched by their directory, so that it does not matter how they are replaced. Where the system cannot watch files, now is all there is.
func (g *Gateway) Watch(ctx context.Context, path string, now <-chan os.Signal) {
	w := &watcher{g: g, path: path}
	var changes chan fsnotify.Event
	var lost chan error
	if events, err := fsnotify.NewWatcher(); err != nil {
		g.log.Warn("changes of files are not seen", "err", err)
	} else {
		defer events.Close()
		w.events, changes, lost = events, events.Events, events.Errors
		w.follow()
	}
	w.applied, _ = w.look()

	settled := time.NewTimer(0)
	settled.Stop()
	var seen fingerprint
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			settled.Reset(settleDelay)
		case err := <-lost: // some changes, maybe
			g.log.Warn("watching files", "err", err)
			settled.Reset(settleDelay)
		case <-settled.C:
			is, done := w.look()
			switch {
			case is == w.applied:
			case is != seen: // still changing
				seen = is
				if done {
					settled.Reset(settleDelay)
				} else {
					settled.Reset(doubtDelay)
				}
			case w.load():
				settled.Reset(settleDelay)
			}
		case <-now:
			if w.load() {
				settled.Reset(settleDelay)
			}
		}
	}
}

// fingerprint tells one state of some files from others.
type fingerprint [sha256.Size]byte

// watcher is a Watch under way.
type watcher struct {
	g       *Gateway
	path    string
	events  *fsnotify.Watcher // nil: files cannot be watched
	applied fingerprint       // what was last read, for better or worse
}

// load reads the configuration and puts it in force. It reports whether that names other files than the last one: they
// may have changed before they were watched.
func (w *watcher) load() (others bool) {
	w.applied, _ = w.look()
	before := w.files()
	cfg, err := Load(w.path)
	if err == nil {
		err = w.g.Reload(cfg)
	} else {
		w.g.metrics.reloads.WithLabelValues("refused").Inc()
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			w.g.log.Error("configuration refused, the one in force stays", "err", strings.TrimSuffix(line, "\n"))
		}
		return false
	}
	w.g.log.Info("configuration in force", "file", w.path)
	w.follow()
	return !slices.Equal(before, w.files())
}

// files are the configuration and what it names.
func (w *watcher) files() []string {
	return append([]string{w.path}, w.g.site.Load().config.Files()...)
}

// follow watches the directories of the files, and no others.
func (w *watcher) follow() {
	if w.events == nil {
		return
	}
	var wanted []string
	for _, name := range w.files() {
		wanted = append(wanted, filepath.Dir(name))
	}
	for _, dir := range w.events.WatchList() {
		if !slices.Contains(wanted, dir) {
			w.events.Remove(dir)
		}
	}
	for _, dir := range wanted {
		if err := w.events.Add(dir); err != nil { // adding it again is no error
			w.g.log.Warn("changes of files are not seen", "directory", dir, "err", err)
		}
	}
}

// look takes the fingerprint of the files. It is not done if the configuration looks as if somebody were still writing.
func (w *watcher) look() (is fingerprint, done bool) {
	hash := sha256.New()
	for i, name := range w.files() {
		data, err := readFile(name, maxKeyFile)
		if i == 0 {
			done = err == nil && bytes.HasSuffix(data, []byte("\n"))
		}
		if err != nil {
			data = []byte(err.Error())
		}
		fmt.Fprintf(hash, "%d %v ", len(data), err != nil)
		hash.Write(data)
	}
	io.WriteString(hash, w.path)
	return fingerprint(hash.Sum(nil)), done
}
