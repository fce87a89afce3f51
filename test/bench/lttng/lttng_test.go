// Package lttng compares the recorder with LTTng's kernel tracer, and with the
// kernel's own rings, in a virtual machine: scripts/bench-lttng.sh.
package lttng

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// rounds is how often each recorder is measured, in turn with the others.
const rounds = 7

// recorder records the scheduler's events between start and the function that
// it returns. events is how many it recorded, or -1 where that is not known.
type recorder struct {
	name  string
	start func(t *testing.T) (stop func() (events int))
}

// TestRecorders prints what each recorder adds to hackbench, by event.
func TestRecorders(t *testing.T) {
	sessiond(t)
	recorders := []recorder{
		{"nothing", func(*testing.T) func() int { return func() int { return -1 } }},
		{"tailcam, memory", func(t *testing.T) func() int { return tailcam(t, flight.BackendMmap) }},
		{"tailcam, perf ring", func(t *testing.T) func() int { return tailcam(t, flight.BackendPerf) }},
		{"ftrace's ring", ftrace},
		{"LTTng, overwrite", lttng},
	}
	took := make([][]time.Duration, len(recorders))
	events := 0
	for range rounds {
		for i, r := range recorders {
			stop := r.start(t)
			took[i] = append(took[i], hackbench(t))
			if n := stop(); r.name == "tailcam, memory" {
				events = n
			}
		}
	}
	assert.Assert(t, events != 0, "nothing was recorded")
	base := median(took[0])
	var table strings.Builder
	fmt.Fprintf(&table, "%d events of the scheduler in each run; medians of %d\n", events, rounds)
	for i, r := range recorders {
		added := median(took[i]) - base
		fmt.Fprintf(&table, "%-20s %8.1f ms %+8.1f ms %6d ns an event\n", r.name,
			float64(median(took[i]).Microseconds())/1e3, float64(added.Microseconds())/1e3, added.Nanoseconds()/int64(events))
	}
	t.Log("\n" + table.String())
}

// TestSizes prints how many bytes an event has in the files of each, of one run that both
// record. Events are counted by a reader of both formats.
func TestSizes(t *testing.T) {
	sessiond(t)
	dir := t.TempDir()
	k, r := record(t, flight.BackendMmap, 16<<20)
	files := filepath.Join(dir, "lttng")
	stop := session(t, "sizes", []string{"--output", files}, "--subbuf-size", "1M", "--num-subbuf", "8")
	command(t, "hackbench", "-g", "1", "-l", "100")
	stop()
	_, err := r.Freeze()
	assert.NilError(t, err)
	drained, err := r.Drain()
	assert.NilError(t, err)
	of := map[int]*trace.CPU{}
	var cpus []trace.CPU
	for _, s := range drained.CPUs {
		assert.Equal(t, s.Missing, uint64(0), "CPU %d: the ring is too small for the run", s.CPU)
		if of[s.CPU] == nil {
			of[s.CPU] = &trace.CPU{CPU: s.CPU}
		}
		of[s.CPU].Records = append(of[s.CPU].Records, s.Records...)
	}
	for _, c := range of {
		cpus = append(cpus, *c)
	}
	plain, compressed := filepath.Join(dir, "plain"), filepath.Join(dir, "compressed")
	assert.NilError(t, trace.Write(plain, trace.Trace{CPUs: cpus}))
	assert.NilError(t, trace.Write(compressed, trace.Trace{CPUs: cpus, Compress: true}))
	assert.NilError(t, r.Close())
	assert.NilError(t, k.Close())

	events := map[string]int{}
	for name, dir := range map[string]string{"LTTng": files, "tailcam": plain} {
		events[name] = strings.Count(command(t, "babeltrace2", dir), "\n")
		assert.Assert(t, events[name] > 1000, "%s recorded %d events", name, events[name])
	}
	var table strings.Builder
	for _, f := range []struct{ name, of, dir string }{
		{"LTTng", "LTTng", files}, {"tailcam, compress: none", "tailcam", plain}, {"tailcam", "tailcam", compressed},
	} {
		n := streams(t, f.dir)
		fmt.Fprintf(&table, "%-24s %8d events %9d bytes %6.1f an event\n", f.name, events[f.of], n, float64(n)/float64(events[f.of]))
	}
	t.Log("\n" + table.String())
}

// streams is how many bytes the streams below a directory have, without indexes and metadata.
func streams(t *testing.T, dir string) (n int64) {
	t.Helper()
	assert.NilError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "metadata" || strings.HasSuffix(path, ".idx") {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func hackbench(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	command(t, "hackbench", "-g", "2", "-l", "150")
	return time.Since(start)
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	assert.NilError(t, err, "%s %v: %v\n%s", name, args, err, out)
	return string(out)
}

// ring is the size of one CPU's ring, alike for all.
const ring = 1 << 20

func tailcam(t *testing.T, backend string) (stop func() int) {
	t.Helper()
	k, r := record(t, backend, ring)
	count := func() (n int) {
		for _, c := range k.Recorded() {
			n += int(c.Recorded)
		}
		return n
	}
	before := count()
	return func() int {
		n := count() - before
		assert.NilError(t, k.Close())
		assert.NilError(t, r.Close())
		return n
	}
}

// record has tailcam record the scheduler's events.
func record(t *testing.T, backend string, size int) (*tracker.Tracker, flight.Recorder) {
	t.Helper()
	o := &tracker.Options{Groups: []string{"sched"}, NoHistograms: true}
	if backend == flight.BackendMmap {
		o.Ring = size
	}
	k, err := tracker.New(nil, o)
	assert.NilError(t, err)
	r, err := flight.New(k, backend, size)
	assert.NilError(t, err)
	assert.NilError(t, k.Attach())
	return k, r
}

// scheduler are the events that are recorded, as the kernel names them.
var scheduler = []string{"sched_switch", "sched_waking", "sched_wakeup_new", "sched_migrate_task"}

func ftrace(t *testing.T) (stop func() int) {
	t.Helper()
	const dir = "/sys/kernel/tracing"
	set := func(file, text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0))
	}
	set("buffer_size_kb", fmt.Sprint(ring>>10))
	for _, e := range scheduler {
		set("events/sched/"+e+"/enable", "1")
	}
	set("tracing_on", "1")
	return func() int {
		for _, e := range scheduler {
			set("events/sched/"+e+"/enable", "0")
		}
		return -1
	}
}

// sessiond runs LTTng's daemon, which loads the modules, until the end of the test.
func sessiond(t *testing.T) {
	t.Helper()
	if os.Getenv("TAILCAM_GUEST") != "1" || !exists("/bin/lttng") {
		t.Skip("runs in a virtual machine with LTTng's modules only: scripts/bench-lttng.sh")
	}
	for _, dir := range []string{"/var/run", "/dev/shm"} {
		assert.NilError(t, os.MkdirAll(dir, 0o755))
	}
	var out bytes.Buffer
	cmd := exec.Command("lttng-sessiond", "-v")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	assert.NilError(t, cmd.Start())
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if client("list", "-k").Run() == nil {
			break
		}
		assert.Assert(t, !time.Now().After(end), "lttng-sessiond does not answer:\n%s", out.Bytes())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
}

// client asks the daemon of sessiond, and starts none of its own.
func client(args ...string) *exec.Cmd {
	return exec.Command("lttng", append([]string{"--no-sessiond"}, args...)...)
}

// session has LTTng record the scheduler's events until stop, as its arguments of create and
// enable-channel say.
func session(t *testing.T, name string, create []string, channel ...string) (stop func()) {
	t.Helper()
	do := func(args ...string) {
		t.Helper()
		out, err := client(args...).CombinedOutput()
		assert.NilError(t, err, "lttng %v: %s", args, out)
	}
	do(append([]string{"create", name}, create...)...)
	do(append([]string{"enable-channel", "-k", "ring"}, channel...)...)
	do("enable-event", "-k", strings.Join(scheduler, ","), "-c", "ring")
	do("start")
	return func() {
		do("stop")
		do("destroy", name)
	}
}

func lttng(t *testing.T) (stop func() int) {
	t.Helper()
	end := session(t, "bench", []string{"--snapshot", "--output", "/tmp/lttng"}, "--overwrite", "--subbuf-size", "256K", "--num-subbuf", "4")
	return func() int {
		end()
		return -1
	}
}
