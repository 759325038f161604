package gateway

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The YAML library parses; filling in the structs is done here, because its own decoder stops at the first fault, and a
// reader of error messages wants all of them, each with its place and the form wanted.

const (
	maxDepth   = 1000    // brackets open at once: the parser's time grows with the square of it
	maxDecoded = 200_000 // values of one file, with aliases counted as often as they are used
)

// source is where the values of a Config were written.
type source struct {
	file   string
	places map[string]spot // by field, as limits[0].rate
}

// spot is a place in a file, both from 1.
type spot struct{ line, column int }

// find is the place of a field, or of the closest thing around it that was written down.
func (s *source) find(field string) spot {
	for {
		if at, ok := s.places[field]; ok {
			return at
		}
		if field == "" {
			return spot{1, 1}
		}
		field = parent(field)
	}
}

// parent is the field around a field: limits[0].rate, limits[0], limits, and then the file.
func parent(field string) string {
	if strings.HasSuffix(field, `"]`) { // an odd name: upstreams["a.b"]
		return field[:strings.Index(field, `["`)]
	}
	return field[:max(0, strings.LastIndexAny(field, ".["))]
}

// child is the field of a name in another field.
func child(field, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]"\`) || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || !strconv.IsPrint(r) }):
		return field + "[" + quoted(name) + "]"
	case field == "":
		return name
	}
	return field + "." + name
}

// item is the field of an element of a list.
func item(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// decoder fills a Config from parsed YAML and notes every fault and every place.
type decoder struct {
	src     *source
	ps      problems
	broken  map[string]bool // fields that could not be read, so that nothing is said about their absence
	anchors map[string]ast.Node
	open    map[string]bool // aliases being followed
	count   int
}

// decode reads YAML into c. Faults of its form come back as problems.
func decode(name string, data []byte, c *Config) (src *source, broken map[string]bool, ps problems) {
	d := &decoder{
		src:     &source{file: name, places: map[string]spot{}},
		broken:  map[string]bool{},
		anchors: map[string]ast.Node{},
		open:    map[string]bool{},
	}
	d.file(data, c)
	return d.src, d.broken, d.ps
}

func (d *decoder) file(data []byte, c *Config) {
	whole := func(line int, format string, args ...any) {
		d.broken[""] = true
		d.ps = append(d.ps, Problem{File: d.src.file, Line: line, Column: 1, Text: fmt.Sprintf(format, args...)})
	}
	for i, line := range strings.Split(string(data), "\n") {
		if !utf8.ValidString(line) {
			whole(i+1, "not UTF-8 text")
			return
		}
		if at := strings.IndexFunc(line, unprintable); at >= 0 {
			whole(i+1, "the character %q, which is no text", []rune(line[at:])[0])
			return
		}
	}
	if line := tooDeep(string(data)); line > 0 {
		whole(line, "over %d brackets are open here", maxDepth)
		return
	}
	file, err := parse(data)
	if err != nil {
		d.broken[""] = true
		d.ps = append(d.ps, d.syntax(err))
		return
	}
	var docs []*ast.DocumentNode
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc)
		}
	}
	if len(docs) == 0 {
		whole(1, "empty; a configuration has at least upstreams and routes")
		return
	}
	if len(docs) > 1 {
		whole(placeOf(docs[1].Body).line, "a second document; a configuration is one")
		return
	}
	body := docs[0].Body
	d.src.places[""] = spot{1, 1}
	if _, ok := body.(*ast.NullNode); ok {
		whole(1, "empty; a configuration has at least upstreams and routes")
		return
	}
	d.value(body, reflect.ValueOf(c).Elem(), "")
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

// syntax is an error of the parser as one line.
func (d *decoder) syntax(err error) Problem {
	p := Problem{File: d.src.file, Line: 1, Column: 1, Text: err.Error(), Err: err}
	var at yaml.Error
	if errors.As(err, &at) {
		p.Text = at.GetMessage()
		if s := spotOf(at.GetToken()); s.line > 0 {
			p.Line, p.Column = s.line, s.column
		}
	}
	p.Text = "not YAML: " + oneLine(p.Text)
	return p
}

func spotOf(t *token.Token) spot {
	if t == nil || t.Position == nil {
		return spot{}
	}
	return spot{max(1, t.Position.Line), max(1, t.Position.Column)}
}

// placeOf is where a node begins: for a mapping in lines its first key, where the library has the colon.
func placeOf(n ast.Node) spot {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return placeOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	}
	return spotOf(n.GetToken())
}

// fault notes that a field could not be read.
func (d *decoder) fault(n ast.Node, field, format string, args ...any) {
	d.faultAt(placeOf(n), field, format, args...)
}

func (d *decoder) faultAt(at spot, field, format string, args ...any) {
	d.broken[field] = true
	d.ps = append(d.ps, Problem{File: d.src.file, Line: max(1, at.line), Column: max(1, at.column), Field: field, Text: oneLine(fmt.Sprintf(format, args...))})
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
		d.fault(n, field, "a tag (%s); values are read as what the field takes, so leave it out", quoted(x.Start.Value))
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
	if _, ok := d.src.places[field]; !ok {
		d.src.places[field] = placeOf(n)
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
	case scalar:
		if s, ok := scalarText(n); !ok {
			d.fault(at, field, "%s; it takes text", describe(n))
		} else if err := text.UnmarshalText([]byte(s)); err != nil {
			d.fault(at, field, "%s", trimSubject(err, field))
			d.ps[len(d.ps)-1].Err = err
		}
	default:
		d.kind(n, at, v, field)
	}
}

// null is a key with nothing behind it: a text, number or list that is not given. A block that is switched on by being there
// could be meant either way, so it has to say.
func (d *decoder) null(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Struct:
		d.faultAt(d.src.find(field), field, "nothing in it; write {} for its defaults, or leave it out")
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
			d.fault(at, field, "%s is too large", oneLine(s))
		case err != nil || !isInt || s != strconv.FormatInt(i, 10): // 010 is eight to some
			d.fault(at, field, "%s; it takes a whole number, as 20", describe(n))
		default:
			v.SetInt(i)
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
		panic("gateway: no reading of " + v.Type().String())
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
		d.fault(at, field, "%s: %s; %s", quoted(s), why, form)
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
		d.element(e, v.Index(i), item(field, i))
	}
}

// element is value for what is in a list or a mapping of names, where nothing is not a way to ask for defaults.
func (d *decoder) element(n ast.Node, v reflect.Value, field string) {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, null := n.(*ast.NullNode); null && t.Kind() == reflect.Struct {
		if _, ok := d.src.places[field]; !ok {
			d.src.places[field] = placeOf(n)
		}
		d.faultAt(d.src.find(field), field, "nothing in it; it takes a mapping with %s", list(fieldNames(t)))
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
			d.fault(at, field, "%s; it takes a mapping with %s", describe(n), list(fieldNames(v.Type())))
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
		f := child(field, key)
		if line, twice := lines[key]; twice {
			d.fault(pair.Key, f, "given twice, first on line %d", line)
			continue
		}
		lines[key] = placeOf(pair.Key).line
		if _, null := pair.Value.(*ast.NullNode); null {
			d.src.places[f] = placeOf(pair.Key) // nothing has no place of its own
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
	hint := "it takes " + list(names)
	if near := nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
		if _, there := given[near]; !there {
			d.broken[child(field, near)] = true
		}
	}
	d.fault(key, child(field, name), "unknown field; %s", hint)
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
		return "the text " + quoted(s)
	case *ast.MergeKeyNode:
		return "a merge (<<)"
	}
	if s, ok := scalarText(n); ok {
		return oneLine(s)
	}
	return "something else"
}
