package weir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a number of units in a period: 600 a minute, 5 every 30 seconds.
// Its text form, which it marshals to and from, is units "/" period:
// "600/m", "5/30s", "10/s", "1000/24h". The period is s, m, h or d alone, or a
// number with one of ms, s, m, h, d.
//
// The zero Rate is no rate at all: [Limit.Validate] refuses it. A Rate of zero units in
// some period is a limit that never admits anything.
type Rate struct {
	Units  int64         // units in a Period; never negative
	Period time.Duration // whole microseconds, from 1 ms to 400 days
}

const (
	minPeriod = time.Millisecond
	maxPeriod = 400 * 24 * time.Hour
)

// periods are the units of a Rate's text form, the longest first.
var periods = []struct {
	suffix string
	length time.Duration
}{
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
}

// ParseRate reads the text form of a Rate.
func ParseRate(s string) (Rate, error) {
	units, period, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, rateError(s, "no slash")
	}
	if !digits(units) {
		return Rate{}, rateError(s, "the units are not a whole number")
	}
	n, err := strconv.ParseInt(units, 10, 64)
	if err != nil {
		return Rate{}, rateError(s, "the units are too many")
	}
	d, reason := parsePeriod(period)
	if reason != "" {
		number := period[:len(period)-len(strings.TrimLeft(period, "0123456789"))]
		if unit := spelledOut[strings.ToLower(period[len(number):])]; unit != "" && len(s) <= 64 {
			reason += " (did you mean " + units + "/" + number + unit + "?)"
		}
		return Rate{}, rateError(s, reason)
	}
	return Rate{Units: n, Period: d}, nil
}

// spelledOut are units of a period as people write them who have not seen the form.
var spelledOut = map[string]string{
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"day": "d", "days": "d",
}

func rateError(s, reason string) error {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fmt.Errorf("weir: rate %q: %s; the form is units/period, as 600/m, 5/30s or 1000/24h", s, reason)
}

func parsePeriod(s string) (d time.Duration, reason string) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	suffix := s[len(number):]
	unit := 24 * time.Hour
	if suffix != "d" {
		unit = 0
		for _, p := range periods {
			if p.suffix == suffix {
				unit = p.length
			}
		}
	}
	if unit == 0 {
		return 0, "the period's unit is none of ms, s, m, h, d"
	}
	n := int64(1)
	if number != "" {
		if !digits(number) {
			return 0, "the period is not a whole number of its unit"
		}
		var err error
		if n, err = strconv.ParseInt(number, 10, 64); err != nil || n > math.MaxInt64/int64(unit) {
			return 0, "the period is over 400 days"
		}
	}
	d = time.Duration(n) * unit
	switch {
	case d < minPeriod:
		return 0, "the period is under 1 ms"
	case d > maxPeriod:
		return 0, "the period is over 400 days"
	}
	return d, ""
}

// digits reports whether s is nothing but decimal digits, so that signs,
// underscores and hexadecimal, which strconv would take, are refused.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// String is the text form. For a Rate that no text can say (a negative number, a period
// below a microsecond) it is for people only.
func (r Rate) String() string {
	for _, p := range periods {
		if r.Period > 0 && r.Period%p.length == 0 {
			n := strconv.FormatInt(int64(r.Period/p.length), 10)
			if n == "1" {
				n = ""
			}
			return strconv.FormatInt(r.Units, 10) + "/" + n + p.suffix
		}
	}
	return fmt.Sprintf("%d/%v", r.Units, r.Period)
}

// MarshalText writes the text form.
func (r Rate) MarshalText() ([]byte, error) {
	if r == (Rate{}) {
		return nil, nil
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads the text form; empty text is the zero Rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// check says what is wrong with the numbers of r.
func (r Rate) check() error {
	switch {
	case r == Rate{}:
		return fmt.Errorf("no rate; give one, as 600/m")
	case r.Units < 0:
		return fmt.Errorf("rate of %d units; it takes 0 or more", r.Units)
	case r.Period < minPeriod || r.Period > maxPeriod:
		return fmt.Errorf("rate period %v; it takes 1ms to 9600h (400 days)", r.Period)
	case r.Period%time.Microsecond != 0:
		return fmt.Errorf("rate period %v; it takes whole microseconds", r.Period)
	}
	return nil
}
