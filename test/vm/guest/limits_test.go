package guest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// heldEnv has the test program do something again and again that a limit holds up.
const heldEnv = "TAILCAM_TEST_HELD"

// heldComm is what a thread that is held up is called before the name of what holds it.
const heldComm = "held-"

// heldBy are what the threads do. An error ends them.
var heldBy = map[string]func() error{
	"memory":     useMemory,
	"io-max":     readDisk(slowDisk),
	"io-cost":    readDisk(slowDisk),
	"io-latency": readDisk(slowDisk),
	"kept":       readDisk(slowDisk), // whose latency a limit keeps
	"dirty":      writeDisk(slowDisk),
	"cpu-max":    func() error { return nil },
	"loop":       readGivenDisk,
	"linear":     readGivenDisk,
	"crypt":      readGivenDisk,
	"delay":      readGivenDisk,
	"raid1":      writeGivenDisk,
	"raid5":      writeGivenDisk,
}

// held is the program: some threads that do it.
func held(name string) {
	if group := os.Getenv(heldEnv + "_GROUP"); group != "" {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			panic(err)
		}
	}
	var all sync.WaitGroup
	for range map[string]int{"io-latency": 8, "kept": 4}[name] + 1 {
		all.Go(func() {
			runtime.LockOSThread()
			comm := append([]byte(heldComm+name), 0)
			if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0); err != nil {
				panic(err)
			}
			for {
				if err := heldBy[name](); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
			}
		})
	}
	all.Wait()
}

var (
	used []byte
	next int
)

// useMemory uses some more of it.
func useMemory() (err error) {
	const all, page = 256 << 20, 4096
	if used == nil {
		used, err = unix.Mmap(-1, 0, all, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	}
	for end := next + 16*page; err == nil && next < min(end, all); next += page {
		used[next] = 1
	}
	return err
}

// readDisk reads a block past the page cache, each time another one.
func readDisk(disk string) func() error {
	return func() error {
		_, err := readDirect(disk, time.Now().UnixNano()>>10%4096*4096)
		return err
	}
}

// readGivenDisk reads that of the environment.
func readGivenDisk() error { return readDisk(os.Getenv(heldEnv + "_DISK"))() }

// writeGivenDisk writes a block of that of the environment, past the page cache.
func writeGivenDisk() error {
	return direct(os.Getenv(heldEnv+"_DISK"), unix.O_WRONLY, func(fd int, b []byte) (int, error) {
		return unix.Pwrite(fd, b, time.Now().UnixNano()>>10%4096*4096)
	})
}

// writeDisk writes through the page cache.
func writeDisk(disk string) func() error {
	chunk := make([]byte, 64<<10)
	var at int64
	return func() error {
		fd, err := unix.Open(disk, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for err == nil {
			_, err = unix.Pwrite(fd, chunk, at%(512<<20))
			at += int64(len(chunk))
		}
		return err
	}
}

// TestLimits: what a limit of cgroup v2 holds up is explained by it, by what it is set to and its
// cgroup, and advice names what to change.
func TestLimits(t *testing.T) {
	inGuest(t)
	root := provoke.NeedHierarchy(t)
	assert.NilError(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu +memory +io"), 0))
	var disk unix.Stat_t
	assert.NilError(t, unix.Stat(slowDisk, &disk))
	number := fmt.Sprintf("%d:%d", unix.Major(disk.Rdev), unix.Minor(disk.Rdev))
	snaps := watchHeld(t)
	for _, c := range []struct {
		name    string
		files   map[string]string // of its cgroup
		above   map[string]string // of the cgroup above that
		prepare func(t *testing.T)
		cause   explain.Cause
		waits   []string // one of them
		also    string   // another wait that the limits of the case cause, with advice of its own
		limit   string   // that was hit
		outer   bool     // by the cgroup above
		advice  []string
	}{
		{
			name: "memory", files: map[string]string{"memory.high": "16777216"}, cause: explain.Limited, waits: []string{"memory_high"},
			limit: "memory.high 16777216", advice: []string{"Raise memory.high of cgroup ", "(now 16777216)"},
		},
		{
			name: "io-max", files: map[string]string{"io.max": number + " riops=5"}, cause: explain.Limited, waits: []string{"io_max"},
			limit: "io.max " + number + " riops=5", advice: []string{"Raise io.max of cgroup ", "(now " + number + " riops=5)"},
		},
		{
			name: "io-cost", files: map[string]string{"io.weight": "50"}, cause: explain.Limited, waits: []string{"io_delay"},
			limit: "io.weight 50", advice: []string{"Raise io.weight of cgroup ", "(now 50)", "relax io.cost.qos (now " + number + " enable=1"},
			prepare: func(t *testing.T) { shareDisk(t, root, number) },
		},
		{
			name: "io-latency", cause: explain.BlockQueue, waits: []string{"io_latency"},
			advice:  []string{"check io.latency of the cgroups that use nullb0 (now " + number + " target=1000 of /kept)"},
			prepare: func(t *testing.T) { keepLatency(t, root, number) },
		},
		{
			name: "dirty", files: map[string]string{"memory.max": "67108864", "io.max": number + " wbps=4194304"}, cause: explain.Limited,
			waits: []string{"dirty_pages"}, also: "io_max", advice: []string{"vm.dirty_ratio (now ", "(memory.max now 67108864) the same share may be dirty"},
		},
		{
			name: "cpu-max", files: map[string]string{"cpu.max": "60000 100000"}, above: map[string]string{"cpu.max": "10000 100000"},
			cause: explain.Throttled, limit: "cpu.max 10000 100000", outer: true, advice: []string{"Raise cpu.max of cgroup ", "(now 10000 100000)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.prepare != nil {
				c.prepare(t)
			}
			outer := newGroup(t, filepath.Join(root, "outer-"+c.name), c.above)
			assert.NilError(t, os.WriteFile(filepath.Join(outer, "cgroup.subtree_control"), []byte("+cpu +memory +io"), 0))
			inner := newGroup(t, filepath.Join(outer, c.name), c.files)
			startHeld(t, c.name, inner)
			r := worst(t, snaps, c.name, func(r *explain.Result) bool { // values are left out where the emulator is slow
				if c.limit != "" {
					return r.Blame.By != nil && r.Blame.By.Limit != ""
				}
				return c.waits == nil || r.Blame.Cause != c.cause || strings.Contains(r.Advice, "(now ")
			})
			t.Logf("%s\nadvice: %s", r.Verdict, r.Advice)
			if c.also != "" && r.Blame.Cause == c.cause && r.Blame.Wait == c.also {
				return
			}
			assert.Check(t, r.Blame.Cause == c.cause && (c.waits == nil || slices.Contains(c.waits, r.Blame.Wait)),
				"blames %s %s", r.Blame.Cause, r.Blame.Wait)
			if c.limit != "" {
				at := strings.TrimPrefix(inner, root)
				if c.outer {
					at = filepath.Dir(at)
				}
				assert.Assert(t, r.Blame.By != nil)
				assert.Check(t, r.Blame.By.Cgroup == at && r.Blame.By.Limit == c.limit, "%+v", r.Blame.By)
				assert.Check(t, strings.Contains(r.Verdict, "cgroup "+at+" ("+c.limit+")"), "%s", r.Verdict)
			}
			for _, want := range c.advice {
				assert.Check(t, strings.Contains(r.Advice, want), "lacks %q", want)
			}
		})
	}
}

// TestDiskOnDisk: a read of a disk that is a file is followed to the disk below it, whether the
// driver waits for that or not.
func TestDiskOnDisk(t *testing.T) {
	inGuest(t)
	snaps := watchHeld(t)
	for how, flags := range map[string]int{"waits": os.O_RDWR, "hands on": os.O_RDWR | unix.O_DIRECT} {
		t.Run(how, func(t *testing.T) {
			device, err := inject.AttachLoop(slowDisk, flags)
			assert.NilError(t, err)
			defer device.Close()
			startHeld(t, "loop", "", heldEnv+"_DISK="+device.Name())
			r := worst(t, snaps, "loop", func(r *explain.Result) bool { // else most of it is the emulator's
				return len(r.Chain) == 0 || 2*r.Chain[len(r.Chain)-1].NS > r.DelayNS
			})
			t.Logf("%s\nadvice: %s", r.Verdict, r.Advice)
			assert.Check(t, r.Blame.Cause == explain.BlockDevice && r.Blame.By.Name == filepath.Base(device.Name()), "%+v", r.Blame)
			assert.Assert(t, len(r.Chain) > 0, "nothing is followed")
			last := &r.Chain[len(r.Chain)-1]
			assert.Check(t, last.Cause == explain.BlockDevice && last.By.Name == filepath.Base(slowDisk) && last.Confidence == explain.Inferred, "%+v", last)
			assert.Check(t, strings.Contains(r.Advice, filepath.Base(slowDisk)+" itself took that long"))
		})
	}
}

// shareDisk has a disk shared out by io.cost, which takes it for one that does five requests a second.
func shareDisk(t *testing.T, root, number string) {
	t.Helper()
	qos, model := filepath.Join(root, "io.cost.qos"), filepath.Join(root, "io.cost.model")
	assert.Assert(t, !missing(qos), "this kernel has no io.cost")
	set := func(file, value string) { assert.NilError(t, os.WriteFile(file, []byte(number+" "+value), 0)) }
	set(model, "ctrl=user model=linear rbps=1048576 rseqiops=5 rrandiops=5 wbps=1048576 wseqiops=5 wrandiops=5")
	set(qos, "enable=1 ctrl=user rpct=0 rlat=0 wpct=0 wlat=0 min=100.00 max=100.00")
	t.Cleanup(func() { assert.Check(t, os.WriteFile(qos, []byte(number+" enable=0"), 0)) })
}

// keepLatency has a cgroup use the disk that wants shorter latencies than that has.
func keepLatency(t *testing.T, root, number string) {
	t.Helper()
	group := newGroup(t, filepath.Join(root, "kept"), nil)
	file := filepath.Join(group, "io.latency")
	if missing(file) {
		t.Skip("this kernel has no io.latency")
	}
	assert.NilError(t, os.WriteFile(file, []byte(number+" target=1000"), 0))
	startHeld(t, "kept", group)
}

// newGroup makes a cgroup, which goes with the test.
func newGroup(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	for name, value := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0), "%s", name)
	}
	return dir
}

// startHeld starts threads in a cgroup; "": in that of the test.
func startHeld(t *testing.T, name, group string, env ...string) {
	t.Helper()
	startChild(t, nil, append(env, heldEnv+"="+name, heldEnv+"_GROUP="+group)...)
}

// startChild starts the test program in a role that its environment says.
func startChild(t *testing.T, stdin *os.File, env ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	if cmd.Stderr = os.Stderr; stdin != nil {
		cmd.Stdin = stdin
	}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		assert.Check(t, cmd.Process.Kill())
		cmd.Wait() // killed
	})
}

// watchHeld starts a daemon that takes a snapshot of each latency of threads that are held up.
func watchHeld(t *testing.T) (snaps string) {
	t.Helper()
	rule := func(name, track, least, comm string) string {
		return fmt.Sprintf("{name: %s, track: %s, threshold: %s, when: {comm: [%q]}, snapshot: {before: 300ms, after: 20ms, every: 1ms, burst: 4}}",
			name, track, least, comm)
	}
	rules := []string{
		rule("blocked", "offcpu", "60ms", heldComm+"*"), rule("ready", "wakeup", "60ms", heldComm+"cpu*"),
		rule("disk", "offcpu", "15ms", heldComm+"loop"), rule("linear", "offcpu", "15ms", heldComm+"linear"),
		rule("crypt", "offcpu", "15ms", heldComm+"crypt"), rule("raid", "offcpu", "15ms", heldComm+"raid?"),
	}
	return startDaemon(t, "rules: ["+strings.Join(rules, ", ")+"]", "--budget-softirqs", "off", "--budget-locks", "off", "--recorder-size", "8MiB").snaps
}

// enough is how many latencies of a kind are taken, of which the longest counts: short ones are
// of the emulator.
const enough = 3

// worst waits for latencies of threads that are held up, and returns the explanation of the longest
// of those that fulfil a condition. Interrupts that take that long are of the emulator, and a thread
// that is parked is so by Go's runtime.
func worst(t *testing.T, snaps, name string, is func(*explain.Result) bool) *explain.Result {
	t.Helper()
	seen := map[string]bool{}
	var all []explain.Result
	for end := time.Now().Add(5 * time.Minute); len(all) < enough; time.Sleep(500 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "%d latencies of %s", len(all), name)
		files, err := filepath.Glob(filepath.Join(snaps, "[0-9]*", snapshot.ExplainJSONFile))
		assert.NilError(t, err)
		for _, f := range files {
			body, err := os.ReadFile(f)
			if err != nil || seen[f] {
				continue // it has been removed meanwhile
			}
			var report explain.Report
			assert.NilError(t, json.Unmarshal(body, &report), "%s", f)
			seen[f] = true
			all = append(all, slices.DeleteFunc(report.Outliers, func(r explain.Result) bool {
				emulated := r.Blame.Cause == explain.IRQ || r.Blame.Cause == explain.Softirq
				return r.Task.Comm != heldComm+name || emulated || r.Blame.Wait == "parked" || !is(&r)
			})...)
		}
	}
	r := slices.MaxFunc(all, func(a, b explain.Result) int { return cmp.Compare(a.DelayNS, b.DelayNS) })
	return &r
}
