package tailcam

import (
	"cmp"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Thread is the operating system's thread that a goroutine is locked to. Only that goroutine
// may use it. A nil *Thread does nothing.
type Thread struct {
	h     *Handle
	self  *abi.ActivityThread
	state *abi.ActivityThreadState
	clock clock
}

// Thread locks the calling goroutine to its thread (runtime.LockOSThread), and returns that,
// for Switch. nil, which is counted and still locks, if no slot is free. Release undoes it.
// It makes a system call; a goroutine does it once, not for each request.
func (h *Handle) Thread() *Thread {
	if h == nil {
		return nil
	}
	runtime.LockOSThread()
	tid := uint32(syscall.Gettid())
	index := h.claim(tid)
	if index == 0 {
		atomic.AddUint64(&h.client().ThreadsRefused, 1)
		runtime.UnlockOSThread()
		return nil
	}
	return &Thread{h: h, self: h.thread(index), state: h.state(index), clock: clock{tsc: h.tsc}}
}

// claim finds a thread's slot, or takes a free one: its index, or 0. The kernel side looks at
// the same ones.
func (h *Handle) claim(tid uint32) uint32 {
	var window [abi.ActivityThreadWindow]uint32
	for i := range window {
		window[i] = 1 + (tid*abi.ActivityHash>>h.shift+uint32(i))&(h.threads-1)
		if atomic.LoadUint32(&h.thread(window[i]).Tid) == tid {
			return window[i]
		}
	}
	for _, index := range window {
		thread := h.thread(index)
		if !atomic.CompareAndSwapUint32(&thread.Tid, 0, tid) {
			continue
		}
		thread.Half[(thread.Seq+1)&1] = abi.ActivityHalf{SinceNs: nanotime()}
		atomic.AddUint32(&thread.Seq, 1)
		return index
	}
	return 0
}

// Release has the thread work for nobody, and unlocks the goroutine from it.
func (th *Thread) Release() {
	if th != nil {
		th.Switch(0)
		runtime.UnlockOSThread()
	}
}

// Current returns the token that the thread works for, to hand it over to another one; 0: none.
func (th *Thread) Current() Token {
	if th == nil {
		return 0
	}
	half := &th.self.Half[th.self.Seq&1]
	if half.Token == 0 {
		return 0
	}
	return Token(half.Generation)<<32 | Token(half.Token)
}

// Switch says that from here the thread works for t; 0: for nobody. It makes no system call.
// False if t has ended: the thread then works for nobody, which is counted.
func (th *Thread) Switch(t Token) bool {
	if th == nil {
		return true
	}
	ok := true
	if t != 0 && th.h.find(t) == nil {
		atomic.AddUint64(&th.h.stale, 1)
		t, ok = 0, false
	}
	self, state := th.self, th.state
	seq := self.Seq
	old := &self.Half[seq&1]
	since := old.SinceNs

	// The clock and the slice are of one time on the CPU.
	slices, out := atomic.LoadUint32(&state.Slices), atomic.LoadUint64(&state.OutNs)
	now := th.clock.now()
	start := max(since, atomic.LoadUint64(&state.SliceNs))
	for atomic.LoadUint32(&state.Slices) != slices || atomic.LoadUint64(&state.OutNs) != out {
		slices, out = atomic.LoadUint32(&state.Slices), atomic.LoadUint64(&state.OutNs)
		now = th.clock.now()
		start = max(since, atomic.LoadUint64(&state.SliceNs))
	}
	now = max(now, start) // clocks differ by a few nanoseconds; a slice may begin some microseconds late
	half := &self.Half[(seq+1)&1]
	half.Token, half.Generation, half.SinceNs = t.index(), t.generation(), now
	atomic.StoreUint32(&self.Seq, seq+1) // the kernel side sees all of the switch, or nothing
	cpu := now - start
	if start <= out {
		cpu = 0 // it runs, and how it came back was not seen: unexplained
	}
	if atomic.LoadUint32(&state.Slices) != slices || atomic.LoadUint64(&state.OutNs) != out {
		now, cpu = th.interrupted(slices, out, now, cpu)
	}
	if old.Token == 0 {
		return ok
	}
	if e := th.h.find(Token(old.Generation)<<32 | Token(old.Token)); e != nil {
		atomic.AddUint64(&e.WallNs, now-since)
		if cpu != 0 {
			atomic.AddUint64(&e.CpuNs, cpu)
		}
	}
	return ok
}

// interrupted corrects a switch since whose clock the kernel has switched the thread out and
// in. What it saw before the commit went to the old token, whose time then ends where the
// slice of the commit began: this one, or the one in which it saw the new half for the first
// time. Some machines keep switches from every tracer: then the kernel side saw that the thread
// left (OutNs), and not that it came back.
func (th *Thread) interrupted(slices uint32, out, now, cpu uint64) (end, credit uint64) {
	state, seq := th.state, th.self.Seq
	for {
		again, left := atomic.LoadUint32(&state.Slices), atomic.LoadUint64(&state.OutNs)
		seen, first := atomic.LoadUint32(&state.SeenSeq), atomic.LoadUint32(&state.SeenSlice)
		border := cmp.Or(left, atomic.LoadUint64(&state.SliceNs))
		if seen == seq {
			border = atomic.LoadUint64(&state.SeenNs)
		}
		if atomic.LoadUint32(&state.Slices) != again || atomic.LoadUint64(&state.OutNs) != left {
			continue
		}
		if seen == seq && first == slices || again == slices && left == out {
			return now, cpu // all was after the commit
		}
		now = max(now, border)
		atomic.StoreUint64(&th.self.Half[seq&1].SinceNs, now)
		return now, 0
	}
}
