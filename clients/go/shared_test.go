package tailcam

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// TestShared: what was done for the process, and not for which of its tokens, is its own: the
// writeback of a file that two have written to, and what came for one that had ended.
func TestShared(t *testing.T) {
	p := activitypeer.StartKernel(t)
	h, err := Open(p.Path, nil)
	assert.NilError(t, err)
	defer h.Close()
	th := h.Thread()
	defer th.Release()
	const half, piece = 1 << 20, 1 << 18
	fresh := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		assert.NilError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	dirty := func(name string, f *os.File, from, to int64) Token {
		token := h.Token(name)
		th.Switch(token)
		defer th.Switch(0)
		for ; from < to; from += piece {
			_, err := f.WriteAt(make([]byte, piece), from)
			assert.NilError(t, err)
		}
		return token
	}
	both, late := fresh("both"), fresh("late")
	unix.Sync()
	dirty("one", both, 0, half)
	dirty("other", both, half, 2*half)
	h.End(dirty("ended", late, 0, piece))
	assert.NilError(t, unix.Syncfs(int(both.Fd())))
	s := h.Shared()
	assert.Check(t, s.WritebackBytes >= 2*half && s.Late >= 1 && s.CPUNS == 0, "%+v", s)
}

// TestSharedLayout: each number of the header is at its own place; without a handle all are 0.
func TestSharedLayout(t *testing.T) {
	p := activitypeer.Start(t)
	h, err := Open(p.Path, nil)
	assert.NilError(t, err)
	defer h.Close()
	header := p.Header(t)
	header.MachineNs, header.Late = 1, 2
	for i := range header.Unknown {
		header.Unknown[i] = uint64(100 + i)
	}
	s := h.Shared()
	assert.Equal(t, s.MachineNS, uint64(1))
	assert.Equal(t, s.Late, uint64(2))
	assert.Equal(t, s.Syscalls, uint64(100))
	assert.Equal(t, s.RunnableStolenNS, uint64(100+abi.ActivityRunnableStolenNs-abi.ActivitySyscalls))
	assert.Equal(t, s.Wakeups, uint64(0))
	assert.Equal(t, (*Handle)(nil).Shared(), Shared{})
}
