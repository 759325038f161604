package weir_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weir-go/weir"

// mayImport says which of weir's own packages each may import. A package that is not here is a
// program, which may import all.
var mayImport = map[string][]string{
	".":          {},
	"storetest":  {"."},
	"redisstore": {"."},
	"httplimit":  {"."},
	"batch":      {"."},
	"traffic":    {"."},
	"gateway":    {".", "httplimit", "redisstore"},
	"vulnwatch":  {".", "batch", "httplimit"},
}

// onlyIn names the packages that may import a third-party module: one, where that is possible.
var onlyIn = map[string][]string{
	"github.com/spf13/cobra":            {"cmd/weir"},
	"github.com/goccy/go-yaml":          {"gateway", "traffic"},
	"github.com/golang-jwt/jwt":         {"gateway"},
	"github.com/fsnotify/fsnotify":      {"gateway"},
	"github.com/prometheus":             {"gateway"},
	"github.com/redis/rueidis":          {"redisstore"},
	"github.com/dunglas/httpsfv":        {"httplimit"},
	"golang.org/x/term":                 {"cmd/weir"},
	"golang.org/x/time":                 {"cmd/weir"},
	"github.com/failsafe-go":            {"gateway", "httplimit", "examples/orderapi"},
	"github.com/HdrHistogram":           {"traffic"},
	"golang.org/x/net":                  {"gateway"},
	"go.opentelemetry.io":               {"gateway"},
	"github.com/anishathalye/porcupine": {},
}

// TestArrows keeps the architecture: who may import whom.
func TestArrows(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		if d.IsDir() {
			name := d.Name()
			if name == "testdata" || name != "." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			// Modules of their own have rules of their own.
			if file == "benchmarks" || file == "lincheck" || file == "examples/frameworks" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		seen++
		test := strings.HasSuffix(file, "_test.go")
		pkg := path.Dir(file)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			checkImport(t, file, pkg, imported, test)
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Fatalf("read %d files: %v", seen, err)
	}
}

func checkImport(t *testing.T, file, pkg, imported string, test bool) {
	own, ours := strings.CutPrefix(imported, module)
	own = strings.TrimPrefix(own, "/")
	if own == "" {
		own = "."
	}
	switch {
	case ours:
		if test && (own == "storetest" || strings.HasPrefix(own, pkg+"/")) || own == pkg {
			return
		}
		allowed, ruled := mayImport[pkg]
		if !ruled {
			return
		}
		for _, a := range allowed {
			if a == own || strings.HasPrefix(own, a+"/") && a != "." {
				return
			}
		}
		t.Errorf("%s imports %s; %s may import %v", file, imported, pkg, allowed)
	case strings.Contains(strings.Split(imported, "/")[0], "."):
		if pkg == "." {
			t.Errorf("%s imports %s; the root package takes only the standard library", file, imported)
			return
		}
		for prefix, packages := range onlyIn {
			if imported != prefix && !strings.HasPrefix(imported, prefix+"/") {
				continue
			}
			for _, p := range packages {
				if pkg == p || strings.HasPrefix(pkg, p+"/") {
					return
				}
			}
			if !test {
				t.Errorf("%s imports %s, which is for %v", file, imported, packages)
			}
			return
		}
		if !test {
			t.Errorf("%s imports %s, which no rule places: add it to onlyIn", file, imported)
		}
	}
}
