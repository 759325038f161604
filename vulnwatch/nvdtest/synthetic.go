package nvdtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Synthetic is a World of n made-up CVEs, the same for the same seed. Their numbers are above all real ones. About every
// tenth stands in the catalogue, beside some hundreds of others.
func Synthetic(seed uint64, n int) *World {
	w := newWorld()
	w.seed = seed
	for i := range n {
		id := fmt.Sprintf("CVE-%d-%d", 2024+i%3, 900001+i/3)
		w.ids = append(w.ids, id)
		w.made[id] = i
	}
	slices.Sort(w.ids)
	for i := range max(300, n/10) {
		w.kev = append(w.kev, w.invented(100_000+i, fmt.Sprintf("CVE-2023-%d", 900001+i)))
	}
	for _, id := range w.ids {
		if w.made[id]%10 == 3 {
			w.kev = append(w.kev, w.invented(w.made[id], id))
		}
	}
	slices.SortStableFunc(w.kev, func(a, b kevEntry) int {
		switch {
		case a.DateAdded > b.DateAdded:
			return -1
		case a.DateAdded < b.DateAdded:
			return 1
		}
		return 0
	})
	w.before = slices.Clone(w.kev)
	return w
}

// Record is the NVD's record of the i-th made-up CVE of a seed, for those who need more of them than fit in memory.
func Record(seed uint64, i int, id string) map[string]any { return invent(seed, i, id) }

var (
	vendors  = []string{"Examplesoft", "Northwind", "Contoso", "Fabrikam", "Acme", "Initech", "Globex", "Umbra"}
	products = []string{"Mail Gateway", "VPN Appliance", "Report Server", "Web Console", "Backup Agent", "Print Service", "Identity Hub", "File Transfer"}
	parts    = []string{"login page", "session handler", "archive parser", "template engine", "REST endpoint", "update client"}

	flaws = []struct{ what, cwe, effect string }{
		{"A heap-based buffer overflow", "CWE-122", "execute code"},
		{"An SQL injection", "CWE-89", "read and change the database"},
		{"A path traversal", "CWE-22", "read files outside the web root"},
		{"Stored cross-site scripting", "CWE-79", "run scripts in the session of another user"},
		{"A missing authentication check", "CWE-306", "take administrative actions"},
		{"A use after free", "CWE-416", "crash the service or execute code"},
		{"Deserialization of untrusted data", "CWE-502", "execute code"},
	}

	vectors = []vector{
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", "3.1", 9.8, "CRITICAL"},
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:U/C:H/I:H/A:H", "3.1", 8.8, "HIGH"},
		{"CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", "3.1", 7.8, "HIGH"},
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", "3.1", 7.5, "HIGH"},
		{"CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", "3.1", 6.1, "MEDIUM"},
		{"CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:N/I:N/A:H", "3.1", 5.5, "MEDIUM"},
		{"CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:L/I:N/A:N", "3.1", 3.7, "LOW"},
	}
	vector40 = vector{"CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", "4.0", 9.3, "CRITICAL"}
)

type vector struct {
	text, version string
	score         float64
	severity      string
}

// metric is an assessment in the NVD's form.
func metric(source, kind string, v vector) object {
	data := object{"version": v.version, "vectorString": v.text, "baseScore": v.score, "baseSeverity": v.severity}
	if v.version == "4.0" {
		data["vulnConfidentialityImpact"], data["Safety"] = "HIGH", "NOT_DEFINED"
	}
	return object{"source": source, "type": kind, "cvssData": data}
}

func random(seed uint64, parts ...uint64) *rand.Rand {
	h := seed
	for _, p := range parts {
		h = h*0x9e3779b97f4a7c15 + p + 1
	}
	return rand.New(rand.NewPCG(h, seed))
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// traits are what record and catalogue say in common.
func traits(seed uint64, i int) (r *rand.Rand, vendor, product string) {
	r = random(seed, uint64(i))
	return r, pick(r, vendors), pick(r, products)
}

// invent makes up a record. A third of them wait for the NVD's analysis and have only the score of their CNA, a few have none.
func invent(seed uint64, i int, id string) object {
	r, vendor, product := traits(seed, i)
	flaw := pick(r, flaws)
	major, minor := 1+r.IntN(12), r.IntN(10)
	published := firstDay.AddDate(0, 0, -30-r.IntN(600)).Add(time.Duration(r.IntN(86400)) * time.Second)
	cna := "security@" + slug(vendor) + ".example"

	status := "Analyzed"
	metrics := object{}
	switch i % 9 {
	case 0, 4:
		status = "Awaiting Analysis"
		metrics["cvssMetricV31"] = []any{metric(cna, "Secondary", pick(r, vectors))}
	case 7:
		status = "Received"
	case 5:
		status = "Modified"
		metrics["cvssMetricV31"] = []any{metric("nvd@nist.gov", "Primary", pick(r, vectors)), metric(cna, "Secondary", pick(r, vectors))}
		metrics["cvssMetricV40"] = []any{metric(cna, "Secondary", vector40)}
	case 8:
		status = "Deferred"
		metrics["cvssMetricV31"] = []any{metric(cna, "Secondary", pick(r, vectors))}
	default:
		metrics["cvssMetricV31"] = []any{metric("nvd@nist.gov", "Primary", pick(r, vectors))}
	}
	rec := object{
		"id": id, "sourceIdentifier": cna, "vulnStatus": status,
		"published": nvdTime(published), "lastModified": nvdTime(published.AddDate(0, 0, r.IntN(25))),
		"cveTags": []any{},
		"descriptions": []any{
			object{"lang": "en", "value": fmt.Sprintf("%s in the %s of %s %s before %d.%d allows remote attackers to %s.",
				flaw.what, pick(r, parts), vendor, product, major, minor, flaw.effect)},
			object{"lang": "es", "value": "Una descripción inventada."},
		},
		"metrics": metrics,
		"references": []any{
			object{"url": fmt.Sprintf("https://%s.example/advisories/%s", slug(vendor), id), "source": cna, "tags": []any{"Vendor Advisory"}},
			object{"url": fmt.Sprintf("https://lists.example.org/full-disclosure/%d", 10000+r.IntN(90000)), "source": cna},
		},
	}
	if status != "Received" {
		rec["weaknesses"] = []any{object{"source": cna, "type": "Secondary", "description": []any{object{"lang": "en", "value": flaw.cwe}}}}
	}
	return rec
}

// invented is an entry of the catalogue.
func (w *World) invented(i int, id string) kevEntry {
	r, vendor, product := traits(w.seed, i)
	added := w.start.AddDate(0, 0, -1-r.IntN(900))
	ransomware := "Unknown"
	if r.IntN(5) == 0 {
		ransomware = "Known"
	}
	return kevEntry{
		CVEID: id, VendorProject: vendor, Product: product,
		VulnerabilityName: vendor + " " + product + " Vulnerability",
		DateAdded:         added.Format(time.DateOnly), DueDate: added.AddDate(0, 0, 21).Format(time.DateOnly),
		ShortDescription:           vendor + " " + product + " contains a vulnerability that is used in attacks.",
		RequiredAction:             "Apply mitigations per vendor instructions or discontinue use of the product if mitigations are unavailable.",
		KnownRansomwareCampaignUse: ransomware, Notes: "https://nvd.nist.gov/vuln/detail/" + id, CWEs: []string{},
	}
}

// markListed gives a record the NVD's own fields on the catalogue.
func markListed(rec object, k *kevEntry) {
	rec["cisaExploitAdd"], rec["cisaActionDue"] = k.DateAdded, k.DueDate
	rec["cisaRequiredAction"], rec["cisaVulnerabilityName"] = k.RequiredAction, k.VulnerabilityName
}

func slug(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
