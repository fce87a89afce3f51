package process

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestSiblings: of three processes of one name that this one has started, two are known.
func TestSiblings(t *testing.T) {
	var pids []int
	for range 3 {
		cmd := exec.Command("sleep", "100")
		assert.NilError(t, cmd.Start())
		t.Cleanup(func() {
			assert.Check(t, cmd.Process.Kill())
			cmd.Wait() // killed
		})
		pids = append(pids, cmd.Process.Pid)
	}
	slices.Sort(pids)
	table := New(nil)
	defer table.Close()
	var list []Task
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if list = table.Tasks(pids[:2], time.Minute); len(list) == 2 && list[0].Comm == "sleep" && list[1].Comm == "sleep" {
			break
		}
		assert.Assert(t, time.Now().Before(end), "%+v", list)
	}
	for got := []int(nil); !slices.Equal(got, pids[2:]); time.Sleep(time.Millisecond) { // it may not have its name yet
		got = table.Siblings(list, time.Minute)
		assert.Assert(t, len(got) <= 1, "%v", got)
	}
	assert.Check(t, len(table.Siblings(list[:1], time.Minute)) == 0, "of a single one")
	assert.Check(t, len(table.Siblings(list, -1)) == 0, "without time")

	self := table.Tasks([]int{os.Getpid(), pids[0]}, time.Minute)
	assert.Equal(t, len(self), 2)
	got := table.Children(self, []int{os.Getpid()}, time.Minute)
	assert.Check(t, slices.Contains(got, pids[1]) && slices.Contains(got, pids[2]) && !slices.Contains(got, pids[0]), "%v", got)
	assert.Check(t, len(table.Children(self, []int{pids[0]}, time.Minute)) == 0, "of one that has none")
	assert.Check(t, len(table.Children(self, []int{1}, time.Minute)) == 0, "of one that is not in the list")
	assert.Check(t, len(table.Children(self, []int{os.Getpid()}, -1)) == 0, "without time")
}
