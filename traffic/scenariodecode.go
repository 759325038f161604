package traffic

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder fills a Scenario from parsed YAML, and notes every fault and where each field was written. The library's own stops
// at the first fault, and does not say where a number or a time is wrong.
type decoder struct {
	faults []Fault
	places map[string]*token.Token
}

// decode reads YAML into s.
func (d *decoder) decode(data []byte, s *Scenario) {
	d.places = map[string]*token.Token{}
	file, err := parseYAML(data)
	if err != nil {
		text, at := err.Error(), (*token.Token)(nil)
		var from yaml.Error
		if errors.As(err, &from) {
			text, at = from.GetMessage(), from.GetToken()
		}
		d.add(at, "", "%s", text)
		return
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			d.add(doc.Body.GetToken(), "", "a second document; a scenario is one")
			return
		default:
			body = doc.Body
		}
	}
	if body == nil {
		d.add(nil, "", "empty; a scenario has at least a name, a duration, a load and classes")
		return
	}
	d.value(body, reflect.ValueOf(s).Elem(), "")
}

// parseYAML keeps the library's panics, which odd input has found before, from ending the program.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not understood as YAML (%v)", r)
		}
	}()
	if bytes.Count(data, []byte("[")) > 1000 || bytes.Count(data, []byte("{")) > 5000 || bytes.Count(data, []byte("- - ")) > 100 {
		return nil, errors.New("too many brackets") // the parser's time grows with the square of their depth
	}
	return parser.ParseBytes(data, 0)
}

func (d *decoder) add(at *token.Token, field, format string, args ...any) {
	f := Fault{Line: 1, Column: 1, Field: field, Text: oneLine(fmt.Sprintf(format, args...))}
	if at != nil && at.Position != nil {
		f.Line, f.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	d.faults = append(d.faults, f)
}

// place is where a field was written, or what is around it.
func (d *decoder) place(field string) (line, column int) {
	for field != "" {
		if at := d.places[field]; at != nil && at.Position != nil {
			return max(1, at.Position.Line), max(1, at.Position.Column)
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 1, 1
}

// begin is the first token of a node: of a mapping in lines its first key, where the library has the colon.
func begin(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

func (d *decoder) value(n ast.Node, v reflect.Value, field string) {
	at := begin(n)
	d.places[field] = at
	switch n.(type) {
	case *ast.NullNode:
		d.add(at, field, "nothing; give it a value, or leave it out")
		return
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		d.add(at, field, "anchors, aliases and tags are not read here; write the value itself")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	text, scalar := scalarOf(n)
	want := func(form string) {
		if !scalar {
			text = "this"
		}
		d.add(at, field, "%.60s; it takes %s", text, form)
	}
	to, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	var err error
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		var t time.Duration
		if t, err = time.ParseDuration(text); err != nil {
			want("a number and a unit, as 30s, 10m or 1h30m")
			return
		}
		v.SetInt(int64(t))
	case v.Type() == reflect.TypeFor[time.Time]():
		if err = to.UnmarshalText([]byte(text)); err != nil {
			want("a time, as 2026-11-27T08:00:00Z")
		}
	case isText:
		if err = to.UnmarshalText([]byte(text)); err == nil && text == "" {
			err = errors.New("nothing; give it a value, or leave it out")
		}
		if err != nil {
			d.add(at, field, "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weir: "), "traffic: "))
		}
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, field)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, field)
	case v.Kind() == reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			d.add(at, field, "no list; each element begins with a dash")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
		for i, e := range seq.Values {
			d.value(e, v.Index(i), fmt.Sprintf("%s[%d]", field, i))
		}
	case v.Kind() == reflect.String:
		if !scalar {
			want("text")
			return
		}
		v.SetString(text)
	case v.Kind() == reflect.Int:
		var i int64
		if i, err = strconv.ParseInt(text, 10, 64); err != nil {
			want("a whole number, as 20")
		}
		v.SetInt(i)
	case v.Kind() == reflect.Uint64:
		var i uint64
		if i, err = strconv.ParseUint(text, 10, 64); err != nil {
			want("a whole number, 0 or more")
		}
		v.SetUint(i)
	case v.Kind() == reflect.Float64:
		var f float64
		if f, err = strconv.ParseFloat(text, 64); err != nil {
			want("a number, as 1.1")
		}
		v.SetFloat(f)
	default:
		panic("traffic: no reading of " + v.Type().String())
	}
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, field string) {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		d.add(begin(n), field, "no mapping; it takes %s", fieldsOf(v.Type()))
		return
	}
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, pair := range pairs {
		name, ok := scalarOf(pair.Key)
		child := strings.TrimPrefix(field+"."+name, ".")
		switch {
		case !ok:
			d.add(pair.Key.GetToken(), field, "a name that is no text")
			continue
		case v.Kind() == reflect.Map:
			e := reflect.New(v.Type().Elem()).Elem()
			d.value(pair.Value, e, child)
			v.SetMapIndex(reflect.ValueOf(name), e)
			continue
		}
		known := false
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("yaml") == name {
				d.value(pair.Value, v.Field(i), child)
				known = true
			}
		}
		if !known {
			d.add(pair.Key.GetToken(), child, "unknown field; it takes %s", fieldsOf(v.Type()))
		}
	}
}

// fieldsOf are the names of what a mapping takes.
func fieldsOf(t reflect.Type) string {
	if t.Kind() == reflect.Map {
		return "names and texts"
	}
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return strings.Join(names, ", ")
}

// scalarOf is a scalar as it was written.
func scalarOf(n ast.Node) (string, bool) {
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

// oneLine is text without line breaks and other control characters.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}
