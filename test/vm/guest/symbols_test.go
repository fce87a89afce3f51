package guest

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestModuleSymbols: addresses of the kernel have their names, and those in
// modules the module's.
func TestModuleSymbols(t *testing.T) {
	inGuest(t)
	f, err := os.Open("/proc/kallsyms")
	assert.NilError(t, err)
	defer f.Close()
	wanted := map[string]string{"schedule": "", "null_queue_rq": " [null_blk]", "lo_release": " [loop]"}
	r := symbols.New(nil)
	found := 0
	err = linux.ReadSymbols(f, func(sym *linux.Symbol) error {
		name := string(sym.Name)
		module, ok := wanted[name]
		if !ok {
			return nil
		}
		found++
		s, err := r.Kernel([]uint64{sym.Addr + 3})
		want := name + "+0x3" + module
		assert.Check(t, err == nil && s.Frames[0] == want, "got %q, %v; want %s", s.Frames, err, want)
		return nil
	})
	assert.NilError(t, err)
	assert.Check(t, found == len(wanted), "%d of %d functions are in kallsyms", found, len(wanted))
}

// TestWaitSites holds the dictionary of wait sites against this kernel's functions.
func TestWaitSites(t *testing.T) {
	inGuest(t)
	provoke.WaitSites(t)
}
