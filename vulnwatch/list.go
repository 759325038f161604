package vulnwatch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Problem is a line of a list that adds nothing to it.
type Problem struct {
	Line  int
	Text  string // what stands there, without its comment
	First int    // the line in which the same id stands already; zero: it is no CVE id, and what it means is not watched
}

// String is as: line 3: "heartbleed" is no CVE id; the form is CVE-2024-3094.
func (p Problem) String() string {
	if p.First > 0 {
		return fmt.Sprintf("line %d: %s stands in line %d already", p.Line, p.Text, p.First)
	}
	_, err := ParseID(p.Text)
	return fmt.Sprintf("line %d: %v", p.Line, err)
}

// NoIDs says which lines of a list are no CVE ids, as 1 line of the list is no CVE id: line 3 "heartbleed". It is empty if there are none.
func NoIDs(problems []Problem) string {
	const named = 5
	var some []string
	n := 0
	for _, p := range problems {
		if p.First > 0 {
			continue
		}
		if n++; n <= named {
			some = append(some, fmt.Sprintf("line %d %.40q", p.Line, p.Text))
		}
	}
	what := fmt.Sprintf("%d lines of the list are no CVE ids", n)
	switch {
	case n == 0:
		return ""
	case n == 1:
		what = "1 line of the list is no CVE id"
	case n > named:
		some = append(some, fmt.Sprintf("and %d more", n-named))
	}
	return what + ": " + strings.Join(some, ", ")
}

// ReadList reads a list of CVE ids, one a line; # begins a comment. What is no id and what stands there twice is told
// in problems, and stops nothing: a slip of the pen must not blind the watch of all others.
func ReadList(r io.Reader) (ids []string, problems []Problem, err error) {
	seen := make(map[string]int)
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 4096), 1<<16)
	n := 1
	for ; in.Scan(); n++ {
		if n == 1 && (bytes.HasPrefix(in.Bytes(), []byte{0xFF, 0xFE}) || bytes.HasPrefix(in.Bytes(), []byte{0xFE, 0xFF})) {
			return nil, nil, errors.New("vulnwatch: list: it is in UTF-16; save it as UTF-8")
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(in.Text(), "\ufeff"), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		id, err := ParseID(text)
		switch first := seen[id]; {
		case err != nil:
			problems = append(problems, Problem{Line: n, Text: text})
		case first > 0:
			problems = append(problems, Problem{Line: n, Text: id, First: first})
		default:
			seen[id] = n
			ids = append(ids, id)
		}
	}
	if err := in.Err(); err != nil {
		return ids, problems, fmt.Errorf("vulnwatch: list: line %d: %w", n, err)
	}
	return ids, problems, nil
}

// ListFile reads the list in a file.
func ListFile(path string) (ids []string, problems []Problem, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("vulnwatch: list: %w", err)
	}
	defer f.Close()
	return ReadList(f)
}
