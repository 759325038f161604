package traffic

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func lineAt(at time.Time, path string) string {
	return fmt.Sprintf("10.0.0.1 - - [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"-\"\n", at.Format("02/Jan/2006:15:04:05 -0700"), path)
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		data = b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readAll(t testing.TB, l *Log) (events []Event) {
	t.Helper()
	if err := l.Read(context.Background(), func(e *Event) error { events = append(events, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(events); i++ {
		if events[i].At.Before(events[i-1].At) {
			t.Fatalf("event %d at %v, after %v", i, events[i].At, events[i-1].At)
		}
	}
	s := &l.Stats
	if s.Lines != s.Events+s.Unreadable+s.Empty || s.Events != int64(len(events)) {
		t.Fatalf("%d events of %+v", len(events), s)
	}
	return events
}

func paths(events []Event) string {
	var all []string
	for _, e := range events {
		all = append(all, e.Path)
	}
	return strings.Join(all, " ")
}

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// Rotated, compressed and overlapping files, and standard input, are one stream; nothing is lost without a word.
func TestLogMergesFiles(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	old := writeFile(t, "access.log.1.gz", lineAt(at(0), "/a")+lineAt(at(1), "/b")+"garbage\n\n"+lineAt(at(5), "/e"))
	other := writeFile(t, "other.log", lineAt(at(2), "/c")+lineAt(at(4), "/d")+lineAt(at(9), "/g"))
	empty := writeFile(t, "empty.log", "")
	stdin := `{"ts":` + fmt.Sprint(at(6).Unix()) + `.5,"request":{"method":"GET","uri":"/f"}}` // no line break at the end
	l := &Log{Files: []string{other, old, empty, "-"}, Stdin: strings.NewReader(stdin)}
	if got, want := paths(readAll(t, l)), "/a /b /c /d /e /f /g"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l.Stats.Unreadable != 1 || l.Stats.Empty != 1 || len(l.Stats.Bad) != 1 {
		t.Fatalf("%+v", l.Stats)
	}
	if got := l.Stats.Bad[0].String(); !strings.Contains(got, `access.log.1.gz:3: no`) || !strings.HasSuffix(got, `"garbage"`) {
		t.Errorf("got %s", got)
	}
}

// Each file has the first of its own unreadable lines shown.
func TestLogShowsBadLinesOfEachFile(t *testing.T) {
	const bad = "x\ny\nz\n"
	l := &Log{Files: []string{writeFile(t, "a.log", bad), writeFile(t, "b.log", lineAt(noon, "/")+bad)}, Keep: 2}
	readAll(t, l)
	var got []string
	for _, b := range l.Stats.Bad {
		got = append(got, fmt.Sprintf("%s:%d:%s", filepath.Base(b.File), b.Line, b.Text))
	}
	if want := []string{"a.log:1:x", "a.log:2:y", "b.log:2:x", "b.log:3:y"}; !slices.Equal(got, want) || l.Stats.Unreadable != 6 {
		t.Errorf("got %q of %d, want %q", got, l.Stats.Unreadable, want)
	}
}

func TestLogSorts(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	type req struct{ began, ended time.Duration }
	all := make([]req, 5000)
	for i := range all {
		began := time.Duration(random.Int64N(int64(time.Hour)))
		all[i] = req{began, began + time.Duration(random.Int64N(int64(8*time.Second)))}
	}
	slices.SortFunc(all, func(a, b req) int { return int(a.ended - b.ended) })
	var b strings.Builder
	for _, r := range all { // written when they end, with the time at which they began
		fmt.Fprintf(&b, `{"msec":%.3f,"request":"GET / HTTP/1.1"}`+"\n", float64(noon.Add(r.began).UnixMilli())/1000)
	}
	l := &Log{Files: []string{writeFile(t, "x.log", b.String())}}
	events := readAll(t, l)
	if len(events) != len(all) || l.Stats.Late != 0 || l.Stats.Spread != 0 {
		t.Errorf("seed %d: %d events, %+v", seed, len(events), l.Stats)
	}
	slices.SortFunc(all, func(a, b req) int { return int(a.began - b.began) })
	for i := range events {
		if want := noon.Add(all[i].began).Truncate(time.Millisecond); !events[i].At.Equal(want) {
			t.Fatalf("seed %d: event %d at %v, want %v", seed, i, events[i].At, want)
		}
	}
}

func TestLogBounds(t *testing.T) {
	text := lineAt(noon, "/a") + lineAt(noon.Add(time.Minute), "/c") + lineAt(noon.Add(2*time.Minute), "/d") +
		lineAt(noon.Add(time.Second), "/late") + strings.Repeat("x", 200_000) + "\n" + lineAt(noon.Add(3*time.Minute), "/e")
	l := &Log{Files: []string{writeFile(t, "x.log", text)}}
	if got, want := paths(readAll(t, l)), "/a /c /late /d /e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l.Stats.Late != 1 || l.Stats.Unreadable != 1 || l.Stats.Bad[0].Line != 5 || l.Stats.Bad[0].Why != "over 65536 bytes" {
		t.Errorf("%+v", l.Stats)
	}

	// More in one second than may be kept: still all of them, and in order.
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(lineAt(noon.Add(time.Duration(i/500)*time.Second), fmt.Sprint("/", i)))
	}
	l = &Log{Files: []string{writeFile(t, "x.log", b.String())}, MaxPending: 64}
	events := readAll(t, l)
	for i, e := range events {
		if e.Path != fmt.Sprint("/", i) {
			t.Fatalf("event %d is %s", i, e.Path)
		}
	}
	if len(events) != 1000 || l.Stats.Late != 0 {
		t.Errorf("%d events, %+v", len(events), l.Stats)
	}
}

// A file in no order at all, a few concatenated in the wrong order, with whole seconds, fractions or some of each: every line is an event, the
// order of time is kept, and what had to be moved is counted.
func TestLogWithoutOrder(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		var b strings.Builder
		const n = 2000
		for range n {
			at := noon.Add(time.Duration(random.Int64N(int64(5 * time.Minute))))
			switch {
			case seed%3 == 0 || seed%3 == 1 && random.IntN(2) == 0:
				fmt.Fprintf(&b, `{"msec":%d,"request":"GET / HTTP/1.1"}`+"\n", at.Unix())
			default:
				fmt.Fprintf(&b, `{"msec":%.3f,"request":"GET / HTTP/1.1"}`+"\n", float64(at.UnixMilli())/1000)
			}
		}
		for _, most := range []int{0, 16} {
			for _, whole := range []bool{false, true} {
				l := &Log{Files: []string{writeFile(t, "x.log", b.String())}, MaxPending: most, Whole: whole}
				events := readAll(t, l)
				if len(events) != n || l.Stats.Late == 0 {
					t.Errorf("seed %d, %d pending, whole %v: %d events, %+v", seed, most, whole, len(events), l.Stats)
				}
			}
		}
	}
}

// A byte order mark, as Windows puts it, belongs to no client.
func TestLogByteOrderMark(t *testing.T) {
	for _, name := range []string{"x.log", "x.log.gz"} {
		events := readAll(t, &Log{Files: []string{writeFile(t, name, "\ufeff"+lineAt(noon, "/"))}})
		if len(events) != 1 || events[0].Client != "10.0.0.1" {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

// A compressed file that breaks off, as one that is still being written or was copied in part, is read as far as it goes, and named; the
// other files are read as well.
func TestLogThatBreaksOff(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(lineAt(noon.Add(time.Duration(i)*time.Second), fmt.Sprint("/", i)))
	}
	path := writeFile(t, "x.log.gz", b.String())
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := writeFile(t, "y.log", lineAt(noon.Add(time.Hour), "/last"))
	spoilt := slices.Clone(data)
	spoilt[len(spoilt)-6] ^= 0xff // of the checksum
	for name, text := range map[string][]byte{"half": data[:len(data)/2], "no end": data[:len(data)-3], "wrong checksum": spoilt} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l := &Log{Files: []string{path, other}, Keep: 1}
		events := readAll(t, l)
		if n := len(events); n < 100 || events[n-1].Path != "/last" || name != "half" && n != 1001 {
			t.Errorf("%s: %d events, the last one %+v", name, n, events[n-1])
		}
		if got := l.Stats.Broken; len(got) != 1 || got[0].File != path || got[0].Line < 100 || got[0].Why == "" {
			t.Errorf("%s: broken off %+v", name, got)
		}
	}
}

func TestLogSpreadsWholeSeconds(t *testing.T) {
	text := lineAt(noon, "/a") + lineAt(noon, "/b") + lineAt(noon, "/c") + lineAt(noon, "/d") + lineAt(noon.Add(time.Second), "/e")
	l := &Log{Files: []string{writeFile(t, "x.log", text)}}
	for i, e := range readAll(t, l) {
		if want := noon.Add(time.Duration(i) * 250 * time.Millisecond); !e.At.Equal(want) {
			t.Errorf("%s at %v, want %v", e.Path, e.At, want)
		}
	}
	l.Whole = true
	for i, e := range readAll(t, l) {
		if want := noon.Add(time.Duration(i/4) * time.Second); !e.At.Equal(want) {
			t.Errorf("whole: %s at %v, want %v", e.Path, e.At, want)
		}
	}
}

func TestLogFailures(t *testing.T) {
	ctx := context.Background()
	none := func(*Event) error { return nil }
	l := &Log{Files: []string{filepath.Join(t.TempDir(), "none")}}
	if err := l.Read(ctx, none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	l = &Log{Files: []string{t.TempDir()}}
	if err := l.Read(ctx, none); err == nil || !strings.Contains(err.Error(), "after line 0") {
		t.Errorf("a directory: %v", err)
	}
	stop := errors.New("stop")
	l = &Log{Files: []string{writeFile(t, "x.log", lineAt(noon, "/")+lineAt(noon, "/"))}}
	if err := l.Read(ctx, func(*Event) error { return stop }); err != stop {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.Read(ended, none); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func BenchmarkLog(b *testing.B) {
	var text strings.Builder
	for i := range 20_000 {
		at := noon.Add(time.Duration(i) * 10 * time.Millisecond)
		fmt.Fprintf(&text, "198.18.%d.%d - - [%s] \"GET /items/%d?ref=mail HTTP/1.1\" 200 5120 \"https://shop.example/items\" \"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\"\n",
			i%200, i%251, at.Format("02/Jan/2006:15:04:05 -0700"), i)
	}
	path := writeFile(b, "x.log", text.String())
	for b.Loop() {
		n := 0
		l := &Log{Files: []string{path}}
		if err := l.Read(context.Background(), func(*Event) error { n++; return nil }); err != nil || n != 20_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.N)*20_000/b.Elapsed().Seconds(), "lines/s")
	b.ReportAllocs()
}
