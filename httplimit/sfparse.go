package httplimit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// maxFieldBytes bounds how much of a structured field is looked at: ten times the length of any seen in the wild.
const maxFieldBytes = 8 << 10

var (
	errFieldTooLong = fmt.Errorf("longer than %d bytes", maxFieldBytes)
	errMember       = errors.New("a member is not an item")
	errName         = errors.New("a name is neither a string nor a token")
	errParameter    = errors.New("a parameter is missing or of another type")
)

// structured reads RateLimit and RateLimit-Policy of the drafts from 04 on.
func (r *reading) structured() {
	policies := r.policies()
	lines := r.h["Ratelimit"]
	if len(lines) == 0 {
		r.Quotas = append(r.Quotas, policies...)
		return
	}
	value := strings.Join(lines, ", ")
	limits, err := parseLimits(lines)
	if err != nil {
		if q, ok := parseDraft07(lines); ok {
			limits, err = []Quota{q}, nil
		}
	}
	if err != nil {
		r.note("RateLimit", value, "malformed, ignored as a whole: %v", err)
		r.Quotas = append(r.Quotas, policies...)
		return
	}
	used := make([]bool, len(policies))
	for _, q := range limits {
		for i := range policies {
			if p := &policies[i]; p.Name == q.Name && p.Name != "" {
				q.Unit, q.Window, used[i] = p.Unit, p.Window, true
				if q.Limit < 0 {
					q.Limit = p.Limit
				}
			}
		}
		q.Source = "RateLimit"
		if q.Reset == 0 {
			q.Reset = Unknown
		}
		more := ""
		if q.Reset > 0 {
			more = fmt.Sprintf(", more in %v", q.Reset)
		}
		if !q.Requests() {
			more += fmt.Sprintf("; it counts %s, which does not pace requests", q.Unit)
		}
		r.note("RateLimit", value, "%s: %d left%s", q.title(), q.Remaining, more)
		r.Quotas = append(r.Quotas, q)
	}
	for i := range policies {
		if !used[i] {
			r.Quotas = append(r.Quotas, policies[i])
		}
	}
}

func (q *Quota) title() string {
	if q.Name == "" {
		return "quota"
	}
	return fmt.Sprintf("quota %q", q.Name)
}

func (r *reading) policies() []Quota {
	lines := r.h["Ratelimit-Policy"]
	if len(lines) == 0 {
		return nil
	}
	value := strings.Join(lines, ", ")
	policies, err := parsePolicies(lines)
	if err != nil {
		r.note("RateLimit-Policy", value, "malformed, ignored as a whole: %v", err)
		return nil
	}
	for i := range policies {
		q := &policies[i]
		unit, window := "requests", ""
		if !q.Requests() {
			unit = q.Unit + ", which does not pace requests"
		}
		if q.Window > 0 {
			window = fmt.Sprintf(" in %v", q.Window)
		}
		r.note("RateLimit-Policy", value, "%s: %d%s, counting %s", q.title(), q.Limit, window, unit)
	}
	return policies
}

// parsePolicies reads RateLimit-Policy: names with the quota q, the window w in seconds and the unit qu; in the
// drafts 04 to 07 the name is the quota itself.
func parsePolicies(lines []string) ([]Quota, error) {
	items, err := parseList(lines)
	if err != nil {
		return nil, err
	}
	quotas := make([]Quota, 0, len(items))
	for _, item := range items {
		q := Quota{Remaining: Unknown, Reset: Unknown, Source: "RateLimit-Policy"}
		if n, ok := item.Value.(int64); ok {
			q.Limit = n
		} else {
			if q.Name, err = name(item); err != nil {
				return nil, err
			}
			if q.Limit, err = whole(item.Params, "q"); err != nil {
				return nil, err
			}
		}
		if q.Limit < 0 {
			return nil, errParameter
		}
		if _, ok := item.Params.Get("w"); ok {
			w, err := whole(item.Params, "w")
			if err != nil {
				return nil, err
			}
			q.Window = seconds(w)
		}
		if unit, ok := item.Params.Get("qu"); ok {
			switch unit := unit.(type) {
			case string:
				q.Unit = unit
			case httpsfv.Token:
				q.Unit = string(unit)
			default:
				return nil, errParameter
			}
		}
		quotas = append(quotas, q)
	}
	return quotas, nil
}

// parseLimits reads RateLimit of the drafts from 08 on: names with what remains, r, and the seconds until more, t; or a and w, as
// has been proposed for the next.
func parseLimits(lines []string) ([]Quota, error) {
	items, err := parseList(lines)
	if err != nil {
		return nil, err
	}
	quotas := make([]Quota, 0, len(items))
	for _, item := range items {
		q := Quota{Limit: Unknown, Reset: Unknown}
		if q.Name, err = name(item); err != nil {
			return nil, err
		}
		if q.Remaining, err = whole(item.Params, "r", "a"); err != nil {
			return nil, err
		}
		for _, key := range [...]string{"t", "w"} {
			if _, ok := item.Params.Get(key); ok {
				t, err := whole(item.Params, key)
				if err != nil {
					return nil, err
				}
				q.Reset = seconds(t)
				break
			}
		}
		quotas = append(quotas, q)
	}
	return quotas, nil
}

// parseDraft07 reads RateLimit of draft 07, "limit=100, remaining=50, reset=5".
func parseDraft07(lines []string) (Quota, bool) {
	q := Quota{Limit: Unknown, Remaining: Unknown, Reset: Unknown}
	if size(lines) > maxFieldBytes {
		return q, false
	}
	dict, err := httpsfv.UnmarshalDictionary(padBytes(lines))
	if err != nil {
		return q, false
	}
	get := func(key string, to *int64) bool {
		member, ok := dict.Get(key)
		if !ok {
			return true
		}
		item, ok := member.(httpsfv.Item)
		if !ok {
			return false
		}
		n, ok := item.Value.(int64)
		*to = n
		return ok && n >= 0
	}
	reset := int64(Unknown)
	if !get("limit", &q.Limit) || !get("remaining", &q.Remaining) || !get("reset", &reset) || q.Remaining < 0 {
		return q, false
	}
	if reset >= 0 {
		q.Reset = seconds(reset)
	}
	return q, true
}

func seconds(n int64) time.Duration { return saturate(float64(n) * float64(time.Second)) }

// parseList reads a list of items, without inner lists.
func parseList(lines []string) ([]httpsfv.Item, error) {
	if size(lines) > maxFieldBytes {
		return nil, errFieldTooLong
	}
	list, err := httpsfv.UnmarshalList(padBytes(lines))
	if err != nil {
		return nil, err
	}
	items := make([]httpsfv.Item, len(list))
	for i, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, errMember
		}
		items[i] = item
	}
	return items, nil
}

func size(lines []string) int {
	n := 0
	for _, l := range lines {
		n += len(l) + 2
	}
	return n
}

func name(item httpsfv.Item) (string, error) {
	switch v := item.Value.(type) {
	case string:
		return v, nil
	case httpsfv.Token:
		return string(v), nil
	}
	return "", errName
}

// whole is the first of the parameters that is there, a whole number of 0 or more.
func whole(p *httpsfv.Params, keys ...string) (int64, error) {
	for _, key := range keys {
		if v, ok := p.Get(key); ok {
			if n, ok := v.(int64); ok && n >= 0 {
				return n, nil
			}
			return 0, fmt.Errorf("%w: %s", errParameter, key)
		}
	}
	return 0, fmt.Errorf("%w: %s", errParameter, keys[0])
}

// padBytes completes the padding of byte sequences, which RFC 9651 asks parsers not to insist on and httpsfv does: ":YQ:" becomes
// ":YQ==:". It looks outside of strings only, and leaves alone what is no byte sequence.
func padBytes(lines []string) []string {
	var padded []string
	for i, line := range lines {
		if strings.IndexByte(line, ':') < 0 {
			continue
		}
		if padded == nil {
			padded = append([]string(nil), lines...)
		}
		padded[i] = padLine(line)
	}
	if padded == nil {
		return lines
	}
	return padded
}

func padLine(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		end := i + 1
		switch s[i] {
		case '"':
			for end < len(s) && s[end] != '"' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(s))
		case ':':
			if i == 0 || !startsItem(s[i-1]) {
				break // part of a token
			}
			n := strings.IndexByte(s[i+1:], ':')
			if n < 0 {
				break
			}
			end = i + 1 + n + 1
			b.WriteString(s[i : end-1])
			if strings.IndexByte(s[i:end], '=') < 0 {
				b.WriteString("=="[:(4-n%4)%4%3])
			}
			b.WriteByte(':')
			i = end
			continue
		}
		b.WriteString(s[i:end])
		i = end
	}
	return b.String()
}

// startsItem reports whether an item can begin after c.
func startsItem(c byte) bool { return c == '=' || c == ' ' || c == ',' || c == '\t' }
