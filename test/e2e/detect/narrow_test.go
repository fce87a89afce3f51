package detect

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
)

// narrowRules name calls as 64-bit programs know them.
const narrowRules = `
rules:
  - name: sleeps
    track: syscall
    attach: all
    threshold: 90ms
    when: {comm: sleeper, syscall: [nanosleep, clock_nanosleep]}
  - name: others
    track: syscall
    attach: all
    threshold: 90ms
    when: {comm: sleeper, not_syscall: [nanosleep, clock_nanosleep]}
  - name: execs
    track: syscall
    attach: all
    threshold: 1us
    when: {comm: [narrow, wide], syscall: execve}
  - name: asleep
    track: offcpu
    threshold: 90ms
    when: {comm: sleeper, syscall: [nanosleep, clock_nanosleep]}
`

// TestNarrow: calls of 32-bit programs have the names and numbers of their own table,
// and belong to rules as those of 64-bit programs of the same name do.
func TestNarrow(t *testing.T) {
	needRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the 32-bit program is built for x86-64")
	}
	dir := t.TempDir()
	narrow, wide := filepath.Join(dir, "narrow"), filepath.Join(dir, "wide")
	assert.NilError(t, child.BuildNarrow(narrow))
	if err := exec.Command(narrow).Run(); errors.Is(err, unix.ENOEXEC) {
		t.Skip("this kernel runs no 32-bit programs")
	}
	out, err := exec.Command("go", "build", "-o", wide, "github.com/tailcam/tailcam/test/support/narrow").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	list, err := rules.Parse("narrow", []byte(narrowRules), &rules.LocalMachine{})
	assert.NilError(t, err)
	c := watch(t, list, nil)

	const each = 100 * time.Millisecond
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		assert.NilError(t, err, "%v: %s", args, out)
	}
	run(narrow, "sleep", each.String())
	run(narrow, "sleep64", each.String())
	run(wide, "exec", narrow, "exec", narrow, "exec", wide, "sleep", each.String())

	got := map[string]int{}
	for _, o := range c.settle() {
		assert.Assert(t, o.Syscall != nil, "%+v", o)
		what := fmt.Sprint(o.Rule, ": ", o.Syscall.Label(), " ", o.Syscall.NR)
		if o.Syscall.Ret != nil {
			what += fmt.Sprint(" = ", *o.Syscall.Ret)
		}
		got[what]++
		assert.Check(t, o.Rule == "execs" || o.DelayNS >= each.Nanoseconds()*9/10, "%+v", o)
	}
	assert.Check(t, is.DeepEqual(got, map[string]int{
		"sleeps: nanosleep (i386) 162 = 0": 1, "asleep: nanosleep (i386) 162": 1,
		"sleeps: clock_nanosleep_time64 (i386) 407 = 0": 1, "asleep: clock_nanosleep_time64 (i386) 407": 1,
		"sleeps: nanosleep 35 = 0": 1, "asleep: nanosleep 35": 1,
		// Two to begin the 32-bit program, and one each for wide, narrow, narrow again, and wide again.
		"execs: execve 59 = 0": 4, "execs: execve (i386) 11 = 0": 2,
	}))
	assert.Check(t, is.Equal(c.counters().Trackers[rules.Syscall].Replaced, uint64(0)))
}
