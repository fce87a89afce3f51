package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// The state dump stands where the trace begins to be whole, and says what was
// so then, not what was so later.
func TestStateDump(t *testing.T) {
	comm := MakeComm
	// CPU 1 remembers less: the trace is whole from 5000 on.
	b0, b1 := newBuilder(0, 1000), newBuilder(1, 6000)
	b0.switchTo(10, "leaves", 1, 11, "runs")
	b0.now = 2000
	b0.wake(SchedWaking, 11, 12, "woken", 1)
	b0.now = 3000
	b0.switchTo(11, "runs", 0x80, 13, "next") // 11 dies
	b0.now = 7000
	r := b0.add(ProcessFork, 13)
	putText(r, abi.OffProcessComm, "next")
	put32(r, abi.OffProcessPid, 13)
	put32(r, abi.OffProcessChildTid, 14)
	put32(r, abi.OffProcessChildPid, 14)
	b0.now = 8000
	b0.switchTo(13, "next", 0, 14, "child")
	b1.syscall(SyscallExit, 2, 5) // open gave 5 to process 399
	b1.now = 9000
	b1.switchTo(400, "caller", 1, 15, "waited")
	dir := write(t, Trace{
		CPUs: []CPU{{CPU: 0, Records: b0.out, From: 500, To: 9500}, {CPU: 1, Records: b1.out, From: 5000, To: 9500}, {CPU: 2, From: 400, To: 9500}},
		Known: &Known{
			Tasks:   []KnownTask{{TID: 13, PID: 13, PPID: 1, Comm: "renamed", Kernel: true}, {TID: 16, PID: 16, PPID: 2, Comm: "other"}},
			Files:   []FileState{{PID: 399, FD: 5, Flags: 0o2000001, Name: "/late"}, {PID: 399, FD: 6, Name: "/early"}},
			Devices: []DeviceState{{Dev: 259 << 20, Name: "nvme0n1"}},
		},
		SyscallName: func(nr int) string { return map[int]string{2: "open"}[nr] },
	})
	events, _, err := readAll(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []Event
	for _, ev := range events {
		if !ev.Type.ofRecord() {
			got = append(got, ev)
		}
	}
	at := func(body any, ty Type) Event { return Event{Time: 5000, CPU: 1, Type: ty, Body: body} }
	want := []Event{
		at(nil, DumpStart),
		at(TaskState{TID: 10, PID: 0, Comm: comm("leaves"), Status: StatusWaiting, CPU: 0}, DumpTask),
		at(TaskState{TID: 12, PID: 12, Comm: comm("woken"), Status: StatusRunnable, CPU: 1}, DumpTask),
		at(TaskState{TID: 13, PID: 13, PPID: 1, Comm: comm("next"), Kernel: true, Status: StatusRunning, CPU: 0}, DumpTask),
		at(TaskState{TID: 15, PID: 15, Comm: comm("waited"), Status: StatusRunnable, CPU: 1}, DumpTask),
		at(TaskState{TID: 16, PID: 16, PPID: 2, Comm: comm("other"), Status: StatusWaiting}, DumpTask),
		at(TaskState{TID: 400, PID: 399, Comm: comm("caller"), Status: StatusRunning, CPU: 1}, DumpTask),
		at(DeviceState{Dev: 259 << 20, Name: "nvme0n1"}, DumpDevice),
		at(FileState{PID: 399, FD: 6, Name: "/early"}, DumpFile),
		at(nil, DumpEnd),
		{Time: 6000, CPU: 1, Type: DumpFile, TID: 400, Body: FileState{PID: 399, FD: 5, Flags: 0o2000001, Name: "/late"}},
	}
	want = append(want[:1], want[2:]...) // 10: its process is not known
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	babeltrace(t, dir, 0)
}
