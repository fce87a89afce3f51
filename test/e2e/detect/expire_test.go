package detect

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
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

// TestScansApart: the parts of a pending table are looked through one at a time, as each look
// keeps interrupts off.
func TestScansApart(t *testing.T) {
	const tick = 8 * time.Millisecond // TICK_NS of bpf/tick.h
	const parts = 16                  // of this table: CHUNK_BUCKETS of bpf/abi/table.h
	for _, timeout := range []time.Duration{time.Second, 2 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			c := watch(t, []rules.Rule{{Name: "never", Track: rules.OffCPU, Timeout: timeout, When: rules.Match{State: []rules.State{rules.Uninterruptible}}}},
				&tracker.Options{Tasks: parts * 512 * 8})
			time.Sleep(timeout / 2) // at first all are new, and looked through at once
			begin, err := c.kernel.Tick()
			assert.NilError(t, err)
			looks := begin.Scans
			for start := time.Now(); time.Since(start) < 2*timeout; {
				before := time.Now()
				time.Sleep(time.Millisecond) // its end is a timer as well
				s, err := c.kernel.Tick()
				assert.NilError(t, err)
				if time.Since(before) < tick {
					assert.Check(t, s.Scans-looks <= 2, "%d parts within %v", s.Scans-looks, time.Since(before))
				}
				looks = s.Scans
			}
			assert.Check(t, looks-begin.Scans >= parts, "%d looks", looks-begin.Scans)
			t.Logf("%d looks in %v", looks-begin.Scans, 2*timeout)
		})
	}
}
