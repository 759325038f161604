package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The words of messages.

// quoted is text for a message: on one line, and not too long.
func quoted(s string) string {
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

// readable is a key for people to read: without what is not text, and not too long.
func readable(key string, cut bool) string {
	const most = 120
	key = strings.ToValidUTF8(key, "\uFFFD")
	runes := []rune(key)
	for i, r := range runes {
		if !unicode.IsPrint(r) { // line breaks, marks that turn the direction of the text around them
			runes[i] = '\uFFFD'
		}
	}
	if len(runes) > most {
		runes, cut = runes[:most], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}

// oneLine is s with its line breaks and other control characters written out.
func oneLine(s string) string {
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

// trimSubject is the text of an error of package weir without what the field already says.
func trimSubject(err error, field string) string {
	text := strings.TrimPrefix(err.Error(), "weir: ")
	return oneLine(strings.TrimPrefix(text, field[strings.LastIndexByte(field, '.')+1:]+" "))
}

// list is names in a sentence: "a, b and c", or the first of many.
func list(names []string) string {
	const most = 12
	switch {
	case len(names) == 0:
		return "none"
	case len(names) == 1:
		return names[0]
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// sortedKeys are the names of a map, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nearest is the name that is one or two slips away from what was written, or "".
func nearest(written string, names []string) string {
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
