//go:build unix

package vulnwatch

import "syscall"

// syncAll waits until what has been written is on disk: one call instead of one for each of thousands of pages.
func syncAll() { syscall.Sync() }
