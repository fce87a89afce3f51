package trace_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// runC compiles a program around the header of records, runs it and returns what it prints.
func runC(t *testing.T, body string) []byte {
	t.Helper()
	cc := ""
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			cc = path
			break
		}
	}
	if cc == "" {
		t.Skip("no C compiler (apt install gcc)")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	text := fmt.Sprintf("#include <linux/types.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n"+
		"#include \"abi/record.h\"\nint main(void)\n{\n%s\treturn 0;\n}\n", body)
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O0", "-I../../bpf", "-o", bin, src).CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("linux/types.h")) {
			t.Skipf("no kernel headers for C (apt install linux-libc-dev): %s", out)
		}
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryTypeOfRecordIsKnown(t *testing.T) {
	for n := trace.Type(1); n < abi.RecIrq; n++ { // the rest stand for two events each: see Unfold
		if name := n.String(); strings.HasPrefix(name, "unknown_") {
			t.Errorf("type %d has no name", n)
		}
	}
}

// That both sides have the same offsets would not show a field that is taken
// for another one, or has the wrong sign.
func TestRecordsFilledByC(t *testing.T) {
	comm := trace.MakeComm
	out := runC(t, `
	struct record r;
#define BEGIN(t) memset(&r, 0, sizeof(r)); r.type = t; r.cpu = 40000; r.tid = 7; r.time_ns = 0x0102030405060708ull;
#define END fwrite(&r, sizeof(r), 1, stdout);
	BEGIN(REC_SWITCH)
	strcpy(r.sw.prev_comm, "prev"); strcpy(r.sw.next_comm, "next");
	r.sw.next_tid = 70000; r.sw.next_pid = 70001; r.sw.prev_prio = -1; r.sw.next_prio = 139;
	r.sw.prev_state = PREV_PREEMPTED | PREV_IOWAIT | PREV_FROZEN | PREV_THROTTLED | 203 << PREV_CALL_SHIFT | 0x402;
	END
	BEGIN(REC_WAKING)
	memset(r.wake.comm, 'x', 16); r.wake.tid = 70000; r.wake.pid = 70001; r.wake.prio = -1; r.wake.target_cpu = 3;
	r.wake.context = 1 << 14 | 3; /* softirq 3 */
	END
	BEGIN(REC_MIGRATE)
	strcpy(r.migrate.comm, "m"); r.migrate.tid = 70000; r.migrate.prio = 139; r.migrate.orig_cpu = 1; r.migrate.dest_cpu = -2;
	END
	BEGIN(REC_IRQ_ENTRY)
	r.irq.irq = 70000; r.irq.ret = 9; memset(r.irq.name, 'n', sizeof(r.irq.name));
	END
	BEGIN(REC_IRQ_EXIT)
	r.irq.irq = -1; r.irq.ret = -2; strcpy(r.irq.name, "n");
	END
	BEGIN(REC_SOFTIRQ_ENTRY)
	r.softirq.vec = 0x80000001; r.softirq.irq = -1;
	END
	BEGIN(REC_HRTIMER_ENTRY)
	r.hrtimer.hrtimer = ~1ull; r.hrtimer.function = ~2ull; r.hrtimer.now = -3;
	END
	BEGIN(REC_BLOCK_COMPLETE)
	r.block.rq = ~1ull; r.block.sector = ~2ull; r.block.dev = ~3u; r.block.bytes = ~4u; r.block.cmd_flags = ~5u;
	r.block.error = -6; strcpy(r.block.comm, "b");
	END
	BEGIN(REC_WORK_END)
	r.work.work = ~1ull; r.work.function = ~2ull;
	END
	BEGIN(REC_FORK)
	strcpy(r.process.comm, "p"); strcpy(r.process.child_comm, "c");
	r.process.pid = 70000; r.process.child_tid = 70001; r.process.child_pid = 70002; r.process.prio = -1;
	END
	BEGIN(REC_SYSCALL_EXIT)
	r.syscall.nr = ~1u; r.syscall.pid = 70000; r.syscall.ret = -14;
	END
	BEGIN(REC_SYSCALL_ENTRY)
	r.syscall.nr = 7; r.syscall.pid = 70000; r.syscall.args[0] = 1; r.syscall.args[4] = ~5ull;
	END
	BEGIN(REC_SWITCH)
	r.sw.prev_state = PREV_EXCEPTION << PREV_CALL_SHIFT | 2;
	END
	BEGIN(REC_SWITCH)
	r.sw.prev_state = (PREV_FUTEX | FUTEX_IS_BITSET | FUTEX_SHARED | FUTEX_TIMED | 3 << FUTEX_VALUE_SHIFT) << PREV_CALL_SHIFT | 1;
	END
	BEGIN(REC_SWITCH)
	r.sw.prev_state = (PREV_FUTEX_PLACE + 4 * FUTEX_PLACE_VALUE + FUTEX_PLACE_TIMED + 31) << PREV_CALL_SHIFT | 1;
	END
	BEGIN(REC_WORK_QUEUE)
	r.queue.work = ~1ull; r.queue.function = ~2ull; memset(r.queue.name, 'q', sizeof(r.queue.name)); r.queue.req_cpu = -1;
	END
	BEGIN(REC_TIMER_ENTRY)
	r.timer.timer = ~1ull; r.timer.function = ~2ull; r.timer.now = ~3ull;
	r.timer.waiter = 70000; r.timer.address = 0x0201007f; r.timer.port = 65535; r.timer.tcp = TCP_TIMER_KEEPALIVE | 2 << TCP_STATE_SHIFT | TCP_LISTENER;
	r.timer.accept_queue = ~4u; r.timer.accept_limit = ~5u;
	END
	BEGIN(REC_FAULT_USER)
	r.fault.address = ~1ull; r.fault.ip = ~2ull; r.fault.error_code = ~3ull;
	END
	BEGIN(REC_RECLAIM_END)
	r.reclaim.reclaimed = ~1ull; r.reclaim.kind = RECLAIM_MEMCG;
	END
	BEGIN(REC_COMPACTION_END)
	r.reclaim.status = -2;
	END
	BEGIN(REC_LOCK_BEGIN)
	r.lock.lock = ~1ull; r.lock.flags = ~2u; r.lock.owner_tid = 70000;
	END
	BEGIN(REC_CPU_IDLE)
	r.power.state = ~0u; r.power.cpu = 3;
	END
	BEGIN(REC_CPU_FREQUENCY)
	r.power.state = ~1u; r.power.cpu = 3;
	END
	BEGIN(REC_NET_RECEIVE)
	r.net.skb = ~1ull; r.net.bytes = ~2u; strcpy(r.net.dev, "eth0");
	END
	BEGIN(REC_NAPI_POLL)
	r.net.work = 3; r.net.budget = 64; strcpy(r.net.dev, "eth0");
	END
	BEGIN(REC_THROTTLE)
	r.throttle.cgroup = ~1ull; r.throttle.cpu = 3;
	END
	BEGIN(REC_KVM_EXIT)
	r.kvm.vcpu = ~1u; r.kvm.reason = ~2u; r.kvm.ip = ~3ull;
	END
	BEGIN(REC_STEAL)
	r.steal.stolen_ns = ~1ull; r.steal.since_ns = ~2ull;
	END
	BEGIN(REC_INTERRUPTS)
	r.interrupts.since_ns = ~1ull; r.interrupts.total_ns = ~2u; r.interrupts.count = ~3u; r.interrupts.vec = INTERRUPTS_IRQ; r.interrupts.sampled = INTERRUPTS_SAME;
	END
`)
	wide := trace.Comm([]byte("xxxxxxxxxxxxxxxx"))
	want := []any{
		trace.Switch{PrevComm: comm("prev"), NextComm: comm("next"), NextTID: 70000, NextPID: 70001,
			PrevPrio: -1, NextPrio: 139, PrevState: 0x402, Preempted: true, IOWait: true, Frozen: true, Throttled: true, Call: 202},
		trace.Wake{Comm: wide, TID: 70000, PID: 70001, Prio: -1, TargetCPU: 3, Context: 1<<14 | 3},
		trace.Migrate{Comm: comm("m"), TID: 70000, Prio: 139, OrigCPU: 1, DestCPU: -2},
		trace.IRQ{IRQ: 70000, Name: strings.Repeat("n", 32)},
		trace.IRQ{IRQ: -1, Ret: -2},
		trace.Softirq{Vec: 0x80000001},
		trace.Hrtimer{Hrtimer: ^uint64(1), Function: ^uint64(2), Now: -3},
		trace.Block{RQ: ^uint64(1), Sector: ^uint64(2), Dev: ^uint32(3), Bytes: ^uint32(4), Flags: ^uint32(5),
			Status: -6, Comm: comm("b")},
		trace.Work{Work: ^uint64(1), Function: ^uint64(2)},
		trace.Fork{ParentComm: comm("p"), ChildComm: comm("c"), ParentPID: 70000, ChildTID: 70001, ChildPID: 70002, Prio: -1},
		trace.Syscall{NR: ^uint32(1), PID: 70000, Ret: -14},
		trace.Syscall{NR: 7, PID: 70000, Args: [5]uint64{1, 0, 0, 0, ^uint64(5)}},
		trace.Switch{PrevState: 2, Call: trace.CallException},
		trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(trace.FutexWaitBitset, 3, true, true)},
		trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(trace.FutexWait, 4, false, true).At(31)},
		trace.WorkQueue{Work: ^uint64(1), Function: ^uint64(2), Name: strings.Repeat("q", 24), ReqCPU: -1},
		trace.Timer{Timer: ^uint64(1), Function: ^uint64(2), Now: ^uint64(3), TCP: trace.TCPTimer{
			Kind: trace.TCPKeepAlive, State: trace.TCPSynSent, Waiter: 70000, Peer: [4]byte{127, 0, 1, 2}, Port: 65535, Listener: true,
			AcceptQueue: [2]uint32{^uint32(4), ^uint32(5)},
		}},
		trace.Fault{Address: ^uint64(1), IP: ^uint64(2), ErrorCode: ^uint64(3)},
		trace.Reclaim{Memcg: true, Reclaimed: ^uint64(1)},
		trace.Compaction{Status: -2},
		trace.Lock{Lock: ^uint64(1), Flags: ^uint32(2), OwnerTID: 70000},
		trace.Idle{State: -1, CPU: 3},
		trace.Frequency{KHz: ^uint32(1), CPU: 3},
		trace.Net{SKB: ^uint64(1), Bytes: ^uint32(2), Dev: "eth0"},
		trace.Napi{Work: 3, Budget: 64, Dev: "eth0"},
		trace.Throttle{Cgroup: ^uint64(1), CPU: 3},
		trace.KVM{VCPU: ^uint32(1), Reason: ^uint32(2), IP: ^uint64(3)},
		trace.Stolen{NS: ^uint64(1), Since: ^uint64(2)},
		trace.ShortRuns{Since: ^uint64(1), NS: uint64(^uint32(2)), Count: ^uint32(3), Vec: -1, Sampled: true, Same: true},
	}
	if len(out) != len(want)*trace.RecordSize {
		t.Fatalf("%d bytes out of C, want %d records", len(out), len(want))
	}
	for i, body := range want {
		r := trace.Record(out[i*trace.RecordSize:])
		ev, err := r.Decode()
		if err != nil {
			t.Errorf("record %d: %v", i, err)
			continue
		}
		if diff := cmp.Diff(trace.Event{Time: 0x0102030405060708, CPU: 40000, Type: r.Type(), TID: 7, Body: body}, ev); diff != "" {
			t.Errorf("record %d (-want +got):\n%s", i, diff)
		}
	}
}
