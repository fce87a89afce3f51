package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// testMachine is a machine with two disks, three users and two programs.
type testMachine struct{}

func (testMachine) Devices() []string { return []string{"vda", "nvme0n1"} }

func (testMachine) LookupUser(name string) (uint32, error) {
	uid, ok := map[string]uint32{"root": 0, "postgres": 113, "nobody": 65534}[name]
	if !ok {
		return 0, errors.New("no such user")
	}
	return uid, nil
}

func (testMachine) CheckExecutable(path string) error {
	switch path {
	case "/bin/save", "/bin/send":
		return nil
	case "/etc/passwd":
		return errors.New("is not executable")
	}
	return errors.New("does not exist")
}

// lines joins lines, so that YAML in tests keeps its indentation.
func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

func yes() *bool { v := true; return &v }

func TestParseDefaults(t *testing.T) {
	got, err := Parse("f.yaml", []byte(lines(
		"rules:",
		"  - name: w",
		"    track: wakeup",
		"    threshold: 5ms",
	)), testMachine{})
	assert.NilError(t, err)
	want := []Rule{{
		Name: "w", Track: Wakeup, Threshold: 5 * time.Millisecond, Priority: 50,
		Stacks:   []Stack{KernelStack},
		Snapshot: SnapshotPolicy{Enabled: true, Before: BeforeCover, After: 50 * time.Millisecond, Every: time.Second, Burst: 1},
		Pos:      Position{"f.yaml", 2, 5},
	}}
	assert.Check(t, is.DeepEqual(want, got))
}

func TestParseEverything(t *testing.T) {
	got, err := Parse("f.yaml", []byte(lines(
		"# a comment",
		"rules:",
		"  - name: wakeup-1",
		"    track: wakeup",
		"    threshold: 1.5ms",
		"    when:",
		"      comm: postgres",
		"      not_comm: ['post*r', \"a?\"]",
		"      pid: [1, 4194304]",
		"      not_pid: 7",
		"      uid: [postgres, 0]",
		"      not_uid: nobody",
		"      cgroup: [/system.slice/**]",
		"      not_cgroup: /user.slice/*",
		"      thread: [user, kernel]",
		"      preempted: true",
		"    overrides:",
		"      - when: {comm: [postgres, redis]}",
		"        threshold: 1us",
		"      - {when: {uid: root}, threshold: 1h}",
		"    stacks: [kernel, user, waker]",
		"    snapshot: {before: 2s, after: 0, every: 10s, burst: 3}",
		"    priority: 100",
		"    actions:",
		"      - run: [/bin/save, -n, 5, \"\"]",
		"        timeout: 1m",
		"        user: nobody",
		"      - run: /bin/send",
		"        on: outlier",
		"  - name: offcpu",
		"    track: offcpu",
		"    threshold: 200ms",
		"    when: {state: [uninterruptible, other], syscall: [fsync, '*datasync'], thread: user}",
		"    stacks: []",
		"    snapshot: false",
		"    actions: [{run: [/bin/send], on: outlier}]",
		"  - name: block",
		"    track: block",
		"    threshold: 50ms",
		"    when: {device: [vda, 'sd*'], not_device: 'loop*', op: [read, write, flush, discard, other]}",
	)), testMachine{})
	assert.NilError(t, err)
	fsync, _ := SyscallNumber("fsync")
	fdatasync, _ := SyscallNumber("fdatasync")
	fsync32, _ := SyscallNumber32("fsync")
	fdatasync32, _ := SyscallNumber32("fdatasync")
	want := []Rule{
		{
			Name: "wakeup-1", Track: Wakeup, Threshold: 1500 * time.Microsecond, Priority: 100,
			When: Match{
				Comm: []string{"postgres"}, NotComm: []string{"post*r", "a?"},
				PID: []uint32{1, 4194304}, NotPID: []uint32{7},
				UID: []uint32{113, 0}, NotUID: []uint32{65534},
				Cgroup: []string{"/system.slice/**"}, NotCgroup: []string{"/user.slice/*"},
				Thread: []Thread{UserThread, KernelThread}, Preempted: yes(),
			},
			Overrides: []Override{
				{When: Match{Comm: []string{"postgres", "redis"}}, Threshold: time.Microsecond},
				{When: Match{UID: []uint32{0}}, Threshold: time.Hour},
			},
			Stacks:   []Stack{KernelStack, UserStack, WakerStack},
			Snapshot: SnapshotPolicy{Enabled: true, Before: 2 * time.Second, Every: 10 * time.Second, Burst: 3},
			Actions: []Action{
				{Run: []string{"/bin/save", "-n", "5", ""}, Timeout: time.Minute, User: "nobody", On: OnSnapshot},
				{Run: []string{"/bin/send"}, Timeout: 30 * time.Second, On: OnOutlier},
			},
			Pos: Position{"f.yaml", 3, 5},
		},
		{
			Name: "offcpu", Track: OffCPU, Threshold: 200 * time.Millisecond, Priority: 50,
			When: Match{
				State: []State{Uninterruptible, OtherState}, Thread: []Thread{UserThread},
				Syscall: []int{fsync, fdatasync, fsync32, fdatasync32},
			},
			Snapshot: SnapshotPolicy{Before: BeforeCover, After: 50 * time.Millisecond, Every: time.Second, Burst: 1},
			Actions:  []Action{{Run: []string{"/bin/send"}, Timeout: 30 * time.Second, On: OnOutlier}},
			Pos:      Position{"f.yaml", 30, 5},
		},
		{
			Name: "block", Track: Block, Threshold: 50 * time.Millisecond, Priority: 50,
			When: Match{
				Device: []string{"vda", "sd*"}, NotDevice: []string{"loop*"},
				Op: []Op{Read, Write, Flush, Discard, Other},
			},
			Snapshot: SnapshotPolicy{Enabled: true, Before: BeforeCover, After: 50 * time.Millisecond, Every: time.Second, Burst: 1},
			Pos:      Position{"f.yaml", 37, 5},
		},
	}
	assert.Check(t, is.DeepEqual(want, got))
}

// TestPortableSyscalls: a rule that names calls of one architecture loads on
// the other as long as something is left.
func TestPortableSyscalls(t *testing.T) {
	got, err := Parse("f", []byte("rules: [{name: a, track: syscall, threshold: 1ms, when: {syscall: [stat, newfstatat, open*, ex*]}}]"), testMachine{})
	assert.NilError(t, err)
	for _, nr := range got[0].When.Syscall {
		if neverReturns(nr) {
			t.Errorf("%s is still there", SyscallName(nr))
		}
	}
	for _, name := range []string{"newfstatat", "openat", "openat2", "execve"} {
		nr, ok := SyscallNumber(name)
		assert.Check(t, ok && (&got[0].When).Matches(&Facts{Syscall: nr}), "%s is not there", name)
	}
}
