package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/rules"
)

// countValue, bytesValue and ageValue are flags for limits and lengths of time; zero,
// no limit, is not a valid argument.
type (
	countValue int
	bytesValue uint64
	ageValue   time.Duration
)

// String, Set and Type implement pflag.Value.
func (v *countValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.Itoa(int(*v))
}

// Set implements pflag.Value.
func (v *countValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return errors.New("must be a positive number")
	}
	*v = countValue(n)
	return nil
}

// Type implements pflag.Value.
func (v *countValue) Type() string { return "number" }

// String implements pflag.Value.
func (v *bytesValue) String() string {
	if *v == 0 {
		return ""
	}
	return term.Bytes(uint64(*v))
}

// Set implements pflag.Value.
func (v *bytesValue) Set(s string) error {
	n, ok := rules.ParseBytes(s)
	if !ok || n < 1 {
		return errors.New("must be a size in bytes, KiB, MiB, GiB or TiB, such as 512MiB")
	}
	*v = bytesValue(n)
	return nil
}

// Type implements pflag.Value.
func (v *bytesValue) Type() string { return "bytes" }

// String implements pflag.Value.
func (v *ageValue) String() string {
	if *v == 0 {
		return ""
	}
	return term.Setting(int64(*v))
}

// Set implements pflag.Value.
func (v *ageValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n > 0 && n < 36500 {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return errors.New("must be a duration with a unit, such as 90m, 36h or 7d")
	}
	*v = ageValue(d)
	return nil
}

// Type implements pflag.Value.
func (v *ageValue) Type() string { return "duration" }

// text is the value as requests to the daemon have it: a Go duration, empty for none.
func (v *ageValue) text() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}
