//go:build !unix

package batch

import "os"

// LockFile does nothing where the system has no advisory locks: there, do not start two runs at once.
func LockFile(*os.File) error { return nil }
