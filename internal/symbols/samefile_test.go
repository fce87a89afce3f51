package symbols

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, 1)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(text) }()
	var m mapping
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := open(m); err != nil {
		t.Fatalf("while nothing is replaced: %v", err)
	}
	// Mapped over by another file, in the very same place.
	other := m
	other.inode++
	if err := open(other); !errors.Is(err, errOtherFile) {
		t.Errorf("another file is mapped now: got %v", err)
	}
	// Another file under the path, opened by it (nothing is mapped at that address).
	write(path+".new", 2)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	byPath := m
	byPath.start, byPath.end = 0x1000, 0x2000
	if err := open(byPath); !errors.Is(err, errOtherFile) {
		t.Errorf("another file lies at the path: got %v", err)
	}
}
