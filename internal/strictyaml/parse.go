package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weir-go/weir/internal/words"
)

// maxDepth is how many brackets may be open at once: the parser's time grows with the square of it.
const maxDepth = 1000

// body is the one document in a file, or nil and a fault of the whole file.
func body(data []byte, kind Kind) (ast.Node, *Fault) {
	whole := func(line int, format string, args ...any) (ast.Node, *Fault) {
		return nil, &Fault{Place: Place{line, 1}, Text: fmt.Sprintf(format, args...)}
	}
	for i, line := range strings.Split(string(data), "\n") {
		if !utf8.ValidString(line) {
			return whole(i+1, "not UTF-8 text")
		}
		if at := strings.IndexFunc(line, unprintable); at >= 0 {
			return whole(i+1, "the character %q, which is no text", []rune(line[at:])[0])
		}
	}
	if line := tooDeep(string(data)); line > 0 {
		return whole(line, "over %d brackets are open here", maxDepth)
	}
	file, err := parse(data)
	if err != nil {
		return nil, syntax(err, strings.Split(string(data), "\n"))
	}
	var found ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case found != nil:
			return whole(placeOf(doc.Body).Line, "a second document; %s is one", kind.Name)
		default:
			found = doc.Body
		}
	}
	if _, null := found.(*ast.NullNode); null || found == nil {
		return whole(1, "empty; %s has at least %s", kind.Name, kind.Least)
	}
	return found, nil
}

func unprintable(r rune) bool {
	return r < ' ' && r != '\t' && r != '\r' || r == 0x7f || r == 0xfffe || r == 0xffff
}

// tooDeep is the line on which more than maxDepth brackets are open, or 0.
func tooDeep(text string) int {
	depth, line := 0, 1
	for i := range len(text) {
		switch text[i] {
		case '\n':
			line++
		case '[', '{':
			if depth++; depth > maxDepth {
				return line
			}
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	for i, l := range strings.Split(text, "\n") { // "- - - " nests too
		if strings.Count(l, "- ") > maxDepth || strings.Count(l, "? ") > maxDepth {
			return i + 1
		}
	}
	return 0
}

// parse is the library's parser. A server reloads files that are being edited, so a parser that panics on one of them must not
// take it down.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("not understood as YAML (%v)", r)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// syntax is an error of the parser as one line, with the line of the file that it means.
func syntax(err error, lines []string) *Fault {
	f := &Fault{Place: Place{1, 1}, Text: err.Error(), Err: err}
	var at yaml.Error
	if errors.As(err, &at) {
		f.Text = at.GetMessage()
		if p := placeOfToken(at.GetToken()); p.Line > 0 {
			f.Place = p
		}
	}
	f.Text = "not YAML: " + words.OneLine(f.Text)
	hint := ""
	switch {
	case strings.Contains(f.Text, "is not allowed in this context"):
		if next, ok := continued(lines, f.Line); ok {
			f.Place = next
		}
		if line := lineOf(lines, f.Line); f.Column > 1 && f.Column <= len(line) && strings.Trim(line[:f.Column-1], " ") == "" {
			hint = "; is it indented as its neighbours are?"
		}
	case strings.HasPrefix(lineOf(lines, f.Line), "\t"):
		hint = "; lines are indented with blanks, not tabs"
	}
	line := strings.TrimRight(lineOf(lines, f.Line), "\r")
	if shown, _, url := strings.Cut(line, "://"); url {
		line = shown + "://…" // which may have a password
	}
	f.Text += ": " + words.Quoted(line) + hint
	return f
}

// lineOf is a line by its number, from 1, or "".
func lineOf(lines []string, number int) string {
	if number < 1 || number > len(lines) {
		return ""
	}
	return lines[number-1]
}

// continued is where the line after this one begins, if it has a name and is indented deeper than the value before it allows: the parser
// takes it for more of that value, and says that the value is wrong.
func continued(lines []string, number int) (Place, bool) {
	this, next := lineOf(lines, number), lineOf(lines, number+1)
	indent := len(next) - len(strings.TrimLeft(next, " "))
	if name := len(this) - len(strings.TrimLeft(this, " -")); indent > name && strings.Contains(next, ":") {
		return Place{number + 1, indent + 1}, true
	}
	return Place{}, false
}

func placeOfToken(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{max(1, t.Position.Line), max(1, t.Position.Column)}
}

// placeOf is where a node begins: for a mapping in lines its first key, where the library has the colon.
func placeOf(n ast.Node) Place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return placeOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	}
	return placeOfToken(n.GetToken())
}

// scalarText is a scalar as it was written.
func scalarText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// describe is a node in a message.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		s, _ := scalarText(n)
		return "the text " + words.Quoted(s)
	case *ast.MergeKeyNode:
		return "a merge (<<)"
	}
	if s, ok := scalarText(n); ok {
		return words.OneLine(s)
	}
	return "something else"
}
