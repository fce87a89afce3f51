package trace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// A stream without the state dump is there before what that says is known, unless it has system
// calls, which open files; in the end all is as if it had been known before.
func TestDraft(t *testing.T) {
	for _, c := range []struct {
		name  string
		calls bool
		early []string
	}{
		{"no calls", false, []string{"kernel_0", "kernel_2"}},
		{"calls", true, []string{"kernel_2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := Trace{UUID: [16]byte{7}, SyscallName: syscallName}
			for cpu := range 3 {
				from := uint64(1_000_000_000)
				if cpu == 1 {
					from++ // its history is the shortest
				}
				b := newBuilder(cpu, from)
				for i := range 500 {
					b.switchTo(100+i, "a", 0, 101+i, "b")
					if c.calls && cpu == 0 {
						b.syscall(SyscallExit, 2, 5)
					}
				}
				tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out, From: from, To: b.now + 1000})
			}
			known := &Known{Tasks: []KnownTask{{TID: 100, PID: 100, Comm: "bash"}}, Files: []FileState{{PID: 399, FD: 5, Name: "/a"}}}

			dir := t.TempDir()
			d, err := Begin(dir, tr)
			assert.NilError(t, err)
			entries, err := os.ReadDir(filepath.Join(dir, kernelDir))
			assert.NilError(t, err)
			var early []string
			for _, e := range entries {
				early = append(early, e.Name())
			}
			assert.DeepEqual(t, early, c.early)
			_, err = Read(dir)
			assert.Assert(t, errors.Is(err, fs.ErrNotExist), "half a trace was read: %v", err)
			assert.NilError(t, d.Finish(known))

			tr.Known = known
			whole := write(t, tr)
			for _, name := range []string{"kernel_0", "kernel_1", "kernel_2", "metadata"} {
				assert.Assert(t, slices.Equal(streamFile(t, dir, name), streamFile(t, whole, name)), "%s differs", name)
			}
		})
	}
}
