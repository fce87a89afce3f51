package linux

import "strings"

// Family is the name of a task without the digits at its end, by which programs number the
// threads and processes of a pool. A name of digits alone stays, and one that stands for another
// in a redacted snapshot: of these, the number is all that tells them apart.
func Family(comm string) string {
	if Redacted(comm) {
		return comm
	}
	if f := strings.TrimRight(comm, "0123456789"); f != "" {
		return f
	}
	return comm
}

// Redacted reports whether a name of a task or process stands for another one, as redacted
// snapshots have them: command-12.
func Redacted(name string) bool { return strings.HasPrefix(name, "command-") }
