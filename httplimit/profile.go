package httplimit

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Profile is what is known of one provider's answers, where its header fields alone mislead.
type Profile struct {
	Name string

	// Hosts are those it is for: itself and every name below.
	Hosts []string

	// Refusals are the statuses, beside 429, with which it refuses for the rate.
	Refusals []int

	// RefusalBody has what the body of such an answer contains, in any letter case, if it is a refusal and not something
	// else of the same status. Empty means that each is a refusal.
	RefusalBody []string

	// Floor is the least time to hold after a refusal that does not say how long.
	Floor time.Duration

	// MaxHold is how long a wait it may ask for, if it is longer than Transport.MaxHold says by default.
	MaxHold time.Duration

	// RetryAfterMillis says that a plain number in Retry-After is milliseconds.
	RetryAfterMillis bool

	// RetryAfterWins says that Retry-After counts even where a quota comes back later: its reset is when
	// all units are back, not the first.
	RetryAfterWins bool

	// ReasonField is a header field with words for people.
	ReasonField string

	// Rate is the published rate, for the information of those who set up gates; the zero Rate if there is no single one.
	Rate weir.Rate

	explain func(status int, reason string) (Advice, bool)
	marks   func(http.Header) bool // whether an answer is from this provider
}

// Profiles are the providers that are known to need one.
var Profiles = []*Profile{
	{
		Name: "github", Hosts: []string{"api.github.com", "uploads.github.com"},
		Refusals: []int{http.StatusForbidden}, RefusalBody: []string{"rate limit", "abuse"},
		Floor: time.Minute, MaxHold: 65 * time.Minute,
		marks: func(h http.Header) bool { return h.Get("X-Github-Request-Id") != "" },
	},
	{
		Name: "nvd", Hosts: []string{"services.nvd.nist.gov"},
		Refusals: []int{http.StatusForbidden}, Floor: 30 * time.Second,
		ReasonField: "Message", Rate: weir.Rate{Units: 5, Period: 30 * time.Second},
		explain: explainNVD,
	},
	{Name: "openai", Hosts: []string{"api.openai.com", "openai.azure.com"}, RetryAfterWins: true},
	{Name: "discord", Hosts: []string{"discord.com", "discordapp.com"}, ReasonField: "X-Ratelimit-Scope"},
	{Name: "discord-v6", RetryAfterMillis: true},
	{Name: "shopify", Hosts: []string{"myshopify.com"}, Floor: time.Second},
	{Name: "stripe", Hosts: []string{"api.stripe.com"}, ReasonField: "Stripe-Rate-Limited-Reason"},
	{Name: "slack", Hosts: []string{"slack.com"}, Floor: 30 * time.Second},
	{Name: "jira", Hosts: []string{"atlassian.net"}, MaxHold: 65 * time.Minute, ReasonField: "Ratelimit-Reason"},
	{Name: "cloudflare", Hosts: []string{"api.cloudflare.com"}, Floor: 5 * time.Minute},
}

// explainNVD reads the message field of the NVD: its 404s are about parameters and keys, never about a CVE that does not exist.
func explainNVD(status int, reason string) (Advice, bool) {
	if status != http.StatusNotFound || reason == "" {
		return 0, false
	}
	if strings.Contains(strings.ToLower(reason), "apikey") {
		return Stop, true
	}
	return Change, true
}

// ProfileNamed is the one of Profiles with that name, or nil.
func ProfileNamed(name string) *Profile {
	for _, p := range Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// ProfileFor is the one of Profiles for the host of a URL, or nil.
func ProfileFor(u *url.URL) *Profile {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	for _, p := range Profiles {
		for _, h := range p.Hosts {
			if host == h || strings.HasSuffix(host, "."+h) {
				return p
			}
		}
	}
	return nil
}

// profileOf is the one of Profiles whose mark the header bears, or nil.
func profileOf(h http.Header) *Profile {
	for _, p := range Profiles {
		if p.marks != nil && p.marks(h) {
			return p
		}
	}
	return nil
}

func (p *Profile) refuses(status int) bool { return p != nil && slices.Contains(p.Refusals, status) }

// needsBody reports whether the body of such an answer has to be looked into.
func (p *Profile) needsBody(status int) bool {
	return p.refuses(status) && status != http.StatusTooManyRequests && len(p.RefusalBody) > 0
}

// bodyDenies reports whether the body is known and is not that of a refusal.
func (p *Profile) bodyDenies(body []byte) bool {
	if body == nil || len(p.RefusalBody) == 0 {
		return false
	}
	body = bytes.ToLower(body)
	for _, words := range p.RefusalBody {
		if bytes.Contains(body, []byte(words)) {
			return false
		}
	}
	return true
}
