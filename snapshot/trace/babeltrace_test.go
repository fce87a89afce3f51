package trace

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
)

// babeltrace returns the lines that babeltrace2 prints. It fails the test if
// there is anything on standard error but lossLines lines about lost events.
func babeltrace(t *testing.T, dir string, lossLines int) []string {
	t.Helper()
	path, err := exec.LookPath("babeltrace2")
	if err != nil {
		t.Skip("babeltrace2 is not installed (apt install babeltrace2)")
	}
	cmd := exec.Command(path, "--clock-seconds", "--no-delta", dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("babeltrace2: %v\n%s", err, stderr.Bytes())
	}
	var complaints []string
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, "Tracer discarded") {
			lossLines--
		} else if strings.TrimSpace(line) != "" {
			complaints = append(complaints, line)
		}
	}
	if len(complaints) > 0 || lossLines != 0 {
		t.Errorf("babeltrace2 complains (%d loss lines missing):\n%s", lossLines, stderr.Bytes())
	}
	return strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
}

// babeltrace1 holds that babeltrace 1.5, an implementation of its own which
// lttng-analyses reads with, finds so many events and complains of nothing.
func babeltrace1(t *testing.T, dir string, want int) {
	t.Helper()
	path, err := exec.LookPath("babeltrace")
	if err != nil {
		t.Log("babeltrace is not installed (apt install babeltrace): only babeltrace2 has read this")
		return
	}
	cmd := exec.Command(path, "--clock-seconds", filepath.Join(dir, "kernel"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("babeltrace: %v\n%s", err, stderr.Bytes())
	}
	if n := strings.Count(stdout.String(), "\n"); n != want {
		t.Errorf("babeltrace finds %d events, want %d", n, want)
	}
}

func TestBabeltraceReadsEachType(t *testing.T) {
	b := newBuilder(2, 5_000_000_000)
	b.oneOfEach()
	dir := write(t, Trace{
		CPUs: []CPU{{CPU: 2, Records: b.out}, {CPU: 3}},
		Outliers: []Outlier{{
			Number: 42, Rule: "wakeup", Track: "wakeup", Start: 5_000_000_000, End: 5_000_002_000,
			EntryCPU: 2, ExitCPU: 3, DelayNS: 2000, TID: 200, PID: 199, Comm: "worker/0:1",
		}},
		Env: Env{Hostname: `db"1`, KernelRelease: "6.18.0", KernelVersion: "#1 SMP", BootID: "12345678-9abc-def0-1234-56789abcdef0", Created: time.Unix(1e9, 0)},
		// 5 s of uptime are at this wall time:
		ClockOffset: 1_795_000_000 * time.Second,
		SyscallName: syscallName,
	})
	marker := `{ rule = "wakeup", track = "wakeup", delay_ns = 2000, tid = 200, pid = 199, comm = "worker/0:1", outlier = 42 }`
	want := []string{
		`tailcam_entry: { cpu_id = 2 }, { tid = 200 }, ` + marker,
		`sched_waking: { cpu_id = 2 }, { tid = 100 }, { comm = "worker/0:1", tid = 200, prio = 20, target_cpu = 1, pid = 200, context = 0x0 }`,
		`sched_wakeup_new: { cpu_id = 2 }, { tid = 100 }, { comm = "sixteen-bytes-ab", tid = 201, prio = 20, target_cpu = 0, pid = 201, context = 0x0 }`,
		`sched_switch: { cpu_id = 2 }, { tid = 100 }, { prev_comm = "bash", prev_tid = 100, prev_prio = 20, prev_state = 128, next_comm = "worker/0:1", next_tid = 200, next_prio = -51, next_pid = 200, prev_state_raw = 0x402 }`,
		`tailcam_exit: { cpu_id = 3 }, { tid = 200 }, ` + marker,
		`sched_migrate_task: { cpu_id = 2 }, { tid = 100 }, { comm = "bash", tid = 7, prio = -2, orig_cpu = 0, dest_cpu = 3 }`,
		`irq_handler_entry: { cpu_id = 2 }, { tid = 0 }, { irq = 33, name = "virtio0-req.0" }`,
		`irq_handler_exit: { cpu_id = 2 }, { tid = 0 }, { irq = 33, ret = 1 }`,
		`irq_softirq_entry: { cpu_id = 2 }, { tid = 0 }, { vec = 9, after_irq = -1 }`,
		`irq_softirq_exit: { cpu_id = 2 }, { tid = 0 }, { vec = 9 }`,
		`timer_hrtimer_expire_entry: { cpu_id = 2 }, { tid = 0 }, { hrtimer = 0xFFFF888012345678, now = 5000008000, function = 0xFFFFFFFF81000000 }`,
		`timer_hrtimer_expire_exit: { cpu_id = 2 }, { tid = 0 }, { hrtimer = 0xFFFF888012345678 }`,
		`block_rq_insert: { cpu_id = 2 }, { tid = 300 }, { dev = 266338320, sector = 123456, nr_sector = 16, bytes = 8192, tid = 300, rwbs = 545, comm = "postgres", rq = 0xFFFF888000001000, cmd_flags = 0x20801 }`,
		`block_rq_issue: { cpu_id = 2 }, { tid = 300 }, { dev = 266338320, sector = 123456, nr_sector = 16, bytes = 8192, tid = 300, rwbs = 76, comm = "postgres", rq = 0xFFFF888000001000, cmd_flags = 0x81000 }`,
		`block_rq_complete: { cpu_id = 2 }, { tid = 300 }, { dev = 266338320, sector = 123456, nr_sector = 16, error = -5, rwbs = 1280, bytes = 8192, tid = 300, comm = "postgres", rq = 0xFFFF888000001000, cmd_flags = 0x40002, status = 10 }`,
		`workqueue_execute_start: { cpu_id = 2 }, { tid = 50 }, { work = 0xFFFF888000ABC000, function = 0xFFFFFFFF81234560 }`,
		`workqueue_execute_end: { cpu_id = 2 }, { tid = 50 }, { work = 0xFFFF888000ABC000, function = 0xFFFFFFFF81234560 }`,
		`sched_process_fork: { cpu_id = 2 }, { tid = 500 }, { parent_comm = "sh", parent_tid = 500, parent_pid = 500, child_comm = "sh", child_tid = 501, child_pid = 501, prio = 20 }`,
		`sched_process_exec: { cpu_id = 2 }, { tid = 501 }, { filename = "ls", tid = 501, old_tid = 501, pid = 501, prio = 20 }`,
		`sched_process_exit: { cpu_id = 2 }, { tid = 501 }, { comm = "ls", tid = 501, prio = 20, pid = 501 }`,
		`syscall_entry_read: { cpu_id = 2 }, { tid = 400 }, { fd = 7, buf = 0x7FFC00001001, count = 4096, caller_pid = 399 }`,
		`syscall_exit_read: { cpu_id = 2 }, { tid = 400 }, { ret = -11, caller_pid = 399 }`,
		`syscall_entry_unknown: { cpu_id = 2 }, { tid = 400 }, { id = 333333, args = [ [0] = 0x7, [1] = 0x7FFC00001001, [2] = 0x1000, [3] = 0x3, [4] = 0x4 ], caller_pid = 399 }`,
		`syscall_exit_unknown: { cpu_id = 2 }, { tid = 400 }, { id = 333333, ret = -38, caller_pid = 399 }`,
		`workqueue_queue_work: { cpu_id = 2 }, { tid = 600 }, { work = 0xFFFF888000ABC000, function = 0xFFFFFFFF81234560, req_cpu = 64, workqueue = "events_unbound", context = 0x0 }`,
		`timer_expire_entry: { cpu_id = 2 }, { tid = 600 }, { timer = 0xFFFF888000ABD000, now = 4294937296, function = 0xFFFFFFFF81234570, waiter = 601, peer = 0x100007F, port = 8080, tcp = 0x10201, accept_queue = 129, accept_limit = 128 }`,
		`timer_expire_exit: { cpu_id = 2 }, { tid = 600 }, { timer = 0xFFFF888000ABD000 }`,
		`x86_exceptions_page_fault_user: { cpu_id = 2 }, { tid = 600 }, { address = 0x7F0000001000, ip = 0x401000, error_code = 0x6 }`,
		`x86_exceptions_page_fault_kernel: { cpu_id = 2 }, { tid = 600 }, { address = 0x7F0000001000, ip = 0x401000, error_code = 0x6 }`,
		`mm_vmscan_memcg_reclaim_begin: { cpu_id = 2 }, { tid = 600 }, { order = 2, memcg = 1 }`,
		`mm_vmscan_memcg_reclaim_end: { cpu_id = 2 }, { tid = 600 }, { nr_reclaimed = 32, memcg = 1 }`,
		`mm_compaction_begin: { cpu_id = 2 }, { tid = 600 }, { sync = 1 }`,
		`mm_compaction_end: { cpu_id = 2 }, { tid = 600 }, { status = 4 }`,
		`lock_contention_begin: { cpu_id = 2 }, { tid = 600 }, { lock_addr = 0xFFFF888000ABE000, flags = 0x20, owner_tid = 601 }`,
		`lock_contention_end: { cpu_id = 2 }, { tid = 600 }, { lock_addr = 0xFFFF888000ABE000, ret = -4 }`,
		`tailcam_file_lock: { cpu_id = 2 }, { tid = 600 }, { inode = 4711, dev = 265289729, ret = -11, start = 1073741824, end = 9223372036854775807, flags = 0x81, type = 1, pid = 600, holder_pid = 601 }`,
		`power_cpu_idle: { cpu_id = 2 }, { tid = 600 }, { state = 4294967295, cpu_id = 0 }`,
		`power_cpu_frequency: { cpu_id = 2 }, { tid = 600 }, { state = 2400000, cpu_id = 0 }`,
		`net_dev_queue: { cpu_id = 2 }, { tid = 600 }, { skbaddr = 0xFFFF888000ABF000, len = 1514, name = "eth0", context = 0x0 }`,
		`net_if_receive_skb: { cpu_id = 2 }, { tid = 600 }, { skbaddr = 0xFFFF888000ABF000, len = 1514, name = "eth0" }`,
		`napi_poll: { cpu_id = 2 }, { tid = 600 }, { dev_name = "eth0", work = 3, budget = 64 }`,
		`tailcam_cgroup_throttle: { cpu_id = 2 }, { tid = 600 }, { cgroup = 4711, cpu = 2 }`,
		`tailcam_cgroup_unthrottle: { cpu_id = 2 }, { tid = 600 }, { cgroup = 4711, cpu = 2 }`,
		`kvm_x86_entry: { cpu_id = 2 }, { tid = 600 }, { vcpu_id = 1 }`,
		`kvm_x86_exit: { cpu_id = 2 }, { tid = 600 }, { exit_reason = 48, guest_rip = 0xFFF0, vcpu_id = 1 }`,
		`tailcam_steal: { cpu_id = 2 }, { tid = 600 }, { stolen_ns = 1500000, since_ns = 4996044000 }`,
		`tailcam_interrupts: { cpu_id = 2 }, { tid = 600 }, { vec = 3, total_ns = 200500, count = 41, since_ns = 4999145000, sampled = 0 }`,
		`tailcam_wait_stack: { cpu_id = 2 }, { tid = 600 }, { pid = 4711, kind = 1, frames = [ [0] = 0xFFFFFFFF81234567, [1] = 0x0, [2] = 0x0, [3] = 0x0, [4] = 0x0, [5] = 0x0, [6] = 0xFFFFFFFF8123456F ] }`,
		`tailcam_sample: { cpu_id = 2 }, { tid = 600 }, { pid = 4711, kind = 2, frames = [ [0] = 0x7FFF12345678, [1] = 0x0, [2] = 0x0, [3] = 0x0, [4] = 0x0, [5] = 0x0, [6] = 0x7FFF12345680 ] }`,
		`tailcam_run_stack: { cpu_id = 2 }, { tid = 600 }, { pid = 4711, kind = 2, frames = [ [0] = 0x7FFF12345678, [1] = 0x0, [2] = 0x0, [3] = 0x0, [4] = 0x0, [5] = 0x0, [6] = 0x7FFF12345680 ] }`,
	}
	times := map[int]uint64{0: 0, 1: 0, 2: 1000, 3: 2000, 4: 2000}
	got := babeltrace(t, dir, 0)
	babeltrace1(t, dir, len(want))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
		ns, ok := times[i]
		if !ok {
			ns = uint64(i-2) * 1000
		}
		line := fmt.Sprintf(`[1795000005.%09d] db"1 %s`, ns, want[i])
		if got[i] != line {
			t.Errorf("line %d:\n got %s\nwant %s", i, got[i], line)
		}
	}
}

func TestBabeltraceReadsManyPackets(t *testing.T) {
	var tr Trace
	want := 0
	for cpu := range 3 {
		b := newBuilder(cpu, 1_000_000_000)
		b.busy(20_000)
		b.now += 10 << 32
		b.busy(40_000)
		tr.CPUs = append(tr.CPUs, CPU{CPU: cpu, Records: b.out})
		want += len(b.out)
	}
	tr.ClockOffset = -7 * time.Millisecond // a machine without a clock
	tr.SyscallName = syscallName
	dir := write(t, tr)
	if n := len(babeltrace(t, dir, 0)); n != want {
		t.Errorf("default packets: %d events, want %d", n, want)
	}
	tr.PacketSize = 1000
	if n := len(babeltrace(t, write(t, tr), 0)); n != want {
		t.Errorf("small packets: %d events, want %d", n, want)
	}
	first := babeltrace(t, dir, 0)[0]
	ev, _, _ := readAll(t, dir)
	if stamp := fmt.Sprintf("[%.9f]", float64(ev[0].Time-7_000_000)/1e9); !strings.HasPrefix(first, stamp) {
		t.Errorf("first line %q, want time %s", first, stamp)
	}
}

// What the kernel side hands over may be anything that decodes.
func TestBabeltraceReadsOddities(t *testing.T) {
	odd := newBuilder(1, maxTime-1)
	for i := range int(Interrupts) {
		r := odd.add(Type(1+i), -1)
		for j := abi.OffRaw; j < RecordSize; j++ {
			r[j] = byte(0xff - i*j)
		}
	}
	want := len(odd.out)
	tr := Trace{
		CPUs:        []CPU{{CPU: 0}, {CPU: 1, Records: odd.out}, {CPU: maxCPU}},
		Env:         Env{Hostname: "a\nb\x00\\\"ü\xff", BootID: "nonsense"},
		ClockOffset: 1_795_000_000 * time.Second,
	}
	dir := write(t, tr)
	if n := len(babeltrace(t, dir, 0)); n != want {
		t.Errorf("%d lines, want %d", n, want)
	}
	babeltrace1(t, dir, want)
	if n := len(babeltrace(t, write(t, Trace{CPUs: []CPU{{CPU: 0}, {CPU: 1}}}), 0)); n != 1 {
		t.Errorf("%d lines of an empty trace, want an empty one", n)
	}
}

func TestBabeltraceSeesLoss(t *testing.T) {
	b := newBuilder(0, 1_000_000_000)
	b.busy(1000)
	dir := write(t, Trace{CPUs: []CPU{{Records: b.out, Discarded: 77}}})
	if n := len(babeltrace(t, dir, 1)); n != 1000 {
		t.Errorf("%d events, want 1000", n)
	}
	out, _ := exec.Command("babeltrace2", dir).CombinedOutput()
	if !bytes.Contains(out, []byte("discarded 77 events")) {
		t.Error("babeltrace2 does not tell of the 77 lost events")
	}
	if m, _ := filepath.Glob(filepath.Join(dir, "kernel", "*")); len(m) != 2 {
		t.Errorf("files %v", m)
	}
}
