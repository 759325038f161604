package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// jsonNames are the names that fields of an access log in JSON go by: nginx leaves them to whoever writes its log_format. Those further to
// the front of an Event's field win.
var jsonNames = map[string]string{
	"time_iso8601": "time", "time_local": "time", "time": "time", "timestamp": "time", "@timestamp": "time", "ts": "time", "msec": "time", "date": "time",
	"remote_addr": "client", "client_ip": "client", "client": "client", "clientip": "client", "ip": "client", "remote_ip": "client", "remote": "client",
	"remote_user": "user", "user": "user", "user_id": "user",
	"request":        "request",
	"request_method": "method", "method": "method", "verb": "method",
	"request_uri": "path", "uri": "path", "url": "path", "path": "path",
	"host": "host", "http_host": "host", "vhost": "host",
	"status": "status", "status_code": "status", "response": "status",
	"body_bytes_sent": "bytes", "bytes_sent": "bytes", "bytes": "bytes", "size": "bytes",
	"request_time": "took", "duration": "took", "latency": "took",
	"headers": "headers",
}

// member is one name and value of a JSON object: of a text what it says, of anything else how it is written.
type member struct {
	name, value string
	kind        byte // " { [ 0 (a number), or t (true, false, null)
}

var errJSON = errors.New("not a JSON object")

// nextMember reads one member of an object; s begins behind the brace or the comma. It is not strict about what is nested deeper.
func nextMember(s string) (m member, rest string, err error) {
	s = skipBlanks(s)
	if s == "" || s[0] != '"' {
		return m, s, errJSON
	}
	if m.name, s, err = jsonText(s); err != nil {
		return m, s, err
	}
	if s = skipBlanks(s); s == "" || s[0] != ':' {
		return m, s, errJSON
	}
	if s = skipBlanks(s[1:]); s == "" {
		return m, s, errJSON
	}
	switch c := s[0]; {
	case c == '"':
		m.kind = '"'
		m.value, s, err = jsonText(s)
		return m, s, err
	case c == '{' || c == '[':
		m.kind = c
		end, err := jsonEnd(s)
		if err != nil {
			return m, s, err
		}
		m.value, s = s[:end], s[end:]
		return m, s, nil
	}
	end := strings.IndexAny(s, ",}] \t\r\n")
	if end <= 0 {
		return m, s, errJSON
	}
	m.value, s = s[:end], s[end:]
	switch {
	case m.value == "true" || m.value == "false" || m.value == "null":
		m.kind = 't'
	case m.value[0] == '-' || m.value[0] >= '0' && m.value[0] <= '9':
		m.kind = '0'
	default:
		return m, s, errJSON
	}
	return m, s, nil
}

func skipBlanks(s string) string { return strings.TrimLeft(s, " \t\r\n") }

// jsonText reads the string that s begins with.
func jsonText(s string) (text, rest string, err error) {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], nil
		case c < ' ':
			return "", s, errJSON
		case c == '\\':
			for i < len(s) && s[i] != '"' {
				if s[i] == '\\' {
					i++
				}
				i++
			}
			if i >= len(s) {
				return "", s, errJSON
			}
			if json.Unmarshal([]byte(s[:i+1]), &text) != nil {
				return "", s, errJSON
			}
			return text, s[i+1:], nil
		}
	}
	return "", s, errJSON
}

// jsonEnd is where the object or list that s begins with ends.
func jsonEnd(s string) (int, error) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
	}
	return 0, errJSON
}

// eachMember calls f for the members of the object that s is; nothing may follow it.
func eachMember(s string, f func(member) error) error {
	s = skipBlanks(s)
	if s == "" || s[0] != '{' {
		return errJSON
	}
	s = skipBlanks(s[1:])
	if s != "" && s[0] == '}' {
		s = s[1:]
	} else {
		for {
			m, rest, err := nextMember(s)
			if err != nil {
				return err
			}
			if err := f(m); err != nil {
				return err
			}
			rest = skipBlanks(rest)
			if rest == "" || rest[0] != ',' && rest[0] != '}' {
				return errJSON
			}
			s = rest[1:]
			if rest[0] == '}' {
				break
			}
		}
	}
	if skipBlanks(s) != "" {
		return errJSON
	}
	return nil
}

// parseJSON reads a line of nginx's log in JSON, or of Caddy's, where the request is an object of its own.
func (f *Format) parseJSON(line string, e *Event, m *scratch) error {
	return eachMember(line, func(v member) error {
		if v.kind == '{' && v.name == "request" {
			return eachMember(v.value, func(v member) error { return f.setJSON(&v, e, m) })
		}
		return f.setJSON(&v, e, m)
	})
}

func (f *Format) setJSON(v *member, e *Event, m *scratch) error {
	what, known := jsonNames[v.name]
	if !known {
		if header, ok := strings.CutPrefix(v.name, "http_"); ok && v.kind == '"' {
			f.keep(e, strings.ReplaceAll(header, "_", "-"), v.value)
		}
		return nil
	}
	if what == "headers" {
		if v.kind != '{' || len(f.headers) == 0 {
			return nil
		}
		return eachMember(v.value, func(v member) error {
			if v.kind == '"' {
				f.keep(e, v.name, v.value)
			} else if v.kind == '[' {
				var values []string
				if json.Unmarshal([]byte(v.value), &values) == nil {
					for _, s := range values {
						f.keep(e, v.name, s)
					}
				}
			}
			return nil
		})
	}
	if v.kind != '"' && v.kind != '0' {
		return nil
	}
	s := v.value
	switch what {
	case "time":
		if !e.At.IsZero() { // more than one: the finest
			was, whole := e.At, m.whole
			if setJSONTime(e, v, m) != nil || m.whole && !whole {
				e.At, m.whole = was, whole
			}
			return nil
		}
		return setJSONTime(e, v, m)
	case "client":
		if e.Client == "" || v.name == "client_ip" {
			e.Client = unknown(s)
		}
	case "user":
		if e.User == "" {
			e.User = unknown(s)
		}
	case "request":
		return setRequest(e, s)
	case "method":
		e.Method = s
	case "path":
		if e.Path == "" || v.name == "request_uri" {
			e.Path = s
		}
	case "host":
		if e.Host == "" {
			e.Host = unknown(s)
		}
	case "status":
		return setStatus(e, s, m)
	case "bytes":
		return setBytes(e, s, m)
	case "took":
		if v.kind == '"' {
			if d, err := time.ParseDuration(s); err == nil && d >= 0 {
				e.Took = d
				return nil
			}
		}
		return setTook(e, s, m)
	}
	return nil
}

func setJSONTime(e *Event, v *member, m *scratch) error {
	s := v.value
	switch {
	case v.kind == '0' && strings.ContainsAny(s, "eE"):
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f < 1e11) {
			return fmt.Errorf("%.40q is no time in seconds", s)
		}
		e.At = time.UnixMicro(int64(math.Round(f * 1e6))).UTC()
		return nil
	case v.kind == '0' || len(s) < 20 && strings.Trim(s, "0123456789.") == "":
		return setEpoch(e, s, m)
	case len(s) == 26 && s[2] == '/':
		return setLocalTime(e, s, m)
	}
	return setISOTime(e, s, m)
}

// keep keeps a field of a header if it is wanted.
func (f *Format) keep(e *Event, name, value string) {
	if len(f.headers) == 0 || unknown(value) == "" {
		return
	}
	name = http.CanonicalHeaderKey(name)
	if slices.Contains(f.headers, name) {
		e.Header = append(e.Header, Field{name, value})
	}
}
