package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// lttngReports are what is asked of lttng-analyses.
var lttngReports = []string{
	"schedlog", "schedtop", "schedstats", "cputop", "irqlog", "irqstats", "iolog", "iolatencystats", "iousagetop",
}

// TestAgreesWithLTTngAnalyses: lttng-analyses takes a snapshot for a trace of
// LTTng, and reports of it what our own reader finds, number for number.
func TestAgreesWithLTTngAnalyses(t *testing.T) {
	needRoot(t)
	needTool(t, "lttng-schedlog-mi", "python3-lttnganalyses python3-babeltrace babeltrace")
	d, m, written := busySnapshot(t)
	dir := plainTrace(t, filepath.Join(d.snaps, m.ID))
	reports := analyse(t, dir, lttngReports...)
	log := rowsOf(reports["schedlog"], "log")
	assert.Assert(t, len(log) != 0, "lttng-schedlog finds no wake-up")
	span := reports["schedlog"][0].Range
	model := modelTrace(t, dir, span.Begin.number(t), span.End.number(t))
	assert.Check(t, model.dumped == model.begin,
		"the analysis begins at %d, the state dump is at %d", model.begin, model.dumped)

	var got []schedWait
	for _, r := range log {
		w := schedWait{wakeup: r[0].number(t), run: r[1].number(t), prio: int(int64(r[3].number(t))), cpu: *r[4].ID, tid: r[5].TID}
		if r[6] != nil {
			w.waker = r[6].TID
		}
		got = append(got, w)
	}
	doubted := func(w schedWait) bool { return model.unclear[w.tid] }
	all := len(model.waits)
	model.waits, got = slices.DeleteFunc(model.waits, doubted), slices.DeleteFunc(got, doubted)
	t.Logf("%d of %d wake-ups are of tasks %v, of which two CPUs tell at once", all-len(model.waits), all, slices.Sorted(maps.Keys(model.unclear)))
	same(t, "schedlog", model.waits, got, func(a, b schedWait) int { return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.tid, b.tid)) })
	holdOutlier(t, m, got)
	holdSchedStats(t, model, reports)
	holdCPU(t, model, reports["cputop"])
	holdIRQ(t, "irq", model.irqs, reports["irqlog"], reports["irqstats"], "hard-stats")
	holdIO(t, model, reports)
	assert.Check(t, slices.ContainsFunc(rowsOf(reports["iolog"], "log"), func(r []*miCell) bool {
		return r[3].Name == "write" && r[6] != nil && r[6].Path == written
	}), "lttng-iolog does not know that %s is written", written)

	// It knows softirqs by the names that LTTng gave them up to 2.6 only, so
	// LTTng's own traces of today have none for it. With those names:
	old := filepath.Join(t.TempDir(), "kernel")
	assert.NilError(t, os.CopyFS(old, os.DirFS(filepath.Join(dir, "kernel"))))
	text := readText(t, old, "metadata")
	assert.NilError(t, os.WriteFile(filepath.Join(old, "metadata"), []byte(strings.ReplaceAll(text, `"irq_softirq_`, `"softirq_`)), 0o600))
	softs := analyse(t, old, "irqlog", "irqstats")
	for _, tables := range softs {
		for i := range tables {
			tables[i].Data = slices.DeleteFunc(tables[i].Data, func(r []*miCell) bool {
				return slices.ContainsFunc(r, func(c *miCell) bool { return c != nil && c.Class == "irq" && c.Hard })
			})
		}
	}
	holdIRQ(t, "softirq", model.softs, softs["irqlog"], softs["irqstats"], "soft-stats")
}

// busySnapshot takes the snapshot of an injected outlier, on a machine that
// also writes to its disk and calls the kernel. Each interrupt has its events, to
// compare them: most handlers are shorter than the default recorder.irq_floor.
func busySnapshot(t *testing.T) (d *running, m *snapshot.Meta, written string) {
	t.Helper()
	uid := newUID()
	d = start(t, rulesFile(entry("late", "wakeup", "10ms", "{uid: "+strconv.Itoa(uid)+", comm: inj-wakeup}",
		"snapshot: {before: 20ms, after: 10ms, every: 1ms}")),
		"--recorder-size", "8MiB", "--recorder-events", "sched,irq,timer,block,workqueue,process,syscall",
		"--recorder-irq-floor", "0s")
	written = filepath.Join(t.TempDir(), "file")
	write := exec.Command("dd", "if=/dev/zero", "of="+written, "bs=4096", "count=100000", "oflag=dsync")
	assert.NilError(t, child.Start(write))
	defer func() {
		write.Process.Kill() // it may have ended
		write.Wait()         // killed
	}()
	for range 10 {
		time.Sleep(300 * time.Millisecond) // history to keep
		truth := provoke(t, uid, "wakeup", "1", "30000", "0", "1", "1")[0]
		if truth.Kind != inject.Over {
			t.Logf("the injector was disturbed: %+v", truth)
			continue
		}
		m, o, trace := frozen(t, d, truth)
		// An analysis is cut down to the time of which all CPUs have their history.
		whole := snapshot.Gap{ToMonoNS: m.Window.ToMonoNS}
		for _, c := range m.Coverage {
			whole.FromMonoNS, whole.ToMonoNS = max(whole.FromMonoNS, c.FromMonoNS), min(whole.ToMonoNS, c.ToMonoNS)
		}
		has := func(name string, tid int) bool {
			n := 0 // the first ones may have begun before
			for i := range trace {
				e := &trace[i]
				if e.name == name && (tid == 0 || e.tid == tid) && e.time > whole.FromMonoNS && e.time < whole.ToMonoNS {
					n++
				}
			}
			return n > 4
		}
		if whole.FromMonoNS < o.StartMono && whole.ToMonoNS >= o.EndMono &&
			has("irq_handler_exit", 0) && has("block_rq_complete", 0) && has("syscall_exit_write", write.Process.Pid) {
			return d, m, written
		}
		t.Logf("not this one: %d events, %q", len(trace), m.Notes)
	}
	t.Fatal("no snapshot with its whole history: the injector was disturbed, the disk did nothing, or the machine is too busy")
	return nil, nil, ""
}

// holdOutlier: what tailcam's kernel side measured is in the log.
func holdOutlier(t *testing.T, m *snapshot.Meta, log []schedWait) {
	t.Helper()
	for _, o := range m.Outliers {
		wall := func(mono uint64) uint64 { return mono + uint64(m.Window.WallMinusMono) }
		if !slices.ContainsFunc(log, func(w schedWait) bool {
			return w.tid == o.Task.TID && w.wakeup == wall(o.StartMono) && w.run-w.wakeup == uint64(o.DelayNS) && w.cpu == o.CPU
		}) {
			t.Errorf("lttng-schedlog does not have the outlier %s", brief(&o))
		}
	}
}

func brief(o *events.Outlier) string {
	return fmt.Sprintf("of task %d from %d for %d ns on CPU %d", o.Task.TID, o.StartMono, o.DelayNS, o.CPU)
}

func holdSchedStats(t *testing.T, model *lttngModel, reports map[string][]miTable) {
	t.Helper()
	byTask := map[int][]uint64{}
	var all []uint64
	for _, w := range model.waits {
		byTask[w.tid] = append(byTask[w.tid], w.run-w.wakeup)
		all = append(all, w.run-w.wakeup)
	}
	unclear := func(at int) func([]*miCell) bool {
		return func(r []*miCell) bool { return model.unclear[r[at].TID] }
	}
	rows := slices.DeleteFunc(rowsOf(reports["schedstats"], "per_tid_stats"), unclear(0))
	assert.Check(t, len(rows) == len(byTask), "lttng-schedstats has %d tasks, want %d", len(rows), len(byTask))
	for _, r := range rows {
		holdStats(t, fmt.Sprintf("lttng-schedstats, task %d", r[0].TID), byTask[r[0].TID], r[1:])
	}
	slices.Sort(all)
	slices.Reverse(all)
	var top []uint64
	for _, r := range slices.DeleteFunc(rowsOf(reports["schedtop"], "top"), unclear(5)) {
		top = append(top, r[2].number(t))
	}
	diff := gocmp.Diff(all[:len(top)], top)
	assert.Check(t, diff == "" && len(top) != 0, "lttng-schedtop (-want +got):\n%s", diff)
}

// holdStats compares a row's count, minimum, average and maximum.
func holdStats(t *testing.T, what string, want []uint64, row []*miCell) {
	t.Helper()
	if len(want) == 0 || row[0].number(t) != uint64(len(want)) {
		t.Errorf("%s: %s of them, want %d", what, row[0].Value, len(want))
		return
	}
	var sum uint64
	for _, v := range want {
		sum += v
	}
	if row[1].number(t) != slices.Min(want) || row[3].number(t) != slices.Max(want) || !near(row[2].ratio(t), float64(sum)/float64(len(want))) {
		t.Errorf("%s: %s, %s, %s; want %d, %g, %d", what, row[1].Value, row[2].Value, row[3].Value,
			slices.Min(want), float64(sum)/float64(len(want)), slices.Max(want))
	}
}

func holdCPU(t *testing.T, model *lttngModel, tables []miTable) {
	t.Helper()
	total := float64(model.end - model.begin)
	for class, want := range map[string]map[int]uint64{"per-cpu": model.cpuTime, "per-process": model.taskTime} {
		rows := rowsOf(tables, class)
		assert.Check(t, len(rows) == len(want) && len(rows) != 0,
			"lttng-cputop %s has %d rows, want %d", class, len(rows), len(want))
		for _, r := range rows {
			id := r[0].TID
			if r[0].ID != nil {
				id = *r[0].ID
			}
			got := r[len(r)-1].ratio(t)
			assert.Check(t, near(got, float64(want[id])/total),
				"lttng-cputop %s %d: %g, want %d of %g ns", class, id, got, want[id], total)
		}
	}
}

func holdIRQ(t *testing.T, what string, want []irqRun, log, stats []miTable, class string) {
	t.Helper()
	var got []irqRun
	for _, r := range rowsOf(log, "log") {
		got = append(got, irqRun{r[0].Begin.number(t), r[0].End.number(t), *r[2].ID, r[3].Nr})
	}
	same(t, what, want, got, func(a, b irqRun) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.cpu, b.cpu)) })
	lengths := map[int][]uint64{}
	for _, run := range want {
		lengths[run.number] = append(lengths[run.number], run.end-run.begin)
	}
	rows := rowsOf(stats, class)
	assert.Check(t, len(rows) == len(lengths) && len(rows) != 0,
		"lttng-irqstats has %d %ss, want %d", len(rows), what, len(lengths))
	for _, r := range rows {
		holdStats(t, fmt.Sprintf("lttng-irqstats, %s %d", what, r[0].Nr), lengths[r[0].Nr], r[1:])
	}
}

func holdIO(t *testing.T, model *lttngModel, reports map[string][]miTable) {
	t.Helper()
	var got []ioCall
	for _, r := range rowsOf(reports["iolog"], "log") {
		c := ioCall{begin: r[0].Begin.number(t), end: r[0].End.number(t), name: r[3].Name, tid: r[5].TID, size: -1, fd: -1}
		if r[4] != nil {
			c.size = int64(r[4].number(t))
		}
		if r[7] != nil {
			c.fd = int64(r[7].FD)
		}
		got = append(got, c)
	}
	same(t, "iolog", model.io, got, func(a, b ioCall) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.tid, b.tid)) })

	byKind := map[string][]uint64{}
	for _, c := range model.io {
		kind := ioCalls[strings.TrimSuffix(c.name, "64")]
		if kind == "" {
			kind = ioCalls[c.name]
		}
		if kind == "Both" {
			byKind["Read"], byKind["Write"] = append(byKind["Read"], c.end-c.begin), append(byKind["Write"], c.end-c.begin)
			continue
		}
		byKind[kind] = append(byKind[kind], c.end-c.begin)
	}
	for _, r := range rowsOf(reports["iolatencystats"], "syscall-latency-stats") {
		if kind := r[0].text(t); len(byKind[kind]) > 0 || r[1].number(t) > 0 {
			holdStats(t, "lttng-iolatencystats, "+kind, byKind[kind], r[1:])
		}
	}
	rows := rowsOf(reports["iolatencystats"], "disk-latency-stats")
	assert.Check(t, len(rows) == len(model.disks) && len(rows) != 0,
		"lttng-iolatencystats has %d disks, want %v", len(rows), slices.Collect(maps.Keys(model.disks)))
	for _, r := range rows {
		holdStats(t, "lttng-iolatencystats, disk "+r[0].Name, model.disks[r[0].Name], r[1:])
	}
	for _, r := range rowsOf(reports["iousagetop"], "per-disk-top-sector") {
		if want := model.bytes[r[0].Name] / 512; r[1].number(t) != want {
			t.Errorf("lttng-iousagetop: %s sectors of %s, want %d", r[1].Value, r[0].Name, want)
		}
	}
	var read uint64
	for _, r := range rowsOf(reports["iousagetop"], "Per-process top I/O operations [read]") {
		read += r[1].number(t)
		if want := model.readBy[r[0].TID]; r[1].number(t) != want {
			t.Errorf("lttng-iousagetop: task %d read %s bytes, want %d", r[0].TID, r[1].Value, want)
		}
	}
	assert.Check(t, read != 0, "lttng-iousagetop finds that nobody read")
}

// same compares two lists, whatever the order of what happened at once.
func same[T comparable](t *testing.T, what string, want, got []T, order func(a, b T) int) {
	t.Helper()
	slices.SortFunc(want, order)
	slices.SortFunc(got, order)
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
		for i := range min(len(want), len(got)) {
			if want[i] != got[i] {
				t.Errorf("%s, first difference at %d: %+v, want %+v", what, i, got[i], want[i])
				break
			}
		}
	}
	t.Logf("%s: %d rows", what, len(want))
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }
