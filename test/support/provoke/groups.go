package provoke

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cpus"
)

// body makes a condition on the body of an event of one type.
func body[B any](want trace.Type, is func(ev trace.Event, b B) bool) func(trace.Event) bool {
	return func(ev trace.Event) bool {
		b, ok := ev.Body.(B)
		return ok && ev.Type == want && is(ev, b)
	}
}

// Work proves the groups workqueue and timer.
func Work(t *testing.T, history *History) {
	history = history.with(t)
	queued := map[uint64]bool{}
	history.Until(func() {
		time.Sleep(50 * time.Millisecond)
	}, map[string]func(trace.Event) bool{
		"work that is queued": body(trace.WorkQueued, func(_ trace.Event, w trace.WorkQueue) bool {
			queued[w.Work] = true
			return w.Name != "" && w.Function != 0
		}),
		"work that begins":   body(trace.WorkStart, func(_ trace.Event, w trace.Work) bool { return w.Work != 0 && w.Function != 0 }),
		"queued work begins": body(trace.WorkStart, func(_ trace.Event, w trace.Work) bool { return queued[w.Work] }),
		"work that ends":     body(trace.WorkEnd, func(_ trace.Event, w trace.Work) bool { return w.Work != 0 }),
		"a timer that expires": body(trace.TimerEntry, func(_ trace.Event, m trace.Timer) bool {
			return m.Timer != 0 && m.Function != 0 && m.Now != 0
		}),
		"its end": body(trace.TimerExit, func(_ trace.Event, m trace.Timer) bool { return m.Timer != 0 }),
		"a precise timer that expires": body(trace.HrtimerEntry, func(_ trace.Event, m trace.Hrtimer) bool {
			return m.Hrtimer != 0 && m.Function != 0
		}),
	})
}

// Faults proves page faults of the group memory, by their address. x86 only.
func Faults(t *testing.T, history *History) {
	history = history.with(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var fault, copied []byte
	provoke := func() {
		for _, m := range []*[]byte{&fault, &copied} {
			if *m != nil {
				_ = unix.Munmap(*m)
			}
			var err error
			*m, err = unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			assert.NilError(t, err)
		}
		fault[0] = 1
		f, err := os.Open("/proc/self/stat")
		assert.NilError(t, err)
		defer f.Close()
		_, err = f.Read(copied)
		assert.NilError(t, err) // the kernel writes there first
	}
	at := func(m *[]byte) func(ev trace.Event, f trace.Fault) bool {
		return func(ev trace.Event, f trace.Fault) bool {
			return ev.TID == unix.Gettid() && f.Address-address(*m) < block && f.IP != 0
		}
	}
	const user, write = 4, 2 // bits of an x86 page fault's error code
	history.Until(provoke, map[string]func(trace.Event) bool{
		"a fault of user space": body(trace.FaultUser, func(ev trace.Event, f trace.Fault) bool {
			return at(&fault)(ev, f) && f.ErrorCode&(user|write) == user|write
		}),
		"a fault of the kernel for it": body(trace.FaultKernel, func(ev trace.Event, f trace.Fault) bool {
			return at(&copied)(ev, f) && f.ErrorCode&(user|write) == write
		}),
	})
	_ = unix.Munmap(fault)
	_ = unix.Munmap(copied)
}

// Flags of locks of the kernel (LCB_F_*).
const lockSpin, lockWrite, lockRT, lockMutex = 1, 4, 8, 32

// Locks proves the group lock, with the holder: threads that all rename in one directory.
func Locks(t *testing.T, history *History) {
	history = history.with(t)
	dir := t.TempDir()
	var mine sync.Map
	held := func(flags uint32) func(ev trace.Event, l trace.Lock) bool {
		return func(ev trace.Event, l trace.Lock) bool {
			_, waiter := mine.Load(ev.TID)
			_, owner := mine.Load(l.OwnerTID)
			return waiter && owner && l.OwnerTID != ev.TID && l.Lock != 0 && l.Flags&flags != 0
		}
	}
	history.Until(func() {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				mine.Store(unix.Gettid(), true)
				from, to := filepath.Join(dir, strconv.Itoa(i)), filepath.Join(dir, "to"+strconv.Itoa(i))
				assert.Check(t, os.WriteFile(from, nil, 0o600))
				for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
					_ = os.Rename(from, to)
					_ = os.Rename(to, from)
				}
			})
		}
		all.Wait()
	}, map[string]func(trace.Event) bool{
		"a wait for a lock whose holder is known": body(trace.LockBegin, held(lockWrite|lockRT|lockMutex)),
		"its end": body(trace.LockEnd, func(ev trace.Event, l trace.Lock) bool {
			_, waiter := mine.Load(ev.TID)
			return waiter && l.Lock != 0 && l.Ret == 0
		}),
	})
}

// Spins proves that a CPU that spins for a lock of the kernel is in group lock, if it spins for 2 us.
func Spins(t *testing.T, history *History) {
	if runtime.NumCPU() == 1 {
		t.Skip("needs two CPUs")
	}
	history = history.with(t)
	var mine sync.Map
	begun := map[int]trace.Event{} // by thread
	history.Until(func() { cpus.Contend(t, func(tid int) { mine.Store(tid, true) }) }, map[string]func(trace.Event) bool{
		"a CPU that spins": func(ev trace.Event) bool {
			l, ok := ev.Body.(trace.Lock)
			if _, of := mine.Load(ev.TID); !ok || !of {
				return false
			}
			if ev.Type == trace.LockBegin {
				if l.Flags&(lockSpin|lockMutex) == lockSpin {
					begun[ev.TID] = ev
				}
				return false
			}
			b, spun := begun[ev.TID]
			delete(begun, ev.TID)
			if !spun || b.Body.(trace.Lock).Lock != l.Lock {
				return false
			}
			assert.Check(t, ev.CPU == b.CPU && ev.Time-b.Time >= 2000, "%v to %v", b, ev)
			return true
		},
	})
}

// FileLocks proves locks of files of the group lock: of two threads each has what the other one
// asks for in vain, by the lock of an open file.
func FileLocks(t *testing.T, history *History) {
	history = history.with(t)
	path := filepath.Join(t.TempDir(), "locked")
	assert.NilError(t, os.WriteFile(path, nil, 0o600))
	var st unix.Stat_t
	assert.NilError(t, unix.Stat(path, &st))
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		assert.NilError(t, err)
		return f
	}
	has, wants := open(), open()
	defer has.Close()
	defer wants.Close()
	const exclusive, last = unix.F_WRLCK, math.MaxInt64
	ours := func(ret, kind int, flock bool) func(ev trace.Event, l trace.FileLock) bool {
		return func(_ trace.Event, l trace.FileLock) bool {
			same := l.Inode == st.Ino && l.PID == os.Getpid() && l.Ret == ret && l.Type == kind
			if flock {
				return same && l.Flags&2 != 0 && (ret == 0) == (l.HolderPID == 0) && (ret == 0 || l.HolderPID == os.Getpid())
			}
			return same && l.Flags&1 != 0 && l.Start == 4096 && l.End == last
		}
	}
	history.Until(func() {
		assert.NilError(t, unix.Flock(int(has.Fd()), unix.LOCK_EX))
		assert.Equal(t, unix.Flock(int(wants.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
		assert.NilError(t, unix.Flock(int(has.Fd()), unix.LOCK_UN))
		some := unix.Flock_t{Type: exclusive, Start: 4096}
		assert.NilError(t, unix.FcntlFlock(has.Fd(), unix.F_OFD_SETLK, &some))
		assert.Equal(t, unix.FcntlFlock(wants.Fd(), unix.F_OFD_SETLK, &some), unix.EAGAIN)
		some.Type = unix.F_UNLCK
		assert.NilError(t, unix.FcntlFlock(has.Fd(), unix.F_OFD_SETLK, &some))
	}, map[string]func(trace.Event) bool{
		"a lock asked for in vain, and by whom it is held": body(trace.FileLockRequest, ours(-int(unix.EAGAIN), exclusive, true)),
		"given back":                             body(trace.FileLockRequest, ours(0, unix.F_UNLCK, true)),
		"a lock of some bytes asked for in vain": body(trace.FileLockRequest, ours(-int(unix.EAGAIN), exclusive, false)),
		"these given back":                       body(trace.FileLockRequest, ours(0, unix.F_UNLCK, false)),
	})
}

// Power proves idle CPUs of the group power.
func Power(t *testing.T, history *History) {
	history = history.with(t)
	for before, begin := account(t, idle), time.Now(); account(t, idle) == before; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > Patience {
			t.Skip("no CPU goes idle")
		}
	}
	history.Until(func() { time.Sleep(20 * time.Millisecond) }, map[string]func(trace.Event) bool{
		"a CPU that goes idle": body(trace.CPUIdle, func(ev trace.Event, i trace.Idle) bool { return i.State >= 0 && i.CPU == ev.CPU }),
		"and is no longer":     body(trace.CPUIdle, func(ev trace.Event, i trace.Idle) bool { return i.State == -1 && i.CPU == ev.CPU }),
	})
}

// Net proves the group net: a packet of a known size to this machine itself.
func Net(t *testing.T, history *History) {
	history = history.with(t)
	to, err := net.ListenPacket("udp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer func() { _ = to.Close() }()
	from, err := net.Dial("udp4", to.LocalAddr().String())
	assert.NilError(t, err)
	defer from.Close()
	const payload, ip, ethernet = 1013, 28, 14
	buf := make([]byte, 2*payload)
	var packet uint64
	history.Until(func() {
		_, err := from.Write(make([]byte, payload))
		assert.NilError(t, err)
		_, _, err = to.ReadFrom(buf)
		assert.NilError(t, err)
	}, map[string]func(trace.Event) bool{
		"a packet that is sent": body(trace.NetQueue, func(_ trace.Event, n trace.Net) bool {
			if n.Dev != "lo" || n.Bytes != payload+ip+ethernet {
				return false
			}
			packet = n.SKB
			return true
		}),
		"the same that is received": body(trace.NetReceive, func(_ trace.Event, n trace.Net) bool {
			return n.Dev == "lo" && n.Bytes == payload+ip && n.SKB == packet
		}),
		"a poll": body(trace.NapiPoll, func(_ trace.Event, n trace.Napi) bool { return n.Budget > 0 && n.Work > 0 }),
	})
}
