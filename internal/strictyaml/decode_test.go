package strictyaml

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

type recipe struct {
	Base  `yaml:",inline"`
	Steps []step            `yaml:"steps"`
	Notes map[string]string `yaml:"notes"`
	Oven  *oven             `yaml:"oven"`
	Serve *pace             `yaml:"serve"`
}

type Base struct {
	Name  string    `yaml:"name"`
	Since time.Time `yaml:"since"`
	Cooks int       `yaml:"cooks"`
	Salt  float64   `yaml:"salt"`
	Lot   uint64    `yaml:"lot"`
	Vegan bool      `yaml:"vegan"`
}

type step struct {
	What string        `yaml:"what"`
	For  time.Duration `yaml:"for"`
	Rate pace          `yaml:"rate"`
}

// pace reads itself.
type pace struct{ fast bool }

func (p *pace) UnmarshalText(text []byte) error {
	if p.fast = string(text) == "fast"; !p.fast && string(text) != "slow" {
		return fmt.Errorf("bakery: rate %q is none of slow, fast", text)
	}
	return nil
}

type oven struct {
	Heat int `yaml:"heat"`
}

var kind = Kind{Name: "a recipe", Least: "a name and steps"}

func lines(d *Document) string {
	var all []string
	for _, f := range d.Faults {
		all = append(all, Where("r", f.Place, f.Field)+f.Text)
	}
	return strings.Join(all, "\n")
}

func TestDecode(t *testing.T) {
	const text = `name: &n bread
since: 2026-01-02T03:04:05Z
cooks: 2
salt: 1.5
lot: 18446744073709551615
vegan: true
steps:
  - {what: knead, for: 10m, rate: fast}
  - what: *n
notes: {"odd name": x}
oven: {}
serve: fast
`
	var got recipe
	doc := Decode([]byte(text), &got, kind)
	want := recipe{
		Base:  Base{"bread", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 2, 1.5, 1<<64 - 1, true},
		Steps: []step{{"knead", 10 * time.Minute, pace{fast: true}}, {What: "bread"}},
		Notes: map[string]string{"odd name": "x"}, Oven: &oven{}, Serve: &pace{fast: true},
	}
	if len(doc.Faults) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v\n%s", got, want, lines(doc))
	}
	for field, want := range map[string]Place{
		"":                       {1, 1},
		"name":                   {1, 7},
		"steps[0].for":           {8, 24},
		"steps[1].for":           {9, 5}, // not written: where the step begins
		"steps[7]":               {8, 3},
		`notes["odd name"]`:      {10, 21},
		`notes["odd name"].more`: {10, 21},
		"nothing":                {1, 1},
	} {
		if got := doc.Place(field); got != want {
			t.Errorf("%s: at %v, want %v", field, got, want)
		}
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "r:1:1: empty; a recipe has at least a name and steps",
		"---\n# later\n":                     "r:1:1: empty; a recipe has at least a name and steps",
		"~":                                  "r:1:1: empty; a recipe has at least a name and steps",
		"name: a\n---\nname: b":              "r:3:1: a second document; a recipe is one",
		"name: [":                            "r:1:7: not YAML: sequence end token ']' not found: \"name: [\"",
		"steps:\n  - what: a\n      for: 5s": `r:3:7: not YAML: mapping value is not allowed in this context: "      for: 5s"; is it indented as its neighbours are?`,
		"steps:\n  - what: a\n   for: 5s":    `r:3:4: not YAML: value is not allowed in this context: "   for: 5s"; is it indented as its neighbours are?`,
		"steps:\n\t- what: a\n":              `r:2:1: not YAML: found character '\t' that cannot start any token: "\t- what: a"; lines are indented with blanks, not tabs`,
		"name: a: b\ncooks: 1":               `r:1:7: not YAML: mapping value is not allowed in this context: "name: a: b"`,
		"name: redis://:secret@host: 7":      `r:1:7: not YAML: mapping value is not allowed in this context: "name: redis://…"`,
		"name: \xff":                         "r:1:1: not UTF-8 text",
		"name: a\nname: b":                   "r:2:1: name: given twice, first on line 1",
		"nmae: a":                            "r:1:1: nmae: unknown field; did you mean name?",
		"heat: 1":                            "r:1:1: heat: unknown field; it takes name, since, cooks, salt, lot, vegan, steps, notes, oven and serve",
		"name: {a: b}":                       "r:1:7: name: a mapping; it takes text, in quotes where it begins with { [ * & ! | > % @ or contains ': ' or ' #'",
		"since: [1]":                         "r:1:8: since: a list; it takes a time, as 2026-11-27T08:00:00Z",
		"since: noon":                        `r:1:8: since: the text "noon"; it takes a time, as 2026-11-27T08:00:00Z`,
		"cooks: 1.5\nlot: 01":                "r:1:8: cooks: 1.5; it takes a whole number, as 20\nr:2:6: lot: 01; it takes a whole number, 0 or more, as 20",
		"lot: 18446744073709551616":          "r:1:6: lot: 18446744073709551616 is too large",
		"salt: much":                         `r:1:7: salt: the text "much"; it takes a number, as 0.1`,
		"vegan: yes":                         `r:1:8: vegan: the text "yes"; it takes true or false`,
		"steps: {}":                          "r:1:8: steps: a mapping; it takes a list",
		"steps: [~]":                         "r:1:9: steps[0]: nothing in it; it takes a mapping with what, for and rate",
		"steps: [{for: 5}]":                  `r:1:15: steps[0].for: "5": no unit; the form is a number and a unit, as 30s, 1m30s or 250ms`,
		"steps: [{rate: }]":                  "r:1:10: steps[0].rate: nothing; give it a value, or leave it out",
		"serve:":                             "r:1:1: serve: nothing; give it a value, or leave it out",
		"oven:":                              "r:1:1: oven: nothing in it; write {} for its defaults, or leave it out",
		"since:":                             "r:1:1: since: nothing; give it a value, or leave it out",
		"serve: often":                       `r:1:8: serve: rate "often" is none of slow, fast`,
		"steps: [{rate: often}]":             `r:1:16: steps[0].rate: "often" is none of slow, fast`,
		"notes: [a]":                         "r:1:8: notes: a list; it takes a mapping of names",
		"name: !!str a":                      "r:1:7: name: a tag (\"!!str\"); values are read as what the field takes, so leave it out",
		"name: *a":                           "r:1:7: name: *a stands for nothing; &a comes before it and not around it",
		"name:\ncooks:\nsteps:":              "", // not given
	} {
		if got := lines(Decode([]byte(text), new(recipe), kind)); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestBroken(t *testing.T) {
	doc := Decode([]byte("steps: [{for: 5}]\nnmae: a\n"), new(recipe), kind)
	for field, want := range map[string][2]bool{ // broken, anything in it broken
		"":              {false, false},
		"steps":         {false, true},
		"steps[0]":      {false, true},
		"steps[0].for":  {true, true},
		"steps[0].what": {false, false},
		"name":          {true, true}, // what was written was meant to be it
		"name.x":        {true, false},
	} {
		if got := [2]bool{doc.Broken(field), doc.AnyBroken(field)}; got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
	if doc := Decode(nil, new(recipe), kind); !doc.Broken("steps") {
		t.Error("a file that could not be read at all lacks nothing")
	}
}

// An alias costs as much as what it stands for, however little is written.
func TestAliasesAreCounted(t *testing.T) {
	thousand := strings.Repeat("{what: x, for: 1s},", 1000)
	var many struct {
		A []step   `yaml:"a"`
		B [][]step `yaml:"b"`
	}
	text := "a: &a [" + thousand + "]\nb: [" + strings.Repeat("*a,", 100) + "]\n"
	if got := lines(Decode([]byte(text), &many, kind)); !strings.HasSuffix(got, "over 200000 values, with aliases") || strings.Contains(got, "\n") {
		t.Errorf("got %.200s", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"name: x\nsteps: [{what: &a b}, {what: *a}]", "a: &a [*a]", "? a\n: b", "notes: {\"a.b[\\\"\": }", "- - -", "%YAML 1.2\n---\n", "name: |\n  b\n", "since: 2026-01-01T00:00:00Z"} {
		f.Add([]byte(s))
	}
	fault := regexp.MustCompile(`^[1-9]\d* [1-9]\d* [^\x00-\x1f\x7f]+$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, x := range Decode(data, new(recipe), kind).Faults {
			if line := fmt.Sprintf("%d %d %s", x.Line, x.Column, x.Text); !fault.MatchString(line) {
				t.Errorf("%q", line)
			}
		}
	})
}
