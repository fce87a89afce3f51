package symbols

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// A program stands in for vmlinux: a real ELF file with real DWARF, whose code
// begins at _stext, and which was "loaded" elsewhere than it was linked to.
func TestKernelLines(t *testing.T) {
	const source = "testdata/kernel.c"
	path := build(t, "vmlinux", "gcc", "-O2", "-g", "-static", "-nostdlib", "-ffreestanding", "-no-pie", "-fno-PIE",
		"-fno-asynchronous-unwind-tables", "-Wl,--build-id", "-Wl,-e,_stext", source)
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	assert.NilError(t, err)
	const slide = 0xffffffff80000000
	var kallsyms bytes.Buffer
	addrs := map[string]uint64{}
	for _, s := range list {
		if s.Section != elf.SHN_UNDEF && s.Section < elf.SHN_LORESERVE && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0 && elf.ST_TYPE(s.Info) != elf.STT_SECTION {
			fmt.Fprintf(&kallsyms, "%016x T %s\n", s.Value+slide, s.Name)
			addrs[s.Name] = s.Value + slide
		}
	}
	fmt.Fprintf(&kallsyms, "ffffffffc0000000 t of_module\t[mod]\n")
	root := t.TempDir()
	install(t, path, root, "/usr/lib/debug/boot/vmlinux-1.2.3")
	put := func(name string, text []byte) {
		name = filepath.Join(root, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		assert.NilError(t, os.WriteFile(name, text, 0o644))
	}
	notes, err := f.Section(".note.gnu.build-id").Data()
	assert.NilError(t, err)
	put("sys/kernel/notes", notes)
	put("proc/sys/kernel/osrelease", []byte("1.2.3\n"))
	put("proc/kallsyms", kallsyms.Bytes())

	r := New(&Options{Proc: filepath.Join(root, "proc"), Root: root, Timeout: time.Minute})
	at := addrs["finish_wait"] + 1
	s, err := r.Kernel([]uint64{at, 0xffffffffc0000010})
	assert.NilError(t, err)
	want := fmt.Sprintf("list_del kernel.c:%d < finish_wait kernel.c:%d", lineOf(t, source, "list_del is here"), lineOf(t, source, "finish_wait calls"))
	got := story(s, 0)
	assert.Check(t, got == want, "got  %s\nwant %s", got, want)
	got = story(s, 1)
	assert.Check(t, got == "of_module" && s.Frames[1] == "of_module+0x10 [mod]",
		"a module: got %s, %s", got, s.Frames[1])
	names, err := r.KernelNames([]uint64{at})
	assert.Check(t, err == nil && names[0] == s.Frames[0], "got %q, %v", names, err)

	// That of another kernel is not believed.
	notes[len(notes)-1]++
	put("sys/kernel/notes", notes)
	r = New(&Options{Proc: filepath.Join(root, "proc"), Root: root, Timeout: time.Minute})
	s, err = r.Kernel([]uint64{at})
	assert.Check(t, err == nil && s.Sources == nil, "got %+v, %v", s, err)
}
