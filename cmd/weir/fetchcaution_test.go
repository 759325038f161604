package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cmd/weir/internal/quota"
)

// TestFetchAfterFetch: a run begins with what the runs before it have left of the server's window.
func TestFetchAfterFetch(t *testing.T) {
	server := httptest.NewServer(&quota.Server{Units: 5, Window: time.Second, Count: weir.SlidingLog})
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
	server := httptest.NewServer(&quota.Server{Units: 5, Window: time.Second, Count: weir.SlidingLog})
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
