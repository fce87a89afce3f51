package skips

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// The list of this repository can be read.
func TestShippedList(t *testing.T) {
	_, err := Load("../../skips.yaml")
	assert.Check(t, err)
}

func TestBadLists(t *testing.T) {
	for text, want := range map[string]string{
		"[{tests: [a TestB], when: [unit]}]":                            "entry 1: tests, when and why are required",
		"[{tests: [a TestB], when: [full-moon], why: x}]":               `invalid condition "full-moon"`,
		"[{tests: [a TestB], when: [guest], why: x}]":                   `invalid condition "guest"`,
		"[{tests: [a TestB], when: [unit now], why: x}]":                `invalid condition "unit now"`,
		"[{tests: [TestB], when: [unit], why: x}]":                      `"TestB": want PACKAGE TEST`,
		"[{tests: [a TestB], when: [unit], why: x, unless: [a TestB]}]": "field unless not found",
	} {
		_, err := parse([]byte(text))
		assert.Check(t, is.ErrorContains(err, want), "%s", text)
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		condition, message string
		on                 Machine
		want               bool
	}{
		{"not-root", "", Machine{}, true},
		{"not-root", "", Machine{Root: true}, false},
		{"not-root", "", Machine{Guest: "6.1"}, false},
		{"guest 6.1-rt", "", Machine{Guest: "6.1-rt"}, true},
		{"guest 6.1-rt", "", Machine{Guest: "6.1"}, false},
		{"guest arm64-*", "", Machine{Guest: "arm64-6.1"}, true},
		{"guest arm64-*", "", Machine{Guest: "6.1"}, false},
		{"guest *", "", Machine{}, false},
		{"no-guest", "", Machine{}, true},
		{"no-guest", "", Machine{Guest: "6.1"}, false},
		{"missing no-such-program", "", Machine{}, true},
		{"missing no-such-program", "", Machine{CI: true}, false},
		{"optional no-such-program", "", Machine{CI: true}, true},
		{"missing /proc/self", "", Machine{}, false},
		{"missing-named", "needs no-such-program (apt-get install x)", Machine{}, true},
		{"missing-named", "no-such-program is not installed", Machine{}, true},
		{"missing-named", "needs sh, to run scripts", Machine{}, false},
		{"missing-named", "needs root: mounts", Machine{}, false},
		{"missing-named", "needs no-such-kernel with more", Machine{}, false},
		{"missing-named", "too little was found", Machine{}, false},
		{"no-device mem", "", Machine{}, false},
		{"no-device no-such-device", "", Machine{}, true},
	} {
		got := c.on.holds(c.condition, c.message)
		assert.Check(t, got == c.want, "%s, %q on %+v: got %t", c.condition, c.message, c.on, got)
	}
}
