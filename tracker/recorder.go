package tracker

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
)

// Banks returns the two perf event arrays that the recorder writes into; the
// one who owns the rings fills them in. The live one is Bank's.
func (t *Tracker) Banks() [2]*ebpf.Map {
	return [2]*ebpf.Map{t.objects.Maps["bank0"], t.objects.Maps["bank1"]}
}

// Records returns the recorder's rings of plain memory, and how many records
// one holds. A CPU has one in each bank; ring number 2*CPU+bank begins at
// record ring*(2*CPU+bank). CPUs that came later have none. Positions in them:
// CPUCounters.Position.
func (t *Tracker) Records() (rings *ebpf.Map, ring int) { return t.objects.Maps["records"], t.ring }

// Recording reports whether any group of events is recorded.
func (t *Tracker) Recording() bool { return len(t.plan.groups) > 0 }

// Freeze switches banks unless an outlier has done so already, and returns
// since when, in CLOCK_MONOTONIC nanoseconds, and which bank is frozen.
// Needs kernel 5.14+ (BPF_PROG_TYPE_SYSCALL).
func (t *Tracker) Freeze() (since uint64, bank int, err error) {
	if _, err := t.objects.Programs["freeze_now"].Run(&ebpf.RunOptions{}); err != nil {
		return 0, 0, fmt.Errorf("freeze the recorder: %w", err)
	}
	var s bpf.TailcamRecorderState
	if err := t.objects.Variables["recorder"].Get(&s); err != nil {
		return 0, 0, fmt.Errorf("read the recorder's state: %w", err)
	}
	return s.FrozenNs, int(s.Bank&1) ^ 1, nil
}

// Frozen reports whether a bank waits to be read, and since when.
func (t *Tracker) Frozen() (frozen bool, since uint64, err error) {
	var s bpf.TailcamRecorderState
	if err := t.objects.Variables["recorder"].Get(&s); err != nil {
		return false, 0, fmt.Errorf("read the recorder's state: %w", err)
	}
	return s.Frozen != 0, s.FrozenNs, nil
}

// Release lets the next outlier freeze again; the frozen bank must have been read.
func (t *Tracker) Release() error {
	if _, err := t.objects.Programs["release_bank"].Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("release the recorder's bank: %w", err)
	}
	return nil
}
