package term

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration writes a measured duration of ns nanoseconds with three significant
// digits: 850ns, 48.2ms, 1.20s, 2m05s, 3h04m, 5d03h.
func Duration(ns int64) string {
	if ns < 0 {
		return "-" + Duration(-max(ns, -1<<63+1))
	}
	switch {
	case ns < 1_000:
		return strconv.FormatInt(ns, 10) + "ns"
	case ns < 60*int64(time.Second):
		return significant(ns)
	}
	s := time.Duration(ns).Round(time.Second) / time.Second
	switch {
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// significant keeps three digits of 1 µs to 60 s.
func significant(ns int64) string {
	units := []string{"ns", "µs", "ms", "s"}
	v, u := float64(ns), 0
	for v >= 999.5 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	decimals := 0
	switch {
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + units[u]
}

// Setting writes a configured duration as one would write it in a rule: 5ms, 1m30s.
func Setting(ns int64) string {
	s := time.Duration(ns).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Bytes writes a size in binary units: 512B, 4.0KiB, 1.5GiB.
func Bytes(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + "B"
	}
	v, units, u := float64(n)/1024, "KMGTPE", 0
	for v >= 1023.95 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.1f%ciB", v, units[u])
}

// Count writes a number with its thousands set apart: 1,234,567.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Gauge draws a share of 0 to 1 as a bar of at most n columns; the least one of
// what is not nothing is a hair.
func Gauge(share float64, n int) string {
	full := min(max(share, 0), 1) * float64(n)
	bar := strings.Repeat("█", int(full))
	if part := int((full - float64(int(full))) * 8); part > 0 {
		return bar + []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[part]
	}
	if bar == "" && share > 0 {
		return "▏"
	}
	return bar
}
