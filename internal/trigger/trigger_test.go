package trigger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// patience bounds the waits of tests, far above what they take.
const patience = 30 * time.Second

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups, and reads the kernel's log")
	}
}

// runIn runs a program in a cgroup until the test ends.
func runIn(t *testing.T, dir, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && `+script, dir)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// running is an engine with what it has fired.
type running struct {
	*Engine
	fired chan *Firing
}

func run(t *testing.T, mount, yaml string) running {
	t.Helper()
	r := running{fired: make(chan *Firing, 1000)}
	r.Engine = New(&Options{
		Fire:      func(f *Firing) { r.fired <- f },
		CgroupDir: func(path string) (string, error) { return mount + path, nil },
		Rate:      1000, Burst: 1000,
	})
	r.Set(parse(t, yaml))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the engine does not stop")
		}
	})
	return r
}

func parse(t *testing.T, yaml string) []rules.Rule {
	t.Helper()
	list, err := rules.Parse("test", []byte(yaml), &rules.LocalMachine{})
	assert.NilError(t, err)
	return list
}

// next waits for a firing that is wanted.
func (r running) next(t *testing.T, wanted func(*Firing) bool) *Firing {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case f := <-r.fired:
			if wanted(f) {
				return f
			}
		case <-end:
			t.Fatal("nothing fired")
		}
	}
}

// until waits for a state of a rule.
func (r running) until(t *testing.T, rule string, is func(State) bool) State {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s, ok := r.State(rule)
		if ok && is(s) {
			return s
		}
		assert.Assert(t, time.Now().Before(end), "the state stays %+v, %t", s, ok)
	}
}

// TestPressure: tasks that wait for each other's CPU in a cgroup fire its trigger; when the
// cgroup is removed, the rule says so, and goes on when it is back.
func TestPressure(t *testing.T) {
	needRoot(t)
	mount := provoke.Hierarchy("")
	if mount == "" {
		t.Skip("needs cgroup v2 mounted whole (mount -t cgroup2 none /sys/fs/cgroup/unified)")
	}
	path := fmt.Sprintf("/tailcam-trigger-%d", os.Getpid())
	dir := mount + path
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	r := run(t, mount, fmt.Sprintf(`rules: [{name: p, track: trigger, on: {psi: {cgroup: %s, cpu: "some 1ms 2s"}}, snapshot: {every: 1h}}]`, path))
	r.until(t, "p", func(s State) bool { return s.Err == nil })
	time.Sleep(time.Second) // what was opened must not fire by itself
	assert.Equal(t, len(r.fired), 0)

	hogs := make([]*exec.Cmd, 2)
	for i := range hogs {
		hogs[i] = runIn(t, dir, "exec taskset -c 0 sh -c 'while :; do :; done'")
	}
	all := func(*Firing) bool { return true }
	first := r.next(t, all)
	assert.Check(t, first.Time == 2*time.Second && first.WantsSnapshot && strings.HasPrefix(first.Reason,
		"cpu pressure of "+path+": some stalled for 1ms within 2s, avg10="), "%+v, %+v", first, first.Event)
	second := r.next(t, all)
	assert.Check(t, !second.WantsSnapshot, "one snapshot an hour")

	for _, h := range hogs {
		_ = h.Process.Kill()
		_ = h.Wait()
	}
	for os.Remove(dir) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	s := r.until(t, "p", func(s State) bool { return s.Err != nil })
	assert.Check(t, s.Seen >= 2 && s.Suppressed >= 1, "%+v", s)
	assert.NilError(t, os.Mkdir(dir, 0o755))
	r.until(t, "p", func(s State) bool { return s.Err == nil })

	// Others come and go without it.
	r.Set(append(parse(t, `rules: [{name: q, track: trigger, on: kmsg}]`), r.list...))
	r.until(t, "q", func(s State) bool { return s.Err == nil })
	s, _ = r.State("p")
	assert.Check(t, s.Seen >= 2, "its counters go on: %+v", s)
	r.Set(nil)
	_, ok := r.State("p")
	assert.Check(t, !ok)
}

// TestRefusedPressure: what the kernel refuses is told.
func TestRefusedPressure(t *testing.T) {
	e := New(&Options{})
	for _, on := range []string{`{psi: {cgroup: /no/such, cpu: "some 1ms 2s"}}`} {
		r := parse(t, "rules: [{name: p, track: trigger, on: "+on+"}]")[0]
		assert.ErrorIs(t, e.Try(&r), os.ErrNotExist)
	}
}

// TestOutOfMemory: a process that outgrows its cgroup is killed, and the message names it.
func TestOutOfMemory(t *testing.T) {
	needRoot(t)
	group := provoke.NewCgroup(t, "memory")
	group.Set(t, "memory.limit_in_bytes", "memory.max", "16M")
	r := run(t, "", "rules: [{name: oom, track: trigger, on: oom}, {name: others, track: trigger, on: kmsg}]")
	r.until(t, "oom", func(s State) bool { return s.Err == nil })
	victim := runIn(t, group.Dir, "exec tail /dev/zero").Process.Pid

	f := r.next(t, func(f *Firing) bool { return f.Task != nil && f.Task.PID == victim })
	assert.Check(t, f.Rule.Name == "oom" && f.Task.TID == victim && f.Task.Comm == "tail" && f.WantsSnapshot, "%+v", f)
	assert.Check(t, strings.HasPrefix(f.Reason, "Memory cgroup out of memory: Killed process"), "%q", f.Reason)
	assert.Check(t, strings.HasSuffix(group.Dir, f.Task.Cgroup) || f.Task.Cgroup == "", "%q", f.Task.Cgroup) // the summary is limited to 10 in 5 s
	s, _ := r.State("others")
	assert.Check(t, s.Seen == 0, "%+v", s)
}

// TestMessages: what the kernel prints, and what others could make it print.
func TestMessages(t *testing.T) {
	const kernel = "3,%d,5140900,-,caller=T7;"
	for _, c := range []struct {
		text   string
		kind   rules.KernelMessage
		task   Task
		lasted time.Duration
	}{
		{"INFO: task jbd2/vda1-8:214 blocked for more than 120 seconds.", rules.HungTask, Task{TID: 214, Comm: "jbd2/vda1-8"}, 2 * time.Minute},
		{"INFO: task a:7 blocked for:99 blocked for more than 9 seconds.", rules.HungTask, Task{TID: 99, Comm: "a:7 blocked for"}, 9 * time.Second},
		{"INFO: task x:99 blocked in I/O wait for more than 999999999 seconds.", rules.HungTask, Task{TID: 99, Comm: "x"}, 24 * time.Hour},
		{"INFO: task x:<writer> blocked on an rw-semaphore", "", Task{}, 0},
		{"watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kworker/1:2:88]", rules.SoftLockup, Task{TID: 88, Comm: "kworker/1:2"}, 26 * time.Second},
		{"watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", rules.HardLockup, Task{}, 0},
		{"NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", rules.HardLockup, Task{}, 0},
		{"rcu: INFO: rcu_preempt self-detected stall on CPU", rules.RCUStall, Task{}, 0},
		{"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", rules.RCUStall, Task{}, 0},
		{"rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: {", rules.RCUStall, Task{}, 0},
		{"Out of memory: Killed process 71 (a) b) total-vm:9kB, anon-rss:1kB", rules.OutOfMemory, Task{PID: 71, TID: 71, Comm: "a) b"}, 0},
		{"Out of memory (oom_kill_allocating_task): Killed process 71 (a), UID 5, total-vm:9kB", rules.OutOfMemory, Task{PID: 71, TID: 71, Comm: "a"}, 0},
		{"somebody says: Out of memory: Killed process 71 (a) total-vm:9kB", "", Task{}, 0},
		{"", "", Task{}, 0},
	} {
		every := map[rules.KernelMessage]bool{rules.OutOfMemory: true, rules.HungTask: true, rules.SoftLockup: true, rules.HardLockup: true, rules.RCUStall: true}
		k := &kmsg{want: every, lost: func(uint64) {}}
		kind, _ := k.parse(c.text)
		assert.Check(t, kind == c.kind, "%q is %q", c.text, kind)
		ev := k.record([]byte(fmt.Sprintf(kernel, 8) + c.text + "\n SUBSYSTEM=x\n"))
		assert.Check(t, (ev != nil) == (c.kind != ""), "%q: %+v", c.text, ev)
		if ev == nil {
			continue
		}
		task := Task{}
		if ev.Task != nil {
			task = *ev.Task
		}
		assert.Check(t, task == c.task && ev.Time == c.lasted, "%q: %+v, %s", c.text, task, ev.Time)
		assert.Check(t, k.record([]byte("11,9,1,-;"+c.text)) == nil, "%q of user space", c.text)
	}
}

// TestLostMessages: numbers that are missing are counted, and the summary of a kill is
// used for that kill alone.
func TestLostMessages(t *testing.T) {
	lost := uint64(0)
	k := &kmsg{want: map[rules.KernelMessage]bool{rules.OutOfMemory: true}, lost: func(n uint64) { lost += n }}
	say := func(seq int, text string) *Event { return k.record(fmt.Appendf(nil, "6,%d,1,-;%s\n", seq, text)) }
	say(5, "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=x,pid=1,uid=0,pid=71,uid=0")
	ev := say(9, "Memory cgroup out of memory: Killed process 71 (x) total-vm:9kB")
	assert.Check(t, ev != nil && ev.Task.Cgroup == "/a/b" && lost == 3, "%+v, %d", ev, lost)
	ev = say(10, "Memory cgroup out of memory: Killed process 72 (x) total-vm:9kB")
	assert.Check(t, ev != nil && ev.Task.Cgroup == "" && lost == 3, "%+v, %d", ev, lost)
	for _, raw := range []string{"", ";", "6,;", "x,1,1;y", "6,x,1;y", "6,1", strings.Repeat(",", 5000) + ";"} {
		assert.Check(t, k.record([]byte(raw)) == nil, "%q", raw)
	}
	long := say(11, "Out of memory: Killed process 72 (x) total-vm:"+strings.Repeat("ä", 5000))
	assert.Check(t, long != nil && len(long.Reason) <= maxNotice+len("…"))
}

// FuzzRecord: no record of the kernel's log harms.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("6,1,1,-;INFO: task a:1 blocked for more than 9 seconds"))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		k := &kmsg{want: map[rules.KernelMessage]bool{rules.HungTask: true}, lost: func(uint64) {}}
		k.record(raw)
	})
}

// TestLimits: outliers beyond the rate, and those of a paused rule, are not fired.
func TestLimits(t *testing.T) {
	e := New(&Options{Fire: func(*Firing) {}, Rate: 1, Burst: 2})
	r := parse(t, "rules: [{name: a, track: trigger, on: oom, snapshot: {every: 1h, burst: 1}}]")[0]
	w := &watch{rule: r, outliers: e.limiterLocked(), snapshots: rate.NewLimiter(rate.Every(r.Snapshot.Every), r.Snapshot.Burst)}
	e.watches["a"] = w
	now := time.Now()
	for i, want := range []State{
		{Seen: 1, Outliers: 1}, {Seen: 2, Outliers: 2, Suppressed: 1}, {Seen: 3, Outliers: 2, Suppressed: 1, Limited: 1},
	} {
		f := w.take(&Event{}, now)
		s, _ := e.State("a")
		assert.Check(t, s == want && (f != nil) == (i < 2) && (f == nil || f.WantsSnapshot == (i == 0)), "%d: %+v, %+v", i, s, f)
	}
	e.SetRate(0, 0)
	assert.Check(t, w.take(&Event{}, now) != nil)
	paused := r
	paused.Paused = true
	assert.Check(t, w.update(&paused) && w.take(&Event{}, now) == nil)
	again := paused
	again.Paused, again.Snapshot.Every = false, time.Second
	assert.Assert(t, w.update(&again))
	f := w.take(&Event{}, now)
	assert.Check(t, f.WantsSnapshot && f.Suppressed == 2, "%+v", f)
}
