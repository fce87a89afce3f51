// Package stress holds the pending table (bpf/lib/pending.h) to account: many CPUs,
// timer interrupts and the scheduler enter and leave keys of one small table at
// once, and afterwards every entry must be somewhere.
package stress

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Options say how.
type Options struct {
	Places   int // of the table, a power of two
	Keys     int // that one worker enters at a time
	Workers  int // threads that run the programs
	Rounds   int
	Schedule bool // the scheduler's hook takes part
	Broken   bool // claims are plain stores: the account must not come out
}

// Account is what became of all entries.
type Account struct {
	Stored     uint64 // entries that had a place
	Lost       uint64 // entries whose window was full
	Replaced   uint64 // entries that met an older one of their key
	Matched    uint64 // exits that found theirs
	Missed     uint64 // exits that found none: theirs was lost, or never was
	Wrong      uint64 // exits that found another key's
	Left       uint64 // entries that are still there
	Interrupts uint64 // runs of the program in timer interrupts
}

// Balance is nil if every entry is accounted for.
func (a *Account) Balance() error {
	if sum := a.Matched + a.Replaced + a.Wrong + a.Left; sum != a.Stored || a.Wrong > 0 {
		return fmt.Errorf("of %d entries %d are accounted for, %d wrongly: %+v", a.Stored, sum, a.Wrong, *a)
	}
	return nil
}

type account struct {
	Stored, Lost, Replaced, Matched, Missed, Wrong, Runs, _ uint64
}

// Run stresses a table. It needs root; kernel 6.1+.
func Run(o Options) (a Account, err error) {
	spec, err := LoadStress()
	if o.Broken {
		spec, err = LoadBroken()
	}
	if err != nil {
		return a, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return a, err
	}
	for name, m := range spec.Maps {
		switch name {
		case "stress_keys":
			m.MaxEntries = uint32(o.Places / 8)
		case "stress_values":
			m.MaxEntries = uint32(o.Places)
		case "accounts":
			m.MaxEntries = uint32(o.Workers + 2*cpus)
		case ".rodata", ".bss", ".data":
		default:
			delete(spec.Maps, name) // of the kernel side, which is not loaded
		}
	}
	for name, v := range map[string]uint32{
		"mask": uint32(o.Places/8 - 1), "first_interrupt": uint32(o.Workers), "first_switch": uint32(o.Workers + cpus),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return a, fmt.Errorf("set %s: %w", name, err)
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return a, fmt.Errorf("load the stress programs: %w", err)
	}
	defer c.Close()
	stop, err := attach(c, o.Schedule)
	if err != nil {
		return a, errors.Join(err, stop())
	}
	if err := work(c.Programs["stress"], &o); err != nil {
		return a, errors.Join(err, stop())
	}
	if err := stop(); err != nil {
		return a, err
	}
	time.Sleep(20 * time.Millisecond) // programs at work still count
	return sum(c)
}

// attach lets timers and the scheduler take part; stop takes them off.
func attach(c *ebpf.Collection, schedule bool) (stop func() error, err error) {
	var undo []func() error
	stop = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for cpu := range runtime.NumCPU() {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64((200 * time.Microsecond).Nanoseconds())}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return stop, fmt.Errorf("make a timer on CPU %d: %w", cpu, err)
		}
		undo = append(undo, func() error { return unix.Close(fd) })
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, c.Programs["interrupt"].FD()); err != nil {
			return stop, fmt.Errorf("attach to the timer of CPU %d: %w", cpu, err)
		}
	}
	if schedule {
		l, err := link.AttachTracing(link.TracingOptions{Program: c.Programs["switched"]})
		if err != nil {
			return stop, fmt.Errorf("attach to sched_switch: %w", err)
		}
		undo = append(undo, l.Close)
	}
	return stop, nil
}

// work lets each worker enter a set of keys, and then leave the set that its
// neighbour has entered, round after round.
func work(p *ebpf.Program, o *Options) error {
	sets := make([]uint64, o.Workers)
	for i := range sets {
		sets[i] = uint64(i+1) << 20
	}
	errs := make([]error, o.Workers)
	each := func(do func(worker int) error) {
		var wait sync.WaitGroup
		for w := range o.Workers {
			wait.Add(1)
			go func() {
				defer wait.Done()
				errs[w] = errors.Join(errs[w], do(w))
			}()
		}
		wait.Wait()
	}
	run := func(worker int, key uint64, n int, leave uint32) error {
		arg := StressWork{Key: key, N: uint32(n), Worker: uint32(worker), Leave: leave}
		_, err := p.Run(&ebpf.RunOptions{Context: arg})
		return err
	}
	for round := range o.Rounds {
		each(func(w int) error {
			n := o.Keys
			if round%3 == 1 { // some twice, which replaces
				if err := run(w, sets[w], n/4, 0); err != nil {
					return err
				}
			}
			return run(w, sets[w], n, 0)
		})
		each(func(w int) error {
			other := (w + 1 + round%max(o.Workers-1, 1)) % o.Workers
			n := o.Keys
			if round%5 == 2 { // some stay, and are met again
				n -= rand.IntN(n/2 + 1)
			}
			return run(w, sets[other], n, 1)
		})
	}
	return errors.Join(errs...)
}

func sum(c *ebpf.Collection) (a Account, err error) {
	accounts := c.Maps["accounts"]
	for i := range accounts.MaxEntries() {
		var one account
		if err := accounts.Lookup(i, &one); err != nil {
			return a, err
		}
		a.Stored += one.Stored
		a.Lost += one.Lost
		a.Replaced += one.Replaced
		a.Matched += one.Matched
		a.Missed += one.Missed
		a.Wrong += one.Wrong
		a.Interrupts += one.Runs
	}
	values := c.Maps["stress_values"]
	for i := range values.MaxEntries() {
		var v uint64
		if err := values.Lookup(i, &v); err != nil {
			return a, err
		}
		if v != 0 {
			a.Left++
		}
	}
	return a, nil
}
