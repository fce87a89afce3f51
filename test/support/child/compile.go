package child

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// Compile runs a compiler. Without it the test is skipped.
func Compile(t testing.TB, compiler string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("needs %s to build the program under test: %v", compiler, err)
	}
	text, err := exec.Command(compiler, args...).CombinedOutput()
	assert.NilError(t, err, "%s %q\n%s", compiler, args, text)
}

// Overlapping writes a program with many sections whose long names overlap: of these
// 5 MB debug/elf makes gigabytes.
func Overlapping(t testing.TB) string {
	t.Helper()
	const sections, names = 0xfe00, 1 << 20
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shoff: 64, Shentsize: 64, Shnum: sections, Shstrndx: 1,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	list := make([]elf.Section64, sections)
	for i := range list {
		list[i] = elf.Section64{Name: uint32(i), Type: uint32(elf.SHT_SYMTAB), Link: 1, Off: 64 + 64*sections, Size: names}
		if i <= 1 {
			list[i].Type, list[i].Link = uint32(elf.SHT_STRTAB), 0
		}
	}
	var b bytes.Buffer
	assert.NilError(t, errors.Join(binary.Write(&b, binary.LittleEndian, h), binary.Write(&b, binary.LittleEndian, list)))
	b.Write(append(bytes.Repeat([]byte{'A'}, names-1), 0))
	path := filepath.Join(t.TempDir(), "overlapping")
	assert.NilError(t, os.WriteFile(path, b.Bytes(), 0o755))
	return path
}
