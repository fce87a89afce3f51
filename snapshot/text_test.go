package snapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestFolded(t *testing.T) {
	var b strings.Builder
	err := writeFolded(&b, []events.Outlier{
		{DelayNS: 7, Task: events.Task{Comm: "a;b\nc"}, Stacks: events.Stacks{Kernel: []string{"k1", "k2"}, User: []string{"u1", "u2"}}},
		{DelayNS: 8, Task: events.Task{}},
		{DelayNS: 9, Task: events.Task{Comm: "a\u202eb"}, Stacks: events.Stacks{User: []string{"f\u2066g"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "a:b\\x0ac;u2;u1;k2;k1 7\n[unknown] 8\na\\u202eb;f\\u2066g 9\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a process calls itself does not turn the terminal of who looks into a
// snapshot's JSON, and is still what it called itself.
func TestJSONIsSafeToPrint(t *testing.T) {
	var b strings.Builder
	name := "a\u202eb\u009b\x7f<c>"
	if err := writeJSON(&b, events.Task{Comm: name}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"a\u202eb\u009b\u007f<c>"`) {
		t.Errorf("got %s", b.String())
	}
	var back events.Task
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back.Comm != name {
		t.Errorf("%q, %v", back.Comm, err)
	}
}

func TestFacts(t *testing.T) {
	ret := int64(-5)
	task := events.Task{PID: 10, TID: 11, Comm: "bad\x1b[2J", Cmdline: "bad --x"}
	for _, c := range []struct {
		outlier events.Outlier
		more    string // as JSON
		want    []string
	}{
		{
			events.Outlier{
				Track: "wakeup", DelayNS: 20_000_000, Task: task,
				OnCPU: &events.OnCPU{Peer: events.Peer{PID: 5, TID: 5, Comm: "hog"}, CPU: 2, RanNS: 19_000_000},
				Waker: &events.Waker{Peer: events.Peer{PID: 6, TID: 6, Comm: "waker"}}, Stacks: events.Stacks{Kernel: []string{"schedule+0x1"}},
			},
			`{"waker":{"pid":6,"tid":6,"comm":"waker"}}`,
			[]string{
				"bad?[2J (pid 10, thread 11) was ready to run and waited 20ms for a CPU", "meanwhile hog (pid 5) ran for 19ms on CPU 2",
				"woken by waker (pid 6)", "command line: bad --x", "    schedule+0x1",
			},
		},
		{events.Outlier{Track: "offcpu", DelayNS: int64(time.Second), State: "uninterruptible", Task: task},
			`{"waker":{"pid":6,"tid":7,"comm":"hog","context":"irq 24"}}`, []string{"woken by irq 24, which interrupted hog (pid 6, thread 7)", "was off the CPU for 1s (uninterruptible)"}},
		{
			events.Outlier{Track: "syscall", DelayNS: 1000, Task: task, Syscall: &events.SyscallInfo{NR: 0, Name: "read", Ret: &ret}},
			`{}`,
			[]string{"spent 1µs in read", "system call read (0) returned -5"},
		},
		{
			events.Outlier{Track: "block", DelayNS: 1000, Task: task, Block: &events.BlockInfo{Device: "vda", Sector: 8, Bytes: 4096, Op: "write", Flags: "WS"}},
			`{}`,
			[]string{"a write of 4096 bytes at sector 8 of vda took 1µs", "flags WS"},
		},
	} {
		if err := json.Unmarshal([]byte(c.more), &c.outlier); err != nil {
			t.Fatal(err)
		}
		m := &Meta{ID: "id", Notes: []string{"short"}, Outliers: []events.Outlier{c.outlier}}
		var b strings.Builder
		if err := writeText(&b, m, &Explanation{Outliers: []ExplainedOutlier{{Text: "the verdict.\n"}}}); err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.want, "note: short\n", "\nthe verdict.\n") {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in:\n%s", want, b.String())
			}
		}
		if strings.ContainsRune(b.String(), 0x1b) {
			t.Error("an escape character got through")
		}
	}
}
