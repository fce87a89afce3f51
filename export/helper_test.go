package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// records makes records as the kernel side does.
type records struct {
	cpu int
	now uint64
	rng *rand.Rand
	out []trace.Record
}

func newRecords(cpu int, now uint64) *records {
	return &records{cpu: cpu, now: now, rng: rand.New(rand.NewPCG(uint64(cpu), 11))}
}

// add appends a record with its body: 32-bit and 64-bit numbers, and names of
// 16 bytes, one after the other.
func (r *records) add(t trace.Type, tid int, body ...any) {
	b := make([]byte, 0, trace.RecordSize)
	le := binary.LittleEndian
	for _, v := range body {
		switch v := v.(type) {
		case int:
			b = le.AppendUint32(b, uint32(v))
		case int16:
			b = le.AppendUint16(b, uint16(v))
		case uint64:
			b = le.AppendUint64(b, v)
		case string:
			name := [16]byte{}
			copy(name[:], v)
			b = append(b, name[:]...)
		}
	}
	rec := trace.MakeRecord(t, r.cpu, tid, r.now)
	copy(rec[abi.OffRaw:], b)
	r.out = append(r.out, rec)
}

func (r *records) swtch(prev int, prevComm string, state, next int, nextComm string) {
	r.add(trace.SchedSwitch, prev, prevComm, nextComm, next, next, int16(120), int16(120), state)
}

func (r *records) wake(waker, tid int, comm string) {
	r.add(trace.SchedWaking, waker, comm, tid, tid, 120, r.cpu)
}

// everyType appends one record of each type there is, with bytes of any kind
// but for its names.
func (r *records) everyType() {
	for t := trace.SchedSwitch; t <= trace.Interrupts; t++ {
		r.now += 1000
		body := make([]any, 12)
		for i := range body {
			body[i] = r.rng.IntN(1 << 20)
		}
		r.add(t, 1000+int(t), body...)
	}
}

// busy appends n records of a machine that switches, wakes and writes.
func (r *records) busy(n int) {
	current := 0
	for range n / 4 {
		r.now += 200 + r.rng.Uint64N(4000)
		next := 1000 + r.rng.IntN(50)
		r.wake(current, next, fmt.Sprintf("task-%d", next))
		r.now += 700
		r.swtch(current, fmt.Sprintf("task-%d", current), r.rng.IntN(3), next, fmt.Sprintf("task-%d", next))
		current = next
		r.now += 300
		r.add(trace.BlockIssue, next, 0xffff888000000000+uint64(next), uint64(r.rng.IntN(1<<30)), 254<<20, 4096, 1, 0, "worker")
		r.now += 100
		r.add(trace.BlockComplete, next, 0xffff888000000000+uint64(next), uint64(r.rng.IntN(1<<30)), 254<<20, 4096, 1, 0, "worker")
	}
}

const bootNS = 5_000_000_000

// writeSnapshot writes a snapshot's directory as the daemon does.
func writeSnapshot(t testing.TB, tr trace.Trace, outliers []events.Outlier, report *explain.Report) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "20261121T000000.000000000Z-wakeup-000001")
	assert.NilError(t, os.Mkdir(dir, 0o750))
	tr.ClockOffset = 1_795_000_000 * time.Second
	tr.SyscallName = func(nr int) string { return map[int]string{0: "read", 35: "nanosleep"}[nr] }
	tr.Env = trace.Env{Hostname: "vm", KernelRelease: "6.1.0", Machine: "x86_64"}
	for i := range outliers {
		o := &outliers[i]
		tr.Outliers = append(tr.Outliers, trace.Outlier{
			Number: uint64(i), Rule: o.Rule, Track: o.Track, Start: o.StartMono, End: o.EndMono, EntryCPU: o.EntryCPU, ExitCPU: o.CPU,
			DelayNS: o.DelayNS, TID: o.Task.TID, PID: o.Task.PID, Comm: o.Task.Comm,
		})
	}
	assert.NilError(t, trace.Write(filepath.Join(dir, snapshot.TraceDir), tr))
	meta := snapshot.Meta{Version: snapshot.Version, ID: filepath.Base(dir), Rule: "wakeup", Outliers: outliers}
	meta.Window.ToMonoNS = bootNS + 1_000_000
	writeJSONFile(t, filepath.Join(dir, snapshot.MetaFile), meta)
	writeJSONFile(t, filepath.Join(dir, snapshot.TasksFile), snapshot.Names{
		Version: snapshot.NamesVersion,
		Tasks: []snapshot.NamedTask{
			{TID: 10, PID: 10, Comm: "victim", Cmdline: "/bin/victim --slow"},
			{TID: 12, PID: 10, Comm: "victim-2"},
			{TID: 20, PID: 20, PPID: 2, Comm: "kworker/0:1", Kernel: true},
		},
		Functions: map[string]string{"0xffffffff81000000": "hrtimer_wakeup"},
		Devices:   map[string]string{"254:0": "vda"},
	})
	if report != nil {
		writeJSONFile(t, filepath.Join(dir, snapshot.ExplainJSONFile), report)
	}
	return dir
}

func writeJSONFile(t testing.TB, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(path, data, 0o600))
}

// story is a snapshot of one slow task: it blocks in read, is woken by a
// softirq that interrupts task 11, waits behind hog 13, and runs.
func story(t testing.TB) string {
	r := newRecords(0, bootNS)
	at := func(ns uint64) { r.now = bootNS + ns }
	r.swtch(11, "other", 1, 10, "victim")
	at(100)
	r.add(trace.SyscallEntry, 10, 0, 10, uint64(3), uint64(0x7f00), uint64(4096), uint64(0), uint64(0))
	at(1000)
	r.swtch(10, "victim", 1|1<<17, 11, "other") // blocked in call 0
	at(5000)
	r.add(trace.SoftirqEntry, 11, 3)
	at(6000)
	r.wake(11, 10, "victim")
	at(6500)
	r.add(trace.SoftirqExit, 11, 3)
	at(7000)
	r.swtch(11, "other", 0, 13, "hog")
	at(16000)
	r.swtch(13, "hog", 1, 10, "victim")
	at(17000)
	r.add(trace.SyscallExit, 10, 0, 10, uint64(4096))
	at(20000)
	r.swtch(10, "victim", 1, 0, "swapper/0")
	o := events.Outlier{
		Rule: "slow-read", Track: "syscall", Cause: events.CauseThreshold, DelayNS: 16900, ThresholdNS: 1000,
		Task:      events.Task{PID: 10, TID: 10, Comm: "victim"},
		StartMono: bootNS + 100, EndMono: bootNS + 17000,
		Waker: &events.Waker{Peer: events.Peer{PID: 11, TID: 11, Comm: "other"}, Context: "softirq NET_RX"},
		Stacks: events.Stacks{
			Kernel: []string{"schedule+0x10", "ksys_read+0x6f", "do_syscall_64+0x71"},
			User:   []string{"read+0xe (libc.so.6)", "main+0x20 (victim)"},
			Sources: &events.Sources{User: []events.Source{{}, {
				File: "victim.c", Line: 20, Inlined: []events.Inlined{{Function: "fill", File: "fill.h", Line: 3}},
			}}},
		},
	}
	report := &explain.Report{Version: 1, Outliers: []explain.Result{{
		Rule: "slow-read", Track: "syscall", DelayNS: 16900, StartMonoNS: o.StartMono, EndMonoNS: o.EndMono,
		Verdict: "victim 10 took 16.9 us, 9 us of it behind hog 13.",
		Path: []explain.Step{
			{FromMonoNS: bootNS + 100, ToMonoNS: bootNS + 1000, Task: explain.Who{TID: 10, Comm: "victim"}, State: "running", Cause: explain.Running},
			{FromMonoNS: bootNS + 1000, ToMonoNS: bootNS + 6000, Task: explain.Who{TID: 10, Comm: "victim"}, State: "blocked", Cause: explain.Network},
			{FromMonoNS: bootNS + 5000, ToMonoNS: bootNS + 6000, Depth: 1, Task: explain.Who{TID: 11, Comm: "other"}, State: "interrupted", Cause: explain.Softirq},
			{FromMonoNS: bootNS + 6000, ToMonoNS: bootNS + 16000, Task: explain.Who{TID: 10, Comm: "victim"}, State: "runnable", Cause: explain.Preempted, By: &explain.Who{Name: "hog 13"}},
			{FromMonoNS: bootNS + 16000, ToMonoNS: bootNS + 17000, Task: explain.Who{TID: 10, Comm: "victim"}, State: "running", Cause: explain.Running},
		},
	}}}
	return writeSnapshot(t, trace.Trace{CPUs: []trace.CPU{{CPU: 0, Records: r.out}}}, []events.Outlier{o}, report)
}

// all asks for everything that there is.
func all(f Format, out string) *Options {
	return &Options{Format: f, Out: out, Before: -1, After: -1, Time: flame.OutlierTime}
}

// exported exports to the standard output.
func exported(t testing.TB, dir string, o *Options) ([]byte, Result) {
	t.Helper()
	var b bytes.Buffer
	r, err := Run(context.Background(), dir, &b, o)
	assert.NilError(t, err, "%s", o.Format)
	return b.Bytes(), r
}

func traceOf(r *records) trace.Trace {
	return trace.Trace{CPUs: []trace.CPU{{CPU: r.cpu, Records: r.out}}}
}
