// Package bpfobjects finds the BPF objects of processes.
package bpfobjects

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Held lists the BPF objects that a process has open: "prog", "map" or "link", and an id.
// What is closed meanwhile may be missing.
func Held(t testing.TB, pid int) map[string]uint32 {
	t.Helper()
	held := map[string]uint32{}
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	assert.NilError(t, err)
	for _, path := range paths {
		info, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(info)) {
			kind, number, _ := strings.Cut(line, ":")
			kind, ok := strings.CutSuffix(kind, "_id")
			if !ok || kind != "prog" && kind != "map" && kind != "link" {
				continue
			}
			id, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
			assert.NilError(t, err, "%s: %q", path, line)
			held[kind+" "+strconv.FormatUint(id, 10)] = uint32(id)
		}
	}
	return held
}
