package daemon

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
)

// TestMapsAreNotPrivate: the maps of processes, which the daemon maps to read them, are no memory
// of its own for budget.memory.
func TestMapsAreNotPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	a, err := activities.New(nil)
	assert.NilError(t, err)
	defer a.Close()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	p, err := a.Open(&activities.Opening{PID: os.Getpid(), PidFD: fd, Tokens: abi.ActivityMaxTokens})
	assert.NilError(t, err)
	defer p.Close()
	before, sum := privateMemory(os.Getpid()), byte(0)
	p.Read(func(shared, accounts []byte) {
		for _, b := range [][]byte{shared, accounts} {
			for i := 0; i < len(b); i += os.Getpagesize() {
				sum |= b[i]
			}
		}
	})
	assert.Check(t, sum != 0)
	bytes := a.Counts().Bytes
	grown := privateMemory(os.Getpid()) - before
	t.Logf("maps of %d bytes, %d of them private; those of the kernel side itself have %d", bytes, grown, a.MapBytes())
	assert.Check(t, bytes > 64<<20 && grown < bytes/4, "%d of %d", grown, bytes)
}
