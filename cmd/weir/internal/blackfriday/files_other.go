//go:build !unix

package blackfriday

import "math"

// maxFiles is how many files this process may open.
func maxFiles() float64 { return math.Inf(1) }
