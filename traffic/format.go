package traffic

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is how the lines of an access log are read. Use [ParseFormat]. It is safe for concurrent use.
type Format struct {
	name    string
	parts   []part   // of a format string; nil: JSON
	open    bool     // what follows the last part does not matter
	headers []string // canonical names of the fields of headers that are kept
}

// part is a variable and the text after it; the first one may have no variable.
type part struct {
	set    setter // nil: the value is skipped
	after  string // the literal behind it; empty only at the end
	quoted bool   // it stands in quotes, within which a backslash escapes
}

// scratch is what reading remembers from line to line.
type scratch struct {
	text  string // of the last time_local
	at    time.Time
	whole bool // the time of the line has whole seconds only
}

// setter puts the text of a variable into an Event.
type setter func(e *Event, s string, m *scratch) error

// The formats that have names.
const (
	commonFormat   = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedFormat = commonFormat + ` "$http_referer" "$http_user_agent"`
)

// FormatNames are what ParseFormat knows by name.
const FormatNames = "auto, common, combined, json, caddy"

// ParseFormat is the Format of a name (common, combined, json for nginx's and the like, caddy) or of a format string as nginx's log_format
// takes it. Of the request's header it keeps the fields whose names are given. For auto and the empty text it is nil: see [Log].
func ParseFormat(text string, headers ...string) (*Format, error) {
	f := &Format{name: text}
	for _, h := range headers {
		f.headers = append(f.headers, http.CanonicalHeaderKey(h))
	}
	switch text {
	case "", "auto":
		return nil, nil
	case "json", "caddy":
		return f, nil
	case "common":
		text, f.open = commonFormat, true
	case "combined":
		text, f.open = combinedFormat, true
	default:
		if !strings.Contains(text, "$") {
			return nil, fmt.Errorf("traffic: format %.60q; it takes one of %s, or a format string as '$remote_addr - $remote_user [$time_local] \"$request\" $status'", text, FormatNames)
		}
	}
	return f, f.compile(text)
}

// String is the name, or the format string.
func (f *Format) String() string { return f.name }

// compile splits a format string.
func (f *Format) compile(text string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("traffic: format %.200q: "+format, append([]any{f.name}, args...)...)
	}
	literal, rest, found := strings.Cut(text, "$")
	f.parts = []part{{after: literal}}
	seen := map[string]bool{}
	for found {
		name := rest
		if inner, ok := strings.CutPrefix(rest, "{"); ok {
			if name, rest, ok = strings.Cut(inner, "}"); !ok {
				return fail("a brace that is not closed")
			}
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool {
				return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
			})
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
		}
		if name == "" {
			return fail("a dollar sign without a name")
		}
		before := f.parts[len(f.parts)-1].after
		if before == "" && len(f.parts) > 1 {
			return fail("nothing between two variables, the second of which is $%s", name)
		}
		p := part{set: f.setter(name), quoted: strings.HasSuffix(before, `"`)}
		p.after, rest, found = strings.Cut(rest, "$")
		f.parts = append(f.parts, p)
		seen[name] = true
	}
	any := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return seen[n] })
	}
	switch {
	case !any("time_local", "time_iso8601", "msec"):
		return fail("no time; it takes $time_local, $time_iso8601 or $msec")
	case !any("request") && !(any("request_method") && any("request_uri", "uri")):
		return fail("no request; it takes $request, or $request_method and $request_uri")
	}
	return nil
}

// setter is what a variable of nginx means; nil if it does not matter.
func (f *Format) setter(name string) setter {
	switch name {
	case "remote_addr":
		return func(e *Event, s string, _ *scratch) error { e.Client = unknown(s); return nil }
	case "remote_user":
		return func(e *Event, s string, _ *scratch) error { e.User = unknown(s); return nil }
	case "host", "http_host":
		return func(e *Event, s string, _ *scratch) error { e.Host = unknown(s); return nil }
	case "request":
		return func(e *Event, s string, _ *scratch) error { return setRequest(e, s) }
	case "request_method":
		return func(e *Event, s string, _ *scratch) error { e.Method = s; return nil }
	case "request_uri":
		return func(e *Event, s string, _ *scratch) error { e.Path = s; return nil }
	case "uri":
		return func(e *Event, s string, _ *scratch) error {
			if e.Path == "" {
				e.Path = s
			}
			return nil
		}
	case "status":
		return setStatus
	case "body_bytes_sent", "bytes_sent":
		return setBytes
	case "request_time":
		return setTook
	case "time_local":
		return setLocalTime
	case "time_iso8601":
		return setISOTime
	case "msec":
		return setEpoch
	}
	if header, ok := strings.CutPrefix(name, "http_"); ok {
		header = http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-"))
		if slices.Contains(f.headers, header) {
			return func(e *Event, s string, _ *scratch) error {
				if s = unknown(s); s != "" {
					e.Header = append(e.Header, Field{header, s})
				}
				return nil
			}
		}
	}
	return nil
}

// Parse reads one line, without its line break. The error says why it is none of this format.
func (f *Format) Parse(line string, e *Event) error {
	return f.parse(line, e, &scratch{})
}

func (f *Format) parse(line string, e *Event, m *scratch) error {
	*e = Event{}
	m.whole = false
	var err error
	if f.parts == nil {
		err = f.parseJSON(line, e, m)
	} else {
		err = f.parseText(line, e, m)
	}
	switch {
	case err != nil:
		return err
	case e.At.IsZero():
		return errors.New("no time")
	case e.Method == "" || e.Path == "":
		return errors.New("no request")
	case e.At.Year() < 1970 || e.At.Year() > 2100:
		return fmt.Errorf("the year %d", e.At.Year())
	}
	return nil
}

func (f *Format) parseText(line string, e *Event, m *scratch) error {
	rest, ok := strings.CutPrefix(line, f.parts[0].after)
	if !ok {
		return fmt.Errorf("does not begin with %q", f.parts[0].after)
	}
	for i := 1; i < len(f.parts); i++ {
		p := &f.parts[i]
		value := rest
		switch last := i == len(f.parts)-1; {
		case p.quoted && strings.HasPrefix(p.after, `"`):
			end := endQuote(rest, p.after)
			if end < 0 {
				return fmt.Errorf("no %q after field %d", p.after, i)
			}
			value, rest = rest[:end], rest[end+len(p.after):]
		case p.after != "":
			if value, rest, ok = strings.Cut(rest, p.after); !ok {
				return fmt.Errorf("no %q after field %d", p.after, i)
			}
		case last && f.open:
			value, rest, _ = strings.Cut(rest, " ")
		default:
			rest = ""
		}
		if p.set != nil {
			if err := p.set(e, unescape(value), m); err != nil {
				return err
			}
		}
	}
	if rest != "" && !f.open {
		return fmt.Errorf("%.40q at the end", rest)
	}
	return nil
}

// endQuote is where the text that closes a quoted value begins, or −1.
func endQuote(s, after string) int {
	for from := 0; ; {
		i := strings.Index(s[from:], after)
		if i < 0 {
			return -1
		}
		i += from
		slashes := 0
		for j := i - 1; j >= 0 && s[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		from = i + 1
	}
}

// unescape undoes what nginx and Apache do to characters that would end a field: \xHH, \" and \\.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		switch {
		case s[i] == '"' || s[i] == '\\':
			b = append(b, s[i])
		case s[i] == 'x' && i+2 < len(s):
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
			fallthrough
		default:
			b = append(b, '\\', s[i])
		}
	}
	return string(b)
}

// unknown is a value of which - says that there is none.
func unknown(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// setRequest reads a request line. The target may have blanks, as some clients send them; the protocol is the last word.
func setRequest(e *Event, s string) error {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || !isToken(method) {
		return fmt.Errorf("%.40q is no request", s)
	}
	if i := strings.LastIndex(rest, " HTTP/"); i >= 0 {
		rest = rest[:i]
	}
	if rest == "" {
		return fmt.Errorf("%.40q is no request", s)
	}
	e.Method, e.Path = method, rest
	return nil
}

func setStatus(e *Event, s string, _ *scratch) error {
	if s = unknown(s); s == "" {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 999 {
		return fmt.Errorf("%.20q is no status", s)
	}
	e.Status = n
	return nil
}

func setBytes(e *Event, s string, _ *scratch) error {
	if s = unknown(s); s == "" {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%.20q is no number of bytes", s)
	}
	e.Bytes = n
	return nil
}

func setTook(e *Event, s string, _ *scratch) error {
	if s = unknown(s); s == "" {
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f < 1e8) {
		return fmt.Errorf("%.20q is no number of seconds", s)
	}
	e.Took = time.Duration(math.Round(f * 1e9))
	return nil
}

var months = map[string]time.Month{
	"Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}

// setLocalTime reads 10/Oct/2000:13:55:36 -0700. Most lines have the time of the one before.
func setLocalTime(e *Event, s string, m *scratch) error {
	m.whole = true
	if s == m.text {
		e.At = m.at
		return nil
	}
	bad := fmt.Errorf("%.40q is no time; the form is 10/Oct/2000:13:55:36 -0700", s)
	if len(s) != 26 || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return bad
	}
	month, known := months[s[3:6]]
	number := func(from, to int) int {
		n := 0
		for _, c := range []byte(s[from:to]) {
			if c < '0' || c > '9' {
				known = false
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	day, year, hour, minute, second := number(0, 2), number(7, 11), number(12, 14), number(15, 17), number(18, 20)
	zone := number(22, 24)*3600 + number(24, 26)*60
	if s[21] == '-' {
		zone = -zone
	} else if s[21] != '+' {
		known = false
	}
	if !known || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60 || zone < -24*3600 || zone > 24*3600 {
		return bad
	}
	at := time.Date(year, month, day, hour, minute, second, 0, time.UTC).Add(-time.Duration(zone) * time.Second)
	m.text, m.at = strings.Clone(s), at
	e.At = at
	return nil
}

func setISOTime(e *Event, s string, m *scratch) error {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil { // 2026-11-27T08:00:00+0100, as Caddy and others write zones
		if t, err = time.Parse("2006-01-02T15:04:05.999999999Z0700", s); err != nil {
			return fmt.Errorf("%.40q is no time; the form is 2026-11-27T08:00:00+01:00", s)
		}
	}
	m.whole = !strings.ContainsAny(s, ".,")
	e.At = t.UTC()
	return nil
}

// setEpoch reads seconds since 1970, with or without a fraction.
func setEpoch(e *Event, s string, m *scratch) error {
	seconds, fraction, dot := strings.Cut(s, ".")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err == nil && n > 1e14 { // microseconds
		e.At = time.UnixMicro(n).UTC()
		return nil
	}
	if err == nil && n > 1e11 { // milliseconds
		e.At = time.UnixMilli(n).UTC()
		return nil
	}
	if f, ferr := strconv.ParseFloat(s, 64); err != nil && ferr == nil && f >= 0 && f < 1e11 { // 1.7e9
		e.At = time.UnixMicro(int64(f * 1e6)).UTC()
		return nil
	}
	if err != nil || n < 0 {
		return fmt.Errorf("%.40q is no time in seconds", s)
	}
	nanos := int64(0)
	if len(fraction) > 9 {
		fraction = fraction[:9]
	}
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			if fraction[i] < '0' || fraction[i] > '9' {
				return fmt.Errorf("%.40q is no time in seconds", s)
			}
			nanos += int64(fraction[i] - '0')
		}
	}
	m.whole = !dot
	e.At = time.Unix(n, nanos).UTC()
	return nil
}
