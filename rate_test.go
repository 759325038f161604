package weir

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestRateText(t *testing.T) {
	for _, c := range []struct {
		text string
		rate Rate
		back string // what it marshals to; text if empty
	}{
		{"600/m", Rate{600, time.Minute}, ""},
		{"5/30s", Rate{5, 30 * time.Second}, ""},
		{"10/s", Rate{10, time.Second}, ""},
		{"1000/24h", Rate{1000, 24 * time.Hour}, ""},
		{"1/30d", Rate{1, 30 * 24 * time.Hour}, "1/720h"},
		{"1000/d", Rate{1000, 24 * time.Hour}, "1000/24h"},
		{"7/90s", Rate{7, 90 * time.Second}, ""},
		{"1/60m", Rate{1, time.Hour}, "1/h"},
		{"3/250ms", Rate{3, 250 * time.Millisecond}, ""},
		{"3/1500us", Rate{3, 1500 * time.Microsecond}, ""},
		{"0/m", Rate{0, time.Minute}, ""},
		{"9223372036854775807/h", Rate{math.MaxInt64, time.Hour}, ""},
	} {
		got, err := ParseRate(c.text)
		if err != nil || got != c.rate {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", c.text, got, err, c.rate)
			continue
		}
		if c.back == "" {
			c.back = c.text
		}
		if text, err := got.MarshalText(); err != nil || string(text) != c.back {
			t.Errorf("%q marshals to %q, %v; want %q", c.text, text, err, c.back)
		}
	}
}

func TestRateTextRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "no slash",
		"600":                     "no slash",
		"7/fortnight":             "the period's unit is none of ms, s, m, h, d",
		"100/minute":              "none of ms, s, m, h, d (did you mean 100/m?)",
		"5/30Sec":                 "(did you mean 5/30s?)",
		"/m":                      "the units are not a whole number",
		"-5/m":                    "the units are not a whole number",
		"+5/m":                    "the units are not a whole number",
		"1e3/m":                   "the units are not a whole number",
		"0x10/m":                  "the units are not a whole number",
		"1_000/m":                 "the units are not a whole number",
		"1.5/m":                   "the units are not a whole number",
		"NaN/m":                   "the units are not a whole number",
		"9223372036854775808/s":   "the units are too many",
		"5/":                      "the period's unit is none of ms, s, m, h, d",
		"5/30":                    "the period's unit is none of ms, s, m, h, d",
		"5/-30s":                  "the period is not a whole number of its unit",
		"5/1.5s":                  "the period is not a whole number of its unit",
		"5/0s":                    "the period is under 1 ms",
		"5/999us":                 "the period is under 1 ms",
		"5/401d":                  "the period is over 400 days",
		"5/99999999999999999999s": "the period is over 400 days",
		"5/9223372036854775807d":  "the period is over 400 days",
		"5 / m":                   "the units are not a whole number",
		"5/m ":                    "the period's unit is none of ms, s, m, h, d",
	} {
		r, err := ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q) = %v, %v; want an error that says %q", text, r, err, want)
		}
		if err != nil && (!strings.Contains(err.Error(), "units/period") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("ParseRate(%q): %v; want one line that names the form", text, err)
		}
	}
}

func FuzzRate(f *testing.F) {
	for _, s := range []string{"600/m", "5/30s", "1000/24h", "7/fortnight", "", "/", "1/1us", "9223372036854775807/400d", strings.Repeat("\xdb", 80)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			if len(err.Error()) > 400 { // of 64 bytes, each may be written as four
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		text, err := r.MarshalText()
		if err != nil {
			t.Fatalf("%q is %+v, which does not marshal: %v", s, r, err)
		}
		if back, err := ParseRate(string(text)); err != nil || back != r {
			t.Fatalf("%q is %+v, marshals to %q, which is %+v, %v", s, r, text, back, err)
		}
		l := &Limit{Name: "fuzz", Rate: r}
		if err := l.Validate(); err != nil && !errors.Is(err, ErrTooFine) {
			t.Fatalf("a limit at %q: %v", s, err)
		}
	})
}

func TestAlgorithmAndPriorityText(t *testing.T) {
	for a := TokenBucket; a < algorithms; a++ {
		text, err := a.MarshalText()
		var back Algorithm
		if err != nil || back.UnmarshalText(text) != nil || back != a {
			t.Errorf("%v marshals to %q, %v, and back to %v", a, text, err, back)
		}
	}
	for p := Low; p <= High; p++ {
		text, err := p.MarshalText()
		back := Priority(9)
		if err != nil || back.UnmarshalText(text) != nil || back != p {
			t.Errorf("%v marshals to %q, %v, and back to %v", p, text, err, back)
		}
	}
	var a Algorithm
	if err := a.UnmarshalText([]byte("leaky")); err == nil || !strings.Contains(err.Error(), "leaky-bucket") {
		t.Errorf("algorithm leaky: %v; want an error that lists the names", err)
	}
	if _, err := Algorithm(99).MarshalText(); err == nil {
		t.Error("Algorithm(99) marshals")
	}
	if _, err := Priority(2).MarshalText(); err == nil {
		t.Error("Priority(2) marshals")
	}
}

func TestValidate(t *testing.T) {
	minute := Rate{100, time.Minute}
	for _, c := range []struct {
		limit Limit
		want  string // "" is valid
	}{
		{Limit{Name: "client", Rate: minute}, ""},
		{Limit{Name: "closed", Rate: Rate{0, time.Minute}}, ""},
		{Limit{Name: "fair", Rate: Rate{999_983, 24 * time.Hour}}, ""},
		{Limit{Name: "slow", Rate: Rate{1, 30 * 24 * time.Hour}}, ""},
		{Limit{Name: "fast", Rate: Rate{1_000_000, time.Second}}, ""},
		{Limit{Name: "faster", Rate: Rate{2_000_000_000, time.Second}}, ""},
		{Limit{Name: "month", Algorithm: SlidingWindow, Rate: Rate{1_000_000, 30 * 24 * time.Hour}}, ""},
		{Limit{Name: "month", Algorithm: FixedWindow, Rate: Rate{1_000_000, 30 * 24 * time.Hour}}, ""},
		{Limit{Name: "gcra", Algorithm: GCRA, Rate: Rate{1000, time.Second}}, ""},

		{Limit{Rate: minute}, `limit "": no name`},
		{Limit{Name: "a b", Rate: minute}, `name with the character " "`},
		{Limit{Name: "ü", Rate: minute}, `name with the character`},
		{Limit{Name: `a"b`, Rate: minute}, `name with the character "\""`},
		{Limit{Name: strings.Repeat("n", 65), Rate: minute}, `name of 65 bytes; it takes up to 64`},
		{Limit{Name: "client"}, `limit "client": no rate`},
		{Limit{Name: "client", Rate: Rate{-1, time.Minute}}, `rate of -1 units`},
		{Limit{Name: "client", Rate: Rate{1, -time.Minute}}, `rate period -1m0s`},
		{Limit{Name: "client", Rate: Rate{1, time.Microsecond}}, `rate period 1µs`},
		{Limit{Name: "client", Rate: Rate{1, 401 * 24 * time.Hour}}, `rate period 9624h0m0s`},
		{Limit{Name: "client", Rate: Rate{1, time.Second + 1}}, `whole microseconds`},
		{Limit{Name: "client", Rate: minute, Burst: -1}, `burst -1; it takes 0 or more`},
		{Limit{Name: "client", Rate: minute, Algorithm: 99}, `is not an algorithm`},
		{Limit{Name: "client", Rate: minute, Algorithm: FixedWindow, Burst: 20}, `leave burst out`},
		{Limit{Name: "client", Rate: minute, Headroom: -1}, `headroom -1`},
		{Limit{Name: "client", Rate: minute, Headroom: 50}, `less than half`},
		{Limit{Name: "client", Rate: minute, Headroom: 49}, ``},
		{Limit{Name: "client", Rate: minute, Headroom: 10, Algorithm: LeakyBucket}, `headroom with leaky-bucket`},
		{Limit{Name: "client", Rate: Rate{1, 30 * 24 * time.Hour}, Burst: 1_000_000}, `a burst up to 434 fits`},
		{Limit{Name: "client", Rate: Rate{999_983, 24 * time.Hour}, Burst: 10_000_000_000}, `a burst up to 13031 fits`}, // it would be off by 6·10⁻⁶
		{Limit{Name: "client", Rate: Rate{math.MaxInt64, time.Second}}, `too fine`},
		{Limit{Name: "client", Rate: minute, Burst: math.MaxInt64}, `too fine`},
		{Limit{Name: "client", Algorithm: GCRA, Rate: Rate{700_000, time.Second}}, `token-bucket keeps it exactly`},
		{Limit{Name: "client", Algorithm: SlidingLog, Rate: Rate{1_000_000, time.Hour}}, `it takes up to 100000, or use sliding-window`},
		{Limit{Name: "client", Algorithm: SlidingWindow, Rate: Rate{math.MaxInt64, time.Hour}}, `too fine`},
	} {
		err := c.limit.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v; want no error", c.limit, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "weir: limit ")):
			t.Errorf("%+v: %v; want an error that says %q", c.limit, err, c.want)
		}
	}
	if err := (*Limit)(nil).Validate(); !errors.Is(err, ErrNoLimit) {
		t.Errorf("no limit: %v; want ErrNoLimit", err)
	}
}

// TestLowerFraction compares with the definition: of all fractions that are not more, the nearest.
func TestLowerFraction(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n, p, most := 1+rng.Int64N(500), 1+rng.Int64N(500), 1+rng.Int64N(60)
		gotN, gotP := lowerFraction(n, p, most)
		bestN, bestP := int64(0), int64(1)
		for q := int64(1); q <= most; q++ {
			if m := n * q / p; m*bestP > bestN*q {
				bestN, bestP = m, q
			}
		}
		if gotN*bestP != bestN*gotP || gotP > most {
			t.Fatalf("the largest fraction ≤ %d/%d with a denominator ≤ %d is %d/%d; got %d/%d", n, p, most, bestN, bestP, gotN, gotP)
		}
	}
}

// TestTooFineIsNearlyExact checks that a limit which is kept as another fraction is never faster, and slower by
// less than one part in a million.
func TestTooFineIsNearlyExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	stood := 0
	for range 2000 {
		l := &Limit{Name: "x", Rate: Rate{1 + rng.Int64N(2_000_000), time.Duration(1+rng.Int64N(86400)) * time.Second}}
		law, err := l.Law()
		if err != nil {
			t.Fatalf("%v: %v", l.Rate, err)
		}
		want := big.NewRat(l.Rate.Units, int64(l.Rate.Period/time.Microsecond))
		got := big.NewRat(law.N, law.P)
		off, _ := new(big.Rat).Quo(new(big.Rat).Sub(want, got), want).Float64()
		if off < 0 || off >= 1e-6 {
			t.Fatalf("%v is kept as %v a µs, off by %g", l.Rate, got, off)
		}
		if off > 0 {
			stood++
		}
	}
	if stood == 0 {
		t.Error("no rate needed another fraction: the test tests nothing")
	}
}
