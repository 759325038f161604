// Package vulnwatch re-checks a list of CVEs against the NVD and CISA's KEV catalogue, completely and again and again, and
// keeps a history of what changed. What could not be fetched is never read as "no change".
//
// It compares meaning, not text: a [Record] holds what matters of an NVD record in one canonical form, so that renamed
// properties, new ones, order and white space are no change.
package vulnwatch
