package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of durations in rules. The kernel side accepts any; values outside these
// bounds are typing mistakes.
const (
	minDuration = time.Microsecond
	maxDuration = time.Hour
	maxAfter    = time.Minute // the recorder's other bank must hold it
)

// ParseDuration parses a Go duration between least and most. Its errors continue
// a sentence that begins with the name of the value: "5 has no unit".
func ParseDuration(s string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && isNumber(s):
		return 0, fmt.Errorf("%s has no unit", cut(s))
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration", cut(s))
	case d < 0:
		return 0, fmt.Errorf("%s is negative", cut(s))
	case d == 0 && least > 0:
		return 0, errors.New("is zero")
	case d < least:
		return 0, fmt.Errorf("%s is too short", cut(s))
	case d > most:
		return 0, fmt.Errorf("%s is too long", cut(s))
	}
	return d, nil
}

// DurationRange describes in an error what ParseDuration allows.
func DurationRange(least, most time.Duration) string {
	return fmt.Sprintf("a duration from %s to %s, such as 5ms", shortDuration(least), shortDuration(most))
}

// shortDuration is 1h where Duration.String is 1h0m0s.
func shortDuration(d time.Duration) string {
	s := strings.Replace(d.String(), "µ", "u", 1)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
