package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
)

// What cannot be removed, here as root has made it immutable, stays outside of the
// count: it costs the younger ones nothing, is told once, and goes when it can.
func TestUnremovable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a tmpfs")
	}
	base := t.TempDir()
	assert.NilError(t, unix.Mount("tmpfs", base, "tmpfs", 0, "size=4m"))
	cleanup.Unmount(t, base) // the flags go with it
	core, logged := observer.New(zap.InfoLevel)
	s := testStore(t, StoreOptions{Dir: filepath.Join(base, "store"), Logger: zap.New(core)})
	now := time.Now()
	s.now = func() time.Time { return now }
	for _, file := range []string{".", "data", TraceDir} {
		path := filepath.Join(s.Path(put(t, s, 0, 1)), file)
		if file == TraceDir {
			assert.NilError(t, os.Mkdir(path, 0o700))
		}
		assert.NilError(t, immutable(path, true))
	}
	s.SetRetention(Retention{Count: 2})
	var kept []string
	for range 5 {
		kept = append(kept, put(t, s, 0, 1))
		now = now.Add(time.Second)
	}
	names, err := IDs(s.Dir())
	assert.NilError(t, err)
	for _, id := range kept[3:] {
		assert.Check(t, slices.Contains(names, id), "%s was removed instead of what cannot be: %v", id, names)
	}
	for _, id := range kept[:3] {
		assert.Check(t, !slices.Contains(names, id), "%s is kept beyond the count", id)
	}
	n := s.Unremovable()
	assert.Check(t, n == 3, "%d cannot be removed, want 3", n)
	for range 10 {
		now = now.Add(2 * removeRetryInterval)
		s.Enforce()
	}
	n = logged.FilterMessageSnippet("cannot remove a snapshot").Len()
	assert.Check(t, n == 1, "told %d times", n)
	// And when they can be removed.
	err = filepath.WalkDir(s.Dir(), func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = immutable(path, false)
		}
		return err
	})
	assert.NilError(t, err)
	now = now.Add(2 * removeRetryInterval)
	s.Enforce()
	n = s.Unremovable()
	assert.Check(t, n == 0, "%d cannot be removed still", n)
	left := leftovers(t, s.Dir())
	assert.Check(t, len(left) == 0, "left %q", left)
	want(t, s, kept[3:]...)
}

// immutable sets or clears the flag of a file or directory.
func immutable(path string, set bool) error {
	const flag = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= flag
	if set {
		flags |= flag
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
}
