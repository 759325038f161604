//go:build unix

package blackfriday

import "syscall"

// maxFiles is how many files this process may open; the Go runtime has raised it as far as it may.
func maxFiles() float64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what a system without a word on it allows
	}
	return float64(limit.Cur)
}
