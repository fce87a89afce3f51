package provoke

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/internal/linux"
)

// WaitSites holds every site of the dictionary against the running kernel's symbols: a site
// none of whose functions is there has been renamed.
func WaitSites(t *testing.T) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	assert.NilError(t, err)
	defer f.Close()
	have := map[string]bool{}
	assert.NilError(t, linux.ReadSymbols(f, func(s *linux.Symbol) error {
		have[waitsites.Function(string(s.Name))] = true
		return nil
	}))
	for _, missing := range waitsites.Check(func(f string) bool { return have[f] }) {
		t.Error(missing)
	}
}
