package accuracy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/provoke"
)

var loadFlag = flag.String("load", "", "what else the machine does meanwhile, `KIND`: hackbench, or neighbour, a cgroup that wants every CPU")

// loads are the kinds of load, and the names of their tasks.
var loads = map[string]struct{ comm, command string }{
	"hackbench": {"hackbench", "exec hackbench -g 1 -f 4 -l 100000000"},
	"neighbour": {"neighbour", "echo $$ >$GROUP/cgroup.procs; for _ in $(seq $(nproc)); do sh -c 'echo neighbour >/proc/$$/comm; while :; do :; done' & done; wait"},
}

// loadLimit bounds the load, even if the test dies without a word.
const loadLimit = 10 * time.Minute

// underLoad starts the load that was asked for, until the end of the test, and returns the
// name of its tasks; "": none was.
func underLoad(t *testing.T) string {
	t.Helper()
	if *loadFlag == "" {
		return ""
	}
	l, known := loads[*loadFlag]
	assert.Assert(t, known, "-load: there is hackbench and neighbour, not %q", *loadFlag)
	cmd := exec.Command("unshare", "--fork", "--pid", "--kill-child", // nothing of it outlives this test
		"timeout", strconv.Itoa(int(loadLimit.Seconds())), "sh", "-c", l.command)
	if *loadFlag == "neighbour" {
		cmd.Env = append(os.Environ(), "GROUP="+provoke.NewNamedCgroup(t, "cpu", provoke.CgroupName("neighbour")).Dir)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		assert.Check(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		cmd.Wait() // killed
	})
	return l.comm
}

// grade holds a result against the truth under load, where others are in the way of everybody:
// it is right if it says all that it must without load. It is partly right if it names the
// culprit, and blames him if he took most of the time. Otherwise, and if it names a task that
// took no part, it is wrong. complaints are what judge says.
func (w *want) grade(tr *truth, r *explain.Result, load string, complaints []string) (partly, wrong []string) {
	named, blamed := false, w.is(r.Blame.By, w.by, 0)
	for i := range r.Parts {
		named = named || w.is(r.Parts[i].By, w.by, 0)
	}
	for _, l := range r.Chain {
		named = named || w.is(l.By, w.by, 0)
	}
	switch {
	case len(complaints) == 0:
	case !named:
		wrong = append(wrong, "does not name "+w.by+" anywhere")
	case tr.Part*2 > tr.End-tr.Start && !blamed:
		wrong = append(wrong, fmt.Sprintf("blames %s, but %s took most of the time", name(r.Blame.By), w.by))
	default:
		partly = complaints
	}
	for _, by := range append([]*explain.Who{r.Blame.By}, chained(r)...) {
		if by != nil && by.TID > 0 && !ours(by, load) && !w.is(by, w.by, 0) {
			wrong = append(wrong, "names "+by.Name+", who took no part")
		}
	}
	return partly, wrong
}

func chained(r *explain.Result) (list []*explain.Who) {
	for i := range r.Chain {
		list = append(list, r.Chain[i].By)
	}
	return list
}

// ours reports whether a task belongs to a scenario, to the load, to this test or to the kernel.
func ours(by *explain.Who, load string) bool {
	return slices.ContainsFunc([]string{
		"scn-", "v-", "scenario", load, "accuracy", "exe", "tailcam", "postgres", "redis-server", "nginx",
		"kworker/", "ksoftirqd/", "migration/", "rcu", "jbd2/", "kswapd", "loop", "irq/",
	}, func(prefix string) bool { return strings.HasPrefix(by.Comm, prefix) })
}
