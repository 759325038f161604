package batch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if n, err := Recent(path, "url", time.Time{}); n != 0 || err != nil {
		t.Errorf("a file that is not there: %d, %v", n, err)
	}
	at := func(second int) string {
		return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC).Format(time.RFC3339Nano)
	}
	line := func(second, requests int, name string) string {
		return fmt.Sprintf(`{"id":"x","time":%q,"of":%q,"column":"changed","requests":%d}`+"\n", at(second), nameID(name), requests)
	}
	text := `{"weir_journal":"1","run":"r"}` + "\n" + line(1, 1, "url") + line(10, 2, "url") + line(20, 40, "another") +
		line(20, -5, "url") + line(30, 4, "url") + "torn\n" + line(30, 100, "url")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	since, _ := time.Parse(time.RFC3339Nano, at(5))
	if n, err := Recent(path, "url", since); n != 6 || err != nil {
		t.Errorf("%d requests, %v, want 6", n, err)
	}
	if err := os.Chtimes(path, since, since); err != nil {
		t.Fatal(err)
	}
	if n, err := Recent(path, "url", since.Add(3*time.Second)); n != 0 || err != nil {
		t.Errorf("a file from before: %d, %v", n, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat(line(30, math.MaxInt, "url"), 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := Recent(path, "url", since); n != 1<<30 || err != nil {
		t.Errorf("more than can be: %d, %v", n, err)
	}
	if _, err := Recent(filepath.Join(path, "below"), "url", since); err == nil {
		t.Error("no error of a file that cannot be opened")
	}
}
