package accounts

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

const mebibyte = 1 << 20

// work is what filled in does with a token.
type work struct {
	token uint32
	do    func()
}

// carryAll has each work done by a thread of its own that carries its token, all at once, and
// returns how long it took.
func (p *process) carryAll(list ...work) time.Duration {
	begin := time.Now()
	var done sync.WaitGroup
	for _, w := range list {
		done.Go(func() { p.carry(w.token, w.do) })
	}
	done.Wait()
	return time.Since(begin)
}

// nearly asserts that a value is what it should be, within 1 %.
func (p *process) nearly(token uint32, v int, want uint64) {
	p.t.Helper()
	got := p.value(token, v)
	if got*100 < want*99 || got*100 > want*101 {
		p.t.Errorf("%s of token %d: %d, not %d", values[v].Name, token, got, want)
	}
}

// strays is how many pages of this program's own code a thread may need meanwhile, if the
// kernel had dropped them.
const strays = 16

// strays asserts that a value of the page cache is what it should be, but for those.
func (p *process) strays(token uint32, v int, want uint64) {
	p.t.Helper()
	got := p.value(token, v)
	assert.Check(p.t, got >= want && got <= want+strays, "%s of token %d: %d, not %d", values[v].Name, token, got, want)
}

// none asserts that a token has nothing of a group.
func (p *process) none(token uint32, group string) {
	p.t.Helper()
	most := uint64(0)
	if group == PageCache {
		most = strays
	}
	for i := range values {
		if v := &values[i]; v.Group == group && v.index >= abi.ActivitySyscalls {
			assert.Check(p.t, p.value(token, v.index) <= most, "%s of token %d: %d", v.Name, token, p.value(token, v.index))
		}
	}
}

// aligned is memory that starts at a page, as direct I/O wants it.
func aligned(n int) []byte {
	size := os.Getpagesize()
	b := make([]byte, n+size)
	at := -int(uintptr(unsafe.Pointer(&b[0]))) & (size - 1)
	return b[at : at+n]
}

// newFile makes a file of that size, whose pages are on the disk and not in memory.
func newFile(t *testing.T, size int) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	assert.NilError(t, err)
	_, err = f.Write(make([]byte, size))
	assert.NilError(t, err)
	assert.NilError(t, f.Sync())
	assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	assert.NilError(t, f.Close())
	return f.Name()
}

func open(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// reader returns what reads a file in parts of that size.
func reader(t *testing.T, fd, size, part int) func() {
	data := aligned(part)
	return func() {
		for at := 0; at < size; at += part {
			n, err := unix.Pread(fd, data, int64(at))
			assert.Check(t, cmp.Nil(err))
			assert.Check(t, cmp.Equal(n, part))
		}
	}
}

func TestDirectRead(t *testing.T) {
	p := openGroups(t, Block, PageCache)
	const size = 16 * mebibyte
	mine, neighbour := p.token(), p.token()
	fd := open(t, newFile(t, size), unix.O_RDONLY|unix.O_DIRECT)
	near := open(t, newFile(t, size/4), unix.O_RDONLY|unix.O_DIRECT)
	took := p.carryAll(work{mine, reader(t, fd, size, mebibyte)}, work{neighbour, reader(t, near, size/4, 64<<10)})
	p.show("mine", mine)
	assert.Equal(t, p.value(mine, abi.ActivityBlockBytes), uint64(size))
	assert.Equal(t, p.value(neighbour, abi.ActivityBlockBytes), uint64(size/4))
	assert.Check(t, p.value(mine, abi.ActivityBlockRequests) >= size/mebibyte)
	assert.Check(t, cmp.Equal(p.value(neighbour, abi.ActivityBlockRequests), uint64(64)))
	device := p.value(neighbour, abi.ActivityBlockDeviceNs)
	assert.Check(t, device > 0 && device < uint64(took), "%d of %s", device, took)
	p.none(mine, PageCache)
	p.none(0, Block)
}

func TestBufferedRead(t *testing.T) {
	p := openGroups(t, Block, PageCache)
	const size = 16 * mebibyte
	pages := uint64(size / os.Getpagesize())
	for _, part := range []int{mebibyte, 64 << 10, os.Getpagesize()} {
		cold, warm, again, neighbour := p.token(), p.token(), p.token(), p.token()
		fd := open(t, newFile(t, size), unix.O_RDONLY)
		near := open(t, newFile(t, mebibyte), unix.O_RDONLY)
		read := reader(t, fd, size, part)
		p.carryAll(work{cold, read}, work{neighbour, reader(t, near, mebibyte, part)})
		p.carry(warm, read)
		p.carry(again, read)
		p.show("cold", cold)
		assert.Check(t, cmp.Equal(p.value(cold, abi.ActivityBlockBytes), uint64(size)))
		p.strays(cold, abi.ActivityCacheMisses, pages)
		p.strays(cold, abi.ActivityCacheHits, 0)
		assert.Check(t, cmp.Equal(p.value(neighbour, abi.ActivityBlockBytes), uint64(mebibyte)))
		p.none(warm, Block)
		for _, token := range []uint32{warm, again} {
			p.strays(token, abi.ActivityCacheHits, pages)
			p.strays(token, abi.ActivityCacheMisses, 0)
		}
	}
	p.none(0, Block)
}

// write fills a part of a file with zeros, and leaves it dirty.
func write(t *testing.T, fd, from, to int) func() {
	data := make([]byte, 256<<10)
	return func() {
		for at := from; at < to; at += len(data) {
			n, err := unix.Pwrite(fd, data, int64(at))
			assert.Check(t, cmp.Nil(err))
			assert.Check(t, cmp.Equal(n, len(data)))
		}
	}
}

// writeBack has the kernel's own threads write back the file system.
func writeBack(t *testing.T, fd int) {
	t.Helper()
	var at [1]byte
	assert.NilError(t, unix.Syncfs(fd))
	_, err := unix.Pread(fd, at[:], 0)
	assert.NilError(t, err)
}

func TestWriteback(t *testing.T) {
	p := openGroups(t, Block, PageCache)
	const size = 8 * mebibyte
	mine, other := p.token(), p.token()
	alone := open(t, filepath.Join(t.TempDir(), "alone"), unix.O_RDWR|unix.O_CREAT)
	both := open(t, filepath.Join(t.TempDir(), "both"), unix.O_RDWR|unix.O_CREAT)
	unix.Sync()
	p.carry(mine, write(t, alone, 0, size))
	p.none(mine, PageCache)
	p.carry(mine, write(t, both, 0, mebibyte))
	p.carry(other, write(t, both, mebibyte, 2*mebibyte))
	writeBack(t, alone)
	p.show("mine", mine)
	p.show("other", other)
	p.show("process", 0)
	p.nearly(mine, abi.ActivityWritebackBytes, size)
	assert.Check(t, cmp.Equal(p.value(other, abi.ActivityWritebackBytes), uint64(0)))
	assert.Check(t, p.value(0, abi.ActivityWritebackBytes) >= 2*mebibyte)
}

// touch writes to the first byte of each page.
func touch(memory []byte) func() {
	return func() {
		for at := 0; at < len(memory); at += os.Getpagesize() {
			memory[at] = 1
		}
	}
}

func anonymous(t *testing.T, size int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	assert.NilError(t, err)
	assert.NilError(t, unix.Madvise(memory, unix.MADV_NOHUGEPAGE))
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return memory
}

func TestFaults(t *testing.T) {
	p := openGroups(t, Memory, PageCache)
	const pages, few = 8192, 1024
	page := os.Getpagesize()
	mine, neighbour, major, mapped := p.token(), p.token(), p.token(), p.token()
	memory := anonymous(t, pages*page)
	took := p.carryAll(work{mine, touch(memory)}, work{neighbour, touch(anonymous(t, few*page))})
	p.show("mine", mine)
	p.show("neighbour", neighbour)
	p.nearly(mine, abi.ActivityFaultsMinor, pages)
	p.nearly(neighbour, abi.ActivityFaultsMinor, few)
	assert.Check(t, cmp.Equal(p.value(mine, abi.ActivityFaultsMajor), uint64(0)))
	ns := p.value(mine, abi.ActivityFaultNs)
	assert.Check(t, ns > 0 && ns < uint64(took), "%d of %s", ns, took)
	assert.Check(t, p.value(mine, abi.ActivityMemoryBytes) >= uint64(pages*page))

	fd := open(t, newFile(t, few*page), unix.O_RDONLY)
	file, err := unix.Mmap(fd, 0, few*page, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	assert.NilError(t, unix.Madvise(file, unix.MADV_RANDOM))
	sum := 0
	read := func() {
		defer unpreempted(t)()
		for at := 0; at < len(file); at += page {
			sum += int(file[at])
		}
	}
	p.carry(major, read)
	assert.NilError(t, unix.Munmap(file))
	file, err = unix.Mmap(fd, 0, few*page, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	p.carry(mapped, read)
	assert.NilError(t, unix.Munmap(file))
	runtime.KeepAlive(sum)
	p.show("major", major)
	p.show("mapped", mapped)
	p.nearly(major, abi.ActivityFaultsMajor, few)
	p.nearly(major, abi.ActivityCacheMisses, few)
	p.strays(major, abi.ActivityCacheHits, 0)
	assert.Check(t, cmp.Equal(p.value(mapped, abi.ActivityFaultsMajor), uint64(0)))
	p.strays(mapped, abi.ActivityCacheMisses, 0)
	faults := p.value(mapped, abi.ActivityFaultsMinor)
	assert.Check(t, cmp.Equal(p.value(mapped, abi.ActivityCacheHits), faults), "one for each fault")
}

// unpreempted keeps the signals of Go's scheduler from this thread until the end. The kernel begins a
// major fault anew after a signal, and then finds the page: it is a minor one.
func unpreempted(t *testing.T) (end func()) {
	t.Helper()
	set, before := unix.Sigset_t{}, unix.Sigset_t{}
	set.Val[0] = 1 << (unix.SIGURG - 1)
	assert.NilError(t, unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before))
	return func() { assert.Check(t, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)) }
}

// connection makes one over TCP, and returns its ends.
func connection(t *testing.T) (client, server int) {
	t.Helper()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(listener)
	assert.NilError(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	assert.NilError(t, unix.Listen(listener, 1))
	to, err := unix.Getsockname(listener)
	assert.NilError(t, err)
	client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = unix.Close(client) })
	assert.NilError(t, unix.Connect(client, to))
	server, _, err = unix.Accept(listener)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = unix.Close(server) })
	return client, server
}

func TestTCP(t *testing.T) {
	p := openGroups(t, Network)
	const size, answer = 8 * mebibyte, mebibyte
	client, server := connection(t)
	asks, answers, neighbour := p.token(), p.token(), p.token()
	p.carryAll(
		work{asks, func() { send(t, client, size); receive(t, client, answer) }},
		work{answers, func() { receive(t, server, size); send(t, server, answer) }},
		work{neighbour, func() { time.Sleep(time.Millisecond) }},
	)
	p.show("asks", asks)
	p.show("answers", answers)
	assert.Check(t, cmp.Equal(p.value(asks, abi.ActivityTcpBytesSent), uint64(size)))
	assert.Check(t, cmp.Equal(p.value(asks, abi.ActivityTcpBytesReceived), uint64(answer)))
	assert.Check(t, cmp.Equal(p.value(answers, abi.ActivityTcpBytesReceived), uint64(size)))
	assert.Check(t, cmp.Equal(p.value(answers, abi.ActivityTcpBytesSent), uint64(answer)))
	assert.Check(t, p.value(asks, abi.ActivityTcpSegments) >= size/65536)
	p.none(neighbour, Network)
}

// TestFirstCall: a connection's first call has its segments, also those that are sent after it,
// or that came and are read later.
func TestFirstCall(t *testing.T) {
	p := openGroups(t, Network)
	client, server := connection(t)
	sends, receives := p.token(), p.token()
	var size int
	p.carry(sends, func() { // more than the receiver takes now
		var err error
		size, err = unix.SendmsgN(client, make([]byte, 64*mebibyte), nil, nil, unix.MSG_DONTWAIT)
		assert.NilError(t, err)
	})
	p.carry(receives, func() { receive(t, server, 1000) })
	assert.Check(t, p.value(receives, abi.ActivityTcpSegments) > 1)
	p.carryAll(
		work{sends, func() { send(t, client, 1000) }},
		work{receives, func() { receive(t, server, size) }},
	)
	p.carry(sends, func() { send(t, client, 1) }) // its call counts all before
	p.carry(receives, func() { receive(t, server, 1) })
	p.show("sends", sends)
	p.show("receives", receives)
	for token, fd := range map[uint32]int{sends: client, receives: server} {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		assert.NilError(t, err)
		assert.Check(t, cmp.Equal(p.value(token, abi.ActivityTcpSegments), uint64(info.Data_segs_out+info.Data_segs_in)))
	}
}

func send(t *testing.T, fd, size int) {
	data := make([]byte, 100_000)
	for left := size; left > 0; {
		n, err := unix.Write(fd, data[:min(left, len(data))])
		if !assert.Check(t, cmp.Nil(err)) {
			return
		}
		left -= n
	}
}

func receive(t *testing.T, fd, size int) {
	data := make([]byte, 70_000)
	for left := size; left > 0; {
		n, err := unix.Read(fd, data[:min(left, len(data))])
		if !assert.Check(t, cmp.Nil(err)) || !assert.Check(t, n > 0) {
			return
		}
		left -= n
	}
}

func TestWork(t *testing.T) {
	p := openGroups(t, Workqueues)
	const times = 50
	mine, neighbour := p.token(), p.token()
	// Has each CPU do a work item for whoever writes to it.
	fd := open(t, "/proc/sys/vm/stat_refresh", unix.O_WRONLY)
	took := p.carryAll(work{mine, func() {
		for range times {
			_, err := unix.Pwrite(fd, []byte("1"), 0)
			assert.Check(t, cmp.Nil(err))
		}
	}}, work{neighbour, func() { time.Sleep(time.Millisecond) }})
	p.show("mine", mine)
	items := p.value(mine, abi.ActivityWorkItems)
	assert.Check(t, cmp.Equal(items, uint64(times*runtime.NumCPU())))
	ns := p.value(mine, abi.ActivityWorkNs) + p.value(mine, abi.ActivityWorkBlockedNs)
	assert.Check(t, ns > 0 && ns < uint64(took)*uint64(runtime.NumCPU()), "%d of %s", ns, took)
	p.none(neighbour, Workqueues)
}

func TestSystemCalls(t *testing.T) {
	p := openGroups(t, Syscalls, Interrupts)
	const times = 20_000
	mine, neighbour := p.token(), p.token()
	p.carryAll(work{mine, func() {
		for range times {
			unix.Getppid()
		}
	}}, work{neighbour, func() { time.Sleep(time.Millisecond) }})
	p.show("mine", mine)
	p.nearly(mine, abi.ActivitySyscalls, times)
	assert.Check(t, p.value(mine, abi.ActivitySyscallNs) > 0)
	assert.Check(t, p.value(neighbour, abi.ActivitySyscalls) < 100)
}
