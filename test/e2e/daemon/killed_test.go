package daemon

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestKilledAnywhere kills the daemon at random moments of its start and of its work:
// no program, lock, process or half snapshot stays, and the next one takes over.
func TestKilledAnywhere(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "a service is known to its manager from some moment on only")
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "stacks: [user]", "snapshot: {after: 5ms, every: 10ms, burst: 20}")))
	for round := range 10 {
		d := &running{home: h, t: t}
		c, err := startChild(h.command(), &d.log)
		assert.NilError(t, err)
		d.main = c
		t.Cleanup(func() { _ = d.main.Signal(syscall.SIGKILL) }) // if the test ends early
		// Half of the kills hit the start, early as often as late; the others, work.
		most := 2000 >> rand.IntN(6)
		if round%2 == 1 {
			d.watches()
			naps(t, uid, 20, 3*time.Millisecond, 2)
			most = 100
		}
		time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond)
		if d.ended() {
			t.Fatalf("round %d: it ended by itself:\n%s", round, d.log.String())
		}
		// What it holds is known while it stands still.
		d.pause()
		held, helpers := heldBy(t, d.pid()), children(t, d.pid())
		d.signal(syscall.SIGKILL)
		eventually(t, "it is dead", d.ended)
		held.gone(t)
		nothingPinned(t)
		for _, pid := range helpers {
			eventually(t, "helper "+pid+" has ended", func() bool {
				_, err := os.Stat("/proc/" + pid + "/exe")
				return errors.Is(err, os.ErrNotExist)
			})
		}
		if _, err := os.Stat(h.snaps); err == nil {
			complete(t, h.snaps)
		}
		t.Logf("round %d: killed with %d BPF objects and %d helpers, watching: %t",
			round, len(held), len(helpers), d.log.has(`"message":"watching"`))
	}
	d := h.start(t)
	checkSnapshot(t, byHand(d, "after all that"))
	only(t, h.snaps, len(d.list()))
	entries, err := filepath.Glob(h.socket + "*")
	assert.Check(t, err == nil && len(entries) == 2, "beside the socket: %v", entries) // and its lock
}
