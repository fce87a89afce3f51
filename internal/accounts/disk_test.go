package accounts

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// iopsLimit limits the reads of this process's thread from the disk of a directory.
func iopsLimit(t *testing.T, dir string, each time.Duration) *provoke.Cgroup {
	t.Helper()
	var st unix.Stat_t
	assert.NilError(t, unix.Stat(dir, &st))
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if unix.Major(st.Dev) == 0 {
		t.Skipf("needs a disk below %s", dir)
	}
	if _, err := os.Stat("/sys/dev/block/" + device + "/partition"); err == nil { // limits are of whole disks
		whole, err := os.ReadFile("/sys/dev/block/" + device + "/../dev")
		assert.NilError(t, err)
		device = strings.TrimSpace(string(whole))
	}
	controller := provoke.IOController()
	g := provoke.NewCgroup(t, controller)
	iops := int(time.Second / each)
	if g.V2 {
		g.Set(t, "", "io.max", fmt.Sprintf("%s riops=%d", device, iops))
	} else {
		g.Set(t, "blkio.throttle.read_iops_device", "", fmt.Sprintf("%s %d", device, iops))
	}
	return g
}

// TestThrottledDisk: a thread whose group may not read faster is blocked on the disk for as long.
func TestThrottledDisk(t *testing.T) {
	p := openGroups(t)
	const reads, each = 20, 10 * time.Millisecond
	dir := t.TempDir()
	path := newFile(t, reads*64<<10)
	g := iopsLimit(t, dir, each)
	fd := open(t, path, unix.O_RDONLY|unix.O_DIRECT)
	again(t, func() string {
		mine := p.token()
		begin := monotonic()
		p.carry(mine, func() { inGroup(t, g, provoke.IOController(), reader(t, fd, reads*64<<10, 64<<10)) })
		took := monotonic() - begin
		p.show("mine", mine)
		// A slice of the throttle lets some go at once.
		if disk := p.value(mine, abi.ActivityBlockedDiskNs); disk < uint64(reads*each/2) || disk > took {
			return fmt.Sprintf("on disk %d of %d", disk, took)
		}
		return ""
	})
}

// loopDisk makes a disk of a file, to which at most four requests go at a time.
func loopDisk(t *testing.T, size int) (device string, file int) {
	t.Helper()
	control := open(t, "/dev/loop-control", unix.O_RDWR)
	number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	assert.NilError(t, err)
	device, file = fmt.Sprintf("/dev/loop%d", number), open(t, newFile(t, size), unix.O_RDWR)
	config := unix.LoopConfig{
		Fd:   uint32(file),
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}, // it goes when it is closed
	}
	assert.NilError(t, unix.IoctlLoopConfigure(open(t, device, unix.O_RDWR), &config))
	queue := fmt.Sprintf("/sys/block/loop%d/queue/", number)
	before := map[string][]byte{}
	for _, set := range [][2]string{{"scheduler", "none"}, {"nr_requests", "4"}} {
		before[set[0]], err = os.ReadFile(queue + set[0])
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(queue+set[0], []byte(set[1]), 0o644))
	}
	t.Cleanup(func() { assert.Check(t, os.WriteFile(queue+"nr_requests", before["nr_requests"], 0o644)) })
	return device, file
}

// TestQueue: requests of many threads to a disk that takes few at a time wait before they are
// issued; that, and their time in the device, are what each thread has waited.
func TestQueue(t *testing.T) {
	p := openGroups(t, Block)
	const threads, reads, part = 16, 16, mebibyte / 4
	disk, file := loopDisk(t, threads*reads*part)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * threads)) // none waits for Go's scheduler after a read
	again(t, func() string {
		assert.NilError(t, unix.Fadvise(file, 0, 0, unix.FADV_DONTNEED)) // the disk of the file is slow
		var list []work
		var took [threads]uint64
		for i := range threads {
			fd := open(t, disk, unix.O_RDONLY|unix.O_DIRECT)
			data := aligned(part)
			list = append(list, work{p.token(), func() {
				for n := range reads {
					begin := monotonic()
					_, err := unix.Pread(fd, data, int64((i*reads+n)*part))
					took[i] += monotonic() - begin
					assert.Check(t, cmp.Nil(err))
				}
			}})
		}
		p.carryAll(list...)
		var queues, devices uint64
		for i, w := range list {
			queue, device := p.value(w.token, abi.ActivityBlockQueueNs), p.value(w.token, abi.ActivityBlockDeviceNs)
			if queue+device > took[i] || (queue+device)*2 < took[i] {
				return fmt.Sprintf("thread %d: in the queue %d, in the device %d, of %d", i, queue, device, took[i])
			}
			queues, devices = queues+queue, devices+device
		}
		t.Logf("in the queue %d, in the device %d", queues, devices)
		if queues < devices {
			return fmt.Sprintf("in the queue %d, in the device %d", queues, devices)
		}
		return ""
	})
}
