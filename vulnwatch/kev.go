package vulnwatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Catalogue is CISA's catalogue of known exploited vulnerabilities.
type Catalogue struct {
	Version  string           // of the day; it is no sign of a change, nor of none
	Released time.Time        //
	Entries  map[string]Entry // by CVE id
}

// Entry is one entry of the catalogue.
type Entry struct {
	ID         string `json:"id"`
	Added      string `json:"added"`      // a date
	Due        string `json:"due"`        // a date
	Ransomware bool   `json:"ransomware"` // known to be used in ransomware campaigns
	Name       string `json:"name"`
	Vendor     string `json:"vendor"`
	Product    string `json:"product"`
	Text       string `json:"text"` // description, required action and notes
}

// ParseCatalogue reads a catalogue. One that is truncated, or whose count is not the number of its entries, is refused
// whole.
func ParseCatalogue(data []byte) (*Catalogue, error) {
	var in struct {
		CatalogVersion  string
		DateReleased    string
		Count           *int
		Vulnerabilities []struct {
			CVEID                      string `json:"cveID"`
			VendorProject              string
			Product                    string
			VulnerabilityName          string
			DateAdded                  string
			ShortDescription           string
			RequiredAction             string
			DueDate                    string
			KnownRansomwareCampaignUse string
			Notes                      string
		}
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("vulnwatch: KEV catalogue of %d bytes: truncated or not one: %w", len(data), err)
	}
	if in.Count == nil || len(in.Vulnerabilities) == 0 {
		return nil, fmt.Errorf("vulnwatch: KEV catalogue of %d bytes: it has no count or no entries", len(data))
	}
	if *in.Count != len(in.Vulnerabilities) {
		return nil, fmt.Errorf("vulnwatch: KEV catalogue: its count is %d, and it has %d entries", *in.Count, len(in.Vulnerabilities))
	}
	c := &Catalogue{Version: in.CatalogVersion, Released: parseTime(in.DateReleased), Entries: make(map[string]Entry, len(in.Vulnerabilities))}
	for i, v := range in.Vulnerabilities {
		id, err := ParseID(v.CVEID)
		if err != nil {
			return nil, fmt.Errorf("vulnwatch: KEV catalogue: entry %d: %w", i+1, err)
		}
		if _, twice := c.Entries[id]; twice {
			return nil, fmt.Errorf("vulnwatch: KEV catalogue: %s stands in it twice", id)
		}
		c.Entries[id] = Entry{
			ID: id, Added: v.DateAdded, Due: v.DueDate,
			Ransomware: strings.EqualFold(strings.TrimSpace(v.KnownRansomwareCampaignUse), "known"),
			Name:       squeeze(v.VulnerabilityName), Vendor: squeeze(v.VendorProject), Product: squeeze(v.Product),
			Text: squeeze(v.ShortDescription + " " + v.RequiredAction + " " + v.Notes),
		}
	}
	return c, nil
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// ShrinkError says that a catalogue has lost more of its entries than is believable.
type ShrinkError struct {
	Before, Now, Gone int
	Most              float64
}

func (e *ShrinkError) Error() string {
	return fmt.Sprintf("vulnwatch: KEV catalogue: %d of its %d entries are gone, over %.1f %%: taken for a broken publication", e.Gone, e.Before, 100*e.Most)
}

// Shrunk refuses a catalogue that has lost more than a share of the entries of the one before, but never one that
// has lost a single entry.
func (c *Catalogue) Shrunk(before map[string]Entry, most float64) error {
	gone := 0
	for id := range before {
		if _, ok := c.Entries[id]; !ok {
			gone++
		}
	}
	if gone > 1 && float64(gone) > most*float64(len(before)) {
		return &ShrinkError{Before: len(before), Now: len(c.Entries), Gone: gone, Most: most}
	}
	return nil
}
