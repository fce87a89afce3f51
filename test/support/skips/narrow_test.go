package skips

import (
	"bytes"
	"debug/elf"
	"testing"

	"gotest.tools/v3/assert"
)

// TestNarrowExit: what is tried is a whole 32-bit program, also where it cannot run.
func TestNarrowExit(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(narrowExit()))
	assert.NilError(t, err)
	assert.Check(t, f.Class == elf.ELFCLASS32 && f.Machine == elf.EM_386 && len(f.Progs) == 1 && f.Entry == f.Progs[0].Vaddr+84, "%+v", f)
}
