//go:build !unix

package vulnwatch

// syncAll does nothing where the system has no such call.
func syncAll() {}
