package skips

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
)

// runsNarrow reports whether this machine runs 32-bit programs of x86: kernels are built without, or
// told not to, and some hypervisors keep them from it.
func runsNarrow() bool {
	dir, err := os.MkdirTemp("", "tailcam-narrow-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir) //nolint:errcheck // one small file
	path := filepath.Join(dir, "exit")
	return os.WriteFile(path, narrowExit(), 0o700) == nil && exec.Command(path).Run() == nil
}

// narrowExit is a program that ends with 0.
func narrowExit() []byte {
	code := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80} // eax = exit, ebx = 0, int 0x80
	const base, head = 0x08048000, 52 + 32
	h := elf.Header32{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT), Entry: base + head,
		Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	size := uint32(head + len(code))
	p := elf.Prog32{Type: uint32(elf.PT_LOAD), Vaddr: base, Filesz: size, Memsz: size, Flags: uint32(elf.PF_R | elf.PF_X), Align: 4096}
	var b bytes.Buffer
	for _, part := range []any{&h, &p, code} {
		if binary.Write(&b, binary.LittleEndian, part) != nil {
			return nil
		}
	}
	return b.Bytes()
}
