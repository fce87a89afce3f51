// Package activities is the daemon's part of accounts of requests: it loads their kernel
// side, makes the two maps of each process that takes part, and takes them back when it has
// gone. What is in them is in bpf/abi/activity.h.
package activities

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Options configure the kernel side. Nil means the defaults.
type Options struct {
	Groups     []string // default accounts.Default; scheduler is always on
	UserMemory int64    // bytes of the maps of one user; default 96 MiB. Root has no limit of its own.
	Memory     int64    // bytes of all maps; default 192 MiB
	// Linger is for how long the programs stay attached when nobody takes part any more;
	// default 30 s.
	Linger time.Duration
	Log    *zap.Logger
}

// Why a process is refused. The errors say more.
var (
	ErrQuota   = errors.New("no room")
	ErrSize    = errors.New("wrong size")
	ErrIsOpen  = errors.New("this process has opened already")
	ErrStopped = errors.New("the daemon stops")
)

// reserved processes are for root alone.
const reserved = abi.ActivityProcesses / 8

// Activities is the kernel side, and all processes that take part. Its methods may be called
// from any goroutine. Needs kernel 6.1+.
type Activities struct {
	opts   Options
	kernel *kernelSide
	hooks  *attachment
	log    *zap.Logger
	slow   chan struct{} // limits what waits for the kernel to let go of maps
	sizes  kernel.MapSizes

	mu        sync.Mutex
	processes [abi.ActivityProcesses]*Process
	serial    uint32
	users     map[uint32]user
	total     user
	refused   uint64
	late      uint64 // of processes that are gone
	opened    uint64
	closed    bool
}

// user is what one user has.
type user struct {
	processes int
	bytes     int64
}

// Opening is what a process asks for.
type Opening struct {
	PID     int // as this process sees it
	UID     uint32
	PidFD   int // of the process; a copy is kept
	Threads int // slots of threads, a power of two; 0: default
	Tokens  int // 0: default
	Inherit bool
	// Wait is how long to wait for maps that the process has had so far, and which are on
	// their way out: it has closed them, or become another program. 0: not at all.
	Wait time.Duration
}

// Counts are what status and metrics tell.
type Counts struct {
	Processes int    // that have opened
	Bytes     int64  // of their maps, and those of declared activities
	Opened    uint64 // since the start
	Refused   uint64
	Late      uint64 // credits for tokens that had ended
}

// New loads the kernel side, which is attached while somebody takes part. Close undoes it.
func New(o *Options) (*Activities, error) {
	a := &Activities{users: map[uint32]user{}, slow: make(chan struct{}, 32)}
	if o != nil {
		a.opts = *o
	}
	a.opts.UserMemory = cmp.Or(a.opts.UserMemory, 96<<20)
	a.opts.Memory = cmp.Or(a.opts.Memory, 192<<20)
	if a.opts.Groups == nil {
		a.opts.Groups = accounts.Default()
	}
	if !slices.Contains(a.opts.Groups, accounts.Scheduler) {
		a.opts.Groups = append([]string{accounts.Scheduler}, a.opts.Groups...)
	}
	a.log = cmp.Or(a.opts.Log, zap.NewNop())
	var err error
	if a.kernel, err = load(a.opts.Groups); err != nil {
		return nil, fmt.Errorf("load the kernel side of activities: %w", err)
	}
	a.hooks = &attachment{kernel: a.kernel, linger: cmp.Or(a.opts.Linger, 30*time.Second), log: a.log}
	if err := a.hooks.try(); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the kernel side of activities: %w", err), a.kernel.close())
	}
	return a, nil
}

// groupBits are the groups, as struct activity_header has them.
func (a *Activities) groupBits() uint32 { return accounts.Bits(a.opts.Groups) }

// Missing says which programs of the groups this kernel does not have, and why; under
// accounts.Hardware, why not all counters of that group can be read.
func (a *Activities) Missing() map[string]error { return a.kernel.missing }

// Close takes back all maps, and detaches and unloads the kernel side.
func (a *Activities) Close() error {
	a.mu.Lock()
	a.closed = true
	list := a.list()
	a.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range list {
		wg.Go(p.Close)
	}
	wg.Wait()
	return errors.Join(a.hooks.close(), a.kernel.close())
}

// list returns the processes. Requires a.mu.
func (a *Activities) list() (list []*Process) {
	for _, p := range a.processes {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// Processes returns those that have opened, by their number.
func (a *Activities) Processes() []*Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(a.list(), func(p *Process) bool { return !p.ready || p.declared() })
}

// Counts returns the counters.
func (a *Activities) Counts() Counts {
	a.mu.Lock()
	c := Counts{
		Processes: a.total.processes, Bytes: a.total.bytes, Opened: a.opened, Refused: a.refused, Late: a.late,
	}
	list := a.list()
	a.mu.Unlock()
	for _, p := range list {
		c.Late += p.late()
		if p.declared() {
			c.Processes--
		}
	}
	return c
}

// MapBytes is the memory of the kernel side's maps without those of processes, as the kernel
// accounts for it.
func (a *Activities) MapBytes() uint64 {
	return a.sizes.Sum(slices.Collect(maps.Values(a.kernel.shared)))
}

// Open makes the maps of a process, which takes part from then on until Close of what is
// returned. Errors are of ErrQuota, ErrSize, ErrIsOpen or ErrStopped, or of the kernel.
func (a *Activities) Open(o *Opening) (*Process, error) {
	p, err := newProcess(a, o)
	if err != nil {
		return nil, err
	}
	if err := a.admit(p, o.Wait); err != nil {
		return nil, err
	}
	if err := p.open(o.PidFD); err != nil {
		p.Close()
		return nil, fmt.Errorf("make the maps of process %d: %w", p.pid, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.ready = true
	a.opened++
	return p, nil
}

// admit gives a process a number, within the quotas, once the maps have gone that it had before,
// and has the kernel side attached.
func (a *Activities) admit(p *Process, wait time.Duration) error {
	patience := time.NewTimer(wait)
	defer patience.Stop()
	for {
		before, err := a.tryAdmit(p)
		if err != nil {
			return err
		}
		if before == nil {
			return a.attach(p)
		}
		select {
		case <-before.left:
		case <-patience.C:
			return a.countRefusal(fmt.Errorf("%w: it has one set of maps, which all of its code can use", ErrIsOpen))
		}
	}
}

// attach is for a process that has been admitted: forget is the end of it. It may take some
// tenths of a second, which a.mu is not held for.
func (a *Activities) attach(p *Process) error {
	if err := a.hooks.hold(); err != nil {
		p.Close()
		return fmt.Errorf("attach the kernel side of activities: %w", err)
	}
	return nil
}

func (a *Activities) countRefusal(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused++
	return err
}

// tryAdmit is admit, unless the process has maps: those of before.
func (a *Activities) tryAdmit(p *Process) (before *Process, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.processes {
		if other != nil && other.pid == p.pid {
			return other, nil
		}
	}
	if err := a.refuse(p); err != nil {
		a.refused++
		return nil, err
	}
	for number, there := range a.processes {
		if there == nil {
			p.number = uint32(number)
			break
		}
	}
	if a.serial++; a.serial == 0 {
		a.serial++
	}
	p.serial = a.serial
	a.processes[p.number] = p
	a.count(p, 1)
	return nil, nil
}

// refuse says why a process may not open. Requires a.mu.
func (a *Activities) refuse(p *Process) error {
	u, free := a.users[p.uid], abi.ActivityProcesses-a.total.processes
	switch {
	case a.closed:
		return ErrStopped
	case a.total.bytes+p.bytes > a.opts.Memory:
		return fmt.Errorf("%w: the maps of all processes would take more than activities.memory (%d bytes): "+
			"open with fewer tokens, or raise it", ErrQuota, a.opts.Memory)
	case p.uid != 0 && u.bytes+p.bytes > a.opts.UserMemory:
		return fmt.Errorf("%w: the maps of user %d would take more than activities.user_memory (%d bytes): "+
			"open with fewer tokens, or raise it", ErrQuota, p.uid, a.opts.UserMemory)
	// A user gets another number only while it has fewer than are free: so that one is left for the next.
	case free == 0 || p.uid != 0 && u.processes >= free-reserved:
		return fmt.Errorf("%w: too many processes of user %d, or of all users, take part: at most %d can",
			ErrQuota, p.uid, abi.ActivityProcesses)
	}
	return nil
}

// count adds a process to what its user has, or takes it away. Requires a.mu.
func (a *Activities) count(p *Process, n int) {
	u := a.users[p.uid]
	u.processes += n
	u.bytes += int64(n) * p.bytes
	a.users[p.uid] = u
	if u.processes == 0 {
		delete(a.users, p.uid)
	}
	a.total.processes += n
	a.total.bytes += int64(n) * p.bytes
	if err := a.kernel.open.Set(uint32(a.total.processes)); err != nil {
		a.log.Warn("tell the kernel side how many processes take part", zap.Error(err))
	}
}

// forget gives a number back.
func (a *Activities) forget(p *Process, late uint64) {
	a.mu.Lock()
	a.processes[p.number] = nil
	a.late += late
	a.count(p, -1)
	close(p.left)
	a.mu.Unlock()
	a.hooks.release()
}

// newProcess checks what is asked for.
func newProcess(a *Activities, o *Opening) (*Process, error) {
	p := &Process{
		of: a, pid: o.PID, uid: o.UID, began: linux.Monotonic(), pidfd: -1, left: make(chan struct{}),
		threads: cmp.Or(o.Threads, abi.ActivityDefaultThreads), tokens: cmp.Or(o.Tokens, abi.ActivityDefaultTokens),
	}
	if o.Inherit {
		p.flags |= abi.ActivityInherit
	}
	switch {
	case o.PID <= 0:
		return nil, errors.New("this process is not seen from where the daemon is")
	case p.threads < abi.ActivityThreadWindow || p.threads > abi.ActivityMaxThreads || bits.OnesCount(uint(p.threads)) != 1:
		return nil, fmt.Errorf("%w: threads must be a power of two from %d to %d", ErrSize, abi.ActivityThreadWindow, abi.ActivityMaxThreads)
	case p.tokens < 1 || p.tokens > abi.ActivityMaxTokens:
		return nil, fmt.Errorf("%w: tokens must be from 1 to %d", ErrSize, abi.ActivityMaxTokens)
	}
	p.bytes = p.memory()
	return p, nil
}
