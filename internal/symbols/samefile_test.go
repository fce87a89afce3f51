package symbols

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// A file that takes the place of one that is mapped gives no names, whichever
// way it comes: over the path, or into the mapping.
func TestReplacedFileGivesNoNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	write := func(path string, b byte) {
		t.Helper()
		text := make([]byte, os.Getpagesize())
		copy(text, "\x7fELF\x02\x01\x01")
		text[16], text[100] = 3, b // a shared library, as only ELF files are opened
		assert.NilError(t, os.WriteFile(path, text, 0o600))
	}
	write(path, 1)
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	text, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	assert.NilError(t, err)
	defer func() { _ = unix.Munmap(text) }()
	var m mapping
	maps, err := os.Open("/proc/self/maps")
	assert.NilError(t, err)
	defer maps.Close()
	if err := scanMaps(maps, func(at mapping) bool {
		if strings.HasSuffix(at.name, path) {
			m = at
		}
		return true
	}); err != nil || m.end == 0 {
		t.Fatalf("the mapping is not there: %v", err)
	}
	open := func(m mapping) error {
		got := NewOpener(nil).Mapped(os.Getpid(), []Mapping{m.wanted()})[0]
		if got.Err == nil {
			got.File.Close()
		}
		return got.Err
	}
	assert.NilError(t, open(m), "while nothing is replaced")
	// Mapped over by another file, in the very same place.
	other := m
	other.inode++
	assert.Check(t, is.ErrorIs(open(other), errOtherFile), "another file is mapped now")
	// Another file under the path, opened by it (nothing is mapped at that address).
	write(path+".new", 2)
	assert.NilError(t, os.Rename(path+".new", path))
	byPath := m
	byPath.start, byPath.end = 0x1000, 0x2000
	assert.Check(t, is.ErrorIs(open(byPath), errOtherFile), "another file lies at the path")
}
