package weir_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weir-go/weir"

// mayImport says which of weir's own packages each may import. A package that is not here is a
// program, which may import all but forTests.
var mayImport = map[string][]string{
	".":                    {},
	"storetest":            {"."},
	"redisstore":           {"."},
	"httplimit":            {"."},
	"batch":                {"."},
	"traffic":              {".", "internal/strictyaml"},
	"gateway":              {".", "httplimit", "redisstore", "internal/strictyaml", "internal/words"},
	"vulnwatch":            {".", "batch", "httplimit"},
	"internal/browsertest": {},
	"internal/redistest":   {},
	"internal/words":       {},
	"internal/strictyaml":  {"internal/words"},
}

// forTests are packages that only tests may import, and all tests may.
var forTests = []string{"storetest", "internal/browsertest", "internal/redistest"}

// onlyIn names the packages that may import a third-party module: one, where that is possible.
var onlyIn = map[string][]string{
	"github.com/spf13/cobra":       {"cmd/weir"},
	"github.com/spf13/pflag":       {"cmd/weir"},
	"github.com/goccy/go-yaml":     {"internal/strictyaml"},
	"github.com/golang-jwt/jwt":    {"gateway"},
	"github.com/fsnotify/fsnotify": {"gateway"},
	"github.com/prometheus":        {"gateway"},
	"github.com/redis/rueidis":     {"redisstore"},
	"github.com/dunglas/httpsfv":   {"httplimit"},
	"golang.org/x/term":            {"cmd/weir"},
	"golang.org/x/time":            {"cmd/weir"},
	"github.com/failsafe-go":       {"gateway", "httplimit", "examples/orderapi"},
	"github.com/HdrHistogram":      {"traffic"},
	"golang.org/x/net":             {"gateway"},
	"github.com/chromedp":          {"internal/browsertest"},
	"go.opentelemetry.io":          {"gateway"},
}

// onlyInTestsOf names the packages whose tests may import a third-party module, beside those of onlyIn.
var onlyInTestsOf = map[string][]string{
	"golang.org/x/net":           {"cmd/weir", "traffic", "vulnwatch"}, // its HTML parser
	"google.golang.org/protobuf": {"gateway"},
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
	case ours && own == pkg:
	case ours && slices.Contains(forTests, own):
		if !test {
			t.Errorf("%s imports %s, which is for tests", file, imported)
		}
	case ours:
		allowed, ruled := mayImport[pkg]
		if ruled && !within(own, allowed) && !(test && strings.HasPrefix(own, pkg+"/")) {
			t.Errorf("%s imports %s; %s may import %v", file, imported, pkg, allowed)
		}
	case strings.Contains(strings.Split(imported, "/")[0], "."):
		if pkg == "." {
			t.Errorf("%s imports %s; the root package takes only the standard library", file, imported)
			return
		}
		packages := placed(onlyIn, imported)
		if test {
			packages = append(packages, placed(onlyInTestsOf, imported)...)
		}
		if !within(pkg, packages) {
			t.Errorf("%s imports %s, which is for %q", file, imported, packages)
		}
	}
}

// placed are the packages that rules name for an import.
func placed(rules map[string][]string, imported string) (packages []string) {
	for module, in := range rules {
		if within(imported, []string{module}) {
			packages = append(packages, in...)
		}
	}
	return packages
}

// within reports whether a package is one of others, or below one. Nothing is below the root.
func within(pkg string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return pkg == other || strings.HasPrefix(pkg, other+"/")
	})
}
