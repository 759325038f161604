// Package strictyaml fills structs from YAML for people who have to correct it: it says everything that is wrong at once, each fault with
// its place and the form wanted, and refuses what could be meant in two ways. Nothing in a file is expanded.
package strictyaml

import (
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/words"
)

// Kind is a kind of file, for messages.
type Kind struct {
	Name  string // as "a configuration"
	Least string // what there is in every one of them, as "upstreams and routes"
}

// Fault is one thing that is wrong with a file.
type Fault struct {
	Place
	Field string // as limits[0].rate; empty: the file as a whole
	Text  string // what is wrong, and the form wanted; one line
	Err   error  // the cause, or nil
}

// Place is a place in a file: its line and column, from 1, in characters.
type Place struct{ Line, Column int }

// Document is what was found in a file beside its values: what is wrong with them, and where each was written.
type Document struct {
	Faults []Fault // what could not be read, in the order of the file but for unknown fields, which come after their neighbours

	places map[string]Place
	broken map[string]bool // fields that could not be read, so that nothing is said about their absence
}

// Place is where a field was written, or the closest thing around it that was.
func (d *Document) Place(field string) Place {
	for {
		if at, ok := d.places[field]; ok {
			return at
		}
		if field == "" {
			return Place{1, 1}
		}
		field = parent(field)
	}
}

// Broken reports whether a field, or one around it, could not be read. What is absent then may have been meant to be there.
func (d *Document) Broken(field string) bool {
	for ; ; field = parent(field) {
		if d.broken[field] {
			return true
		}
		if field == "" {
			return false
		}
	}
}

// AnyBroken reports whether anything in a field could not be read, so that it may lack names.
func (d *Document) AnyBroken(field string) bool {
	for b := range d.broken {
		if b == field || strings.HasPrefix(b, field+".") || strings.HasPrefix(b, field+"[") {
			return true
		}
	}
	return false
}

// Child is the field of a name in another field.
func Child(field, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]"\`) || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || !strconv.IsPrint(r) }):
		return field + "[" + words.Quoted(name) + "]"
	case field == "":
		return name
	}
	return field + "." + name
}

// Item is the field of an element of a list.
func Item(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// parent is the field around a field: limits[0].rate, limits[0], limits, and then the file.
func parent(field string) string {
	if strings.HasSuffix(field, `"]`) { // an odd name: upstreams["a.b"]
		return field[:strings.Index(field, `["`)]
	}
	return field[:max(0, strings.LastIndexAny(field, ".["))]
}

// Where is what a line about a field in a file begins with, as "weir.yaml:7:20: limits[0].rate: ". What is empty or 0 is left out.
func Where(file string, at Place, field string) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(file)
		b.WriteByte(':')
		if at.Line > 0 {
			b.WriteString(strconv.Itoa(at.Line) + ":")
			if at.Column > 0 {
				b.WriteString(strconv.Itoa(at.Column) + ":")
			}
		}
		b.WriteByte(' ')
	}
	if field != "" {
		b.WriteString(field)
		b.WriteString(": ")
	}
	return b.String()
}
