package snapshot

import (
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Names are looked up while the window goes on; then only what is new, and what was not
// found.
func TestNamesAreLookedUpEarly(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	asked := make(chan []int, 2)
	first := true
	var mu sync.Mutex
	m, stop := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone,
		Names: func(refs trace.References) (n Names) {
			mu.Lock()
			defer mu.Unlock()
			for _, tid := range refs.TIDs {
				if tid == 30 && first {
					continue // there was no time for it
				}
				n.Tasks = append(n.Tasks, NamedTask{TID: tid, PID: tid, Comm: "c"})
			}
			n.Settings = map[string]string{"early": map[bool]string{true: "yes", false: "no"}[first]}
			n.Limits = []CgroupLimits{{Cgroup: "/a"}}
			n.Sockets = []ProcessSockets{{PID: refs.TIDs[0], Opened: 1}}
			n.Listeners = []Listener{{TID: refs.TIDs[0], Port: 1}}
			first = false
			asked <- slices.Clone(refs.TIDs)
			return n
		},
	})
	write := func(tid int) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.live[0] = append(rec.live[0], trace.MakeRecord(trace.SyscallEntry, 0, tid, linux.Monotonic()))
	}
	for _, tid := range []int{20, 30, 10} {
		write(tid)
	}
	now := linux.Monotonic()
	rec.outlier(now)
	m.Submit(outlierAt("wakeup", now-1, now), rule("wakeup", time.Hour)) // cut short by the stop
	assert.Check(t, is.DeepEqual(<-asked, []int{10, 20, 30}))
	write(15)
	stop()
	assert.Check(t, is.DeepEqual(<-asked, []int{15, 30}))
	d := <-done
	assert.NilError(t, d.Err)
	n, err := ReadNames(d.Dir)
	assert.NilError(t, err)
	var tids []int
	for i := range n.Tasks {
		tids = append(tids, n.Tasks[i].TID)
	}
	assert.Check(t, is.DeepEqual(tids, []int{10, 15, 20, 30}))
	assert.Check(t, n.Version == NamesVersion && len(n.Limits) == 1 && n.Settings["early"] == "no", "%+v", n)
	assert.Check(t, len(n.Sockets) == 2 && len(n.Listeners) == 2, "of both lookups: %+v, %+v", n.Sockets, n.Listeners)
}

// Of a window that has ended before the first reading, names are looked up while the second one
// waits.
func TestNamesAreLookedUpBetweenReadings(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	asked, readings := make(chan struct{}, 2), 0
	m, stop := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone,
		Names: func(trace.References) Names {
			asked <- struct{}{}
			return Names{}
		},
	})
	rec.mu.Lock()
	rec.drains = func() {
		if readings++; readings == 2 {
			select {
			case <-asked:
			case <-time.After(10 * time.Second):
				t.Error("the second reading would have waited alone")
			}
		}
	}
	rec.mu.Unlock()
	end := linux.Monotonic()
	rec.write(0, end)
	rec.outlier(end)
	time.Sleep(10 * minAfter)
	m.Submit(outlierAt("wakeup", end-1, end), rule("wakeup", time.Millisecond))
	d := <-done
	stop()
	assert.Check(t, d.Err)
	assert.Check(t, is.Equal(readings, 2))
}

// A lookup that panics costs the names, and they are asked for again.
func TestEarlyNamesPanic(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	calls := 0
	m, stop := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone,
		Names: func(trace.References) Names {
			calls++
			panic("names")
		},
	})
	now := linux.Monotonic()
	rec.write(0, now)
	rec.outlier(now)
	m.Submit(outlierAt("wakeup", now-1, now), rule("wakeup", 50*time.Millisecond))
	d := <-done
	stop()
	assert.Check(t, d.Err)
	assert.Check(t, is.Equal(calls, 2))
	n, err := ReadNames(d.Dir)
	assert.Check(t, err == nil && len(n.Tasks) == 0, "%+v, %v", n, err)
}
