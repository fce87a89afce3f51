package disturbance

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	unseenFor  = 2 * time.Second // that switches are counted
	unseenFrom = 3               // unseen ones from which they count; one can fall between two reads
)

// Switches are those between tasks in some seconds.
type Switches struct {
	All    int64 // by the kernel's own count
	Unseen int64 // of which it told no tracer
}

// Kept is whether the kernel keeps a part of the switches from tracers.
func (s Switches) Kept() bool { return s.Unseen >= unseenFrom }

// String says how many were.
func (s Switches) String() string {
	return fmt.Sprintf("of %d switches between tasks the kernel told tracers nothing of %d", s.All, s.Unseen)
}

// Unseen reports how many of the next switches between tasks the kernel keeps from tracers, as some
// kernels do with those of some threads. Without the right to count, it knows of none. It takes two
// seconds.
func (w *Witness) Unseen() Switches {
	s, err := unseen()
	if err != nil {
		return Switches{}
	}
	return s
}

func unseen() (s Switches, err error) {
	seen, err := countSeen()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, seen.close()) }()
	all, err := countAll()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	read := func() (Switches, error) {
		total, err := all.read()
		told, err2 := seen.read()
		return Switches{All: total, Unseen: total - told}, errors.Join(err, err2)
	}
	before, err := read()
	if err != nil {
		return s, err
	}
	time.Sleep(unseenFor)
	after, err := read()
	return Switches{All: after.All - before.All, Unseen: max(0, after.Unseen-before.Unseen)}, err
}

// seenSwitches counts calls of a program at the tracepoint.
type seenSwitches struct {
	count   *ebpf.Map
	program *ebpf.Program
	at      link.Link
}

func countSeen() (s *seenSwitches, err error) {
	s = &seenSwitches{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.count, err = ebpf.NewMap(&ebpf.MapSpec{Name: "switches", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return s, err
	}
	s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "switches", Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, s.count.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}})
	if err != nil {
		return s, err
	}
	s.at, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_switch", Program: s.program})
	return s, err
}

func (s *seenSwitches) read() (n int64, err error) {
	err = s.count.Lookup(uint32(0), &n)
	return n, err
}

func (s *seenSwitches) close() (err error) {
	if s.at != nil {
		err = s.at.Close()
	}
	return errors.Join(err, s.program.Close(), s.count.Close())
}

// allSwitches are the kernel's own counters, of each CPU.
type allSwitches []int

func countAll() (all allSwitches, err error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CONTEXT_SWITCHES}
	attr.Size = uint32(unsafe.Sizeof(attr))
	for cpu := range runtime.NumCPU() {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("count the switches of CPU %d: %w", cpu, err), all.close())
		}
		all = append(all, fd)
	}
	return all, nil
}

func (a allSwitches) read() (sum int64, err error) {
	for _, fd := range a {
		var n [8]byte
		if _, err := unix.Read(fd, n[:]); err != nil {
			return 0, fmt.Errorf("read a counter of switches: %w", err)
		}
		sum += *(*int64)(unsafe.Pointer(&n))
	}
	return sum, nil
}

func (a allSwitches) close() (err error) {
	for _, fd := range a {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
