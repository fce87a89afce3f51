package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Banks returns the two perf event arrays that the recorder writes into; the
// one who owns the rings fills them in.
func (o *Objects) Banks() [2]*ebpf.Map {
	return [2]*ebpf.Map{o.Maps().Bank0, o.Maps().Bank1}
}

// Records returns the recorder's rings of plain memory, one a CPU, and how
// many records one holds. CPUs that came later have none. What is where in
// them: Ring.
func (o *Objects) Records() (rings *ebpf.Map, ring int) { return o.Rings().Records() }

// Recorder is the recorder with the rings of one time.
type Recorder struct {
	*Objects
	rings *Rings
}

// Recorder returns it with the rings of now: it stays with them when others take their place.
func (o *Objects) Recorder() Recorder { return Recorder{o, o.Rings()} }

// Records is that of its rings.
func (r Recorder) Records() (rings *ebpf.Map, ring int) { return r.rings.Records() }

// Ring is that of its rings.
func (r Recorder) Ring(cpu int) Ring { return r.rings.Ring(cpu) }

// Recorded is that of its rings.
func (r Recorder) Recorded() []CPUCounters { return r.rings.Recorded() }

// Recording reports whether any group of events is recorded.
func (o *Objects) Recording() bool { return len(o.Plan().Groups) > 0 }

// Freezes counts the outliers whose history was kept from being overwritten,
// without a system call where variables are mapped (kernel 5.5+).
func (o *Objects) Freezes() (uint64, error) {
	s, err := o.recorderState()
	return s.Freezes, err
}

// Freeze switches banks of perf rings unless an outlier has done so already,
// and returns since when, in CLOCK_MONOTONIC nanoseconds, and which bank is
// frozen. Needs kernel 5.14+ (BPF_PROG_TYPE_SYSCALL).
func (o *Objects) Freeze() (since uint64, bank int, err error) {
	if _, err := o.Calls().FreezeNow.Run(&ebpf.RunOptions{}); err != nil {
		return 0, 0, fmt.Errorf("freeze the recorder: %w", err)
	}
	s, err := o.recorderState()
	return s.FrozenNs, int(s.Bank&1) ^ 1, err
}

// Frozen reports whether history waits to be read, and since when.
func (o *Objects) Frozen() (frozen bool, since uint64, err error) {
	s, err := o.recorderState()
	if o.loaded.Load().opts.Ring > 0 {
		return s.Freezes > s.Released, s.FrozenNs, err
	}
	return s.Frozen != 0, s.FrozenNs, err
}

// Release gives up what was frozen: of plain memory what was kept for the
// first so many freezes, all of which must have been read; of perf rings the
// frozen bank.
func (o *Objects) Release(freezes uint64) error {
	if _, err := o.Calls().ReleaseBank.Run(&ebpf.RunOptions{Context: abi.Release{Freezes: freezes}}); err != nil {
		return fmt.Errorf("release the recorder: %w", err)
	}
	return nil
}

func (o *Objects) recorderState() (abi.RecorderState, error) {
	var s abi.RecorderState
	if err := o.Vars.Recorder.Get(&s); err != nil {
		return s, fmt.Errorf("read the recorder's state: %w", err)
	}
	return s, nil
}
