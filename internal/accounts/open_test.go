package accounts

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
)

const (
	testThreads = 64
	testTokens  = 256
)

// process is the test's own process, which takes part in activities.
type process struct {
	t                *testing.T
	shared, accounts []byte
	tokens           uint32
}

// openGroups loads the kernel side with the groups, attaches it, and opens this process.
func openGroups(t *testing.T, groups ...string) *process {
	t.Helper()
	return openWith(t, nil, groups...)
}

// openWith does that, and has the group hardware count these events.
func openWith(t *testing.T, events []counter, groups ...string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	spec, err := bpf.LoadActivity()
	assert.NilError(t, err)
	_, err = Prepare(spec, append(groups, Scheduler))
	assert.NilError(t, err)
	if events != nil {
		assert.NilError(t, spec.Variables["account_hardware"].Set(true))
	}
	objects, err := ebpf.NewCollection(spec)
	if refused := (*ebpf.VerifierError)(nil); asVerifier(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	assert.NilError(t, err)
	t.Cleanup(objects.Close)
	assert.NilError(t, countAll(objects.Maps, events))
	p := &process{t: t}
	p.shared = p.array(objects.Maps["activity_shared"], abi.ActivitySharedBytes, unix.PROT_READ|unix.PROT_WRITE)
	p.accounts = p.array(objects.Maps["activity_accounts"], abi.ActivityAccountBytes, unix.PROT_READ)
	shift := uint32(32)
	for n := testThreads; n > 1; n >>= 1 {
		shift--
	}
	is := abi.ActivityProcess{Serial: 7, Threads: testThreads, ThreadShift: shift, Tokens: testTokens}
	assert.NilError(t, objects.Maps["activity_processes"].Put(uint32(0), &is))
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = unix.Close(self) })
	assert.NilError(t, objects.Maps["activity_owners"].Put(uint32(self), &abi.ActivityOwner{Process: 0, Serial: 7}))
	assert.NilError(t, objects.Variables["activities_open"].Set(uint32(1)))
	for _, name := range []string{"activity_exit", "activity_switch", "activity_waking"} {
		l, err := link.AttachTracing(link.TracingOptions{Program: objects.Programs[name]})
		assert.NilError(t, err)
		t.Cleanup(func() { assert.NilError(t, l.Close()) })
	}
	attached, err := Attach(objects.Programs)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, attached.Close()) })
	p.price(objects.Programs)
	return p
}

// price logs what each program has cost in the end.
func (p *process) price(programs map[string]*ebpf.Program) {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	assert.NilError(p.t, err)
	p.t.Cleanup(func() {
		for name, program := range programs {
			if s, err := program.Stats(); err == nil && s.RunCount > 0 {
				p.t.Logf("%s: %d runs of %d ns, %d missed", name, s.RunCount, s.Runtime.Nanoseconds()/int64(s.RunCount), s.RecursionMisses)
			}
		}
		assert.NilError(p.t, statistics.Close())
	})
}

func asVerifier(err error, to **ebpf.VerifierError) bool {
	for err != nil {
		if v, ok := err.(*ebpf.VerifierError); ok { //nolint:errorlint // this walks the chain
			*to = v
			return true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

// array makes one of the two arrays of the process, and maps it.
func (p *process) array(outer *ebpf.Map, size, protection int) []byte {
	n := 1 + testThreads + testTokens
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: uint32(n),
		Flags: unix.BPF_F_MMAPABLE | unix.BPF_F_INNER_MAP,
	})
	assert.NilError(p.t, err)
	assert.NilError(p.t, outer.Put(uint32(0), m))
	memory, err := unix.Mmap(m.FD(), 0, (n*size+os.Getpagesize()-1)&^(os.Getpagesize()-1), protection, unix.MAP_SHARED)
	assert.NilError(p.t, err)
	assert.NilError(p.t, m.Close())
	p.t.Cleanup(func() { assert.NilError(p.t, unix.Munmap(memory)) })
	return memory
}

// token makes one, and returns the index of its element.
func (p *process) token() uint32 {
	index := 1 + testThreads + p.tokens
	p.tokens++
	binary.NativeEndian.PutUint32(p.shared[index*abi.ActivitySharedBytes:], 1)
	return index
}

// carry has the calling thread, which it locks, carry a token while do runs.
func (p *process) carry(token uint32, do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slot := p.slot(uint32(unix.Gettid()))
	slot.switchTo(token)
	do()
	slot.switchTo(0)
}

// slot finds or claims that of a thread.
func (p *process) slot(tid uint32) *threadSlot {
	home := tid * uint32(abi.ActivityHash) >> 26
	for i := range uint32(abi.ActivityThreadWindow) {
		index := 1 + (home+i)&(testThreads-1)
		s := (*threadSlot)(unsafe.Pointer(&p.shared[index*abi.ActivitySharedBytes]))
		if atomic.LoadUint32(&s.Tid) == tid || atomic.CompareAndSwapUint32(&s.Tid, 0, tid) {
			return s
		}
	}
	panic(fmt.Sprintf("no slot for thread %d", tid))
}

type threadSlot abi.ActivityThread

func (s *threadSlot) switchTo(token uint32) {
	seq := s.Seq + 1
	s.Half[seq&1] = abi.ActivityHalf{Token: token, Generation: 1, SinceNs: monotonic()}
	atomic.StoreUint32(&s.Seq, seq)
}

func monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return uint64(t.Nano())
}

// value reads one of a token's account; of index 0 what is known of the process alone.
func (p *process) value(token uint32, v int) uint64 {
	at := int(token)*abi.ActivityAccountBytes + 8*v
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&p.accounts[at])))
}

// show logs what a token has.
func (p *process) show(name string, token uint32) {
	for i := range values {
		if n := p.value(token, values[i].index); n != 0 && (token != 0 || values[i].index >= abi.ActivitySyscalls) {
			p.t.Logf("%s: %s %d", name, values[i].Name, n)
		}
	}
}
