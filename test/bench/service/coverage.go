package main

import (
	"context"
	"runtime"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot/flight"
)

// daemonWork is what a tailcam's daemon did during a run.
type daemonWork struct {
	Daemon    float64 `json:"daemon,omitempty"`    // CPU time of it and its helpers: share of the machine
	Snapshots float64 `json:"snapshots,omitempty"` // written
}

// history is what a tailcam's recorder took of a run.
type history struct {
	Coverage float64 `json:"coverage_s,omitempty"`      // that ringSize holds at the rate of the busiest CPU; 0: not known
	Bytes    float64 `json:"bytes_per_event,omitempty"` // of that CPU's ring
}

// status is what a daemon says at a time.
type status struct {
	*api.Status
	at  time.Time
	cpu time.Duration // that the daemon and its helpers have used
}

func (d *daemon) status(ctx context.Context) (status, error) {
	s, err := d.api.Status(ctx)
	return status{s, time.Now(), d.cpu()}, err
}

// work is what the daemon did between two of its states.
func work(before, after status) daemonWork {
	all := after.at.Sub(before.at).Seconds() * float64(runtime.NumCPU())
	return daemonWork{
		Daemon:    (after.cpu - before.cpu).Seconds() / all,
		Snapshots: written(after) - written(before),
	}
}

// written is how many snapshots a daemon has written since it started in an empty directory.
func written(s status) float64 {
	n := uint64(s.Snapshots.Count)
	for _, removed := range s.Snapshots.Removed {
		n += removed
	}
	return float64(n)
}

// between computes what was recorded between two states of a daemon. Nothing, if it is of
// before there were counters of bytes.
func between(before, after status) (h history) {
	seconds := after.at.Sub(before.at).Seconds()
	most := 0.0
	for i := range after.Recorder.CPUs {
		k := &after.Recorder.CPUs[i]
		bytes, events := k.BytesWritten, k.Records
		for _, was := range before.Recorder.CPUs {
			if was.CPU == k.CPU {
				bytes -= was.BytesWritten
				events -= was.Records
			}
		}
		if rate := float64(bytes) / seconds; rate > most && events > 0 {
			most = rate
			h.Coverage = flight.Covers(after.Recorder.Backend, ringSize, rate).Seconds()
			h.Bytes = float64(bytes) / float64(events)
		}
	}
	return h
}
