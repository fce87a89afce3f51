package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestAdviceIsAbsent: for each cause, what advice says where the trace supports it, and that
// it says nothing where it does not.
func TestAdviceIsAbsent(t *testing.T) {
	task := func(tid, prio int) *Who { return &Who{Kind: KindTask, Name: "other 2", TID: tid, Prio: prio} }
	device, kernel := &Who{Kind: KindDevice, Name: "vda"}, &Who{Kind: KindTask, Name: "kworker/0:1 4", TID: worker, Prio: 100}
	cgroup := &Who{Kind: KindCgroup, Name: "/app", Cgroup: "/app", Limit: "memory.high 1000"}
	unlimited := &Who{Kind: KindCgroup, Name: "/app", Cgroup: "/app"}
	for _, c := range []struct {
		name  string
		blame Part
		chain []Part
		cpus  []int // that the victim may use
		why   string
		onTop bool
		small bool // it took less than half
		want  string
	}{
		{name: "real-time", blame: Part{Cause: Preempted, By: task(2, 49)}, want: "kernel.sched_rt_runtime_us (now 950000)"},
		{name: "a part only", blame: Part{Cause: Preempted, By: task(2, 49)}, small: true},
		{name: "nicer", blame: Part{Cause: Preempted, By: task(2, 110)}, want: "nice values of other 2 (nice -10)"},
		{name: "a kernel thread", blame: Part{Cause: Preempted, By: kernel}},
		{name: "an equal", blame: Part{Cause: Runnable, By: task(2, 120)}, want: "renice -n -5 -p 1"},
		{name: "somebody lower, in the kernel", blame: Part{Cause: Runnable, By: task(2, 125)}},
		{name: "an idle CPU", blame: Part{Cause: Runnable, By: &Who{Kind: KindSelf, Name: "idle"}}},
		{name: "pinned", blame: Part{Cause: Misplaced, By: task(2, 120)}, cpus: []int{0}, want: "it may use 1 of 2 CPUs"},
		{name: "not pinned", blame: Part{Cause: Misplaced, By: task(2, 120)}, cpus: []int{0, 1}},
		{name: "not known whether", blame: Part{Cause: Misplaced, By: task(2, 120)}},
		{name: "an interrupt on top", blame: Part{Cause: IRQ, By: &Who{Kind: KindIRQ, Name: "eth0"}}, onTop: true, want: "smp_affinity"},
		{name: "an interrupt that it waited for", blame: Part{Cause: IRQ, By: &Who{Kind: KindIRQ, Name: "eth0"}}},
		{name: "some interrupt", blame: Part{Cause: IRQ, By: &Who{Kind: KindIRQ, Name: shortInterrupts}}, onTop: true},
		{name: "packets", blame: Part{Cause: Softirq, By: &Who{Kind: KindSoftirq, Name: "NET_RX"}}, onTop: true, want: "RPS"},
		{name: "RCU", blame: Part{Cause: Softirq, By: &Who{Kind: KindSoftirq, Name: "RCU"}}, onTop: true},
		{name: "requests of a task", blame: Part{Cause: BlockQueue, By: task(2, 120)}, want: "io.max (now no limit), io.weight of its cgroup /app"},
		{name: "the device's queue", blame: Part{Cause: BlockQueue, By: device}},
		{name: "a device", blame: Part{Cause: BlockDevice, By: device}, want: "vda itself took that long"},
		{name: "a disk of the host", blame: Part{Cause: BlockDevice, By: device}, want: "it is the host's: check the limits of the volume"},
		{name: "a physical disk", blame: Part{Cause: BlockDevice, By: &Who{Kind: KindDevice, Name: "sda", Device: "sda"}}, want: "check its health"},
		{name: "a loop device", blame: Part{Cause: BlockDevice, By: &Who{Kind: KindDevice, Name: "loop3", Device: "loop3"}}, want: "it is a file"},
		{name: "a mapped device", blame: Part{Cause: BlockDevice, By: &Who{Kind: KindDevice, Name: "dm-0", Device: "dm-0"}}, want: "the disks below it"},
		{name: "a device by its softirq", blame: Part{Cause: BlockDevice, By: &Who{Kind: KindSoftirq, Name: "BLOCK"}}},
		{name: "its own sleep", blame: Part{Cause: Timer, By: &Who{Kind: KindTimer, Name: "timer"}}},
		{name: "a holder's sleep", blame: Part{Cause: Locked, By: task(2, 120)}, chain: []Part{{Cause: Timer, By: &Who{Kind: KindTimer, Name: "timer"}}}, want: "other 2 sleeps while it holds the lock"},
		{name: "a server's sleep", blame: Part{Cause: Task, By: task(2, 120)}, chain: []Part{{Cause: Timer, By: &Who{Kind: KindTimer, Name: "timer"}}}},
		{name: "a holder whose disk is slow", blame: Part{Cause: Locked, By: task(2, 120), Wait: "mutex"}, chain: []Part{{Cause: BlockDevice, By: device}}, want: "while it holds a mutex. vda itself"},
		{name: "a holder that is not known", blame: Part{Cause: Locked, By: &Who{Kind: KindUnknown, Name: "an unknown holder"}}},
		{name: "another task", blame: Part{Cause: Task, By: task(2, 120)}},
		{name: "the network", blame: Part{Cause: Network, By: &Who{Kind: KindNetwork, Name: "the network (eth0)"}}},
		{name: "a cgroup's memory", blame: Part{Cause: Reclaim, By: cgroup}, want: "Raise memory.high of cgroup /app (now 1000)"},
		{name: "a cgroup's memory, whose limit is not known", blame: Part{Cause: Reclaim, By: unlimited}, want: "Raise memory.high or memory.max of cgroup /app, or"},
		{name: "a machine's memory", blame: Part{Cause: Reclaim, By: &Who{Kind: KindMemory, Name: "the machine's memory"}}, want: "vm.watermark_scale_factor"},
		{name: "compaction", blame: Part{Cause: Compaction, By: &Who{Kind: KindMemory, Name: "the machine's memory"}}, want: "vm.compaction_proactiveness"},
		{name: "pages of a disk", blame: Part{Cause: PageFault, By: device}, want: "mlock"},
		{name: "pages of a task", blame: Part{Cause: PageFault, By: task(2, 120)}},
		{name: "work behind other work", blame: Part{Cause: WorkQueue, By: &Who{Kind: KindWork, Name: "slow_fn"}}, why: "its work my_fn waited in the queue behind other work", want: "one item after the other"},
		{name: "its own work", blame: Part{Cause: WorkQueue, By: &Who{Kind: KindWork, Name: "my_fn"}}, why: "while its work ran"},
		{name: "a shared journal", blame: Part{Cause: Journal, By: &Who{Kind: KindTask, Name: "jbd2 5", TID: 5, For: task(2, 120)}}, want: "other 2 shares the file system's journal"},
		{name: "its own journal", blame: Part{Cause: Journal, By: &Who{Kind: KindTask, Name: "jbd2 5", TID: 5}}},
		{name: "frozen", blame: Part{Cause: Stopped, By: cgroup}, want: "cgroup.freeze"},
		{name: "stopped by a task", blame: Part{Cause: Stopped, By: task(2, 120)}},
		{name: "running", blame: Part{Cause: RunningUser, By: task(2, 120)}, want: "perf record -g -t 2"},
		{name: "a kernel thread that runs", blame: Part{Cause: RunningKernel, By: kernel}},
		{name: "too short", blame: Part{Cause: Unexplained, Reason: reasonShort}, want: "recorder.cover to more than 10 ns"},
		{name: "a group", blame: Part{Cause: Unexplained, Reason: "the recorder's event group irq is off"}, want: "Add irq to recorder.events"},
		{name: "missing", blame: Part{Cause: Unexplained, Reason: "records are missing"}},
		{name: "dirty pages", blame: Part{Cause: Limited, By: device, Wait: "dirty_pages"}, want: "vm.dirty_bytes"},
		{name: "io.max", blame: Part{Cause: Limited, By: unlimited, Wait: "io_max"}, want: "Raise io.max, or blkio.throttle.* of cgroup v1, of cgroup /app."},
		{name: "memory.high", blame: Part{Cause: Limited, By: cgroup, Wait: "memory_high"}, want: "Raise memory.high of cgroup /app (now 1000)"},
		{name: "real-time limit", blame: Part{Cause: Limited, By: &Who{Kind: KindSelf, Name: "limit"}, Wait: "rt_runtime"}, want: "kernel.sched_rt_runtime_us (now 950000)"},
		{name: "some delay", blame: Part{Cause: Limited, By: &Who{Kind: KindSelf, Name: "delay"}, Wait: "kernel_delay"}, want: "the stack of that wait says where"},
		{name: "a full accept queue", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "syn_again"}, why: "as the accept queue there was full, 1 of 1", want: "net.core.somaxconn"},
		{name: "a SYN again", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "syn_again"}, want: "ss -ltn"},
		{name: "data again", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "data_again"}, want: "ss -ti"},
		{name: "keep-alive", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "keep_alive"}, want: "TCP_KEEPIDLE"},
		{name: "keep-alive, of a server", blame: Part{Cause: Task, By: task(2, 120)}, chain: []Part{{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "keep_alive"}}},
		{name: "a SYN-ACK again", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "synack_again"}, want: "TcpExtListenOverflows"},
		{name: "some timer of TCP", blame: Part{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "protocol"}},
		{name: "data again, of a server", blame: Part{Cause: Task, By: task(2, 120)}, chain: []Part{{Cause: ProtocolTimer, By: &Who{Kind: KindTimer, Name: "TCP"}, Wait: "data_again"}}},
		{name: "hostile", blame: Part{Cause: Preempted, By: &Who{Kind: KindTask, Name: "\x1b[31m\n", TID: 2, Prio: 49}}, want: "whether ?[31m? must"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := caseNames
			of := names.Task
			names.Task = func(tid int) (TaskInfo, bool) {
				f, ok := of(tid)
				if f.CPUs = nil; tid == victim {
					f.CPUs = c.cpus
				}
				return f, ok
			}
			names.Setting = func(name string) string { return map[string]string{"kernel.sched_rt_runtime_us": "950000"}[name] }
			names.Limit = func(cgroup, name string) string {
				return map[string]string{"/app memory.high": "1000", "/app io.max": "max"}[cgroup+" "+name]
			}
			w := &walker{m: newModel(nil, names), outlier: &Outlier{TID: victim, End: 10}, longestWhy: c.why, onTop: c.onTop}
			w.m.cpu(0)
			w.m.cpu(1)
			r := &Result{DelayNS: 10, Task: Who{Kind: KindTask, Name: "victim 1", TID: victim, Prio: 120}, Blame: c.blame, Chain: c.chain}
			if r.Blame.NS = 9; c.small {
				r.Blame.NS = 4
			}
			for i := range r.Chain {
				r.Chain[i].NS = 9
			}
			got := w.advice(r)
			assert.Check(t, strings.Contains(got, c.want) && (got == "") == (c.want == ""), "%q", got)
		})
	}
}

// TestEveryCauseIsAdvised: what has no advice is meant to have none.
func TestEveryCauseIsAdvised(t *testing.T) {
	none := map[Cause]bool{Locked: true, Task: true, Network: true} // those below them have
	for _, name := range constants(t, "report.go", "Cause") {
		assert.Check(t, (causeAdvice[Cause(name)] == nil) == none[Cause(name)], "%s", name)
	}
}

// TestOnlyHardwareHasHealth: SMART tells nothing of a disk that is a file, a server's or a host's.
func TestOnlyHardwareHasHealth(t *testing.T) {
	for name, physical := range map[string]bool{
		"sda": true, "sdaa": true, "nvme0n1": true, "mmcblk0": true, "loopback": true, "mdisk": true, "vd": true, "": true, "8:0": true,
		"loop0": false, "loop12": false, "zram0": false, "dm-3": false, "md127": false, "nbd0": false, "rbd1": false, "drbd0": false, "vda": false, "xvdb": false,
	} {
		got := checkDevice(name)
		assert.Check(t, strings.Contains(got, "SMART") == physical && strings.Contains(got, "health") == physical, "%s: %s", name, got)
	}
}
