//go:build !amd64

package guest

// int80 does nothing: only x86 has that table.
func int80(uintptr) uintptr { return 0 }
