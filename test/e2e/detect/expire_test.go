package detect

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// 50,000 keys that become too old at once: each is reported once, or counted as
// lost, and the machine goes on meanwhile.
func TestFiftyThousandTimeouts(t *testing.T) {
	const n = 50_000
	list := pairRules(t, fmt.Sprintf(`
rules:
  - name: many
    track: pair
    entry: tracepoint:syscalls:sys_enter_getpriority
    exit: tracepoint:syscalls:sys_enter_setpriority
    key: [args.who]
    timeout: 300ms
    threshold: 1ms
    when: {pid: %d}
    stacks: [kernel]
    snapshot: false
`, unix.Getpid()))
	c := watch(t, list, &tracker.Options{TrackSelf: true, Pairs: 1 << 18, Buffer: 64 << 20})
	begin := time.Now()
	for i := range n {
		_, _ = unix.Getpriority(unix.PRIO_PROCESS, 1<<24+i) // there is no such process
	}
	took := time.Since(begin)
	seen := map[uint64]int{}
	var last time.Duration
	c.eventually("all have expired", func() error {
		if got := uint64(len(c.from(0))) + c.counters().Rules["many"].RingFull; got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
	last = time.Since(begin)
	k := c.counters().Rules["many"]
	for _, o := range c.from(0) {
		seen[o.Key["who"]]++
		assert.Assert(t, o.Cause == events.CauseTimeout && o.DelayNS >= (300*time.Millisecond).Nanoseconds(),
			"outlier %+v", o)
	}
	for key, times := range seen {
		assert.Check(t, times == 1, "key %d is reported %d times", key, times)
	}
	tick, err := c.kernel.Tick()
	assert.NilError(t, err)
	t.Logf("%d keys in %v; reported %d, lost for want of room in the ring buffer %d, all within %v; tick %+v", n, took, len(seen), k.RingFull, last, tick)
	assert.Check(t, len(seen)+int(k.RingFull) == n, "%d reported and %d lost of %d", len(seen), k.RingFull, n)
}
