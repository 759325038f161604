package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/weir-go/weir/internal/words"
)

// The YAML library parses; filling in the structs is done here, because its own decoder stops at the first fault, and a
// reader of error messages wants all of them, each with its place and the form wanted.

// maxDecoded is how many values one file has, with aliases counted as often as they are used.
const maxDecoded = 200_000

// Decode reads a file of YAML into what to points to, a struct. Fields have the names of their yaml tags; beside structs, maps by
// text, lists, text and numbers it reads times, durations, and what reads text itself. A list, number or text with nothing behind
// its name is one that was not given.
func Decode(data []byte, to any, kind Kind) *Document {
	d := &decoder{
		Document: &Document{places: map[string]Place{}, broken: map[string]bool{}},
		anchors:  map[string]ast.Node{},
		open:     map[string]bool{},
	}
	n, fault := body(data, kind)
	if fault != nil {
		d.broken[""] = true
		d.Faults = append(d.Faults, *fault)
		return d.Document
	}
	d.places[""] = Place{1, 1}
	d.value(n, reflect.ValueOf(to).Elem(), "")
	return d.Document
}

// decoder fills in a struct and notes every fault and every place.
type decoder struct {
	*Document
	anchors map[string]ast.Node
	open    map[string]bool // aliases being followed
	count   int
}

// fault notes that a field could not be read.
func (d *decoder) fault(n ast.Node, field, format string, args ...any) {
	d.faultAt(placeOf(n), field, format, args...)
}

func (d *decoder) faultAt(at Place, field, format string, args ...any) {
	d.broken[field] = true
	d.Faults = append(d.Faults, Fault{Place: Place{max(1, at.Line), max(1, at.Column)}, Field: field, Text: words.OneLine(fmt.Sprintf(format, args...))})
}

// resolve follows anchors and aliases to what they stand for; nil if that is nothing, which it has then said.
func (d *decoder) resolve(n ast.Node, field string) (value ast.Node, done func()) {
	done = func() {}
	switch x := n.(type) {
	case *ast.AnchorNode:
		name := x.Name.GetToken().Value
		d.anchors[name] = x.Value
		value, done = d.resolve(x.Value, field)
		return value, done
	case *ast.AliasNode:
		name := x.Value.GetToken().Value
		target, ok := d.anchors[name]
		if !ok || d.open[name] {
			d.fault(n, field, "*%s stands for nothing; &%s comes before it and not around it", name, name)
			return nil, done
		}
		d.open[name] = true
		value, inner := d.resolve(target, field)
		return value, func() { inner(); delete(d.open, name) }
	case *ast.TagNode:
		d.fault(n, field, "a tag (%s); values are read as what the field takes, so leave it out", words.Quoted(x.Start.Value))
		return nil, done
	case nil:
		return nil, done
	}
	return n, done
}

// value reads a node into v.
func (d *decoder) value(n ast.Node, v reflect.Value, field string) {
	if d.count++; d.count > maxDecoded {
		if d.count == maxDecoded+1 {
			d.fault(n, field, "over %d values, with aliases", maxDecoded)
		}
		return
	}
	if _, ok := d.places[field]; !ok {
		d.places[field] = placeOf(n)
	}
	at := n
	n, done := d.resolve(n, field)
	defer done()
	if n == nil {
		d.broken[field] = true
		return
	}
	if _, ok := n.(*ast.NullNode); ok {
		d.null(v, field)
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	text, scalar := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		d.duration(n, at, v, field)
	case v.Type() == reflect.TypeFor[time.Time]():
		s, _ := scalarText(n)
		if err := text.UnmarshalText([]byte(s)); err != nil {
			d.fault(at, field, "%s; it takes a time, as 2026-11-27T08:00:00Z", describe(n))
		}
	case scalar:
		if s, ok := scalarText(n); !ok {
			d.fault(at, field, "%s; it takes text", describe(n))
		} else if err := text.UnmarshalText([]byte(s)); err != nil {
			d.fault(at, field, "%s", words.Fact(err, field))
			d.Faults[len(d.Faults)-1].Err = err
		}
	default:
		d.kind(n, at, v, field)
	}
}

// null is a key with nothing behind it: a text, number or list that is not given. A block that is switched on by being there
// could be meant either way, so it has to say, and so has what may be left out altogether.
func (d *decoder) null(v reflect.Value, field string) {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, reads := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	switch block := t.Kind() == reflect.Struct && !reads; {
	case block:
		d.faultAt(d.Place(field), field, "nothing in it; write {} for its defaults, or leave it out")
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Struct:
		d.faultAt(d.Place(field), field, "nothing; give it a value, or leave it out")
	}
}

func (d *decoder) kind(n, at ast.Node, v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.String:
		if s, ok := scalarText(n); ok {
			v.SetString(s)
		} else {
			d.fault(at, field, "%s; it takes text, in quotes where it begins with { [ * & ! | > %% @ or contains ': ' or ' #'", describe(n))
		}
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.fault(at, field, "%s; it takes true or false", describe(n))
			return
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Int64:
		s, _ := scalarText(n)
		_, isInt := n.(*ast.IntegerNode)
		i, err := strconv.ParseInt(s, 10, v.Type().Bits())
		switch {
		case errors.Is(err, strconv.ErrRange):
			d.fault(at, field, "%s is too large", words.OneLine(s))
		case err != nil || !isInt || s != strconv.FormatInt(i, 10): // 010 is eight to some
			d.fault(at, field, "%s; it takes a whole number, as 20", describe(n))
		default:
			v.SetInt(i)
		}
	case reflect.Uint64:
		s, _ := scalarText(n)
		_, isInt := n.(*ast.IntegerNode)
		u, err := strconv.ParseUint(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			d.fault(at, field, "%s is too large", words.OneLine(s))
		case err != nil || !isInt || s != strconv.FormatUint(u, 10):
			d.fault(at, field, "%s; it takes a whole number, 0 or more, as 20", describe(n))
		default:
			v.SetUint(u)
		}
	case reflect.Float64:
		s, _ := scalarText(n)
		f, err := strconv.ParseFloat(s, 64)
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			d.fault(at, field, "%s; it takes a number, as 0.1", describe(n))
			return
		}
		v.SetFloat(f)
	case reflect.Slice:
		d.list(n, at, v, field)
	case reflect.Map, reflect.Struct:
		d.mapping(n, at, v, field)
	default:
		panic("strictyaml: no reading of " + v.Type().String())
	}
}

func (d *decoder) duration(n, at ast.Node, v reflect.Value, field string) {
	const form = "the form is a number and a unit, as 30s, 1m30s or 250ms"
	s, ok := scalarText(n)
	if !ok {
		d.fault(at, field, "%s; %s", describe(n), form)
		return
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		why := "no duration"
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			why = "no unit"
		}
		d.fault(at, field, "%s: %s; %s", words.Quoted(s), why, form)
		return
	}
	v.SetInt(int64(t))
}

func (d *decoder) list(n, at ast.Node, v reflect.Value, field string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(at, field, "%s; it takes a list", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, e := range seq.Values {
		d.element(e, v.Index(i), Item(field, i))
	}
}

// element is value for what is in a list or a mapping of names, where nothing is not a way to ask for defaults.
func (d *decoder) element(n ast.Node, v reflect.Value, field string) {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, null := n.(*ast.NullNode); null && t.Kind() == reflect.Struct {
		if _, ok := d.places[field]; !ok {
			d.places[field] = placeOf(n)
		}
		d.faultAt(d.Place(field), field, "nothing in it; it takes a mapping with %s", words.All(fieldNames(t)))
		return
	}
	d.value(n, v, field)
}

func (d *decoder) mapping(n, at ast.Node, v reflect.Value, field string) {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		if v.Kind() == reflect.Map {
			d.fault(at, field, "%s; it takes a mapping of names", describe(n))
		} else {
			d.fault(at, field, "%s; it takes a mapping with %s", describe(n), words.All(fieldNames(v.Type())))
		}
		return
	}
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
	}
	lines := map[string]int{}
	var unknown []*ast.MappingValueNode
	for _, pair := range pairs {
		key, ok := scalarText(pair.Key)
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge || !ok {
			d.fault(pair.Key, field, "%s as a name; a name is text", describe(pair.Key))
			continue
		}
		f := Child(field, key)
		if line, twice := lines[key]; twice {
			d.fault(pair.Key, f, "given twice, first on line %d", line)
			continue
		}
		lines[key] = placeOf(pair.Key).Line
		if _, null := pair.Value.(*ast.NullNode); null {
			d.places[f] = placeOf(pair.Key) // nothing has no place of its own
		}
		if v.Kind() == reflect.Map {
			e := reflect.New(v.Type().Elem()).Elem()
			d.element(pair.Value, e, f)
			v.SetMapIndex(reflect.ValueOf(key), e)
			continue
		}
		to, ok := fieldOf(v, key)
		if !ok {
			unknown = append(unknown, pair)
			continue
		}
		d.value(pair.Value, to, f)
	}
	for _, pair := range unknown {
		d.unknown(pair.Key, v.Type(), field, lines)
	}
}

// unknown is about a field that a struct does not have. If it is a slip of one that is not there, that is the one it was meant to be.
func (d *decoder) unknown(key ast.Node, t reflect.Type, field string, given map[string]int) {
	name, _ := scalarText(key)
	names := fieldNames(t)
	hint := "it takes " + words.All(names)
	if near := words.Nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
		if _, there := given[near]; !there {
			d.broken[Child(field, near)] = true
		}
	}
	d.fault(key, Child(field, name), "unknown field; %s", hint)
}

// fieldOf is the field of a struct by its name in YAML.
func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if in, ok := fieldOf(v.Field(i), name); ok {
				return in, true
			}
		} else if f.IsExported() && yamlName(f) == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			names = append(names, fieldNames(f.Type)...)
		} else if f.IsExported() {
			names = append(names, yamlName(f))
		}
	}
	return names
}

func yamlName(f reflect.StructField) string {
	if tag := f.Tag.Get("yaml"); tag != "" {
		return tag
	}
	return strings.ToLower(f.Name)
}
