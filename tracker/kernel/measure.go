package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MeasureRuns has the kernel count runs and run times for a while, and returns
// what each attached program did meanwhile. Meanwhile every BPF program of the
// machine is some 60 ns slower. Needs CAP_SYS_ADMIN: os.ErrPermission without.
func (o *Objects) MeasureRuns(ctx context.Context, length time.Duration) ([]ProgramStats, time.Duration, error) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, 0, fmt.Errorf("enable BPF run-time statistics: %w", err)
	}
	start := time.Now()
	before, err := o.ProgramStats()
	if err == nil {
		timer := time.NewTimer(length)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	after, failed := o.ProgramStats()
	took := time.Since(start)
	if err := errors.Join(err, failed, counting.Close()); err != nil {
		return nil, 0, err
	}
	was := map[string]ProgramStats{}
	for _, s := range before {
		was[s.Name] = s
	}
	for i := range after {
		w := was[after[i].Name]
		after[i].Runs -= min(w.Runs, after[i].Runs)
		after[i].RunTime -= min(w.RunTime, after[i].RunTime)
	}
	return after, took, nil
}
