package gateway

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

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

// sortedKeys are the names of a map, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
