package catalog_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/export"
	"github.com/tailcam/tailcam/internal/catalog"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/snapshot"
)

// Whatever stands in place of a snapshot's files, nobody who reads it waits for
// ever, or reads what is outside.
func TestHostileFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	assert.NilError(t, os.Mkdir(outside, 0o755))
	puts := map[string]func(path string) error{
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link":      func(path string) error { return os.Symlink(outside, path) },
		"loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"tty":       func(path string) error { return os.Symlink("/dev/tty", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"sparse":    func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	}
	if os.Geteuid() == 0 {
		puts["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) } // zero
	}
	for _, file := range []string{
		"snapshot.json", "explain.json", "explain.txt", "tasks.json", "stacks.folded", "SHA256SUMS",
		"trace", "trace/kernel", "trace/kernel/metadata", "trace/kernel/kernel_0",
	} {
		for what, put := range puts {
			t.Run(what+" as "+filepath.Base(file), func(t *testing.T) {
				storeDir, ids := ct.Make(t, explained())
				dir := filepath.Join(storeDir, ids[0])
				path := filepath.Join(dir, file)
				assert.NilError(t, errors.Join(os.RemoveAll(path), put(path)))
				inTime(t, func() {
					checks, err := catalog.Verify(t.Context(), storeDir, ids, nil)
					// Without sums nobody knows what a text should hold.
					unknown := what == "sparse" && (file == "explain.txt" || file == "stacks.folded")
					assert.Check(t, err == nil && len(checks) == 1 && checks[0].OK == unknown,
						"verify: %+v, %v", checks, err)
				})
				inTime(t, func() {
					_, _, err := catalog.Read(storeDir, catalog.Options{})
					assert.Check(t, err, "list")
					_, _ = catalog.ReadDetails(dir)   // whether it can be told is another matter
					_, _, _ = catalog.Explain(dir)    // the same
					_, _, _ = snapshot.List(storeDir) // the same
				})
				for _, format := range []export.Format{export.CTF, export.Perfetto, export.Folded, export.JSON, export.Text} {
					inTime(t, func() {
						_, _ = export.Run(t.Context(), dir, io.Discard, &export.Options{Format: format, Out: filepath.Join(t.TempDir(), "out")})
					})
				}
				inTime(t, func() {
					_, err := snapshot.Remove(storeDir, ids[0])
					assert.Check(t, err, "rm")
				})
				_, err := os.Stat(outside)
				assert.Check(t, err, "what is outside")
			})
		}
	}
}

// inTime fails if f hangs.
func inTime(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("it hangs")
	}
}

// Very many files cost no more than many.
func TestManyFiles(t *testing.T) {
	storeDir, ids := ct.Make(t, explained())
	dir := filepath.Join(storeDir, ids[0])
	for i := range 5000 {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d\x1b[31m\u202e", i)), nil, 0o600))
	}
	story, err := catalog.ReadDetails(dir)
	assert.Check(t, err == nil && len(story.Files) == 1001, "%d files, %v", len(story.Files), err)
	_, err = snapshot.Remove(storeDir, ids[0])
	assert.Check(t, err)
}
