//go:build !amd64

package guest

// mixes: a 64-bit process may make calls by the table for programs of 32 bits.
const mixes = false

// int80 does nothing: only x86 has that table.
func int80(uintptr) uintptr { return 0 }

// sleepFunctions are those of calls of 32-bit programs that sleep. That for times of
// 64 bits is the one that 64-bit programs use.
const sleepFunctions = 2
