package storetest

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Transcripts are tests that people can read. Each is a text of limits and steps; a step is an instant, an operation and,
// for what has an answer, the answer of each limit:
//
//	limit client token-bucket 5/s burst 10
//	0ms    take client:a cost 3 -> allowed left 7 next 200ms
//	0ms    take client:a cost 8 -> refused retry 200ms left 7 next 200ms
//	2s     refund client:a cost 3 made 0ms
//
// Instants count from midnight. A charge is limit:key, "cost n" where that is not 1, "priority low" or "priority high", and
// charges are joined by " + ". Lines that start with # are remarks.
//
//go:embed testdata/*.txt
var testdata embed.FS

func transcripts() []check {
	names, err := fs.Glob(testdata, "testdata/*.txt")
	if err != nil {
		panic(err)
	}
	var all []check
	for _, name := range names {
		all = append(all, check{"transcript/" + strings.TrimSuffix(path.Base(name), ".txt"), func(r *rig) error {
			text, err := testdata.ReadFile(name)
			if err != nil {
				return err
			}
			got, err := replay(r, string(text))
			if err != nil {
				return fmt.Errorf("%s:%w", name, err)
			}
			gotLines := strings.Split(got, "\n")
			for i, want := range strings.Split(string(text), "\n") {
				if gotLines[i] != want {
					return fmt.Errorf("%s:%d:\n got %s\nwant %s", name, i+1, gotLines[i], want)
				}
			}
			return nil
		}})
	}
	return all
}

// replay runs a transcript and returns it with the answers that were given.
func replay(r *rig, text string) (string, error) {
	limits := make(map[string]*weir.Limit)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		answered, err := replayLine(r, limits, line)
		if err != nil {
			return "", fmt.Errorf("%d: %w", i+1, err)
		}
		lines[i] = answered
	}
	return strings.Join(lines, "\n"), nil
}

func replayLine(r *rig, limits map[string]*weir.Limit, line string) (string, error) {
	if line == "" || strings.HasPrefix(line, "#") {
		return line, nil
	}
	if rest, ok := strings.CutPrefix(line, "limit "); ok {
		l, err := parseLimit(strings.Fields(rest))
		if err != nil {
			return "", err
		}
		limits[l.Name] = l
		return line, nil
	}
	ask, _, _ := strings.Cut(line, " -> ")
	ask = strings.TrimRight(ask, " ")
	words := strings.Fields(ask)
	if len(words) < 3 {
		return "", fmt.Errorf("%q is no step; it takes an instant, an operation and charges", line)
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		return "", err
	}
	r.now = start + weir.Instant(at.Microseconds())
	s := act{op: words[1]}
	if err := s.parse(limits, words[2:]); err != nil {
		return "", err
	}
	answer, err := s.run(r)
	if err != nil || answer == "" {
		return ask, err
	}
	return ask + " -> " + answer, nil
}

// parseLimit reads name, algorithm, rate and what follows.
func parseLimit(words []string) (*weir.Limit, error) {
	if len(words) < 3 {
		return nil, fmt.Errorf("limit %q; it takes a name, an algorithm and a rate", words)
	}
	l := &weir.Limit{Name: words[0]}
	if err := l.Algorithm.UnmarshalText([]byte(words[1])); err != nil {
		return nil, err
	}
	if err := l.Rate.UnmarshalText([]byte(words[2])); err != nil {
		return nil, err
	}
	for words = words[3:]; len(words) > 0; words = words[1:] {
		if words[0] == "shadow" {
			l.Shadow = true
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("%q without a number", words[0])
		}
		n, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return nil, err
		}
		switch words[0] {
		case "burst":
			l.Burst = n
		case "headroom":
			l.Headroom = n
		default:
			return nil, fmt.Errorf("%q is none of burst, headroom, shadow", words[0])
		}
		words = words[1:]
	}
	return l, l.Validate()
}

// act is what one line of a transcript does.
type act struct {
	op          string
	charges     []weir.Charge
	made, until weir.Instant
}

func (s *act) parse(limits map[string]*weir.Limit, words []string) error {
	for len(words) > 0 {
		name, key, ok := strings.Cut(words[0], ":")
		l := limits[name]
		if !ok || l == nil {
			return fmt.Errorf("%q is not the key of a limit above", words[0])
		}
		c := l.For(key)
		if key == "*" {
			c = l.Every()
		}
		for words = words[1:]; len(words) > 0 && words[0] != "+"; words = words[2:] {
			if len(words) < 2 {
				return fmt.Errorf("%q without a value", words[0])
			}
			var err error
			switch value := words[1]; words[0] {
			case "cost":
				c.Cost, err = strconv.ParseInt(value, 10, 64)
			case "priority":
				err = c.Priority.UnmarshalText([]byte(value))
			case "made":
				s.made, err = parseInstant(value)
			case "until":
				s.until, err = parseInstant(value)
			default:
				err = fmt.Errorf("%q is none of cost, priority, made, until", words[0])
			}
			if err != nil {
				return err
			}
		}
		s.charges = append(s.charges, c)
		if len(words) > 0 {
			words = words[1:]
		}
	}
	return nil
}

func parseInstant(s string) (weir.Instant, error) {
	d, err := time.ParseDuration(s)
	return start + weir.Instant(d.Microseconds()), err
}

func (s *act) run(r *rig) (answer string, err error) {
	switch s.op {
	case "take":
		return answerOf(r.take(s.charges...)), nil
	case "peek":
		return answerOf(r.peek(s.charges...)), nil
	case "refund":
		r.refund(s.made, s.charges...)
	case "debit":
		r.debit(s.charges...)
	case "hold":
		r.hold(s.until, s.charges...)
	case "lift":
		r.hold(0, s.charges...)
	case "reset":
		r.reset(s.charges...)
	default:
		err = fmt.Errorf("%q is none of take, peek, refund, debit, hold, lift, reset", s.op)
	}
	return "", err
}

// answerOf is an answer as transcripts have it.
func answerOf(d *weir.Decision) string {
	s := "allowed"
	switch {
	case d.Never:
		s = "never"
	case !d.Allowed:
		s = "refused retry " + d.RetryAfter.String()
	}
	for i, o := range d.Outcomes() {
		if len(d.Outcomes()) > 1 {
			if i > 0 {
				s += ","
			}
			s += " " + o.Limit.Name
			if o.Refused() {
				s += " refuses"
			}
		} else if o.Limit.Shadow && o.Refused() {
			s += " would refuse"
		}
		s += fmt.Sprintf(" left %d", o.Remaining)
		if o.Next > 0 {
			s += fmt.Sprintf(" next %v", o.Next)
		}
	}
	return s
}
