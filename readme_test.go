package weir_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkTarget = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`([^`]+)`")
	invocation = regexp.MustCompile(`(?:^|[\s|])(?:weir|go run \./cmd/weir)((?: [a-z][a-z-]*)+)`)
	cobraUse   = regexp.MustCompile(`\bUse:\s+"([a-z][a-z-]*)`)
)

// readme is what the READMEs in all languages have in common.
type readme struct {
	sections int
	fences   []string // what follows ``` where a block begins
	commands []string // the lines of blocks that a shell takes
	targets  []string // of links and pictures, sorted; but for the link to the other README
	mentions []string // the words after weir in code: subcommands, perhaps with arguments behind
}

func readREADME(t *testing.T, file, other string) readme {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "# ") || !strings.HasSuffix(lines[2], "]("+other+")") {
		t.Fatalf("%s does not begin with its title and a link to %s", file, other)
	}
	var r readme
	var prose strings.Builder
	inBlock := false
	for _, line := range lines {
		if info, ok := strings.CutPrefix(line, "```"); ok {
			if inBlock = !inBlock; inBlock {
				r.fences = append(r.fences, info)
			}
			continue
		}
		if !inBlock {
			if strings.HasPrefix(line, "## ") {
				r.sections++
			}
			prose.WriteString(line + "\n")
			continue
		}
		for _, program := range []string{"go run ", "make ", "weir "} {
			if strings.HasPrefix(line, program) {
				r.commands = append(r.commands, line)
			}
		}
	}
	if inBlock {
		t.Errorf("%s: a fenced block does not end", file)
	}
	for _, m := range linkTarget.FindAllStringSubmatch(prose.String(), -1) {
		if m[1] != other {
			r.targets = append(r.targets, m[1])
		}
	}
	slices.Sort(r.targets)
	code := slices.Clone(r.commands)
	for _, m := range inlineCode.FindAllStringSubmatch(prose.String(), -1) {
		code = append(code, m[1])
	}
	for _, c := range code {
		for _, m := range invocation.FindAllStringSubmatch(c, -1) {
			r.mentions = append(r.mentions, strings.TrimSpace(m[1]))
		}
	}
	if r.sections == 0 || len(r.commands) == 0 || len(r.targets) == 0 || len(r.mentions) == 0 {
		t.Fatalf("%s: found %d sections, %d commands, %d links, %d subcommands", file, r.sections, len(r.commands), len(r.targets), len(r.mentions))
	}
	return r
}

// TestREADMELanguages keeps the READMEs alike.
func TestREADMELanguages(t *testing.T) {
	english := readREADME(t, "README.md", "README.ja.md")
	japanese := readREADME(t, "README.ja.md", "README.md")
	if english.sections != japanese.sections {
		t.Errorf("sections: %d in English, %d in Japanese", english.sections, japanese.sections)
	}
	same := func(what string, en, ja []string) {
		t.Helper()
		if !slices.Equal(en, ja) {
			t.Errorf("%s differ:\nEnglish\n\t%s\nJapanese\n\t%s", what, strings.Join(en, "\n\t"), strings.Join(ja, "\n\t"))
		}
	}
	same("blocks", english.fences, japanese.fences)
	same("commands", english.commands, japanese.commands)
	same("links", english.targets, japanese.targets)
}

// TestREADMELinks finds the target of every link and picture that is not elsewhere.
func TestREADMELinks(t *testing.T) {
	for file, other := range map[string]string{"README.md": "README.ja.md", "README.ja.md": "README.md"} {
		for _, target := range readREADME(t, file, other).targets {
			name, _, _ := strings.Cut(target, "#")
			if name == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if name = filepath.FromSlash(name); !filepath.IsLocal(name) {
				t.Errorf("%s: %s is outside the repository", file, target)
			} else if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestREADMESubcommands looks every weir subcommand up in the program. This package cannot import it, so its source is read.
func TestREADMESubcommands(t *testing.T) {
	sources, err := filepath.Glob("cmd/weir/*.go")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range cobraUse.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
	}
	for file, other := range map[string]string{"README.md": "README.ja.md", "README.ja.md": "README.md"} {
		for _, mention := range readREADME(t, file, other).mentions {
			words := strings.Fields(mention)
			if words[0] != "demo" {
				words = words[:1] // demo alone has commands below it; with others an argument follows
			}
			for _, word := range words {
				if !exists[word] {
					t.Errorf("%s: weir %s: no %s in cmd/weir", file, mention, word)
				}
			}
		}
	}
}
