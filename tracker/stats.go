package tracker

import (
	"fmt"
	"time"
)

// ProgramStats is what the kernel has counted of one attached program.
type ProgramStats struct {
	Name    string // in bpf/tailcam.bpf.c, which is also its hook's name
	Runs    uint64 // while statistics were enabled
	RunTime time.Duration
	Missed  uint64 // runs that the kernel skipped: the program would have interrupted itself
}

// ProgramStats reads the run time of every attached program. The kernel counts
// only while BPF statistics are enabled (ebpf.EnableStats, or the sysctl
// kernel.bpf_stats_enabled); otherwise Runs and RunTime stand still. Needs
// kernel 5.12+ and CAP_SYS_ADMIN. After Stop the list is empty.
func (t *Tracker) ProgramStats() ([]ProgramStats, error) {
	t.stopping.Lock()
	defer t.stopping.Unlock()
	list := make([]ProgramStats, 0, len(t.links))
	for _, a := range t.links {
		s, err := a.prog.Stats()
		if err != nil {
			return nil, fmt.Errorf("read statistics of program %s: %w", a.hook.program, err)
		}
		list = append(list, ProgramStats{a.hook.program, s.RunCount, s.Runtime, s.RecursionMisses})
	}
	return list, nil
}
