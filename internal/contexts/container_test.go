package contexts

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/test/support/threadctx"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == helper.Verb {
		os.Exit(helper.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// The daemon's helpers find the variable of a process whose files are in a container, and which knows
// its threads by other ids.
func TestFindInContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot(2) and namespaces need CAP_SYS_ADMIN")
	}
	if testing.Short() {
		t.Skip("the race detector takes more memory than a helper may have")
	}
	from, err := helper.New(nil)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, from.Close()) })
	for _, i := range []int{0, 3, 5, 9} {
		way := threadctx.Ways()[i]
		t.Run(way.Name, func(t *testing.T) {
			p := way.Build(t).StartContained(t, "place")
			place, err := Find(from, p.PID())
			for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				place, err = Find(from, p.PID()) // a helper is not up yet, or was too slow for its deadline
			}
			assert.NilError(t, err)
			_, image, err := process.Words(p.PID())
			assert.NilError(t, err)
			assert.Check(t, image == process.Image{StartCode: place.StartCode, StartStack: place.StartStack}, "%+v, %+v", image, place)
			p.Go()
			threads, table := p.Places(2), process.New(nil)
			here := table.ThreadsHere(p.PID())
			assert.NilError(t, table.Close())
			for _, thread := range threads {
				at, err := variableAt(from, p.PID(), &place, thread.Pointer)
				assert.NilError(t, err)
				assert.Check(t, is.Equal(at, thread.Variable), "thread %+v, place %+v", thread, place)
				tid := here[thread.TID]
				assert.Check(t, tid != 0 && table.ThreadInside(p.PID(), tid) == thread.TID, "thread %d of %v", thread.TID, here)
			}
			assert.Check(t, here[1] == p.PID(), "it is not process 1: %v", here)
			p.End()
		})
	}
}
