package main

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestPart: the parts are all tests of a package, and none twice.
func TestPart(t *testing.T) {
	var whole []string
	for _, part := range []string{"-part=0/1", "-part=0/2", "-part=1/2"} {
		args, err := ofPart([]string{part, "-count=1", "."})
		assert.NilError(t, err)
		assert.DeepEqual(t, args[1:], []string{"-count=1", "."})
		run := strings.TrimSuffix(strings.TrimPrefix(args[0], "-run=^("), ")$")
		names := strings.Split(run, "|")
		if whole == nil {
			whole = names
			assert.Assert(t, slices.Contains(whole, "TestPart") && len(whole) > 3, "%q", whole)
			continue
		}
		for _, name := range names {
			at := slices.Index(whole, name)
			assert.Assert(t, at >= 0, "%s is in two parts, or of none", name)
			whole = slices.Delete(whole, at, at+1)
		}
	}
	assert.Check(t, len(whole) == 0, "in no part: %q", whole)

	all := []string{"-count=1", "."}
	args, err := ofPart(all)
	assert.NilError(t, err)
	assert.DeepEqual(t, args, all)
	for _, bad := range []string{"-part=2/2", "-part=-1/2", "-part=", "-part=0/0", "-part=x"} {
		_, err := ofPart([]string{bad, "."})
		assert.ErrorContains(t, err, "want -part=K/N")
	}
	_, err = ofPart([]string{"-part=99/100", "."})
	assert.ErrorContains(t, err, "no test")
}
