package vulnwatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-go/weir/batch"
)

// MarkStale says on the pages of a site that a check failed before it could ask for anything, and why. Where there is no
// site it does nothing. It fails while another run is at work.
func MarkStale(out string, why error) error {
	if target, err := os.Readlink(filepath.Clean(out)); err != nil || target == "" {
		return nil
	}
	s, err := openSite(out)
	if err != nil {
		return err
	}
	defer s.close()
	now := time.Now().UTC()
	return s.markStale(&Report{Started: now, Ended: now, Verdict: verdictText(why)})
}

// refusal is the error of a check that published nothing.
type refusal struct {
	text string
	why  error
}

func (r *refusal) Error() string   { return r.text }
func (r *refusal) Unwrap() []error { return []error{r.why, ErrIncomplete} }

// refuse publishes nothing, and marks the pages stale for the reason in err.
func (s *site) refuse(e *Edition, err error) error {
	e.New, e.Report.Changes, e.Report.Complete = nil, 0, false
	e.Report.Verdict = verdictText(err)
	said := "the pages are marked stale"
	if s.edition() == "" {
		said = "there are no pages yet"
	}
	if stale := s.markStale(&e.Report); stale != nil {
		said = "the pages could not be marked stale: " + strings.ReplaceAll(stale.Error(), "\n", "; ")
		err = errors.Join(err, stale)
	}
	return &refusal{fmt.Sprintf("vulnwatch: %s: nothing was published, and %s", e.Report.Verdict, said), err}
}

// verdictText is an error for readers of the pages: they need not know where on a machine the files are.
func verdictText(err error) string {
	text := strings.ReplaceAll(err.Error(), ": "+batch.ErrVerdict.Error(), "")
	for _, prefix := range []string{"batch: ", "vulnwatch: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	var file *fs.PathError
	var link *os.LinkError
	if errors.As(err, &file) {
		text = strings.ReplaceAll(text, file.Op+" "+file.Path+": ", "")
	}
	if errors.As(err, &link) {
		text = strings.ReplaceAll(text, link.Op+" "+link.Old+" "+link.New+": ", "")
	}
	return clip(1000, plain(text))
}

// status is status.json: whether the pages are of the last check that was tried.
type status struct {
	Stale    bool      `json:"stale"`
	Reason   string    `json:"reason,omitempty"`
	Tried    time.Time `json:"tried,omitzero"`
	Complete time.Time `json:"complete,omitzero"` // the last complete check
}

// markStale says on all pages that a check failed, and why. Besides these two files nothing of the site changes: the pages
// take in status.css, which has no rule while they are fresh.
func (s *site) markStale(rep *Report) error {
	failure, err := json.MarshalIndent(rep, "", "\t")
	if err != nil {
		return err
	}
	fill := func(w io.Writer) error { _, err := w.Write(append(failure, '\n')); return err }
	err = batch.WriteFile(filepath.Join(s.editions, "last-failure.json"), fill)
	current := s.edition()
	if current == "" {
		return err
	}
	stamp, _, _ := strings.Cut(current, "-") // and not the latest by name: a clock may have been set back
	last, _ := time.Parse(runStamp, stamp)
	return errors.Join(err, writeStatus(s.out, rep, last))
}

func writeStatus(dir string, failed *Report, last time.Time) error {
	var st status
	css := "/* The pages are of the last check. */\n"
	if failed != nil {
		st = status{Stale: true, Reason: failed.Verdict, Tried: failed.Started, Complete: last}
		text := fmt.Sprintf("Stale: the check of %s failed (%s). These pages are of the last complete check", failed.Started.Format("2006-01-02 15:04 UTC"), failed.Verdict)
		if !last.IsZero() {
			text += ", of " + last.Format("2006-01-02 15:04 UTC")
		}
		css = "#stale::before { content: \"" + cssString(plain(text+".")) + "\"; display: block; }\n#stale { display: block !important; }\n"
	}
	raw, err := json.MarshalIndent(st, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		batch.WriteFile(filepath.Join(dir, "status.json"), func(w io.Writer) error { _, err := w.Write(append(raw, '\n')); return err }),
		batch.WriteFile(filepath.Join(dir, "status.css"), func(w io.Writer) error { _, err := io.WriteString(w, css); return err }),
	)
}

// cssString makes text safe inside a string of CSS: everything but letters, digits and a few marks becomes an
// escape.
func cssString(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(" .,:;()%/-+=?&", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\%06x ", r)
		}
	}
	return b.String()
}
