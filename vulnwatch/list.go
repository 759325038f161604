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

// ReadList reads a list of CVE ids, one a line; # begins a comment. What is no id and what stands there twice is told
// in problems, with its line.
func ReadList(r io.Reader) (ids []string, problems []string, err error) {
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
			problems = append(problems, fmt.Sprintf("line %d: %v", n, err))
		case first > 0:
			problems = append(problems, fmt.Sprintf("line %d: %s stands in line %d already", n, id, first))
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
func ListFile(path string) (ids, problems []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("vulnwatch: list: %w", err)
	}
	defer f.Close()
	return ReadList(f)
}
