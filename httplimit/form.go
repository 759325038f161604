package httplimit

import "fmt"

// Form is how limits are written into header fields. The zero Form is FormDraft.
type Form int8

const (
	// FormDraft is RateLimit and RateLimit-Policy as lists of named limits: draft-ietf-httpapi-ratelimit-headers-08 and later.
	//
	//	RateLimit-Policy: "client";q=100;w=60, "daily";q=1000;w=86400
	//	RateLimit: "client";r=99;t=60, "daily";r=412;t=36000
	FormDraft Form = iota

	// FormDraft07 is RateLimit as a dictionary of one limit, and RateLimit-Policy without names.
	FormDraft07

	// FormDraft06 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset for one limit, and RateLimit-Policy.
	FormDraft06

	// FormLegacy is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, in seconds since 1970, for one limit.
	FormLegacy

	// FormNone is no fields. Refusals still have Retry-After.
	FormNone

	forms = iota
)

var formNames = [forms]string{"draft", "draft-07", "draft-06", "legacy", "none"}

// exposed are the fields of each form, for scripts of other origins.
var exposed = [forms]string{
	"RateLimit, RateLimit-Policy, Retry-After",
	"RateLimit, RateLimit-Policy, Retry-After",
	"RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, RateLimit-Reset, Retry-After",
	"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
	"Retry-After",
}

func (f Form) known() bool { return 0 <= f && f < forms }

// String is the text form, as "draft-07".
func (f Form) String() string {
	if !f.known() {
		return fmt.Sprintf("Form(%d)", int8(f))
	}
	return formNames[f]
}

// MarshalText writes the text form.
func (f Form) MarshalText() ([]byte, error) {
	if !f.known() {
		return nil, fmt.Errorf("weir: %v is not a form of headers", f)
	}
	return []byte(f.String()), nil
}

// UnmarshalText reads the text form; empty text is FormDraft.
func (f *Form) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*f = FormDraft
		return nil
	}
	for i, name := range formNames {
		if name == string(text) {
			*f = Form(i)
			return nil
		}
	}
	return fmt.Errorf("weir: headers %.40q is none of draft, draft-07, draft-06, legacy, none", text)
}
