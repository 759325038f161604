// Package words makes the words of messages: what a file, a client or another server wrote, so that it stays on one line and is
// not too long, and names in sentences.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quoted is text in quotes: on one line, and cut after 60 bytes.
func Quoted(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut] + "…")
}

// OneLine is s with its line breaks and other control characters written out.
func OneLine(s string) string {
	s = strings.TrimSpace(s)
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Fact is the text of an error about the value of a field, as limits[0].rate, without what the field says already: the package that
// it begins with, as "weir: ", and the field's own name.
func Fact(err error, field string) string {
	text := err.Error()
	if pkg, rest, ok := strings.Cut(text, ": "); ok && strings.Trim(pkg, "abcdefghijklmnopqrstuvwxyz") == "" {
		text = rest
	}
	return OneLine(strings.TrimPrefix(text, field[strings.LastIndexByte(field, '.')+1:]+" "))
}

// List is names in a sentence: "a, b and c", or the first of many, where strangers chose how many there are.
func List(names []string) string {
	const most = 12
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return All(names)
}

// All is List of names of ours, however many they are.
func All(names []string) string {
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Nearest is the name that is one or two slips away from what was written, or "".
func Nearest(written string, names []string) string {
	best, slips := "", 3
	if len(written) < 4 {
		slips = 2
	}
	for _, name := range names {
		if n := distance(written, name, slips); n < slips {
			best, slips = name, n
		}
	}
	return best
}

// distance is the number of letters to put in, take out, change or swap with their neighbour; it stops counting at most.
func distance(a, b string, most int) int {
	if len(a) > 64 || len(b) > 64 || max(len(a)-len(b), len(b)-len(a)) >= most {
		return most
	}
	var rows [3][66]int
	before, prev, cur := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(change, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return min(prev[len(b)], most)
}
