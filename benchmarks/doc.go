// Package benchmarks measures weir beside its peers and beside the physical limit, a bare flat table and a clock reading, in
// the same run. It is a module of its own, so that the peers are nobody else's dependency. BENCHMARKS.md, next to it, has the
// commands and what they gave.
package benchmarks
