package accounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// again repeats what a busy machine may spoil until nothing is wrong, some times.
func again(t *testing.T, measure func() (wrong string)) {
	t.Helper()
	wrong := "not measured"
	for n := 0; wrong != "" && n < 10; n++ {
		if wrong = measure(); wrong != "" {
			t.Log(wrong)
		}
	}
	assert.Equal(t, wrong, "")
}

// within says whether a value is what it should be, within some percent or 50 µs.
func within(got, want, percent uint64) bool {
	return max(got, want)-min(got, want) <= max(want*percent/100, 50_000)
}

// inGroup has the calling thread, or its process in version 2 and for memory, in a group while do runs.
func inGroup(t *testing.T, g *provoke.Cgroup, controller string, do func()) {
	t.Helper()
	own, err := os.ReadFile("/proc/thread-self/cgroup")
	assert.NilError(t, err)
	root, file, who := filepath.Dir(g.Dir), "tasks", unix.Gettid()
	if g.V2 || controller == "memory" {
		file, who = "cgroup.procs", os.Getpid()
	}
	before := root
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if f[1] == controller || g.V2 && f[1] == "" {
			before = filepath.Join(root, f[2])
		}
	}
	move := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(who)), 0o644)
	}
	assert.NilError(t, move(g.Dir))
	do()
	assert.NilError(t, move(before))
}

// throttled is for how long a group has been, by its own account.
func throttled(t *testing.T, g *provoke.Cgroup) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.Dir, "cpu.stat"))
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		var n uint64
		if _, err := fmt.Sscanf(line, "throttled_usec %d", &n); err == nil {
			return n * 1000
		}
		if _, err := fmt.Sscanf(line, "throttled_time %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("%s/cpu.stat has %q", g.Dir, text)
	return 0
}

// TestThrottled: a thread whose group has used up its quota waits for a CPU, throttled, for as
// long as its group says.
func TestThrottled(t *testing.T) {
	p := openGroups(t)
	g := provoke.NewCgroup(t, "cpu")
	provoke.Quota(t, g, 50*time.Millisecond)
	again(t, func() string {
		mine, near := p.token(), p.token()
		var counted uint64
		p.carryAll(work{mine, func() {
			inGroup(t, g, "cpu", func() {
				counted = throttled(t, g)
				spin(50 * time.Millisecond)
				counted = throttled(t, g) - counted
			})
		}}, work{near, func() { spin(20 * time.Millisecond) }})
		if n := p.value(near, abi.ActivityRunnableThrottledNs); n > 0 && !g.V2 {
			return fmt.Sprintf("the neighbour: %d", n)
		}
		if got := p.value(mine, abi.ActivityRunnableThrottledNs); counted == 0 || !within(got, counted, 5) {
			return fmt.Sprintf("%d, its group says %d", got, counted)
		}
		return ""
	})
}

// parts says what is wrong with an account of which all blocked time should be of one cause.
func (p *process) parts(token uint32, cause int, least, took uint64) string {
	of, all := p.value(token, cause), p.value(token, abi.ActivityBlockedNs)
	known := all + p.value(token, abi.ActivityCpuNs) + p.value(token, abi.ActivityRunnableNs)
	switch {
	case !within(of, all, 1):
		return fmt.Sprintf("%s: %d of %d blocked", values[cause].Name, of, all)
	case of+p.value(token, abi.ActivityRunnableNs) < least || of > took:
		return fmt.Sprintf("%s: %d, between %d and %d", values[cause].Name, of, least, took)
	case !within(known, took, 5): // some machines keep switches from every tracer
		return fmt.Sprintf("%d known of %d", known, took)
	}
	return ""
}

// TestColdPages: a page fault that reads from the disk waits for that.
func TestColdPages(t *testing.T) {
	p := openGroups(t, Memory)
	const pages = 256
	page := os.Getpagesize()
	again(t, func() string {
		mine := p.token()
		fd := open(t, newFile(t, pages*page), unix.O_RDONLY)
		file, err := unix.Mmap(fd, 0, pages*page, unix.PROT_READ, unix.MAP_SHARED)
		assert.NilError(t, err)
		assert.NilError(t, unix.Madvise(file, unix.MADV_RANDOM))
		begin, sum := monotonic(), byte(0)
		p.carry(mine, func() {
			for at := 0; at < len(file); at += page {
				sum += file[at]
			}
		})
		took := monotonic() - begin
		assert.Check(t, cmp.Equal(sum, byte(0)))
		assert.NilError(t, unix.Munmap(file))
		if n := p.value(mine, abi.ActivityFaultsMajor); n < pages*98/100 {
			return fmt.Sprintf("%d major faults", n)
		}
		return p.parts(mine, abi.ActivityBlockedDiskNs, 1, took)
	})
}

// include/uapi/linux/userfaultfd.h
const (
	uffdAPI      = 0xc018aa3f
	uffdRegister = 0xc020aa00
	uffdZero     = 0xc020aa04
	uffdUserOnly = 1
)

// TestFaultWait: a thread whose page fault somebody else has to serve is blocked in it.
func TestFaultWait(t *testing.T) {
	p := openGroups(t, Memory)
	page := os.Getpagesize()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserOnly, 0, 0)
	if errno == unix.ENOSYS {
		t.Skip("needs userfaultfd (CONFIG_USERFAULTFD)")
	}
	assert.Equal(t, errno, unix.Errno(0))
	defer unix.Close(int(fd))
	call := func(request uintptr, argument *[4]uint64) {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(argument)))
		assert.Check(t, cmp.Equal(errno, unix.Errno(0)))
	}
	call(uffdAPI, &[4]uint64{0xAA})
	const pause = 20 * time.Millisecond
	again(t, func() string {
		memory := anonymous(t, page)
		at := uint64(uintptr(unsafe.Pointer(&memory[0])))
		call(uffdRegister, &[4]uint64{at, uint64(page), 1})
		mine, near := p.token(), p.token()
		begin := monotonic()
		var took uint64
		p.carryAll(work{mine, func() { memory[0] = 1; took = monotonic() - begin }}, work{near, func() {
			var message [32]byte
			_, err := unix.Read(int(fd), message[:])
			assert.Check(t, err)
			sleep(pause)
			call(uffdZero, &[4]uint64{at, uint64(page)})
		}})
		if n := p.value(near, abi.ActivityBlockedFaultNs); n > 0 {
			return fmt.Sprintf("the neighbour: %d", n)
		}
		return p.parts(mine, abi.ActivityBlockedFaultNs, uint64(pause), took)
	})
}

// TestWorkerWait: who waits for work items of the kernel is blocked by a worker.
func TestWorkerWait(t *testing.T) {
	p := openGroups(t)
	fd := open(t, "/proc/sys/vm/stat_refresh", unix.O_WRONLY) // has each CPU do a work item, and waits
	again(t, func() string {
		mine := p.token()
		begin := monotonic()
		p.carry(mine, func() {
			for range 100 {
				_, err := unix.Pwrite(fd, []byte("1"), 0)
				assert.Check(t, cmp.Nil(err))
			}
		})
		return p.parts(mine, abi.ActivityBlockedWorkNs, 1, monotonic()-begin)
	})
}

// TestReclaimWait: a group that has too little memory for the pages that it writes to waits for
// their writeback, in reclaim.
func TestReclaimWait(t *testing.T) {
	p := openGroups(t)
	g := provoke.NewCgroup(t, "memory")
	if g.V2 {
		t.Skip("needs cgroup v1 with memory: version 2 slows down writers before they reclaim")
	}
	g.Set(t, "memory.limit_in_bytes", "memory.max", strconv.Itoa(8<<20))
	again(t, func() string {
		mine, near := p.token(), p.token()
		fd := open(t, filepath.Join(t.TempDir(), "dirty"), unix.O_RDWR|unix.O_CREAT)
		var took uint64
		p.carryAll(work{mine, func() {
			inGroup(t, g, "memory", func() {
				begin := monotonic()
				write(t, fd, 0, 64*mebibyte)()
				took = monotonic() - begin
			})
		}}, work{near, func() { sleep(time.Millisecond) }})
		p.show("mine", mine)
		got := p.value(mine, abi.ActivityBlockedReclaimNs)
		if n := p.value(near, abi.ActivityBlockedReclaimNs); n > 0 {
			return fmt.Sprintf("the neighbour: %d", n)
		}
		if got == 0 || got > took {
			return fmt.Sprintf("in reclaim %d of %d", got, took)
		}
		return ""
	})
}

// TestWakeups: each wake-up that a thread makes is its own, once.
func TestWakeups(t *testing.T) {
	p := openGroups(t)
	const rounds = 200
	again(t, func() string {
		mine, near := p.token(), p.token()
		var ends [2]int
		assert.NilError(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
		defer unix.Close(ends[0])
		defer unix.Close(ends[1])
		var reader atomic.Int64
		p.carryAll(work{near, func() {
			reader.Store(int64(unix.Gettid()))
			var one [1]byte
			for range rounds {
				_, err := unix.Read(ends[0], one[:])
				assert.Check(t, err)
			}
		}}, work{mine, func() {
			for reader.Load() == 0 {
				sleep(time.Millisecond)
			}
			fd := open(t, fmt.Sprintf("/proc/self/task/%d/stat", reader.Load()), unix.O_RDONLY)
			for range rounds {
				var stat [64]byte
				for left := 1; left > 0 || !strings.Contains(string(stat[:]), ") S "); { // it has read all, and sleeps
					_, err := unix.Pread(fd, stat[:], 0)
					assert.Check(t, err)
					left, err = unix.IoctlGetInt(ends[0], unix.TIOCINQ)
					assert.Check(t, err)
				}
				_, err := unix.Write(ends[1], []byte{1})
				assert.Check(t, err)
			}
		}})
		got, other := p.value(mine, abi.ActivityWakeups), p.value(near, abi.ActivityWakeups)
		if got < rounds-strays || got > rounds+strays || other > strays { // threads of Go also wait for each other
			return fmt.Sprintf("%d wake-ups of %d, and %d by who was woken", got, rounds, other)
		}
		return ""
	})
}

// TestRetransmits: segments that the receiver's side drops are sent again for who sent them.
func TestRetransmits(t *testing.T) {
	p := openGroups(t, Network)
	const size = 16 * mebibyte
	client, server := connection(t)
	sends, receives := p.token(), p.token()
	drop := []unix.SockFilter{ // one segment in twenty
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0xfffff000 + 56}, // SKF_AD_RANDOM
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: 0xffffffff / 20, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	assert.NilError(t, unix.SetsockoptSockFprog(server, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]}))
	p.carryAll(
		work{sends, func() { send(t, client, size) }},
		work{receives, func() { receive(t, server, size) }},
	)
	info, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO)
	assert.NilError(t, err)
	assert.Assert(t, info.Total_retrans > 0, "nothing was lost")
	assert.Check(t, cmp.Equal(p.value(sends, abi.ActivityTcpRetransmits), uint64(info.Total_retrans)))
	assert.Check(t, cmp.Equal(p.value(receives, abi.ActivityTcpRetransmits), uint64(0)))
}
