package snapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestFolded(t *testing.T) {
	var b strings.Builder
	err := writeFolded(&b, []events.Outlier{
		{DelayNS: 7, Task: events.Task{Comm: "a;b\nc"}, Stacks: events.Stacks{Kernel: []string{"k1", "k2"}, User: []string{"u1", "u2"}}},
		{DelayNS: 8, Task: events.Task{}},
		{DelayNS: 9, Task: events.Task{Comm: "a\u202eb"}, Stacks: events.Stacks{User: []string{"f\u2066g"}}},
	})
	assert.NilError(t, err)
	if got, want := b.String(), "a:b\\x0ac;u2;u1;k2;k1 7\n[unknown] 8\na\\u202eb;f\\u2066g 9\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a process calls itself does not turn the terminal of who looks into a
// snapshot's JSON, and is still what it called itself.
func TestJSONIsSafeToPrint(t *testing.T) {
	var b strings.Builder
	name := "a\u202eb\u009b\x7f<c>"
	assert.NilError(t, writeJSON(&b, events.Task{Comm: name}))
	assert.Check(t, strings.Contains(b.String(), `"a\u202eb\u009b\u007f<c>"`), "got %s", b.String())
	var back events.Task
	err := json.Unmarshal([]byte(b.String()), &back)
	assert.Check(t, err == nil && back.Comm == name, "%q, %v", back.Comm, err)
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
				" 20.0ms  bad\\x1b[2J[11]          was woken and waited to run\n", "    ran instead  hog[5] for 19.0ms on cpu 2\n",
				"    woken by     waker[6]\n", "    process      10  bad --x  uid 0\n", "    kernel       schedule+0x1\n",
			},
		},
		{events.Outlier{Track: "offcpu", DelayNS: int64(time.Second), State: "uninterruptible", Task: task},
			`{"waker":{"pid":6,"tid":7,"comm":"hog","context":"irq 24"}}`, []string{"    woken by     irq 24 while hog[7] ran\n", "slept uninterruptible\n"}},
		{
			events.Outlier{Track: "syscall", DelayNS: 1000, Task: task, Syscall: &events.SyscallInfo{NR: 0, Name: "read", Ret: &ret}},
			`{}`,
			[]string{"in read\n", "    syscall      read (0) = -5\n"},
		},
		{
			events.Outlier{Track: "block", DelayNS: 1000, Task: task, Block: &events.BlockInfo{Device: "vda", Sector: 8, Bytes: 4096, Op: "write", Flags: "WS"}},
			`{}`,
			[]string{"write of 4.0KiB on vda\n", "sector 8, 4.0KiB, flags WS\n"},
		},
	} {
		assert.NilError(t, json.Unmarshal([]byte(c.more), &c.outlier))
		m := &Meta{ID: "id", Notes: []string{"short"}, Outliers: []events.Outlier{c.outlier}}
		var b strings.Builder
		assert.NilError(t, writeText(&b, m, &Explanation{Outliers: []ExplainedOutlier{{Text: "the verdict.\n"}}}))
		for _, want := range append(c.want, "note: short\n", "\nthe verdict.\n") {
			assert.Check(t, strings.Contains(b.String(), want), "%q is missing in:\n%s", want, b.String())
		}
		assert.Check(t, !strings.ContainsRune(b.String(), 0x1b), "an escape character got through")
	}
}
