package guest

// int80 makes a system call without arguments by the table for programs of 32 bits.
func int80(nr uintptr) uintptr
