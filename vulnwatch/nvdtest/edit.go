package nvdtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// EditKind is what sort of edit it is.
type EditKind string

// The edits that the NVD and CISA make.
const (
	ScoreAdded     EditKind = "score_added"     // by the NVD, where it had none
	CNAScoreAdded  EditKind = "cna_score_added" // by the CNA, where there was no score at all
	ScoreChanged   EditKind = "score_changed"   // of the first score there is
	StatusChanged  EditKind = "status_changed"  // to another that is not Rejected
	ReferenceAdded EditKind = "reference_added" // with the tag Patch
	WeaknessAdded  EditKind = "weakness_added"  //
	Reworded       EditKind = "reworded"        // the description
	Touched        EditKind = "touched"         // lastModified moved, and nothing else
	Rejected       EditKind = "rejected"        // the status, and the description becomes the reason
	Gone           EditKind = "gone"            // the NVD has forgotten it
	Back           EditKind = "back"            // and knows it again

	KEVListed     EditKind = "kev_listed"     // by CISA; the NVD says so a day later
	KEVCaughtUp   EditKind = "kev_caught_up"  // the NVD says so, too
	KEVRemoved    EditKind = "kev_removed"    // by CISA; the NVD goes on saying that it is listed
	KEVRansomware EditKind = "kev_ransomware" // use in ransomware campaigns became known
	KEVDueMoved   EditKind = "kev_due_moved"  // by a week, in the NVD as well
	KEVReworded   EditKind = "kev_reworded"   //
)

// Edit is an edit of one CVE.
type Edit struct {
	Kind EditKind
	ID   string
}

func (e Edit) String() string { return e.ID + " " + string(e.Kind) }

// Apply makes one edit, today. It reports whether it could: there is no score to change where there is none.
func (w *World) Apply(kind EditKind, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apply(kind, id)
}

// Rename makes the NVD use the property names of some years ago, or no longer: all records at once, and nothing else of them.
func (w *World) Rename(old bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renamed = old
}

// MassEdit makes the same edit of the status, in all records that have one status.
func (w *World) MassEdit(from, to string) []Edit {
	w.mu.Lock()
	defer w.mu.Unlock()
	var edits []Edit
	for _, id := range w.ids {
		if r := w.record(id); r != nil && r["vulnStatus"] == from {
			w.change(id)["vulnStatus"] = to
			edits = append(edits, Edit{StatusChanged, id})
		}
	}
	return edits
}

// Skip lets a day pass on which nobody edits anything, but for a new release of the catalogue.
func (w *World) Skip() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dawn()
}

func (w *World) dawn() {
	w.day++
	w.before = slices.Clone(w.kev)
}

// NextDay lets a day pass, with a few edits of each kind that comes often, and now and then one that does not. It returns
// them in the order in which they were made; no CVE has two, but where the NVD catches up with CISA.
func (w *World) NextDay() []Edit {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dawn()
	var edits []Edit
	for _, id := range w.late {
		if w.apply(KEVCaughtUp, id) {
			edits = append(edits, Edit{KEVCaughtUp, id})
		}
	}
	w.late = nil
	r := random(w.seed, 7, uint64(w.day))
	kinds := []EditKind{ScoreAdded, CNAScoreAdded, ScoreChanged, StatusChanged, ReferenceAdded, WeaknessAdded, Reworded, Touched, KEVListed, KEVRansomware, KEVReworded}
	if w.day%2 == 0 {
		kinds = append(kinds, KEVDueMoved, Rejected)
	}
	if w.day%3 == 0 {
		kinds = append(kinds, KEVRemoved)
	}
	used := make(map[string]bool)
	for _, e := range edits {
		used[e.ID] = true
	}
	for _, kind := range kinds {
		if id := w.fitting(r, kind, used); id != "" && w.apply(kind, id) {
			used[id] = true
			edits = append(edits, Edit{kind, id})
		}
	}
	return edits
}

// fitting finds a CVE for which such an edit makes sense.
func (w *World) fitting(r *rand.Rand, kind EditKind, used map[string]bool) string {
	first := r.IntN(max(1, len(w.ids)))
	for i := range w.ids {
		id := w.ids[(first+i)%len(w.ids)]
		if used[id] {
			continue
		}
		rec, k := w.record(id), w.entry(id)
		if rec == nil || rec["vulnStatus"] == "Rejected" {
			continue
		}
		var ok bool
		switch kind {
		case KEVListed:
			ok = k == nil && len(scores(rec)) > 0
		case KEVRansomware:
			ok = k != nil && k.KnownRansomwareCampaignUse == "Unknown"
		case KEVRemoved, KEVDueMoved, KEVReworded:
			ok = k != nil
		case ScoreAdded:
			ok = len(scores(rec)) > 0 && !hasNVDScore(rec)
		case CNAScoreAdded:
			ok = len(scores(rec)) == 0
		case ScoreChanged:
			ok = len(scores(rec)) > 0
		case Rejected:
			ok = k == nil
		default:
			ok = true
		}
		if ok {
			return id
		}
	}
	return ""
}

// scores are the CVSS 3.1 assessments of a record.
func scores(rec object) []any {
	m, _ := rec["metrics"].(object)
	list, _ := m["cvssMetricV31"].([]any)
	return list
}

func hasNVDScore(rec object) bool {
	for _, m := range scores(rec) {
		if m.(object)["source"] == "nvd@nist.gov" {
			return true
		}
	}
	return false
}

func addScore(rec object, m object) {
	metrics, _ := rec["metrics"].(object)
	if metrics == nil {
		metrics = object{}
		rec["metrics"] = metrics
	}
	metrics["cvssMetricV31"] = append([]any{m}, scores(rec)...)
}

func (w *World) apply(kind EditKind, id string) bool {
	r := random(w.seed, uint64(w.day), uint64(len(id)))
	if kind == Back {
		was := w.gone[id]
		delete(w.gone, id)
		return was
	}
	if w.record(id) == nil {
		return false
	}
	k := w.entry(id)
	switch kind {
	case Gone:
		w.gone[id] = true
		return true
	case KEVListed:
		if k != nil {
			return false
		}
		w.records[id] = w.change(id) // else it would be made up anew, as listed
		e := w.invented(w.made[id], id)
		e.DateAdded, e.DueDate = w.now().Format(time.DateOnly), w.now().AddDate(0, 0, 21).Format(time.DateOnly)
		e.KnownRansomwareCampaignUse = "Unknown"
		w.kev = append([]kevEntry{e}, w.kev...)
		w.late = append(w.late, id)
		return true
	case KEVCaughtUp, KEVRemoved, KEVRansomware, KEVDueMoved, KEVReworded:
		return k != nil && w.applyKEV(kind, id, k)
	}
	rec := w.change(id)
	switch kind {
	case ScoreAdded:
		if hasNVDScore(rec) {
			return false
		}
		addScore(rec, metric("nvd@nist.gov", "Primary", pick(r, vectors)))
	case CNAScoreAdded:
		if len(scores(rec)) > 0 {
			return false
		}
		source, _ := rec["sourceIdentifier"].(string)
		addScore(rec, metric(source, "Secondary", pick(r, vectors)))
	case ScoreChanged:
		if len(scores(rec)) == 0 {
			return false
		}
		m := scores(rec)[0].(object)
		source, _ := m["source"].(string)
		kind, _ := m["type"].(string)
		old, _ := m["cvssData"].(object)
		for i := range vectors {
			if v := vectors[(w.day+i)%len(vectors)]; v.text != old["vectorString"] {
				scores(rec)[0] = metric(source, kind, v)
				break
			}
		}
	case StatusChanged:
		to := "Undergoing Analysis"
		if rec["vulnStatus"] == to {
			to = "Analyzed"
		}
		rec["vulnStatus"] = to
	case ReferenceAdded:
		list, _ := rec["references"].([]any)
		rec["references"] = append(list, object{
			"url": fmt.Sprintf("https://patches.example/%s/%d", id, w.day), "source": "cve@mitre.org", "tags": []any{"Patch"},
		})
	case WeaknessAdded:
		list, _ := rec["weaknesses"].([]any)
		rec["weaknesses"] = append(list, object{
			"source": "nvd@nist.gov", "type": "Primary", "description": []any{object{"lang": "en", "value": fmt.Sprintf("CWE-%d", 1300+w.day)}},
		})
	case Reworded:
		rec["descriptions"] = []any{object{"lang": "en", "value": fmt.Sprintf("Reworded on day %d: what was said of %s, in other words.", w.day, id)}}
	case Touched:
	case Rejected:
		rec["vulnStatus"] = "Rejected"
		rec["descriptions"] = []any{object{"lang": "en", "value": "Rejected reason: This CVE ID was withdrawn by its CNA."}}
	default:
		return false
	}
	return true
}

func (w *World) applyKEV(kind EditKind, id string, k *kevEntry) bool {
	switch kind {
	case KEVCaughtUp:
		markListed(w.change(id), k)
	case KEVRemoved:
		w.records[id] = w.change(id)
		w.kev = slices.DeleteFunc(slices.Clone(w.kev), func(e kevEntry) bool { return e.CVEID == id })
	case KEVRansomware:
		if k.KnownRansomwareCampaignUse == "Known" {
			return false
		}
		k.KnownRansomwareCampaignUse = "Known"
	case KEVDueMoved:
		due, err := time.Parse(time.DateOnly, k.DueDate)
		if err != nil {
			return false
		}
		k.DueDate = due.AddDate(0, 0, 7).Format(time.DateOnly)
		markListed(w.change(id), k)
	case KEVReworded:
		k.ShortDescription = fmt.Sprintf("%s %s: reworded on day %d.", k.VendorProject, k.Product, w.day)
	}
	return true
}
