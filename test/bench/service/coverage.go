package main

import (
	"context"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot/flight"
)

// history is what a tailcam's recorder took of a run.
type history struct {
	Coverage float64 `json:"coverage_s,omitempty"`      // that ringSize holds at the rate of the busiest CPU; 0: not known
	Bytes    float64 `json:"bytes_per_event,omitempty"` // of that CPU's ring
}

// status is what a daemon says at a time.
type status struct {
	*api.Status
	at time.Time
}

func (d *daemon) status(ctx context.Context) (status, error) {
	s, err := d.api.Status(ctx)
	return status{s, time.Now()}, err
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
