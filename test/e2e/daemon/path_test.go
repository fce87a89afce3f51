package daemon

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestPathAgreesWithTheRules: the critical path of real outliers, held against
// the rules that docs/explain.md writes down, carried out in the plainest way:
// all switches and wake-ups in a list, and a search through it for each step.
func TestPathAgreesWithTheRules(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "it is about traces, whoever has written them, and disagrees there: a path begins before its trace")
	uid := newUID()
	for _, tc := range []struct {
		name, when string
		load       func(t *testing.T)
		depth      int // that some path must have
	}{
		{"crowd", fmt.Sprintf("{uid: [%d], comm: [hackbench]}", uid), func(t *testing.T) { hackbench(t, uid) }, 1},
		{"chain", fmt.Sprintf("{uid: [%d], comm: [inj-chain-*]}", uid), func(t *testing.T) {
			provoke(t, uid, "chain", "pipe", "6", "40", "2000")
		}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := start(t, rulesFile(fmt.Sprintf(`
  - name: off
    track: offcpu
    threshold: 300us
    when: %s
    snapshot: {after: 900ms, every: 1ms, burst: 1000}
`, tc.when)), "--recorder-size", "16MiB")
			tc.load(t)
			var m *snapshot.Meta
			eventually(t, "a snapshot", func() bool {
				for _, s := range d.list() {
					got, err := snapshot.ReadMeta(filepath.Join(d.snaps, s.ID))
					if err == nil && len(got.Outliers) >= agreed {
						m = got
					}
				}
				return m != nil
			})
			sample := m.Outliers
			rand.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
			deep := pathsAgree(t, filepath.Join(d.snaps, m.ID), sample[:agreed])
			assert.Check(t, deep >= tc.depth,
				"no path is deeper than %d, want %d: this proves little", deep, tc.depth)
		})
	}
}

// pathsAgree returns the greatest depth of a path.
func pathsAgree(t *testing.T, dir string, sample []events.Outlier) (deep int) {
	t.Helper()
	results := explained(t, dir, sample)
	ref := readReference(t, dir)
	// Where the kernel leaves out a switch (switch_unseen in tailcam status) there is nothing to compare: of the
	// task that is concerned neither knows when it really ran. Nor is there where a path is so long that its short
	// steps are one: on a busy machine each wait is.
	mute := map[int]bool{}
	for i := range results {
		for _, s := range results[i].Path {
			if s.State == "unknown" {
				mute[s.Task.TID] = true
			}
		}
	}
	compared := 0
	for i := range results {
		o := &sample[i]
		want := map[stretch]uint64{}
		ref.follow(want, o.Task.TID, o.StartMono, o.EndMono, 0, nil)
		got := map[stretch]uint64{}
		var above []stretch // the steps that this one is within
		for _, s := range results[i].Path {
			step := stretch{s.Depth, s.Task.TID, s.State}
			if s.State == "interrupted" {
				step.state = "running"
			}
			above = above[:min(s.Depth, len(above))]
			own := false // what it waits for within what it does itself, such as a page fault: the rules have no such step
			if n := len(above); n > 0 {
				own = above[n-1].tid == step.tid
				step.depth = above[n-1].depth + 1
			}
			if own {
				step.depth--
			} else {
				got[step] += s.ToMonoNS - s.FromMonoNS
			}
			above = append(above, step)
			deep = max(deep, step.depth)
		}
		diff := cmp.Diff(want, got, cmp.AllowUnexported(stretch{}))
		if diff != "" && slices.ContainsFunc(results[i].Path, func(s explain.Step) bool { return mute[s.Task.TID] || s.Count > 0 }) {
			continue
		}
		if compared++; diff != "" {
			t.Errorf("%s[%d] until %d (-by the rules +explained):\n%s\n%s", o.Task.Comm, o.Task.TID, o.EndMono, diff, results[i].Verdict)
		}
	}
	assert.Check(t, compared >= len(results)/2, "only %d of %d paths are whole", compared, len(results))
	return deep
}

// stretch is all that one task spent in one state at one depth of a path.
type stretch struct {
	depth, tid int
	state      string
}

// reference is the scheduler's events, in order.
type reference []moment

// moment is when a task's state changed.
type moment struct {
	at    uint64
	tid   int
	state string
	waker int // runnable by a wake-up: who; 0: not a task
}

func readReference(t *testing.T, dir string) reference {
	t.Helper()
	r, err := trace.Read(filepath.Join(dir, snapshot.TraceDir))
	assert.NilError(t, err)
	defer r.Close()
	var ref reference
	state := map[int]string{}
	last, early := map[int]int{}, map[int]uint64{} // the latest moment of a task; its wake-up while it still ran
	above := map[int]int{}                         // interrupts, softirqs and timers that run on a CPU
	become := func(at uint64, tid int, s string, waker int) {
		if tid != 0 && state[tid] != s {
			state[tid] = s
			last[tid] = len(ref)
			ref = append(ref, moment{at, tid, s, waker})
		}
	}
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ref
		}
		assert.NilError(t, err)
		switch b := ev.Body.(type) {
		case trace.Switch:
			left := "blocked"
			if b.PrevState == 0 || b.Preempted {
				left = "runnable"
			}
			become(ev.Time, ev.TID, left, 0)
			// Rule 1: it was woken on its way to sleep.
			if woken, ok := early[b.NextTID]; ok && state[b.NextTID] == "blocked" && woken+1e6 >= ref[last[b.NextTID]].at {
				ref[last[b.NextTID]].state = "runnable"
			}
			delete(early, b.NextTID)
			become(ev.Time, b.NextTID, "running", 0)
		case trace.Wake:
			switch state[b.TID] {
			case "running":
				early[b.TID] = ev.Time
				continue
			case "runnable":
				continue
			}
			waker := ev.TID
			if above[ev.CPU] > 0 {
				waker = 0
			}
			become(ev.Time, b.TID, "runnable", waker)
		}
		switch ev.Type {
		case trace.IRQEntry, trace.SoftirqEntry, trace.HrtimerEntry, trace.TimerEntry:
			above[ev.CPU]++
		case trace.IRQExit, trace.SoftirqExit, trace.HrtimerExit, trace.TimerExit:
			above[ev.CPU] = max(above[ev.CPU]-1, 0)
		}
	}
}

// follow adds a task's states in [from, to], and those of the tasks that it
// waited for, each over the time of that wait.
func (ref reference) follow(sums map[stretch]uint64, tid int, from, to uint64, depth int, path []int) {
	at, state := from, ""
	path = append(path, tid)
	step := func(until uint64, waker int) {
		if until <= at || state == "" {
			return
		}
		sums[stretch{depth, tid, state}] += until - at
		if state != "blocked" || waker == 0 {
			return
		}
		for _, p := range path {
			if p == waker {
				return
			}
		}
		ref.follow(sums, waker, at, until, depth+1, path)
	}
	for _, m := range ref {
		if m.tid != tid {
			continue
		}
		if m.at >= to {
			if m.at == to || state != "blocked" {
				step(to, m.waker)
			} else {
				step(to, 0)
			}
			return
		}
		if m.at > from {
			step(m.at, m.waker)
			at = m.at
		}
		state = m.state
	}
	step(to, 0)
}
