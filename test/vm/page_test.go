package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// The page about kernels is what its records say, and those are of the matrix.
func TestPageAgrees(t *testing.T) {
	root, err := moduleRoot()
	assert.NilError(t, err)
	list, err := readRecords(root)
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(root, pageFile))
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(text), page(list)), "%s is not what %s says: run make kernels-page", pageFile, recordFile)
	assert.Check(t, is.DeepEqual(list, inOrder(list)), "%s is not in the order of the matrix", recordFile)
}

// A page shows what failed, what differs and why, and what has not been run.
func TestPage(t *testing.T) {
	text := page([]record{
		{
			Kernel: "6.1", Release: "6.1.0", Arch: "amd64", Date: "2026-01-02",
			Tests: map[string]outcome{"TestA": pass, "TestB": fail, "TestC": pass},
			Facts: map[string]fact{"hook x": {Value: "yes"}, "hook y": {Value: "yes"}, "page size": {Value: "4096"}},
		},
		{
			Kernel: "arm64-6.1", Release: "6.1.0", Arch: "arm64", Date: "2026-01-03",
			Tests: map[string]outcome{"TestA": pass, "TestB": pass, "TestC": pass}, Skips: map[string]string{"TestC/part": "no x"},
			Facts: map[string]fact{"hook x": {Value: "no", Why: "it is not there"}, "hook y": {Value: "yes"}, "page size": {Value: "16384"}},
		},
	})
	for _, want := range []string{
		"| 6.1 | 6.1.0 | amd64 | 4096 | 2026-01-02 | 2 | 1 | 0 |\n",
		"| 6.1-rt | | amd64 | | not yet | | | |\n",
		"| arm64-6.1 | 6.1.0 | arm64 | 16384 | 2026-01-03 | 3 | 0 | 0 |\n",
		"| | 6.1 | arm64-6.1 |\n",
		"| hook x | yes | no (1) |\n", "| (1) | it is not there |\n", "`hook y`.\n",
		"| TestB | **fail** | pass |\n", "| TestC/part | pass | skip (1) |\n", "| (1) | no x |\n", "`TestA`, `TestC`.\n",
	} {
		assert.Check(t, is.Contains(text, want))
	}
	assert.Check(t, !strings.Contains(text, "| hook y |") && !strings.Contains(text, "| TestA |"), "%s", text)
}
