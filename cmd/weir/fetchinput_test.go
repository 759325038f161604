package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFetchReadsItems: what editors and spreadsheets put into a list does not become part of an item, and nothing of an item is lost.
func TestFetchReadsItems(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, strings.TrimPrefix(r.URL.EscapedPath(), "/"))
		mu.Unlock()
		fmt.Fprint(w, `{}`)
	}))
	defer server.Close()
	list := "\ufeffone\r\ntwo\r\n\r\n   \r\n# a comment\r\n\t# another\r\nC#\r\na#b # the note\r\ntwo\r\né/ü ?\r\nlast"
	file := filepath.Join(t.TempDir(), "items.txt")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"C%23", "a%23b", "arg", "last", "one", "two", "%C3%A9%2F%C3%BC%20%3F"}
	slices.Sort(want)
	for _, from := range []string{file, "-"} {
		got = nil
		code, stdout, stderr := weirIn(t.Context(), list, "fetch", "--url", server.URL+"/{id}", "--out", filepath.Join(t.TempDir(), "out"), "--items", from, "arg")
		slices.Sort(got)
		if code != exitOK || !slices.Equal(got, want) {
			t.Errorf("--items %s: exit %d, asked for %q, want %q\n%s%s", from, code, got, want, stdout, stderr)
		}
		if !strings.Contains(stdout, "duplicates among the items: 1") {
			t.Errorf("nothing is said of the duplicate:\n%s", stdout)
		}
	}
	code, stdout, _ := weirIn(t.Context(), list, "fetch", "--url", server.URL+"/{id}", "--rate", "1/10s", "--items", "-", "--plan")
	if code != exitOK || !strings.Contains(stdout, "6 requests at 1 in 10s") {
		t.Errorf("the plan counts an item twice: %s", stdout)
	}
}

func TestFetchSendsHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"host": %q, "accept": %q}`, r.Host, strings.Join(r.Header["Accept"], " "))
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := weirIn(t.Context(), "", "fetch", "--url", server.URL+"/{id}", "--out", out,
		"--header", "Host: api.example", "--header", "accept: a/b", "--header", "Accept:c/d", "x")
	b, _ := os.ReadFile(out)
	if code != exitOK || !strings.Contains(string(b), `{"host":"api.example","accept":"a/b c/d"}`) {
		t.Errorf("exit %d: %s%s%s", code, b, stdout, stderr)
	}
}

// TestFetchStopsReading: somebody who was to type the items can stop.
func TestFetchStopsReading(t *testing.T) {
	for want, args := range map[int][]string{
		exitInterrupted: {"fetch", "--url", "http://127.0.0.1:1/{id}", "--items", "-"},
		exitFailure:     {"gate-headers"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		in, typed := io.Pipe()
		done := make(chan int, 1)
		var stderr strings.Builder
		go func() { done <- run(ctx, args, in, io.Discard, &stderr) }()
		fmt.Fprintln(typed, "a") // it is reading
		cancel()
		select {
		case code := <-done:
			if code != want || !strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("%v: exit %d, %s", args, code, &stderr)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%v is still reading", args)
		}
		typed.Close()
	}
}
