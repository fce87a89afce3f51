package term

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

var at = time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC)

func TestPrintOutlier(t *testing.T) {
	for name, c := range map[string]struct {
		outlier events.Outlier
		stacks  bool
		want    string
	}{
		"wakeup": {events.Outlier{
			Time: at, Rule: "wakeup", Track: "wakeup", Cause: events.CauseThreshold, DelayNS: 48_200_000, ThresholdNS: 5_000_000,
			Task: events.Task{PID: 1230, TID: 1234, Comm: "postgres", UID: 70, Cgroup: "/system.slice/postgresql.service", Container: "abc", Cmdline: "/usr/bin/postgres -D /data"},
			CPU:  2, EntryCPU: 1, WaitCPU: new(1), Waker: &events.Waker{Peer: events.Peer{}},
			OnCPU:    &events.OnCPU{Peer: events.Peer{PID: 9, TID: 9, Comm: "hog"}, CPU: 1, RanNS: 47_900_000},
			Snapshot: new("20261120T231502.123456789Z-wakeup-000042"), Suppressed: 1,
			Stacks: events.Stacks{Kernel: []string{"schedule+0x1", "do_wait+0x2"}, User: []string{"main+0x3 (/usr/bin/postgres)"}},
		}, true, `
2026-11-20 23:15:02.123  wakeup         48.2ms  postgres[1234]          was woken and waited to run
    threshold    5ms (9.6 times that)
    process      1230  /usr/bin/postgres -D /data  uid 70
    cgroup       /system.slice/postgresql.service
    container    abc
    woken by     idle
    ran instead  hog[9] for 47.9ms on cpu 1
    cpu          2, began on 1, waited on 1
    snapshot     20261120T231502.123456789Z-wakeup-000042
    suppressed   1 snapshot of this rule since its last one
    kernel       schedule+0x1
                 do_wait+0x2
    user         main+0x3 (/usr/bin/postgres)
`},
		"pods": {events.Outlier{
			Time: at, Rule: "wakeup", Track: "wakeup", DelayNS: 6_000_000, ThresholdNS: 5_000_000,
			Task: events.Task{
				PID: 5, TID: 5, Comm: "postgres", Title: "postgres: check\x1bpointer", Container: "abc", Cgroup: "/a",
				Place: events.Place{Runtime: "containerd", ContainerName: "db", Image: "shop/db:\x1b1", Pod: "db-1", Namespace: "shop"},
			},
			Waker: &events.Waker{Peer: events.Peer{PID: 3, TID: 4, Comm: "GC Thread#0", Identity: &events.Identity{
				Title: "org.example.Main", Cgroup: "/a", Place: events.Place{Pod: "db-1"},
			}}},
			OnCPU: &events.OnCPU{RanNS: 5_000_000, Peer: events.Peer{PID: 9, TID: 9, Comm: "hog", Identity: &events.Identity{
				Cgroup: "/b", Place: events.Place{Unit: "x.scope", Pod: "ba\ntch", Namespace: "jobs"},
			}}},
		}, false, `
2026-11-20 23:15:02.123  wakeup         6.00ms  postgres: check\x1bpointer[5]  was woken and waited to run
    threshold    5ms (1.2 times that)
    cgroup       /a
    container    db  abc (containerd)
    image        shop/db:\x1b1
    pod          shop/db-1
    woken by     GC Thread#0 of org.example.Main[4]
    ran instead  hog[9] in pod jobs/ba\x0atch for 5.00ms on cpu 0
    cpu          0
`},
		"offcpu": {events.Outlier{
			Time: at, Rule: "sleep", Track: "offcpu", DelayNS: 1_200_000_000, ThresholdNS: 1_000_000_000, State: "uninterruptible",
			RunnableNS: 12_000, Task: events.Task{PID: 5, TID: 5, Comm: "kworker/0:1", Kernel: true, Cgroup: "/"},
			Waker: &events.Waker{Peer: events.Peer{PID: 3, TID: 3, Comm: "ksoft"}}, Syscall: &events.SyscallInfo{NR: 17, Name: "pread64"},
		}, false, `
2026-11-20 23:15:02.123  sleep           1.20s  kworker/0:1[5]          slept uninterruptible in pread64
    threshold    1s (1.2 times that)
    process      kernel thread
    woken by     ksoft[3]
    runnable     12.0µs of that, waiting for a CPU
    syscall      pread64 (17)
    cpu          0
`},
		"syscall": {events.Outlier{
			Time: at, Rule: "slow", Track: "syscall", DelayNS: 20_000_000, ThresholdNS: 10_000_000,
			Task: events.Task{PID: 5, TID: 6, Comm: "app"}, Syscall: &events.SyscallInfo{NR: 74, Name: "fsync", Ret: new(int64(-5))},
		}, false, `
2026-11-20 23:15:02.123  slow           20.0ms  app[6]                  in fsync
    threshold    10ms (2.0 times that)
    process      5  uid 0
    syscall      fsync (74) = -5
    cpu          0
`},
		"syscall of a 32-bit program": {events.Outlier{
			Time: at, Rule: "slow", Track: "syscall", DelayNS: 20_000_000, ThresholdNS: 10_000_000,
			Task: events.Task{PID: 5, TID: 6, Comm: "app"}, Syscall: &events.SyscallInfo{NR: 118, Name: "fsync", ABI: "i386", Ret: new(int64(0))},
		}, false, `
2026-11-20 23:15:02.123  slow           20.0ms  app[6]                  in fsync (i386)
    threshold    10ms (2.0 times that)
    process      5  uid 0
    syscall      fsync (i386 118) = 0
    cpu          0
`},
		"block": {events.Outlier{
			Time: at, Rule: "disk", Track: "block", DelayNS: 20_000_000, ThresholdNS: 10_000_000, Task: events.Task{PID: 5, TID: 5, Comm: "app"},
			Block: &events.BlockInfo{Device: "vda", Sector: 2048, Bytes: 4096, Op: "read", Flags: "RA", QueueNS: 1_200_000, Requeues: 2, Error: 10},
		}, false, `
2026-11-20 23:15:02.123  disk           20.0ms  app[5]                  read of 4.0KiB on vda
    threshold    10ms (2.0 times that)
    request      vda, sector 2048, 4.0KiB, flags RA, queued for 1.20ms before, requeued 2 times, failed with status 10
    cpu          0
`},
		"irq": {events.Outlier{
			Time: at, Rule: "irq", Track: "irq", DelayNS: 3_000_000, ThresholdNS: 2_000_000, Task: events.Task{Comm: "swapper/1", Kernel: true},
			IRQ: &events.IRQInfo{IRQ: new(36), Name: "virtio1-req.0", CPU: 1}, CPU: 1, EntryCPU: 1,
		}, false, `
2026-11-20 23:15:02.123  irq            3.00ms  idle cpu 1              interrupted by irq 36, virtio1-req.0
    threshold    2ms (1.5 times that)
    process      kernel thread
    cpu          1
`},
		"softirq waits": {events.Outlier{
			Time: at, Rule: "softirq", Track: "softirq", DelayNS: 30_000_000, ThresholdNS: 20_000_000, Task: events.Task{PID: 22, TID: 22, Comm: "ksoftirqd/1", Kernel: true},
			IRQ: &events.IRQInfo{Vector: "net_rx", Phase: "raise", CPU: 1}, CPU: 1, EntryCPU: 1,
		}, false, `
2026-11-20 23:15:02.123  softirq        30.0ms  ksoftirqd/1[22]         ran softirq net_rx late
    threshold    20ms (1.5 times that)
    process      kernel thread
    cpu          1
`},
		"softirq is stuck": {events.Outlier{
			Time: at, Rule: "softirq", Track: "softirq", Cause: events.CauseTimeout, DelayNS: 30_000_000, ThresholdNS: 20_000_000,
			IRQ: &events.IRQInfo{Vector: "net_rx", Phase: "raise", CPU: 1}, CPU: 1, EntryCPU: 1,
		}, false, `
2026-11-20 23:15:02.123  softirq        30.0ms  cpu 1                   softirq net_rx waits to run, still pending
    threshold    timeout 20ms (1.5 times that)
    cpu          1
`},
		"softirq runs": {events.Outlier{
			Time: at, Rule: "softirq", Track: "softirq", DelayNS: 30_000_000, ThresholdNS: 20_000_000, Task: events.Task{PID: 5, TID: 6, Comm: "app"},
			IRQ: &events.IRQInfo{Vector: "timer", Phase: "run", CPU: 1}, CPU: 1, EntryCPU: 1,
		}, false, `
2026-11-20 23:15:02.123  softirq        30.0ms  app[6]                  interrupted by softirq timer
    threshold    20ms (1.5 times that)
    process      5  uid 0
    cpu          1
`},
		"work waits": {events.Outlier{
			Time: at, Rule: "work", Track: "workqueue", Cause: events.CauseTimeout, DelayNS: 30_000_000, ThresholdNS: 20_000_000, CPU: 1, EntryCPU: 1,
			Work: &events.WorkInfo{Function: "wb_workfn", Queue: "writeback", Phase: "wait", QueuedBy: &events.Waker{Peer: events.Peer{PID: 5, TID: 6, Comm: "app"}}},
		}, false, `
2026-11-20 23:15:02.123  work           30.0ms  no worker               work wb_workfn of writeback waits for a worker, still pending
    threshold    timeout 20ms (1.5 times that)
    queued by    app[6]
    cpu          1
`},
		"work waited": {events.Outlier{
			Time: at, Rule: "work", Track: "workqueue", DelayNS: 30_000_000, ThresholdNS: 20_000_000, Task: events.Task{PID: 9, TID: 9, Comm: "kworker/1:0", Kernel: true},
			CPU: 1, EntryCPU: 1, Work: &events.WorkInfo{Function: "wb_workfn", Queue: "writeback", Phase: "wait"},
		}, false, `
2026-11-20 23:15:02.123  work           30.0ms  kworker/1:0[9]          work wb_workfn of writeback waited for a worker
    threshold    20ms (1.5 times that)
    process      kernel thread
    cpu          1
`},
		"work ran": {events.Outlier{
			Time: at, Rule: "work", Track: "workqueue", DelayNS: 30_000_000, ThresholdNS: 20_000_000, Task: events.Task{PID: 9, TID: 9, Comm: "kworker/1:0", Kernel: true},
			CPU: 1, EntryCPU: 1, Work: &events.WorkInfo{Function: "wb_workfn", Phase: "run", WaitNS: new(int64(1_200_000))},
		}, false, `
2026-11-20 23:15:02.123  work           30.0ms  kworker/1:0[9]          work wb_workfn ran, after 1.20ms in the queue
    threshold    20ms (1.5 times that)
    process      kernel thread
    cpu          1
`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			PrintOutlier(New(&out, &Options{}), &c.outlier, c.stacks)
			assert.Check(t, is.DeepEqual(c.want, "\n"+out.String()))
		})
	}
}

// Every text of an outlier may come from a process that means harm.
func TestPrintOutlierIsHarmless(t *testing.T) {
	const evil = "\x1b]0;owned\x07\n\u202e\xff"
	for _, track := range []string{"wakeup", "offcpu", "syscall", "block", evil} {
		o := events.Outlier{
			Rule: evil, Track: track, Cause: evil, State: evil, Snapshot: new(evil),
			Task:    events.Task{Comm: evil, Cgroup: evil, Container: evil, Cmdline: evil},
			Waker:   &events.Waker{Peer: events.Peer{TID: 1, Comm: evil}},
			OnCPU:   &events.OnCPU{Peer: events.Peer{TID: 1, Comm: evil}},
			Stacks:  events.Stacks{Kernel: []string{evil}, User: []string{evil}, Waker: []string{evil}},
			Syscall: &events.SyscallInfo{Name: evil},
		}
		if track == evil {
			o.IRQ = &events.IRQInfo{Name: evil, Vector: evil, Phase: evil}
		}
		if track == "block" {
			o.Block = &events.BlockInfo{Device: evil, Op: evil, Flags: evil}
		}
		var out bytes.Buffer
		PrintOutlier(New(&out, &Options{}), &o, true)
		s := out.String()
		assert.Check(t, Clean(strings.ReplaceAll(s, "\n", "")) == strings.ReplaceAll(s, "\n", "") &&
			!strings.Contains(s, "\n\\"), "%q: %q", track, s)
	}
}

func TestDelayStyle(t *testing.T) {
	for delay, want := range map[int64]Style{5: Green, 9: Green, 10: Yellow, 49: Yellow, 50: BoldRed} {
		assert.Check(t, is.Equal(DelayStyle(delay, 5), want), "DelayStyle(%d, 5)", delay)
	}
}
