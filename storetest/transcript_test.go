package storetest

import (
	"flag"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata by those of weir.Memory")

func TestUpdateTranscripts(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	names, err := fs.Glob(testdata, "testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(t testing.TB, now func() time.Time) weir.Store { return &weir.Memory{Now: now} })
		got, err := replay(r, string(text))
		if err != nil {
			t.Fatalf("%s:%v", name, err)
		}
		if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
