package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// readmeBlocks are the fenced blocks of a language in the READMEs and docs.
func readmeBlocks(t *testing.T, language string) (blocks []string) {
	t.Helper()
	for _, file := range []string{"README.md", "README.ja.md", "docs/shared-store.md"} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
			block, _, _ := strings.Cut(part, "\n```")
			blocks = append(blocks, block+"\n")
		}
	}
	return blocks
}

// TestREADMEConfigurations: what is shown is what weir check finds nothing in.
func TestREADMEConfigurations(t *testing.T) {
	blocks := readmeBlocks(t, "yaml")
	if len(blocks) < 4 {
		t.Fatalf("found %d configurations", len(blocks))
	}
	for _, block := range blocks {
		if code, stdout, stderr := runWith(t, "", "check", "--strict", "-c", config(t, block)); code != 0 {
			t.Errorf("exit code %d\n%s%s\n%s", code, stdout, stderr, block)
		}
	}
}

// TestREADMEPrograms builds each Go block, with what a fragment leaves out put around it.
func TestREADMEPrograms(t *testing.T) {
	blocks := readmeBlocks(t, "go")
	if len(blocks) < 6 {
		t.Fatalf("found %d blocks", len(blocks))
	}
	dir := t.TempDir()
	args := []string{"vet"}
	for i, block := range blocks {
		if !strings.HasPrefix(block, "package main\n") {
			block = fragment(block)
		}
		file := filepath.Join(dir, string(rune('a'+i)), "main.go")
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(block), 0o644); err != nil {
			t.Fatal(err)
		}
		vet := exec.Command("go", append(args, file)...)
		vet.Dir = "../.."
		if out, err := vet.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, block)
		}
	}
}

// fragment makes a program of statements.
func fragment(block string) string {
	var imports, used strings.Builder
	for name, path := range map[string]string{
		"ctx": "context", "http.": "net/http", "log.": "log", "time.": "time", "weir.": "github.com/weir-go/weir",
		"httplimit.": "github.com/weir-go/weir/httplimit", "redisstore.": "github.com/weir-go/weir/redisstore",
	} {
		if strings.Contains(block, name) {
			imports.WriteString("\t\"" + path + "\"\n")
		}
	}
	for _, line := range strings.Split(block, "\n") {
		if name, _, ok := strings.Cut(line, " := "); ok && !strings.ContainsAny(name, "\t, ") {
			used.WriteString("\t_ = " + name + "\n")
		}
	}
	if strings.Contains(block, "ctx") {
		block = "\tctx := context.Background()\n" + block
	}
	return "package main\n\nimport (\n" + imports.String() + ")\n\nfunc main() {\n" + block + used.String() + "}\n"
}
