package daemon

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/bpfobjects"
)

// objects are BPF objects of the kernel: "prog", "map" or "link", and an id.
// Ids are not used again, so other daemons do not matter.
type objects map[string]uint32

// heldBy lists the BPF objects that a process has open.
func heldBy(t *testing.T, pid int) objects {
	t.Helper()
	return bpfobjects.Held(t, pid)
}

// gone holds that the objects disappear: the kernel frees them a moment after
// their last user.
func (o objects) gone(t *testing.T) {
	t.Helper()
	for name, id := range o {
		eventually(t, "the kernel has freed BPF "+name, func() bool {
			there, err := exists(name, id)
			assert.NilError(t, err, "look for BPF %s", name)
			return !there
		})
	}
}

// exists does not open maps: a program array that is opened and closed again while the kernel
// still empties it stays for good (prog_array_map_clear of kernel/bpf/arraymap.c takes a
// reference that nobody gives up if its work is queued already; seen on 6.18).
func exists(name string, id uint32) (bool, error) {
	var object io.Closer
	var err error
	switch kind, _, _ := strings.Cut(name, " "); kind {
	case "map":
		next, err := ebpf.MapGetNextID(ebpf.MapID(id - 1))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return next == ebpf.MapID(id), err
	case "prog":
		object, err = ebpf.NewProgramFromID(ebpf.ProgramID(id))
	default:
		object, err = link.NewFromID(link.ID(id))
	}
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, object.Close()
}

// nothingPinned holds that there is no file of ours in the BPF file system,
// and no mount.
func nothingPinned(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/bpf", func(path string, _ os.DirEntry, err error) error {
		assert.Check(t, err != nil || !strings.Contains(filepath.Base(path), "tailcam"), "%s stays", path)
		return nil
	})
	assert.Check(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	assert.NilError(t, err)
	for line := range strings.Lines(string(mounts)) {
		assert.Check(t, !strings.Contains(line, "tailcam-test-"), "a mount stays: %s", line)
	}
}

// unlocked holds that nobody has a lock on the file any more.
func unlocked(t *testing.T, path string) {
	t.Helper()
	assert.Check(t, free(t, path), "%s is still locked", path)
}
