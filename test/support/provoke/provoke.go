// Package provoke lets tests provoke events and look for them in what the
// flight recorder holds, natively and in virtual machines.
package provoke

import (
	"maps"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// Patience is how long anything that has to come may take. Nothing waits for
// it where all is well.
const Patience = 20 * time.Second

// History is a recorder at work. It is taken down at the end of the test.
type History struct {
	t      *testing.T
	Kernel *tracker.Tracker
	ring   flight.Recorder
}

// Start loads and attaches the kernel side with groups of events. What interrupts take is
// recorded from a floor on; 0: each.
func Start(t *testing.T, groups []string, floor time.Duration) *History {
	t.Helper()
	const ring = 4 << 20
	var list []rules.Rule
	if slices.Contains(groups, "wait") { // a tracker knows which waits are long: this one never fires
		list = []rules.Rule{{Name: "never", Track: rules.Wakeup, Threshold: time.Hour}}
	}
	kernel, err := tracker.New(list, &tracker.Options{Groups: groups, Ring: ring, IRQFloor: floor, Tasks: 4096, TrackSelf: true})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kernel.Close()) })
	r, err := flight.New(kernel, flight.BackendMmap, ring)
	assert.NilError(t, err)
	assert.NilError(t, kernel.Attach())
	return &History{t: t, Kernel: kernel, ring: r}
}

// Groups are all groups but that of system calls, which would leave no room for the others.
func Groups() []string {
	return slices.DeleteFunc(slices.Clone(tracker.Groups), func(g string) bool { return g == "syscall" })
}

// with is the same history, for a part of the test.
func (p *History) with(t *testing.T) *History { return &History{t: t, Kernel: p.Kernel, ring: p.ring} }

// Take hands out every event since the last call, CPU by CPU. An event that
// cannot be decoded fails the test.
func (p *History) Take() []trace.Event {
	p.t.Helper()
	_, err := p.ring.Freeze()
	assert.NilError(p.t, err)
	drained, err := p.ring.Drain()
	assert.NilError(p.t, err)
	assert.NilError(p.t, p.ring.Release())
	var list []trace.Event
	for _, cpu := range drained.CPUs {
		records := trace.Unfold(cpu.Records, 0)
		for i := range records {
			ev, err := records[i].Decode()
			if err != nil {
				p.t.Errorf("CPU %d: %v", cpu.CPU, err)
				continue
			}
			assert.Check(p.t, ev.CPU == cpu.CPU,
				"%v of CPU %d stands among those of CPU %d", ev.Type, ev.CPU, cpu.CPU)
			list = append(list, ev)
		}
	}
	return list
}

// Until provokes again and again until every one of the wanted has been seen:
// each by its name, and what it looks like. One that does not come fails the test.
func (p *History) Until(provoke func(), wanted map[string]func(trace.Event) bool) {
	p.t.Helper()
	missing := make(map[string]func(trace.Event) bool, len(wanted))
	maps.Copy(missing, wanted)
	p.Take() // what was before is of no interest
	for begin := time.Now(); ; {
		provoke()
		for _, ev := range p.Take() {
			for name, is := range missing {
				if is(ev) {
					delete(missing, name)
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Since(begin) > Patience {
			for name := range missing {
				p.t.Errorf("not recorded: %s", name)
			}
			return
		}
	}
}
