package guest

// mixes: a 64-bit process may make calls by the table for programs of 32 bits.
const mixes = true

// int80 makes a system call without arguments by the table for programs of 32 bits.
func int80(nr uintptr) uintptr

// sleepFunctions are those of calls of 32-bit programs that sleep: one is for times of 64 bits.
const sleepFunctions = 3
