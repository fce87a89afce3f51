package tracker

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
)

// Banks returns the two perf event arrays that the recorder writes into; the
// one who owns the rings fills them in.
func (t *Tracker) Banks() [2]*ebpf.Map {
	return [2]*ebpf.Map{t.objects.Maps["bank0"], t.objects.Maps["bank1"]}
}

// Records returns the recorder's rings of plain memory, one a CPU, and how
// many records one holds. CPUs that came later have none. What is where in
// them: Ring.
func (t *Tracker) Records() (rings *ebpf.Map, ring int) { return t.objects.Maps["records"], t.ring }

// Recording reports whether any group of events is recorded.
func (t *Tracker) Recording() bool { return len(t.plan.groups) > 0 }

// Freezes counts the outliers whose history was kept from being overwritten,
// without a system call where variables are mapped (kernel 5.5+).
func (t *Tracker) Freezes() (uint64, error) {
	s, err := t.recorderState()
	return s.Freezes, err
}

// Freeze switches banks of perf rings unless an outlier has done so already,
// and returns since when, in CLOCK_MONOTONIC nanoseconds, and which bank is
// frozen. Needs kernel 5.14+ (BPF_PROG_TYPE_SYSCALL).
func (t *Tracker) Freeze() (since uint64, bank int, err error) {
	if _, err := t.objects.Programs["freeze_now"].Run(&ebpf.RunOptions{}); err != nil {
		return 0, 0, fmt.Errorf("freeze the recorder: %w", err)
	}
	s, err := t.recorderState()
	return s.FrozenNs, int(s.Bank&1) ^ 1, err
}

// Frozen reports whether history waits to be read, and since when.
func (t *Tracker) Frozen() (frozen bool, since uint64, err error) {
	s, err := t.recorderState()
	if t.opts.Ring > 0 {
		return s.Freezes > s.Released, s.FrozenNs, err
	}
	return s.Frozen != 0, s.FrozenNs, err
}

// Release gives up what was frozen: of plain memory what was kept for the
// first so many freezes, all of which must have been read; of perf rings the
// frozen bank.
func (t *Tracker) Release(freezes uint64) error {
	if _, err := t.objects.Programs["release_bank"].Run(&ebpf.RunOptions{Context: bpf.TailcamRelease{Freezes: freezes}}); err != nil {
		return fmt.Errorf("release the recorder: %w", err)
	}
	return nil
}

func (t *Tracker) recorderState() (bpf.TailcamRecorderState, error) {
	var s bpf.TailcamRecorderState
	if err := t.objects.Variables["recorder"].Get(&s); err != nil {
		return s, fmt.Errorf("read the recorder's state: %w", err)
	}
	return s, nil
}
