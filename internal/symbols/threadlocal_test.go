package symbols

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/threadctx"
)

// The psABI's examples, and a segment that does not begin at a multiple of its alignment.
func TestFixedOffset(t *testing.T) {
	for _, tt := range []struct {
		machine elf.Machine
		segment elf.ProgHeader
		value   uint64
		want    int64
		ok      bool
	}{
		{elf.EM_X86_64, elf.ProgHeader{Memsz: 24, Align: 8}, 8, -16, true},
		{elf.EM_X86_64, elf.ProgHeader{Memsz: 24, Align: 16}, 8, -24, true},
		{elf.EM_X86_64, elf.ProgHeader{Vaddr: 8, Memsz: 24, Align: 16}, 8, -16, true},
		{elf.EM_X86_64, elf.ProgHeader{Memsz: 24}, 16, -8, true},
		{elf.EM_AARCH64, elf.ProgHeader{Memsz: 24, Align: 8}, 8, 24, true},
		{elf.EM_AARCH64, elf.ProgHeader{Memsz: 24, Align: 64}, 8, 72, true},
		{elf.EM_X86_64, elf.ProgHeader{Memsz: 24, Align: 24}, 8, 0, false},
		{elf.EM_X86_64, elf.ProgHeader{Memsz: 24, Align: 1 << 63}, 8, 0, false},
	} {
		got, ok := fixedOffset(tt.machine, tt.segment, tt.value)
		assert.Check(t, is.Equal(ok, tt.ok), "%+v", tt)
		assert.Check(t, is.Equal(got, tt.want), "%+v", tt)
	}
}

// FuzzThreadLocal: whatever a file says, it gives an error or something plausible.
func FuzzThreadLocal(f *testing.F) {
	limitFuzz(f)
	for _, way := range threadctx.Ways()[3:7] {
		if isFuzzWorker() {
			break
		}
		for _, path := range way.Build(f).Files() {
			data, err := os.ReadFile(path)
			assert.NilError(f, err)
			if len(data) < 64<<10 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
		assert.NilError(t, err)
		file := os.NewFile(uintptr(fd), filepath.Base(t.Name()))
		defer file.Close()
		_, err = file.Write(data)
		assert.NilError(t, err)
		m := mapping{start: 0x7f0000001000, end: 0x7f0000002000, offset: 0x1000, executable: true}
		v, err := readThreadLocal(file, m, "otel_thread_ctx_v1")
		if err == nil {
			assert.Check(t, v.Kind < threadLocalKinds && v.Offset < 1<<31 && v.Offset > -1<<31, "%+v", v)
		}
	})
}
