package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/words"
)

// readItems is the items of the arguments and of --items, in which each may stand more than once.
func (f *fetching) readItems(ctx context.Context, stdin io.Reader, args []string) ([]string, error) {
	items := args
	in := io.Reader(nil)
	switch f.items {
	case "":
	case "-":
		in = &stoppable{ctx, stdin}
	default:
		file, err := os.Open(f.items)
		if err != nil {
			return nil, badUsage("--items: %v", err)
		}
		defer file.Close()
		in = file
	}
	if in != nil {
		lines := bufio.NewScanner(in)
		for n := 1; lines.Scan(); n++ {
			line := lines.Text()
			if n == 1 {
				line = strings.TrimPrefix(line, byteOrderMark)
			}
			if item := itemIn(line); item != "" {
				items = append(items, item)
			}
		}
		if err := lines.Err(); errors.Is(err, context.Canceled) {
			return nil, &exitError{code: exitInterrupted, err: errors.New("interrupted before the items were there; nothing was sent")}
		} else if err != nil {
			return nil, badUsage("--items: %v", err)
		}
	}
	for _, item := range items {
		if !utf8.ValidString(item) { // as of a file in UTF-16, or of another alphabet's bytes
			return nil, badUsage("item %s is not UTF-8", words.Quoted(item))
		}
	}
	if len(items) == 0 {
		return nil, badUsage("no items: give them as arguments, or a file with --items")
	}
	return items, nil
}

// distinct counts items, those that stand there more than once as one.
func distinct(items []string) int {
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		seen[item] = true
	}
	delete(seen, "") // as batch.Run drops it
	return len(seen)
}

// byteOrderMark is what editors of Windows begin a file with.
const byteOrderMark = "\ufeff"

// itemIn is the item of a line, without its comment: a # that begins it or follows a blank. Any other belongs to the item.
func itemIn(line string) string {
	for at, r := range line {
		if r == '#' && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t') {
			line = line[:at]
			break
		}
	}
	return strings.TrimSpace(line)
}

// stoppable is a reader, say of a terminal, that need not be waited for when ctx has ended. What it read then is lost.
type stoppable struct {
	ctx context.Context
	io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	type got struct {
		b   []byte
		err error
	}
	ready := make(chan got, 1)
	go func() { // it may outlast the reader, not the process
		b := make([]byte, len(p))
		n, err := s.Reader.Read(b)
		ready <- got{b[:n], err}
	}()
	select {
	case g := <-ready:
		return copy(p, g.b), g.err
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// checkFiles looks at where the files will be: a long run should not end with no place for its account.
func (f *fetching) checkFiles() error {
	files := []struct{ flag, path string }{{"--out", f.out}, {"--report", f.report}}
	for _, file := range files {
		if file.path == "" {
			continue
		}
		if dir, err := os.Stat(filepath.Dir(file.path)); err != nil {
			return badUsage("%s: %v", file.flag, err)
		} else if !dir.IsDir() {
			return badUsage("%s: %s is no directory", file.flag, filepath.Dir(file.path))
		}
		if there, err := os.Stat(file.path); err == nil && !there.Mode().IsRegular() { // a rename would replace it, even /dev/null
			return badUsage("%s: %s is a directory or a device; want a file", file.flag, file.path)
		}
	}
	if f.report == "" || f.out == "" {
		return nil
	}
	if report := filepath.Clean(f.report); report == filepath.Clean(f.out) || report == filepath.Clean(f.out+".journal") {
		return badUsage("--report %s: that file is for the results; want another", f.report)
	}
	return nil
}

// target checks the URL and reads the headers.
func (f *fetching) target() (*url.URL, http.Header, error) {
	if !strings.Contains(f.url, "{id}") {
		return nil, nil, badUsage("--url: it needs {id} where the item goes, as https://api.example/v1/{id}") // without what was given, as below
	}
	if sent, _, _ := strings.Cut(f.url, "#"); !strings.Contains(sent, "{id}") {
		return nil, nil, badUsage("--url: {id} stands behind a #, and what does is not sent; write the # as %%23")
	}
	u, err := url.Parse(strings.ReplaceAll(f.url, "{id}", "id"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, badUsage("--url: want http:// or https:// and a host")
	}
	header, err := givenHeader(f.headers)
	if err != nil {
		return nil, nil, err
	}
	return u, header, nil
}

// shownURL is a URL without what may be secret in it: the user, and the values of its query but for items.
func shownURL(raw string) string {
	raw, query, asks := strings.Cut(raw, "?")
	scheme, rest, _ := strings.Cut(raw, "://")
	authority, path, more := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = "…" + authority[at:]
	}
	shown := scheme + "://" + authority
	if more {
		shown += "/" + path
	}
	if !asks {
		return shown
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok && value != "{id}" {
			pairs[i] = name + "=…"
		}
	}
	return shown + "?" + strings.Join(pairs, "&")
}

// givenHeader reads --header flags: 'Name: value', with env:VARIABLE or file:PATH for a value that is secret.
func givenHeader(lines []string) (http.Header, error) {
	header := http.Header{}
	for _, h := range lines {
		name, value, ok := strings.Cut(h, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isToken(name) {
			return nil, badUsage("--header: the form is 'Name: value'") // without what was given, which may be a secret
		}
		if variable, ok := strings.CutPrefix(value, "env:"); ok {
			if value = os.Getenv(variable); value == "" {
				return nil, badUsage("--header %s: the environment has no %s", name, variable)
			}
		} else if path, ok := strings.CutPrefix(value, "file:"); ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, badUsage("--header %s: %v", name, err)
			}
			value = strings.TrimSpace(string(b))
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, badUsage("--header %s: a value of several lines", name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, badUsage("--header %s: a value with control characters", name)
		}
		header.Add(name, value)
	}
	return header, nil
}

// isToken reports whether s can be the name of a header field.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
