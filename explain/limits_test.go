package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestHeldBackForAnother: a request that a limit held back is that one's who waited for it first, or
// whom the limit holds for, where it is known that none holds for who is slow.
func TestHeldBackForAnother(t *testing.T) {
	const free, batch = "/web", "/batch"
	for _, c := range []struct {
		name       string
		mine       TaskInfo
		others     string // cgroup
		since      uint64 // us; when the other one began to wait: the slow one does at 1000
		another    bool   // the other one's request is another
		says, want string
	}{
		{"of another", TaskInfo{Cgroup: free}, batch, 900, false, "io.max of cgroup /batch (io.max 0:1 riops=12) (the read of 4 KiB of other 2 to vda was held back)", "/batch"},
		{"of another, which asked for more than it waits for", TaskInfo{Cgroup: free}, batch, 1100, false, "the read of 4 KiB of other 2", "/batch"},
		{"of another, in the root", TaskInfo{Cgroup: "/"}, batch, 1100, false, "the read of 4 KiB of other 2", "/batch"},
		{"of another, of the same cgroup", TaskInfo{Cgroup: batch + "/a"}, batch, 900, false, "the read of 4 KiB of other 2", "/batch"},
		{"of another, in the root of version 1", TaskInfo{Cgroup: "/", IOCgroup: "/"}, batch, 1100, false, "the read of 4 KiB of other 2", "/batch"},
		{"of another, first", TaskInfo{}, batch, 900, false, "the read of 4 KiB of other 2", "/batch"},
		{"nothing is known", TaskInfo{}, batch, 1100, false, "io.max of its cgroup (its read of 4 KiB", ""},
		{"its own", TaskInfo{Cgroup: batch}, batch, 1100, false, "io.max of cgroup /batch (io.max 0:1 riops=12) (its read", "/batch"},
		{"of another, of whom nothing is known", TaskInfo{Cgroup: "/", IOCgroup: "/"}, "", 900, false, "io.max of the cgroup of other (the read of 4 KiB of other 2", ""},
		{"of one of whom nothing is known, later", TaskInfo{Cgroup: free}, "", 1100, false, "io.max of the cgroup of another task (the read of 4 KiB to vda", ""},
		{"nobody is limited", TaskInfo{Cgroup: free}, free, 900, false, "io.max of the cgroup of another task (the read of 4 KiB to vda", ""},
		{"who is limited waits for something else", TaskInfo{Cgroup: free}, batch, 900, true, "io.max of the cgroup of another task (the read of 4 KiB to vda", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := timerNames
			names.Task = func(tid int) (TaskInfo, bool) {
				f, ok := timerNames.Task(tid)
				f.Cgroup = c.others
				if tid == victim {
					mine := c.mine
					mine.PID, mine.Comm, f = f.PID, f.Comm, mine
				}
				return f, ok
			}
			names.Limit = func(cgroup, name string) string {
				switch {
				case cgroup == batch && name == "io.max":
					return "0:1 riops=12"
				case cgroup != "" && name == "cpu.weight":
					return "100"
				}
				return ""
			}
			read := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
			waits := trace.Switch{PrevState: 2, Call: 0, IOWait: true}
			s := &script{}
			s.add(100, trace.CPUIdle, 0, 0, trace.Idle{}).add(100, trace.CPUIdle, 1, 0, trace.Idle{CPU: 1}).
				swap(200, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(c.since, 1, other, 0, waits).swap(1000, 0, victim, 0, waits)
			woken := []int{other, victim}
			if c.another {
				woken = []int{victim}
			}
			s.swap(9900, 1, 0, worker, sleeps(0)).add(9950, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: fnDispatch}).
				add(10000, trace.BlockIssue, 1, worker, read).add(10010, trace.WorkEnd, 1, worker, trace.Work{Work: 3}).
				swap(10020, 1, worker, 0, sleeps(0)).
				add(10990, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).add(10991, trace.BlockComplete, 0, 0, read)
			for _, tid := range woken {
				s.wake(10992, 0, 0, tid, 0)
			}
			s.add(10993, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock}).swap(11000, 0, 0, victim, sleeps(0))
			o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
			r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
			assert.Check(t, r.Blame.Cause == Limited && r.Blame.Wait == "io_max" && r.Blame.By.Cgroup == c.want, "%+v of %+v", r.Blame, r.Blame.By)
			assert.Check(t, strings.Contains(r.Verdict, c.says), r.Verdict)
		})
	}
}
