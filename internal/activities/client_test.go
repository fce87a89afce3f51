package activities

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
)

// client does what the packages for programs do, with the maps of this process.
type client struct {
	t                *testing.T
	shared, accounts []byte
	threads, tokens  int
	next             atomic.Uint32
}

// newClient opens this process.
func newClient(t *testing.T, a *Activities, o Opening) (*client, *Process) {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	o.PID, o.PidFD, o.UID = os.Getpid(), fd, uint32(os.Getuid())
	p, err := a.Open(&o)
	assert.NilError(t, err)
	t.Cleanup(p.Close)
	c := &client{t: t, threads: p.Threads(), tokens: p.Tokens()}
	c.shared, err = unix.Mmap(p.maps[0].FD(), 0, p.elements()*abi.ActivitySharedBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, unix.Munmap(c.shared)) })
	c.accounts, err = unix.Mmap(p.maps[1].FD(), 0, p.elements()*abi.ActivityAccountBytes, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, unix.Munmap(c.accounts)) })
	return c, p
}

func at[T any](b []byte, index, size int) *T { return (*T)(unsafe.Pointer(&b[index*size])) }

func (c *client) token(index int) *abi.ActivityToken {
	return at[abi.ActivityToken](c.shared, index, abi.ActivitySharedBytes)
}

func (c *client) account(index int) *abi.ActivityAccount {
	return at[abi.ActivityAccount](c.accounts, index, abi.ActivityAccountBytes)
}

// begin takes the next token, which nobody else must have.
func (c *client) begin() int {
	index := 1 + c.threads + int(c.next.Add(1)-1)%c.tokens
	t := c.token(index)
	t.BeginNs, t.CpuNs, t.WallNs = linux.Monotonic(), 0, 0
	atomic.AddUint32(&t.Generation, 1)
	return index
}

func (c *client) end(index int) { atomic.AddUint32(&c.token(index).Generation, 1) }

// thread is the slot of the calling thread, which must be locked.
type thread struct {
	c     *client
	tid   uint32
	slot  *abi.ActivityThread
	state *abi.ActivityThreadState
}

func (c *client) thread() *thread {
	tid := uint32(unix.Gettid())
	bits := 0
	for 1<<bits < c.threads {
		bits++
	}
	home := int(tid * abi.ActivityHash >> (32 - bits))
	for i := range abi.ActivityThreadWindow {
		index := 1 + (home+i)&(c.threads-1)
		slot := at[abi.ActivityThread](c.shared, index, abi.ActivitySharedBytes)
		if atomic.LoadUint32(&slot.Tid) == tid || atomic.CompareAndSwapUint32(&slot.Tid, 0, tid) {
			return &thread{c, tid, slot, at[abi.ActivityThreadState](c.accounts, index, abi.ActivityAccountBytes)}
		}
	}
	c.t.Error("all slots of a thread are taken")
	return nil
}

// release gives the slot back, as the kernel side does at the thread's end.
func (s *thread) release() {
	s.carry(0)
	atomic.StoreUint32(&s.slot.Tid, 0)
}

// carry switches to a token; 0: none.
func (s *thread) carry(token int) {
	seq := s.slot.Seq
	old := s.slot.Half[seq&1]
	var k uint32
	var now, start, out uint64
	for {
		k = atomic.LoadUint32(&s.state.Slices)
		out = atomic.LoadUint64(&s.state.OutNs)
		now = linux.Monotonic()
		start = max(old.SinceNs, atomic.LoadUint64(&s.state.SliceNs))
		if atomic.LoadUint32(&s.state.Slices) == k && atomic.LoadUint64(&s.state.OutNs) == out {
			break
		}
	}
	now = max(now, start)
	generation := uint32(0)
	if token != 0 {
		generation = s.c.token(token).Generation
	}
	s.commit(abi.ActivityHalf{Token: uint32(token), Generation: generation, SinceNs: now})
	cpu, until := now-min(start, now), now
	if start <= out { // it runs: how it came back was not seen
		cpu = 0
	}
	if b, switched := s.switched(seq, k, out); switched {
		cpu, until = 0, b
		s.commit(abi.ActivityHalf{Token: uint32(token), Generation: generation, SinceNs: until})
	}
	if old.Token != 0 {
		t := s.c.token(int(old.Token))
		atomic.AddUint64(&t.CpuNs, cpu)
		atomic.AddUint64(&t.WallNs, until-old.SinceNs)
	}
}

// switched reports whether the kernel side has switched the thread out before the commit of
// seq + 1, since it read k and out, and until when the old token has been credited.
func (s *thread) switched(seq, k uint32, out uint64) (until uint64, switched bool) {
	for {
		slices, left := atomic.LoadUint32(&s.state.Slices), atomic.LoadUint64(&s.state.OutNs)
		seen := atomic.LoadUint32(&s.state.SeenSeq) == seq+1
		until = atomic.LoadUint64(&s.state.SliceNs)
		switch {
		case seen && atomic.LoadUint32(&s.state.SeenSlice) == k, slices == k && left == out:
			return 0, false
		case seen:
			until = atomic.LoadUint64(&s.state.SeenNs)
		case left != 0:
			until = left // and its return was not seen
		}
		if atomic.LoadUint32(&s.state.Slices) == slices && atomic.LoadUint64(&s.state.OutNs) == left {
			return until, true
		}
	}
}

func (s *thread) commit(half abi.ActivityHalf) {
	s.slot.Half[(s.slot.Seq+1)&1] = half
	atomic.StoreUint32(&s.slot.Seq, s.slot.Seq+1)
}

// measured is what a token, that nobody carries any more, has cost.
type measured struct {
	wall, cpu, runnable, blocked int64
	value                        [abi.ActivityValues]int64
}

func (c *client) read(index int) (m measured) {
	t, a := c.token(index), c.account(index)
	if atomic.LoadUint32(&a.Generation) == atomic.LoadUint32(&t.Generation) {
		for i := range m.value {
			m.value[i] = int64(atomic.LoadUint64(&a.Value[i]))
		}
	}
	m.wall = int64(atomic.LoadUint64(&t.WallNs))
	m.cpu = m.value[abi.ActivityCpuNs] + int64(atomic.LoadUint64(&t.CpuNs))
	m.runnable, m.blocked = m.value[abi.ActivityRunnableNs], m.value[abi.ActivityBlockedNs]
	return m
}

// unexplained is what the parts leave of the wall time.
func (m *measured) unexplained() int64 { return m.wall - m.cpu - m.runnable - m.blocked }

// onThread runs fn on a thread of its own, which ends after it.
func (c *client) onThread(fn func(s *thread)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends
		s := c.thread()
		if s == nil {
			return
		}
		fn(s)
		s.release()
	}()
	<-done
}
