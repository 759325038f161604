package vulnwatch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what sort of change it is, the most urgent first.
type Kind string

const (
	KEVListed     Kind = "kev_listed"     // CISA lists it as exploited
	KEVRansomware Kind = "kev_ransomware" // its use in ransomware campaigns became known, or is no longer said
	KEVDue        Kind = "kev_due"        // the due date moved
	KEVRemoved    Kind = "kev_removed"    // CISA has taken it off the catalogue
	KEVDisagrees  Kind = "kev_disagrees"  // NVD's own KEV fields say otherwise than CISA, or do so no longer
	ScoreChanged  Kind = "score"          // a CVSS score or vector
	StatusChanged Kind = "status"         // of the NVD's analysis
	RefsChanged   Kind = "references"     //
	CWEChanged    Kind = "cwe"            //
	Gone          Kind = "gone"           // the NVD no longer knows it
	Appeared      Kind = "appeared"       // known to the NVD for the first time
	Wording       Kind = "wording"        // of the description, or of the KEV entry
)

// Kinds are all kinds, the most urgent first.
var Kinds = []Kind{KEVListed, KEVRansomware, KEVDue, KEVRemoved, KEVDisagrees, ScoreChanged, StatusChanged, RefsChanged, CWEChanged, Gone, Appeared, Wording}

// KEV reports whether the change is one of CISA's catalogue.
func (k Kind) KEV() bool { return strings.HasPrefix(string(k), "kev_") }

// Change is one line of the history.
type Change struct {
	// ID stays the same for ever: of the run that found it, the CVE and what changed.
	ID   string    `json:"id"`
	Time time.Time `json:"time"` // of the run that found it
	CVE  string    `json:"cve"`
	Kind Kind      `json:"kind"`
	What string    `json:"what,omitempty"` // of several of its kind: which score, which link
	Old  string    `json:"old,omitempty"`
	New  string    `json:"new,omitempty"`
	Text string    `json:"text"` // one sentence for people

	// Also are the other CVEs with the very same change in the same run, where many are folded into one.
	Also []string `json:"also,omitempty"`
}

// stamp gives the changes their time and their ids.
func stamp(changes []Change, at time.Time) {
	for i := range changes {
		c := &changes[i]
		c.Time = at.UTC()
		h := sha256.New()
		for _, s := range []string{c.Time.Format(time.RFC3339Nano), c.CVE, string(c.Kind), c.What, c.Old, c.New} {
			fmt.Fprintf(h, "%d:%s,", len(s), s)
		}
		c.ID = hex.EncodeToString(h.Sum(nil)[:12])
	}
}

// DiffRecords is what changed of one CVE in the NVD. before is nil for one that was not known, now for one that is
// known no longer.
func DiffRecords(before, now *Record) []Change {
	switch {
	case before == nil && now == nil:
		return nil
	case now == nil:
		return []Change{{CVE: before.ID, Kind: Gone, Old: before.Status, Text: "no longer known to the NVD"}}
	case before == nil:
		text := "known to the NVD: " + now.Status
		if s, ok := now.Best(); ok {
			text += ", " + scoreText(s)
		}
		return []Change{{CVE: now.ID, Kind: Appeared, New: now.Status, Text: text}}
	}
	d := differ{id: now.ID}
	d.scores(before, now)
	if before.Status != now.Status {
		d.add(StatusChanged, "", before.Status, now.Status, "status: %s → %s", before.Status, now.Status)
	}
	d.references(before.References, now.References)
	if !slices.Equal(before.CWEs, now.CWEs) {
		d.add(CWEChanged, "", strings.Join(before.CWEs, ", "), strings.Join(now.CWEs, ", "), "weakness: %s → %s", orNone(before.CWEs), orNone(now.CWEs))
	}
	if before.Description != now.Description {
		d.add(Wording, "description", before.Description, now.Description, "the description was reworded")
	}
	return d.changes
}

type differ struct {
	id      string
	changes []Change
}

func (d *differ) add(kind Kind, what, before, now, format string, args ...any) {
	d.changes = append(d.changes, Change{CVE: d.id, Kind: kind, What: what, Old: before, New: now, Text: fmt.Sprintf(format, args...)})
}

// assessor says which of several scores one is. There may be several of one assessor, told apart by their vectors.
func (s Score) assessor() string { return s.Version + " " + s.Source + " " + s.Type }

func scoreText(s Score) string {
	if s.Source == NVDSource {
		return s.String()
	}
	return s.String() + " by " + s.Source
}

func (d *differ) scores(before, now *Record) {
	had, has := byAssessor(before.Scores), byAssessor(now.Scores)
	hadNVD := slices.ContainsFunc(before.Scores, func(s Score) bool { return s.Source == NVDSource })
	for _, s := range now.Scores {
		old := had[s.assessor()]
		switch {
		case slices.Contains(old, s):
		case len(old) == 1 && len(has[s.assessor()]) == 1:
			o := old[0]
			if o.Tenths == s.Tenths {
				d.add(ScoreChanged, s.assessor(), o.Vector, s.Vector, "%s: the vector changed: %s → %s", scoreText(s), o.Vector, s.Vector)
			} else {
				d.add(ScoreChanged, s.assessor(), o.Number()+" "+o.Vector, s.Number()+" "+s.Vector, "CVSS %s of %s: %s %s → %s %s", s.Version, s.Source, o.Number(), o.Severity(), s.Number(), s.Severity())
			}
		case len(before.Scores) == 0 && s.Source != NVDSource:
			d.add(ScoreChanged, s.assessor(), "", s.Number()+" "+s.Vector, "first score, by %s and not the NVD: %s", s.Source, s)
		case s.Source == NVDSource && !hadNVD:
			d.add(ScoreChanged, s.assessor(), "", s.Number()+" "+s.Vector, "first score of the NVD: %s", s)
		default:
			d.add(ScoreChanged, s.assessor(), "", s.Number()+" "+s.Vector, "one more score: %s", scoreText(s))
		}
	}
	for _, s := range before.Scores {
		left := has[s.assessor()]
		if slices.Contains(left, s) || len(left) == 1 && len(had[s.assessor()]) == 1 {
			continue
		}
		d.add(ScoreChanged, s.assessor(), s.Number()+" "+s.Vector, "", "a score was withdrawn: %s", scoreText(s))
	}
}

func byAssessor(scores []Score) map[string][]Score {
	m := make(map[string][]Score)
	for _, s := range scores {
		m[s.assessor()] = append(m[s.assessor()], s)
	}
	return m
}

// references tells new, lost and newly tagged links as one change, those that bring a remedy first.
func (d *differ) references(before, now []Reference) {
	had := make(map[string]Reference)
	for _, r := range before {
		had[r.URL] = r
	}
	var added, removed, tagged []Reference
	for _, r := range now {
		old, ok := had[r.URL]
		switch {
		case !ok:
			added = append(added, r)
		case !slices.Equal(old.Tags, r.Tags):
			tagged = append(tagged, r)
		}
		delete(had, r.URL)
	}
	for _, r := range before {
		if _, left := had[r.URL]; left {
			removed = append(removed, r)
		}
	}
	if len(added)+len(removed)+len(tagged) == 0 {
		return
	}
	for _, list := range [][]Reference{added, removed, tagged} {
		slices.SortStableFunc(list, func(a, b Reference) int { return rank(a) - rank(b) })
	}
	var parts []string
	for _, p := range []struct {
		list []Reference
		word string
	}{{added, "new"}, {removed, "removed"}, {tagged, "with other tags"}} {
		if n := len(p.list); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p.word))
		}
	}
	text := "references: " + strings.Join(parts, ", ")
	for _, r := range append(slices.Clone(added), tagged...) {
		if rank(r) == 0 {
			text += "; " + strings.Join(r.Tags, ", ") + ": " + r.URL
			break
		}
	}
	d.add(RefsChanged, "", urls(removed), urls(append(added, tagged...)), "%s", text)
}

// rank puts links that bring a remedy first.
func rank(r Reference) int {
	if slices.Contains(r.Tags, "Patch") || slices.Contains(r.Tags, "Vendor Advisory") {
		return 0
	}
	return 1
}

func urls(refs []Reference) string {
	var lines []string
	for _, r := range refs {
		line := r.URL
		if len(r.Tags) > 0 {
			line += " (" + strings.Join(r.Tags, ", ") + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// DiffKEV is what changed of one CVE in CISA's catalogue; before or now is nil where it is not listed.
func DiffKEV(id string, before, now *Entry) []Change {
	d := differ{id: id}
	switch {
	case before == nil && now == nil:
	case before == nil:
		text := "listed by CISA as exploited, due " + now.Due
		if now.Ransomware {
			text += ", known to be used in ransomware campaigns"
		}
		d.add(KEVListed, "", "", now.Added, "%s", text)
	case now == nil:
		d.add(KEVRemoved, "", before.Added, "", "removed from CISA's catalogue, where it had been since %s", before.Added)
	default:
		if before.Ransomware != now.Ransomware {
			text := "use in ransomware campaigns became known"
			if before.Ransomware {
				text = "CISA no longer says that it is used in ransomware campaigns"
			}
			d.add(KEVRansomware, "", yesNo(before.Ransomware), yesNo(now.Ransomware), "%s", text)
		}
		if before.Due != now.Due {
			d.add(KEVDue, "", before.Due, now.Due, "CISA's due date moved: %s → %s", before.Due, now.Due)
		}
		if a, b := before.words(), now.words(); a != b {
			d.add(Wording, "kev", a, b, "CISA's entry was reworded")
		}
	}
	return d.changes
}

func (e *Entry) words() string {
	return strings.Join([]string{e.Vendor, e.Product, e.Name, e.Added, e.Text}, "\n")
}

func yesNo(b bool) string {
	if b {
		return "Known"
	}
	return "Unknown"
}

// Disagreement is how the NVD's KEV fields differ from CISA's catalogue, or empty. NVD takes CISA's listings over
// later, so that a new one differs for a while.
func Disagreement(r *Record, e *Entry) string {
	switch {
	case r == nil || r.KEV == nil && e == nil:
		return ""
	case r.KEV == nil:
		return "CISA lists it since " + e.Added + ", the NVD does not say so"
	case e == nil:
		return "the NVD says that CISA lists it since " + r.KEV.Added + ", CISA does not"
	case r.KEV.Added != e.Added:
		return "CISA lists it since " + e.Added + ", the NVD says " + r.KEV.Added
	case r.KEV.Due != "" && r.KEV.Due != e.Due:
		return "CISA's due date is " + e.Due + ", the NVD's " + r.KEV.Due
	}
	return ""
}

// foldFrom is how many CVEs with the very same change make it one mass edit.
const foldFrom = 10

// Fold makes one change of many that are the same but for their CVE: an edit of the whole database is one event, not a
// thousand. Changes of KEV are never folded. The id of the CVE itself, as it stands in the links of CISA's catalogue, makes no
// difference; in the one change it reads {id}.
func Fold(changes []Change) []Change {
	same := func(c Change) Change {
		for _, s := range []*string{&c.What, &c.Old, &c.New, &c.Text} {
			*s = strings.ReplaceAll(*s, c.CVE, "{id}")
		}
		return c
	}
	key := func(c Change) string {
		c = same(c)
		return strings.Join([]string{string(c.Kind), c.What, c.Old, c.New, c.Text}, "\x00")
	}
	groups := make(map[string][]int)
	for i, c := range changes {
		if !c.Kind.KEV() {
			groups[key(c)] = append(groups[key(c)], i)
		}
	}
	var out []Change
	for i, c := range changes {
		g := groups[key(c)]
		switch {
		case c.Kind.KEV() || len(g) < foldFrom:
			out = append(out, c)
		case g[0] == i:
			c = same(c)
			for _, j := range g[1:] {
				c.Also = append(c.Also, changes[j].CVE)
			}
			c.Text = fmt.Sprintf("mass edit of %d CVEs: %s", len(g), c.Text)
			out = append(out, c)
		}
	}
	return out
}
