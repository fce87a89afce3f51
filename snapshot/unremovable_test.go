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

	"github.com/tailcam/tailcam/test/support/cleanup"
)

// What cannot be removed, here as root has made it immutable, stays outside of the
// count: it costs the younger ones nothing, is told once, and goes when it can.
func TestUnremovable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a tmpfs")
	}
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	cleanup.Unmount(t, base) // the flags go with it
	core, logged := observer.New(zap.InfoLevel)
	s := testStore(t, StoreOptions{Dir: filepath.Join(base, "store"), Logger: zap.New(core)})
	now := time.Now()
	s.now = func() time.Time { return now }
	for _, file := range []string{".", "data", TraceDir} {
		path := filepath.Join(s.Path(put(t, s, 0, 1)), file)
		if file == TraceDir {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := immutable(path, true); err != nil {
			t.Fatal(err)
		}
	}
	s.SetRetention(Retention{Count: 2})
	var kept []string
	for range 5 {
		kept = append(kept, put(t, s, 0, 1))
		now = now.Add(time.Second)
	}
	names, err := IDs(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range kept[3:] {
		if !slices.Contains(names, id) {
			t.Errorf("%s was removed instead of what cannot be: %v", id, names)
		}
	}
	for _, id := range kept[:3] {
		if slices.Contains(names, id) {
			t.Errorf("%s is kept beyond the count", id)
		}
	}
	if n := s.Unremovable(); n != 3 {
		t.Errorf("%d cannot be removed, want 3", n)
	}
	for range 10 {
		now = now.Add(2 * removeRetryInterval)
		s.Enforce()
	}
	if n := logged.FilterMessageSnippet("cannot remove a snapshot").Len(); n != 1 {
		t.Errorf("told %d times", n)
	}
	// And when they can be removed.
	err = filepath.WalkDir(s.Dir(), func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = immutable(path, false)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * removeRetryInterval)
	s.Enforce()
	if n := s.Unremovable(); n != 0 {
		t.Errorf("%d cannot be removed still", n)
	}
	if left := leftovers(t, s.Dir()); len(left) != 0 {
		t.Errorf("left %q", left)
	}
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
