package activities

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Process is one that takes part. Its methods may be called from any goroutine.
type Process struct {
	of             *Activities
	number, serial uint32
	pid            int
	uid            uint32
	pidfd          int
	threads        int
	tokens         int
	flags          uint32
	bytes          int64
	began          uint64
	ready          bool          // under of.mu
	left           chan struct{} // closed when nothing is left of it
	closing        sync.Once

	mu      sync.RWMutex // of what follows, after open
	maps    [2]*ebpf.Map // shared, accounts
	mapped  [2][]byte    // the same; nil: not yet, or no more
	slow    uint64       // as told
	gone    bool
	readErr error
}

// Key is of no other process, also later.
func (p *Process) Key() uint64 { return uint64(p.serial) }

// PID is the process as the daemon sees it.
func (p *Process) PID() int { return p.pid }

// UID is its user, when it opened.
func (p *Process) UID() uint32 { return p.uid }

// Opened is when it did, in nanoseconds of CLOCK_MONOTONIC.
func (p *Process) Opened() uint64 { return p.began }

// Threads is how many slots of threads it has.
func (p *Process) Threads() int { return p.threads }

// Tokens is how many elements for tokens it has.
func (p *Process) Tokens() int { return p.tokens }

// Attributes is how many different ones its tokens can have.
func (p *Process) Attributes() int {
	if p.declared() {
		return 0
	}
	return abi.ActivityAttributes
}

// elements are those that both maps have.
func (p *Process) elements() int { return 1 + p.threads + p.tokens }

// sizes are how many elements each of the maps has.
func (p *Process) sizes() [2]int { return [2]int{p.elements() + p.Attributes(), p.elements()} }

// memory is what both maps take, in bytes.
func (p *Process) memory() int64 {
	n := p.sizes()
	return int64(n[0])*abi.ActivitySharedBytes + int64(n[1])*abi.ActivityAccountBytes
}

// open makes the maps, and tells the kernel side.
func (p *Process) open(pidfd int) (err error) {
	if !p.declared() {
		if p.pidfd, err = unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fmt.Errorf("keep the process: %w", err)
		}
	}
	for i, spec := range p.of.kernel.inner {
		spec = spec.Copy()
		spec.Name, spec.MaxEntries = []string{"activity_tokens", "activity_values"}[i], uint32(p.sizes()[i])
		if p.maps[i], err = ebpf.NewMap(spec); err != nil {
			return err
		}
	}
	header := abi.ActivityHeader{
		Abi: abi.ActivityAbi, Threads: uint32(p.threads), Tokens: uint32(p.tokens), Flags: p.flags,
		Groups: p.of.groupBits(), Process: p.number,
	}
	if err := p.maps[1].Put(uint32(0), &header); err != nil {
		return err
	}
	// From now on nobody but BPF programs can write it: neither by a call, nor by mapping it
	// (kernel/bpf/syscall.c, bpf_map_mmap()).
	if err := p.maps[1].Freeze(); err != nil {
		return err
	}
	return p.announce()
}

// announce has the kernel side find the process.
func (p *Process) announce() error {
	k := &p.of.kernel.maps
	entry := abi.ActivityProcess{
		Serial: p.serial, Threads: uint32(p.threads), ThreadShift: uint32(32 - bits.TrailingZeros(uint(p.threads))),
		Tokens: uint32(p.tokens), Flags: p.flags,
	}
	err := errors.Join(
		k.ActivityShared.Put(p.number, p.maps[0]), k.ActivityAccounts.Put(p.number, p.maps[1]),
		k.ActivityProcesses.Put(p.number, &entry))
	if p.declared() {
		return err // they are found by their hooks
	}
	return errors.Join(err, k.ActivityOwners.Put(uint32(p.pidfd), &abi.ActivityOwner{Process: p.number, Serial: p.serial}))
}

// ErrClosed is returned for a process that has been closed.
var ErrClosed = errors.New("the process has gone")

// Descriptors calls fn with those of the maps, shared and accounts, which Close leaves open until
// it returns: later, their numbers may be those of other files. It returns the error of fn, or
// ErrClosed.
func (p *Process) Descriptors(fn func(fds []int) error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.gone {
		return ErrClosed
	}
	return fn([]int{p.maps[0].FD(), p.maps[1].FD()})
}

// Read calls fn with the maps, which stay mapped until it returns, unless the process has
// gone. The process writes the first one, at any time and whatever it likes.
func (p *Process) Read(fn func(shared, accounts []byte)) {
	p.mu.RLock()
	if p.mapped[1] == nil && !p.gone && p.readErr == nil {
		p.mu.RUnlock()
		p.mapBoth()
		p.mu.RLock()
	}
	defer p.mu.RUnlock()
	if p.mapped[1] != nil {
		fn(p.mapped[0], p.mapped[1])
	}
}

func (p *Process) mapBoth() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.mapped[1] != nil || p.maps[1] == nil {
		return
	}
	page := os.Getpagesize()
	for i, m := range p.maps {
		n := int(m.ValueSize()) * p.sizes()[i]
		b, err := unix.Mmap(m.FD(), 0, (n+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			p.readErr = err
			p.of.log.Warn("map what a process writes", zap.Int("pid", p.pid), zap.Error(err))
			p.unmap()
			return
		}
		p.mapped[i] = b[:n:len(b)]
	}
}

// unmap requires p.mu.
func (p *Process) unmap() {
	for i, b := range p.mapped {
		if b != nil {
			_ = unix.Munmap(b[:cap(b)])
		}
		p.mapped[i] = nil
	}
}

// SetThreshold tells the process from which elapsed time on, in nanoseconds, it is to tell
// the daemon of a token that ends; 0: never.
func (p *Process) SetThreshold(ns uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.slow == ns {
		return
	}
	word := abi.ActivityPublication{Process: p.number, SlowNs: ns}
	if _, err := p.of.kernel.publish.Run(&ebpf.RunOptions{Context: &word}); err != nil {
		p.of.log.Warn("tell a process a threshold", zap.Int("pid", p.pid), zap.Error(err))
		return
	}
	p.slow = ns
}

// late is what was to be credited to tokens that had ended.
func (p *Process) late() (n uint64) {
	p.Read(func(_, accounts []byte) {
		n = atomic.LoadUint64(&(*abi.ActivityHeader)(unsafe.Pointer(&accounts[0])).Late)
	})
	return n
}

// Close takes the maps back: the kernel side forgets the process, and the memory is free
// when nobody maps it any more. It takes some milliseconds.
func (p *Process) Close() {
	p.closing.Do(func() {
		late := p.late()
		k := &p.of.kernel.maps
		p.of.slow <- struct{}{}
		// The number first: without it, nothing leads to the maps.
		errs := []error{k.ActivityProcesses.Put(p.number, &abi.ActivityProcess{})}
		for _, m := range []*ebpf.Map{k.ActivityShared, k.ActivityAccounts} {
			errs = append(errs, ignore(m.Delete(p.number), ebpf.ErrKeyNotExist))
		}
		if p.pidfd >= 0 {
			// It may have gone, or become another program: then its own has gone, too.
			_ = k.ActivityOwners.Delete(uint32(p.pidfd))
			errs = append(errs, unix.Close(p.pidfd))
		}
		<-p.of.slow
		p.mu.Lock()
		p.gone = true
		p.unmap()
		for _, m := range p.maps {
			errs = append(errs, m.Close())
		}
		p.mu.Unlock()
		p.of.forget(p, late)
		if err := errors.Join(errs...); err != nil {
			p.of.log.Warn("take back the maps of a process", zap.Int("pid", p.pid), zap.Error(err))
		}
	})
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
