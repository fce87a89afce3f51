package rules

import (
	"strconv"
	"strings"
)

var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes parses an integer number of bytes, KiB, MiB, GiB or TiB, such as 512MiB.
func ParseBytes(s string) (int64, bool) {
	unit := int64(1)
	for _, u := range byteUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(number), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, false
	}
	return n * unit, true
}

// FormatBytes is its inverse.
func FormatBytes(n int64) string {
	for _, u := range byteUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
