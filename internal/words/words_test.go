package words

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWords(t *testing.T) {
	names := strings.Split("a b c d e f g h i j k l m n", " ")
	for _, c := range []struct{ got, want string }{
		{Quoted("a\nb"), `"a\nb"`},
		{Quoted(strings.Repeat("x", 100)), `"` + strings.Repeat("x", 60) + `…"`},
		{OneLine(" a\r\nb\x00 "), `a\r\nb\x00`},
		{OneLine("déjà vu"), "déjà vu"},
		{List(nil), "none"},
		{List(names[:1]), "a"},
		{List(names[:3]), "a, b and c"},
		{List(names), "a, b, c, d, e, f, g, h, i, j, k, l and 2 more"},
		{All(names), "a, b, c, d, e, f, g, h, i, j, k, l, m and n"},
		{Fact(errors.New(`weir: rate "x": no slash`), "limits[0].rate"), `"x": no slash`},
		{Fact(errors.New(`weir: rate "x": no slash`), "load.normal"), `rate "x": no slash`},
		{Fact(errors.New(`traffic: "120%" is no share`), "share"), `"120%" is no share`},
		{Fact(errors.New(`no such file: x`), "file"), `no such file: x`},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"limits", "listen", "routes", "rate", "at"}
	for written, want := range map[string]string{
		"limit": "limits", "limist": "limits", "lisetn": "listen", "reat": "rate", "raet": "rate", "ta": "at", "if": "", "colour": "", "": "",
		strings.Repeat("limits", 20): "",
	} {
		if got := Nearest(written, names); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

func FuzzQuoted(f *testing.F) {
	f.Add(strings.Repeat("é", 40))
	f.Add("a\u2028b\x7f\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{Quoted(s), OneLine(Quoted(s))} {
			if strings.ContainsAny(got, "\n\r\x00\u2028") || !utf8.ValidString(got) || utf8.RuneCountInString(got) > 6*62 {
				t.Errorf("%q: %s", s, got)
			}
		}
	})
}
