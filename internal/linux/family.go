package linux

import "strings"

// Family is the name of a task without the digits at its end, by which programs number the
// threads and processes of a pool; a name of digits alone stays.
func Family(comm string) string {
	if f := strings.TrimRight(comm, "0123456789"); f != "" {
		return f
	}
	return comm
}
