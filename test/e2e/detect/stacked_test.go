package detect

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// A disk on a slow disk: a slow request of the upper one is one outlier there,
// of the thread that asked, and one on the lower, of the kernel's worker.
func TestStackedDisks(t *testing.T) {
	needRoot(t)
	lower, err := program.Slow(t.Context())
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, lower.Close())
	})
	upper := loopOver(t, "/dev/"+lower.Device(), os.O_RDONLY)
	c := watch(t, []rules.Rule{
		{Name: "upper", Track: rules.Block, Threshold: threshold, When: rules.Match{Device: []string{upper}}},
		{Name: "lower", Track: rules.Block, Threshold: threshold, When: rules.Match{Device: []string{lower.Device()}}},
		{Name: "both", Track: rules.Block, Threshold: threshold, When: rules.Match{Device: []string{"loop*"}, Op: []rules.Op{rules.Read}}},
		lastRequest(threshold, rules.Match{}),
		neverSlow,
	}, &tracker.Options{TrackSelf: true})
	fd := direct(t, "/dev/"+upper, unix.O_RDONLY)
	buf := aligned(t, 4096)

	// While the lower disk is busy with a slow read, the upper one has to wait for it.
	const sector = 1 << 16 // read ahead of by no one
	slow := 0
	for try := range uint64(20) {
		before := len(c.settle())
		truths := make(chan program.Truth)
		go func() {
			truth, err := lower.Read(t.Context(), 10*threshold)
			assert.Check(t, err)
			truths <- truth
		}()
		time.Sleep(2 * threshold) // it is under way by now; if not, this try is not slow
		at := sector + try*4096
		start := linux.Monotonic()
		n, err := unix.Pread(fd, buf, int64(at)*512)
		assert.Assert(t, err == nil && n == len(buf), "read %d bytes: %v", n, err)
		took := time.Duration(linux.Monotonic() - start)
		truth := <-truths
		if took < 5*threshold {
			continue // the kernel did not make it wait
		}
		slow++
		mine, below, held := 0, 0, 0
		for _, o := range c.since(before) {
			b := o.Block
			switch {
			case o.Rule == "upper":
				mine++
				assert.Check(t, b.Device == upper && b.Sector == at && b.Bytes == 4096 && o.Task.PID == os.Getpid() &&
					o.DelayNS <= int64(took), "upper: %+v of %+v took %d ns, the read %v", *b, o.Task, o.DelayNS, took)
			case o.Rule == "lower" && o.Task.TID == truth.TID:
				held++
				assert.Check(t, b.Device == lower.Device() && b.Sector == truth.Sector,
					"lower: %+v of %+v, held at sector %d", *b, o.Task, truth.Sector)
			case o.Rule == "lower":
				below++
				covers := b.Sector <= at && at+8 <= b.Sector+uint64(b.Bytes)/512
				assert.Check(t, b.Device == lower.Device() && covers && o.Task.Kernel && o.DelayNS <= int64(took),
					"lower: %+v of %+v took %d ns, the read of sector %d %v", *b, o.Task, o.DelayNS, at, took)
			}
		}
		most := max(mine, below, held)
		assert.Check(t, (mine+below+held == 3 || c.unseen() != 0) && most <= 1,
			"reported %d of the upper disk, %d and %d of the lower, want one each", mine, below, held)
		if slow == 5 {
			break
		}
	}
	assert.Check(t, slow != 0, "the upper disk never had to wait for the lower")
	reported := map[string]int{}
	for _, o := range c.settle() {
		reported[o.Rule]++
	}
	t.Logf("%d slow reads, reported: %v", slow, reported)
	assert.Check(t, reported["both"] == reported["upper"]+reported["lower"],
		"reported %v: a rule on both disks is told of other requests", reported)
	c.noRequestsLeft()
}

// A read past the end of what is behind a loop device comes back in parts: the
// driver completes what it has, and asks for the rest once more.
func TestBlockPartsOfARequest(t *testing.T) {
	needRoot(t)
	const whole, left = 1 << 20, 6144
	path := filepath.Join(t.TempDir(), "short")
	assert.NilError(t, os.WriteFile(path, make([]byte, whole), 0o600))
	disk := loopOver(t, path, os.O_RDWR)
	c := watch(t, []rules.Rule{{
		Name: "all", Track: rules.Block, Threshold: time.Nanosecond, When: rules.Match{Device: []string{disk}},
	}, lastRequest(time.Nanosecond, rules.Match{})}, &tracker.Options{TrackSelf: true})
	fd := direct(t, "/dev/"+disk, unix.O_RDONLY)
	buf := aligned(t, 8192)
	read := func() int {
		n, err := unix.Pread(fd, buf, 0)
		t.Logf("read %d bytes, %v", n, err)
		return n
	}
	n := read()
	assert.Assert(t, n == len(buf), "read %d bytes", n)
	before := len(c.settle())
	first := len(only("all", c.settle()))
	assert.NilError(t, os.Truncate(path, left))
	read()
	reports := only("all", c.since(before))
	for _, o := range reports {
		t.Logf("%+v", *o.Block)
		// Told as it was asked for, not as what was left of it in the end.
		assert.Check(t, o.Block.Sector == 0 && o.Block.Bytes == 8192,
			"reported %d bytes of sector %d", o.Block.Bytes, o.Block.Sector)
	}
	assert.Check(t, first == 1 && len(reports) == 1,
		"reported %d and %d requests, want one each", first, len(reports))
	c.noRequestsLeft()
}

// A device-mapper disk hands its requests on: they are reported of the disk below.
func TestDeviceMapper(t *testing.T) {
	needRoot(t)
	dmsetup, err := exec.LookPath("dmsetup")
	if err != nil {
		t.Skip("needs dmsetup (apt install dmsetup)")
	}
	if out, err := exec.Command(dmsetup, "version").CombinedOutput(); err != nil {
		t.Skipf("needs a kernel with the device mapper: %v: %s", err, strings.TrimSpace(string(out)))
	}
	const shift = 64 // sectors
	path := filepath.Join(t.TempDir(), "below")
	assert.NilError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	disk := loopOver(t, path, os.O_RDWR)
	name := "tailcam-detect"
	if out, err := exec.Command(dmsetup, "create", name, "--table", "0 1024 linear /dev/"+disk+" 64").CombinedOutput(); err != nil {
		t.Skipf("needs to make a linear mapping: %v: %s", err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command(dmsetup, "remove", "--retry", name).CombinedOutput()
		assert.Check(t, err, "remove the mapping: %v: %s", err, out)
	})
	c := watch(t, []rules.Rule{{
		Name: "all", Track: rules.Block, Threshold: time.Nanosecond,
		When: rules.Match{Device: []string{disk, "dm-*"}, PID: []uint32{uint32(os.Getpid())}},
	}, lastRequest(time.Nanosecond, rules.Match{})}, &tracker.Options{TrackSelf: true})
	fd := unixOpenOnce(t, "/dev/mapper/"+name)
	defer unix.Close(fd)
	buf := aligned(t, 4096)
	for i := range int64(16) {
		n, err := unix.Pread(fd, buf, i*4096)
		assert.Assert(t, err == nil && n == len(buf), "read %d bytes: %v", n, err)
	}
	reports := only("all", c.settle())
	assert.Check(t, len(reports) == 16, "reported %d of 16 reads", len(reports))
	for i, o := range reports {
		assert.Check(t, o.Block.Device == disk && o.Block.Sector == shift+8*uint64(i) && o.Block.Bytes == 4096,
			"read %d: %+v", i, *o.Block)
	}
}

// unixOpenOnce opens a disk that must be closed before the test's cleanups.
func unixOpenOnce(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	return fd
}
