package catalog_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/tracker/events"
)

// briefly is a row with what it is made of.
func briefly(top *catalog.Top) []string {
	var out []string
	for i := range top.Rows {
		r := &top.Rows[i]
		out = append(out, fmt.Sprintf("%s %s %dms of %s", r.Kind, r.Name, r.NS/ct.Millisecond, r.Of[0].Name))
	}
	return out
}

// TestTopMissed: of an outlier without a snapshot, who ran instead, who woke the task, the
// device and the stack tell; what they do not is unexplained.
func TestTopMissed(t *testing.T) {
	number := 0
	seen := func(track string, ms int64, change func(o *events.Outlier)) *events.Outlier {
		number++
		o := &events.Outlier{Time: ct.Start, Rule: track, Track: track, DelayNS: ms * ct.Millisecond, StartMono: 1, EndMono: uint64(ms) * 1e6,
			Task: events.Task{TID: number, Comm: "victim"}}
		change(o)
		return o
	}
	sleep := events.Stacks{Kernel: []string{"jbd2_log_wait_commit+0x12/0x34", "ext4_sync_file"}}
	for _, c := range []struct {
		name        string
		o           *events.Outlier
		want, sites []string
	}{
		{
			name: "ran instead", o: seen("wakeup", 20, func(o *events.Outlier) {
				o.OnCPU = &events.OnCPU{Peer: events.Peer{TID: 5, Comm: "hog"}, RanNS: 15e6}
			}),
			want:  []string{"task hog 15ms of runnable", "unknown not explained: no snapshot holds it 5ms of unexplained"},
			sites: []string{"cause runnable 15ms of hog", "unknown no known wait site 5ms of unexplained"},
		},
		{
			name: "waker and stack", o: seen("offcpu", 20, func(o *events.Outlier) {
				o.RunnableNS, o.Stacks = 5e6, sleep
				o.Waker = &events.Waker{Peer: events.Peer{TID: 6, Comm: "jbd2/vda-8"}}
			}),
			want:  []string{"task jbd2/vda-8 15ms of task", "unknown not explained: no snapshot holds it 5ms of unexplained"},
			sites: []string{"wait-site for the commit of the journal 20ms of jbd2/vda-8"},
		},
		{
			name: "its own timer", o: seen("offcpu", 20, func(o *events.Outlier) { o.Waker = &events.Waker{Context: "timer"} }),
			want:  []string{"task victim 20ms of timer"},
			sites: []string{"unknown no known wait site 20ms of timer"},
		},
		{
			name: "a packet", o: seen("offcpu", 20, func(o *events.Outlier) { o.Waker = &events.Waker{Context: "softirq NET_RX"} }),
			want: []string{"network the network 20ms of network"}, sites: []string{"unknown no known wait site 20ms of network"},
		},
		{
			name: "a device", o: seen("block", 20, func(o *events.Outlier) { o.Block = &events.BlockInfo{Device: "vda"} }),
			want: []string{"device vda 20ms of block_device"}, sites: []string{"unknown no known wait site 20ms of block_device"},
		},
		{
			name: "its snapshot is gone", o: seen("syscall", 20, func(o *events.Outlier) {
				o.Explained = &events.Explained{Cause: "lock", By: "worker 2 77", ByKind: "task", NS: 12e6}
			}),
			want:  []string{"task worker 2 12ms of lock", "unknown not explained: no snapshot holds it 8ms of unexplained"},
			sites: []string{"unknown no known wait site 20ms of lock"},
		},
		{
			name: "nothing", o: seen("syscall", 20, func(o *events.Outlier) { o.Waker = &events.Waker{Context: "x y"} }),
			want:  []string{"unknown not explained: no snapshot holds it 20ms of unexplained"},
			sites: []string{"unknown no known wait site 20ms of unexplained"},
		},
		{
			name: "hostile", o: seen("offcpu", 20, func(o *events.Outlier) {
				o.RunnableNS = math.MaxInt64
				o.OnCPU = &events.OnCPU{Peer: events.Peer{TID: 5, Comm: "hog"}, RanNS: math.MaxInt64}
				o.Waker = &events.Waker{Context: "irq"}
			}),
			want: []string{"task hog 20ms of runnable"}, sites: []string{"cause runnable 20ms of hog"},
		},
		{
			name: "negative", o: seen("offcpu", 20, func(o *events.Outlier) {
				o.RunnableNS, o.DelayNS = math.MinInt64, math.MinInt64
				o.OnCPU = &events.OnCPU{Peer: events.Peer{TID: 5, Comm: "hog"}, RanNS: math.MinInt64}
			}),
			want: []string{"unknown not explained: no snapshot holds it 0ms of unexplained"}, sites: []string{"unknown no known wait site 0ms of unexplained"},
		},
	} {
		for by, want := range map[string][]string{catalog.ByCulprit: c.want, catalog.ByWaitSite: c.sites} {
			top := catalog.Add(nil, catalog.TopOptions{By: by, Seen: []*events.Outlier{c.o}})
			assert.Check(t, is.DeepEqual(want, briefly(top)), "%s, by %s", c.name, by)
			v := top.Covered
			assert.Check(t, v.Missed == 1 && v.ToldNS <= v.MissedNS && v.MissedNS == v.NS, "%s: %+v", c.name, v)
		}
	}
}

// TestTopForAction: rows are of somebody to turn to: who slept and not the timer, a limit, a
// device with whom it worked for.
func TestTopForAction(t *testing.T) {
	timer := &explain.Who{Kind: explain.KindTimer, Name: "hrtimer_wakeup", Function: "hrtimer_wakeup"}
	limited := func(wait string, by *explain.Who, ms float64) explain.Part {
		p := ct.Part(explain.Limited, by, ms)
		p.Wait = wait
		return p
	}
	app := &explain.Who{Kind: explain.KindCgroup, Name: "/app", Cgroup: "/app"}
	writer := disk()
	writer.For = ct.Task("writer", 9, 120)
	journal := ct.Part(explain.BlockDevice, writer, 30)
	journal.Site = explain.Site{Function: "jbd2_log_wait_commit", Words: "for the commit of the journal", NS: 30e6}
	dir, _ := ct.Make(t,
		ct.One{TID: 1, DelayNS: 5e6, Parts: []explain.Part{ct.Part(explain.Timer, timer, 5)}}, // its own sleep
		ct.One{TID: 2, DelayNS: 6e6, Parts: []explain.Part{ct.Part(explain.Task, ct.Task("server", 7, 120), 6)},
			Chain: []explain.Part{ct.Part(explain.Timer, timer, 6)}, Roots: []explain.Part{ct.Part(explain.Timer, timer, 6)}},
		ct.One{TID: 3, DelayNS: 7e6, Parts: []explain.Part{ct.Part(explain.Task, ct.Task("server", 7, 120), 7)},
			Chain: []explain.Part{ct.Part(explain.Timer, timer, 3)}, Roots: []explain.Part{ct.Part(explain.Timer, timer, 7)}}, // not all of it
		ct.One{TID: 4, DelayNS: 3e6, Parts: []explain.Part{ct.Part(explain.IRQ, timer, 3)}},
		ct.One{TID: 5, DelayNS: 36e6, Parts: []explain.Part{
			ct.Part(explain.Throttled, app, 10), limited("memory_high", app, 9), limited("memory_max", app, 8),
			limited("rt_runtime", nil, 4), limited("unheard_of", app, 3), limited("dl_runtime", nil, 2)}},
		ct.One{TID: 6, DelayNS: 50e6, Parts: []explain.Part{journal, ct.Part(explain.BlockDevice, disk(), 20)}},
	)
	list, _, err := catalog.Read(dir, catalog.Options{})
	assert.NilError(t, err)
	top := catalog.Add(list, catalog.TopOptions{By: catalog.ByCulprit})
	assert.Check(t, is.DeepEqual(briefly(top), []string{
		"device sda 50ms of block_device", "limit cpu.max of /app 10ms of throttled", "limit memory.high of /app 9ms of limit", "limit memory.max of /app 8ms of limit",
		"unknown several sleepers 7ms of timer", "task server 6ms of timer", "task victim 5ms of timer", "limit kernel.sched_rt_runtime_us 4ms of limit",
		"cgroup /app 3ms of limit", "irq timer interrupts 3ms of irq", "limit sched_runtime of SCHED_DEADLINE 2ms of limit",
	}))
	assert.Check(t, is.DeepEqual(top.Rows[0].Users, []catalog.Slice{{Name: "writer", NS: 30e6}, {Name: "victim", NS: 20e6}}))
	top = catalog.Add(list, catalog.TopOptions{By: catalog.ByWaitSite})
	assert.Check(t, is.Contains(briefly(top), "wait-site for the commit of the journal 30ms of sda"))
	for i := range top.Rows {
		assert.Check(t, time.Duration(top.Rows[i].NS) > 0 && top.Rows[i].Name != "", "%+v", top.Rows[i])
	}
}
