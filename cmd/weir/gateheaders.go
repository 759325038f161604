package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/httplimit"
)

// gateHeaders is what weir gate-headers is to do.
type gateHeaders struct {
	profile string
	status  int
	at      string
	maxHold time.Duration
	json    bool
}

func newGateHeaders() *cobra.Command {
	var g gateHeaders
	cmd := &cobra.Command{
		Use:   "gate-headers [FILE]",
		Short: "Explain what a server's answer asks of its client",
		Long: `gate-headers reads an answer as curl -i or curl -v prints it, from FILE or standard input, and says what a client
must do about its rate, and which header field says so. Of several answers (a redirect, 100 Continue) the last counts. Nothing
is sent anywhere.

Absolute times are taken against the answer's Date; where it has none, against --at, else against now.`,
		Example: "  curl -si https://api.github.com/users/octocat | weir gate-headers\n  weir gate-headers --profile nvd answer.txt",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&g.profile, "profile", "", "the provider, one of "+strings.Join(profileNames(), ", ")+"; else found by the header, if at all")
	f.IntVar(&g.status, "status", 0, "the status, for a header without its status line")
	f.StringVar(&g.at, "at", "", "when the answer came, as 2026-11-30T20:00:00Z")
	f.DurationVar(&g.maxHold, "max-hold", 10*time.Minute, "the longest wait to accept")
	f.BoolVar(&g.json, "json", false, "print JSON")
	return cmd
}

func profileNames() []string {
	names := make([]string, len(httplimit.Profiles))
	for i, p := range httplimit.Profiles {
		names[i] = p.Name
	}
	return names
}

func (g *gateHeaders) run(cmd *cobra.Command, args []string) error {
	profile := httplimit.ProfileNamed(g.profile)
	if g.profile != "" && profile == nil {
		return badUsage("weir: gate-headers: profile %q is none of %s", g.profile, strings.Join(profileNames(), ", "))
	}
	if g.status != 0 && (g.status < 100 || g.status > 599) {
		return badUsage("weir: gate-headers: status %d is none of 100 to 599", g.status)
	}
	if g.maxHold < 0 {
		return badUsage("--max-hold %v: want 0 or more", g.maxHold)
	}
	now := time.Now()
	if g.at != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, g.at); err != nil {
			return badUsage("weir: gate-headers: --at %q is not a time as 2026-11-30T20:00:00Z", g.at)
		}
	}
	var in io.Reader = &stoppable{cmd.Context(), cmd.InOrStdin()}
	if len(args) == 1 && args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return badUsage("%v", err)
		}
		defer f.Close()
		in = f
	}
	d, err := readDump(in, g.status)
	if errors.Is(err, context.Canceled) {
		return failed(errors.New("interrupted"))
	}
	if err != nil {
		return failed(fmt.Errorf("weir: gate-headers: %w", err))
	}
	a := httplimit.ReadAnswer(d.status, d.header, d.body, now, profile)
	if g.json {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return failed(enc.Encode(g.report(&a)))
	}
	_, err = io.WriteString(cmd.OutOrStdout(), g.text(&a))
	return failed(err)
}

// dump is an answer as curl prints it.
type dump struct {
	status int
	header http.Header
	body   []byte // its start; nil if there is none
}

const (
	maxDump     = 1 << 20
	maxDumpBody = 64 << 10
)

// readDump reads the last answer of curl -i or curl -v. Without a status line, status is that of the only one.
func readDump(r io.Reader, status int) (*dump, error) {
	in := bufio.NewReader(io.LimitReader(r, maxDump))
	d := &dump{status: status}
	if status != 0 {
		d.header = http.Header{}
	}
	inHeader, verbose := status != 0, false
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if line == "" && err == io.EOF {
			break
		}
		text := strings.TrimRight(line, "\r\n")
		if n == 1 {
			text = strings.TrimPrefix(text, byteOrderMark)
		}
		if rest, ok := strings.CutPrefix(text, "< "); ok || text == "<" { // curl -v
			text, verbose = rest, true
			if !ok {
				text = ""
			}
		} else if verbose && inHeader {
			continue // what curl says in between
		}
		switch code, ok := statusLine(text); {
		case ok && !inHeader && (d.status/100 == 3 || len(bytes.TrimSpace(d.body)) == 0): // the page of a redirect is nobody's answer
			d.status, d.header, d.body, inHeader = code, http.Header{}, nil, true
		case d.header == nil:
			// Before the first answer: a request, or what curl -v says.
		case !inHeader:
			if len(d.body)+len(line) <= maxDumpBody {
				d.body = append(d.body, line...)
			}
		case text == "":
			inHeader = false
		default:
			name, value, ok := strings.Cut(text, ":")
			if !ok || name == "" || strings.ContainsAny(name, " \t") {
				return nil, fmt.Errorf("line %d, %.60q, is not a header field", n, text)
			}
			d.header.Add(name, strings.TrimSpace(value))
		}
	}
	if d.header == nil {
		return nil, errors.New("no answer found; it takes what curl -i prints, from a line as HTTP/1.1 429 on, or a header with --status")
	}
	if len(bytes.TrimSpace(d.body)) == 0 {
		d.body = nil
	}
	return d, nil
}

// statusLine reads "HTTP/1.1 429 Too Many Requests" or "HTTP/2 429".
func statusLine(s string) (status int, ok bool) {
	rest, ok := strings.CutPrefix(s, "HTTP/")
	if !ok {
		return 0, false
	}
	_, rest, ok = strings.Cut(rest, " ")
	code, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	status, err := strconv.Atoi(code)
	return status, ok && err == nil && len(code) == 3 && status >= 100
}

// advice is what to do, in a sentence or two.
func (g *gateHeaders) advice(a *httplimit.Answer) string {
	switch a.Advice {
	case httplimit.HoldOn:
		who := "every worker, on every machine, that shares the quota"
		switch {
		case a.Concurrent:
			return "Refused for too many requests at once. Use fewer workers; waiting alone does not help."
		case a.Wait == 0:
			return "Refused for the rate, without a word on how long. Stop " + who + ", for at least the window of the limit; wait longer each time."
		case a.Wait > g.maxHold:
			return fmt.Sprintf("Refused for the rate. The server asks for a wait of %v (%s), more than the %v that are accepted: stop %s, and give this request up.",
				span(a.Wait), a.Source, g.maxHold, who)
		}
		return fmt.Sprintf("Refused for the rate. Stop %s, for %s (%s); then send the request again.", who, span(a.Wait), a.Source)
	case httplimit.BackOff:
		if a.Wait > 0 {
			return fmt.Sprintf("The server is unwell. Send this request again after %v (%s); others need not wait.", a.Wait, a.Source)
		}
		return "The server is unwell. Send this request again after a random time that grows with each failure; others need not wait."
	case httplimit.Change:
		return "The request is wrong, or not allowed. Sent again it gets the same answer."
	case httplimit.Stop:
		return "The caller is wrong, not the request: no request will do better before that is put right."
	}
	if pause := a.Pause(0); pause > 0 {
		return fmt.Sprintf("Go on, but not now: nothing is left of the quota for %v.", pause)
	}
	if pace := a.Pace(); pace > 0 {
		return fmt.Sprintf("Go on. A request every %v makes what is left last.", pace.Round(time.Millisecond))
	}
	return "Go on."
}

func (g *gateHeaders) text(a *httplimit.Answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n\n%s\n", a.Status, http.StatusText(a.Status), g.advice(a))
	if a.Reason != "" {
		fmt.Fprintf(&b, "The server's reason: %s\n", printable(a.Reason))
	}
	if len(a.Quotas) > 0 {
		b.WriteString("\nQuotas:\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  NAME\tCOUNTS\tLEFT\tLIMIT\tWINDOW\tMORE IN")
		for _, q := range a.Quotas {
			unit := q.Unit
			if unit == "" {
				unit = "requests"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", dash(printable(q.Name)), printable(unit),
				number(q.Remaining), number(q.Limit), length(q.Window), length(q.Reset))
		}
		w.Flush()
	}
	if len(a.Notes) > 0 {
		b.WriteString("\nHow it was read:\n")
		for _, n := range a.Notes {
			fmt.Fprintf(&b, "  %s: %s\n      %s\n", n.Field, printable(n.Value), printable(n.Meaning))
		}
	}
	return b.String()
}

// printable is s without what would move the cursor of a terminal: a server chooses it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, s)
}

// span is a time to wait in words that can be read: nobody knows how long 2562047h47m16.854775807s is.
func span(d time.Duration) string {
	if days := d / (24 * time.Hour); days >= 4 {
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func length(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return d.String()
}

// answerReport is the JSON of weir gate-headers. What is unknown is left out.
type answerReport struct {
	Status      int              `json:"status"`
	Advice      httplimit.Advice `json:"advice"`
	WaitSeconds float64          `json:"wait_seconds,omitempty"`
	Source      string           `json:"source,omitempty"`
	TooLong     bool             `json:"too_long,omitempty"` // more than --max-hold
	Concurrent  bool             `json:"concurrent,omitempty"`
	Pause       float64          `json:"pause_seconds,omitempty"`
	Pace        float64          `json:"pace_seconds,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Explanation string           `json:"explanation"`
	Quotas      []quotaReport    `json:"quotas"`
	Notes       []httplimit.Note `json:"notes"`
}

type quotaReport struct {
	Name          string  `json:"name,omitempty"`
	Unit          string  `json:"unit"`
	Limit         *int64  `json:"limit,omitempty"`
	Remaining     *int64  `json:"remaining,omitempty"`
	WindowSeconds float64 `json:"window_seconds,omitempty"`
	ResetSeconds  float64 `json:"reset_seconds,omitempty"`
	Source        string  `json:"source"`
}

func (g *gateHeaders) report(a *httplimit.Answer) *answerReport {
	r := &answerReport{
		Status: a.Status, Advice: a.Advice, WaitSeconds: a.Wait.Seconds(), Source: a.Source, TooLong: a.Wait > g.maxHold,
		Concurrent: a.Concurrent, Reason: a.Reason, Explanation: g.advice(a),
		Quotas: make([]quotaReport, 0, len(a.Quotas)), Notes: append([]httplimit.Note{}, a.Notes...),
	}
	if a.Advice == httplimit.GoOn {
		r.Pause, r.Pace = a.Pause(0).Seconds(), a.Pace().Seconds()
	}
	for _, q := range a.Quotas {
		o := quotaReport{Name: q.Name, Unit: q.Unit, WindowSeconds: q.Window.Seconds(), Source: q.Source}
		if o.Unit == "" {
			o.Unit = "requests"
		}
		if q.Limit >= 0 {
			o.Limit = &q.Limit
		}
		if q.Remaining >= 0 {
			o.Remaining = &q.Remaining
		}
		if q.Reset > 0 {
			o.ResetSeconds = q.Reset.Seconds()
		}
		r.Quotas = append(r.Quotas, o)
	}
	return r
}
