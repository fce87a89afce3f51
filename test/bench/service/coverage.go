package main

import (
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

// observation is how long a load ran, with what a tailcam says of itself before and after it.
type observation struct {
	before, after *api.Status
	took          time.Duration
	cpu           time.Duration // that the daemon and its helpers used meanwhile
}

// work is what the daemon did during a run.
func (r *observation) work() daemonWork {
	return daemonWork{
		Daemon:    r.cpu.Seconds() / r.took.Seconds() / float64(runtime.NumCPU()),
		Snapshots: written(r.after) - written(r.before),
	}
}

// written is how many snapshots a daemon has written since it started in an empty directory.
func written(s *api.Status) float64 {
	n := uint64(s.Snapshots.Count)
	for _, removed := range s.Snapshots.Removed {
		n += removed
	}
	return float64(n)
}

// history is what was recorded during a run. Nothing, if the daemon is of before there were
// counters of bytes.
func (r *observation) history() (h history) {
	most := 0.0
	for i := range r.after.Recorder.CPUs {
		k := &r.after.Recorder.CPUs[i]
		bytes, events := k.BytesWritten, k.Records
		for _, was := range r.before.Recorder.CPUs {
			if was.CPU == k.CPU {
				bytes -= was.BytesWritten
				events -= was.Records
			}
		}
		if rate := float64(bytes) / r.took.Seconds(); rate > most && events > 0 {
			most = rate
			h.Coverage = flight.Covers(r.after.Recorder.Backend, ringSize, rate).Seconds()
			h.Bytes = float64(bytes) / float64(events)
		}
	}
	return h
}
