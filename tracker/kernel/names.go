package kernel

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf/abi"
)

// seedProgram finds the names of threads that were there before (bpf/tailcam.bpf.c).
const seedProgram = "seed_names"

// Name is what a thread is, or was, called.
type Name struct {
	Since uint64 // CLOCK_MONOTONIC nanoseconds
	Comm  [abi.TaskCommLen]byte
}

// seedNames runs it; the hooks that follow changes stand already.
func (o *Objects) seedNames() error {
	return o.eachTask(seedProgram)
}

// eachTask runs a program on all tasks, if it is loaded.
func (o *Objects) eachTask(program string) error {
	p := o.loaded.Load().programs[program]
	if p == nil {
		return nil
	}
	iter, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return fmt.Errorf("attach to all tasks: %w", err)
	}
	defer func() { _ = iter.Close() }()
	r, err := iter.Open()
	if err != nil {
		return fmt.Errorf("iterate over all tasks: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("run %s on all tasks: %w", program, err)
	}
	return nil
}

// Names returns what a thread is and was called, the latest first, also if it is
// gone: its last four names, and those of the thread that had its number before.
// Empty: nobody knows. They are kept while the recorder has the group sched.
func (o *Objects) Names(tid int) []Name {
	var list []Name
	key := uint32(tid)
	for _, lookup := range []func(key, value any) error{o.Maps().TaskNames.Lookup, o.Maps().GoneNames.Lookup} {
		var n abi.TaskName
		if lookup(&key, &n) != nil {
			continue
		}
		for _, name := range n.Names {
			if name.SinceNs != 0 {
				list = append(list, Name{name.SinceNs, name.Comm})
			}
		}
	}
	return list
}
