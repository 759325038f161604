package gateway

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxStreams     = 16               // dashboards open at once
	streamRetry    = 5 * time.Second  // until a dashboard that found no place asks again
	streamPatience = 10 * time.Second // for a client to take what it is sent
)

// The page of the dashboard: nothing is built, and nothing comes from elsewhere.
//
//go:embed web
var web embed.FS

// pagePolicy lets the page run its own script and ask its own server, and nothing else. What it shows comes from requests
// of strangers; even if some of it got into the page as markup, it could do nothing.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset answers with a file of web.
func asset(name, contentType string) http.HandlerFunc {
	data, err := web.ReadFile("web/" + name)
	if err != nil {
		panic("weir: dashboard: " + err.Error()) // the binary is not whole
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
}

// handle puts the dashboard into the mux of the admin listener.
func (b *board) handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", asset("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /dashboard.css", asset("dashboard.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /dashboard.js", asset("dashboard.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", asset("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /events", b.stream)
}

// stream sends server-sent events: history once, then a frame each second, until the client leaves.
func (b *board) stream(w http.ResponseWriter, r *http.Request) {
	defer b.streams.Add(-1)
	if b.streams.Add(1) > maxStreams {
		w.Header().Set("Retry-After", strconv.Itoa(int(streamRetry.Seconds())))
		writeProblem(w, http.StatusServiceUnavailable, "as many dashboards are open as are served")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // for an nginx in between
	c := http.NewResponseController(w)
	send := func(event string, data []byte) bool {
		c.SetWriteDeadline(time.Now().Add(streamPatience)) // where that cannot be, the connection ends it
		for _, part := range [...][]byte{[]byte("event: " + event + "\ndata: "), data, []byte("\n\n")} {
			if _, err := w.Write(part); err != nil {
				return false
			}
		}
		return c.Flush() == nil
	}
	if !send("history", b.history(time.Now())) {
		return
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for send("frame", b.latest(time.Now())) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// fromBrowser reports whether r was sent by a page in a browser, and whether that page is one of this listener. A browser lets no
// page set or leave out the fields that this is read from.
func fromBrowser(r *http.Request) (browser, ours bool) {
	origin, site := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	if origin == nil && site == nil {
		return false, false
	}
	if site != nil && (len(site) != 1 || site[0] != "same-origin") {
		return true, false
	}
	if origin == nil {
		return true, true
	}
	u, err := url.Parse(origin[0])
	return true, err == nil && len(origin) == 1 && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
