package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// strict refuses every request that is more than n in the window before it.
func strict(n int, window time.Duration) http.Handler {
	var mu sync.Mutex
	var came []time.Time
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		for len(came) > 0 && now.Sub(came[0]) >= window {
			came = came[1:]
		}
		if len(came) >= n {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		came = append(came, now)
		fmt.Fprintf(w, "{%q: 1}", r.URL.Path)
	})
}

// TestFetchAfterFetch: a run begins with what the runs before it have left of the server's window.
func TestFetchAfterFetch(t *testing.T) {
	server := httptest.NewServer(strict(5, time.Second))
	defer server.Close()
	args := []string{"fetch", "--url", server.URL + "/{id}", "--rate", "5/s", "--out", filepath.Join(t.TempDir(), "out"), "a", "b", "c", "d", "e"}
	for run := range 3 {
		code, stdout, stderr := weirIn(t.Context(), "", args...)
		if code != exitOK || !strings.Contains(stdout, "5 requests, 0 refused") {
			t.Errorf("run %d: exit %d\n%s%s", run, code, stdout, stderr)
		}
	}
}

// TestFetchResumedAtOnce: what a run had sent when it was killed is in its journal, but for what was under way.
func TestFetchResumedAtOnce(t *testing.T) {
	server := httptest.NewServer(strict(5, time.Second))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"fetch", "--url", server.URL + "/{id}", "--rate", "5/s", "--out", out, "a", "b", "c", "d", "e"}
	if code, _, stderr := weirIn(t.Context(), "", append(args, "--max-body", "1")...); code != exitFailure { // all are too large
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if _, err := os.Stat(out + ".journal"); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := weirIn(t.Context(), "", append(args, "--resume")...); code != exitOK || !strings.Contains(stdout, "0 refused") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
