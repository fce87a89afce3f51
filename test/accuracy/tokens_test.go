package accuracy

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/support/slowirq"
)

// requestScenarios are waits of a request for another one, or for itself: what the tasks work
// for is known by their tokens.
func requestScenarios(shared *resources) []scenario {
	only := func(c explain.Cause) []explain.Cause { return []explain.Cause{c} }
	return []scenario{
		{
			name: "req-own-lock", rule: trackSyscall("futex"),
			want: want{
				causes: only(explain.Locked), by: "scn-holder", root: explain.Running, rootBy: "scn-holder",
				request: "checkout", own: true, advice: "It is CPU time of scn-holder",
			},
		},
		{
			name: "req-lock", rule: trackSyscall("futex"),
			want: want{
				causes: only(explain.Locked), by: "scn-holder", root: explain.Running, rootBy: "scn-holder", request: "report", advice: "It is CPU time of scn-holder",
			},
		},
		{
			name: "req-work", rule: trackSyscall("write"), prepare: withLongRefresh,
			want: want{
				causes: only(explain.WorkQueue), by: "refresh_vm_stats", request: "report", says: "queued by scn-reporter", advice: anyAdvice, // what pins its worker to a busy CPU, or why it takes so long
			},
		},
		{
			name: "req-pool", rule: "track: activity, name: [checkout]", comm: "scn-main",
			want: want{
				causes: only(explain.Task), by: "scn-worker", root: explain.Running, rootBy: "scn-worker", request: "report",
				says: "Through 2 threads, at last scn-worker ", advice: "It is CPU time of scn-worker",
			},
		},
		{
			name: "req-evicted", rule: trackSyscall("pread64"), prepare: shared.withNeighbour,
			want: want{
				causes: only(explain.BlockDevice), by: "loop", request: "report", says: ", for a page that scn-reporter ", evicted: true, advice: diskServer,
			},
		},
		{
			name: "trace-lock", rule: trackOffCPU, prepare: withContexts,
			want: want{causes: only(explain.Locked), by: "scn-holder", advice: "perf record -g"},
		},
		{
			name: "trace-chain", rule: trackOffCPU, prepare: withContexts,
			want: want{causes: only(explain.Task), by: "scn-middle", root: explain.Running, rootBy: "scn-last", advice: "It is CPU time of scn-last"},
		},
	}
}

// withContexts has the daemon know where the threads of the program publish their traces, before
// it begins.
func withContexts(t *testing.T, r *round) {
	waitForPublishers(t, false) // of rounds before
	r.ready = func(t *testing.T, _ int) { waitForPublishers(t, true) }
}

// waitForPublishers waits until the daemon knows that processes publish contexts, or that none do.
func waitForPublishers(t *testing.T, some bool) {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(50 * time.Millisecond) {
		status, err := api.NewClient(os.Getenv("SCENARIO_SOCKET")).Status(t.Context())
		assert.NilError(t, err)
		if (status.Activities.Publishers > 0) == some {
			return
		}
		assert.Assert(t, time.Now().Before(end), "%d processes publish contexts", status.Activities.Publishers)
	}
}

// judgeTrace tells what is wrong with the traces that are named: they are those which the culprit, and
// who is at the end of the path, had published when they let go, and none that they had before or after.
func judgeTrace(tr *truth, r *explain.Result) (wrong []string) {
	if tr.Trace == "" {
		return nil
	}
	if a := r.Blame.Activity; a == nil || a.TraceID != tr.Trace || a.Token != "" || a.Same {
		wrong = append(wrong, fmt.Sprintf("blames %+v, not trace %s", a, tr.Trace))
	}
	says := func(trace string) {
		if says := "(at work on a request, trace " + trace + ", as it woke it)"; !strings.Contains(r.Verdict, says) {
			wrong = append(wrong, fmt.Sprintf("the verdict does not say %q", says))
		}
	}
	says(tr.Trace)
	if tr.Behind != "" {
		says(tr.Behind)
		if !slices.ContainsFunc(r.Path, func(s explain.Step) bool {
			return s.Task.TID == tr.Root && s.Activity != nil && s.Activity.TraceID == tr.Behind
		}) {
			wrong = append(wrong, "no step of the path is of trace "+tr.Behind)
		}
	}
	return wrong
}

// withNeighbour gives the program less memory than its other request reads, and makes the disk slow.
func (s *resources) withNeighbour(t *testing.T, r *round) {
	g := provoke.NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", strconv.Itoa(32<<20))
	s.withFiles(40*time.Millisecond, 0, 0)(t, r)
	r.env = []string{"SCENARIO_CGROUP=" + g.Dir}
}

// withLongRefresh makes the first work item long with which the kernel collects its statistics,
// on the CPU on which the victim is not.
func withLongRefresh(t *testing.T, r *round) {
	f := slowirq.Filter{Arg: slowirq.Any, Struct: "work_struct", Field: "func", Bytes: 8, Value: addressOf(t, "refresh_vm_stats")}
	r.ready = func(t *testing.T, pid int) {
		f.CPU = r.other + 1
		spins("workqueue_execute_start", f, 40*time.Millisecond, false)(t, r)
		r.ready(t, pid)
	}
}

// addressOf is where a function of the kernel is.
func addressOf(t *testing.T, function string) (address uint64) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, linux.ReadSymbols(f, func(s *linux.Symbol) error {
		if string(s.Name) == function {
			address = s.Addr
		}
		return nil
	}))
	assert.Assert(t, address != 0, "this kernel lists no %s", function)
	return address
}

// TestRequestScenarios is the score of those that name a request.
func TestRequestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs into the kernel")
	}
	if testing.Short() {
		t.Skip("takes ten seconds: left out with -short")
	}
	alone(t)
	load := underLoad(t)
	list := requestScenarios(&resources{t: t})
	c := watch(t, rules(list), "--activities-enabled=true")
	t.Setenv("SCENARIO_SOCKET", c.socket)
	rows := scoreAll(t, c, load, list)
	var table bytes.Buffer
	assert.NilError(t, printTable(&table, rows))
	t.Logf("\n%s", &table)
	if *tablePath != "" {
		f, err := os.OpenFile(*tablePath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		assert.NilError(t, err)
		defer f.Close()
		_, err = fmt.Fprintf(f, "\nRequests:\n%s", &table)
		assert.Check(t, err)
	}
}

// judgeRequest tells what is wrong with the request that is blamed: in JSON and in words it is
// that whose token the culprit carried.
func (w *want) judgeRequest(tr *truth, r *explain.Result) (wrong []string) {
	if w.request == "" {
		return nil
	}
	a := r.Blame.Activity
	if w.evicted && r.Blame.Evicted != nil {
		a = r.Blame.Evicted.Activity
		if by := r.Blame.Evicted.By.TID; by != tr.Root {
			wrong = append(wrong, fmt.Sprintf("says that %d evicted it, not %d", by, tr.Root))
		}
	}
	if a == nil {
		return []string{"blames no request, not " + w.request}
	}
	if a.Name != w.request || !strings.HasSuffix(a.Token, "."+tr.Request) || a.Same != w.own {
		wrong = append(wrong, fmt.Sprintf("blames request %+v, not %s, token %s", *a, w.request, tr.Request))
	}
	says := fmt.Sprintf("(at work on request %q, token %s", w.request, a.Token)
	if w.own {
		says = fmt.Sprintf("(at work on the same request %q, token %s", w.request, a.Token)
	}
	if !strings.Contains(r.Verdict, says) {
		wrong = append(wrong, fmt.Sprintf("the verdict does not say %q", says))
	}
	return wrong
}
