package snapshot

import (
	"time"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Recorder is what a snapshot needs of the flight recorder: fixed records in
// one ring a CPU, which outliers keep from being overwritten until they are read.
//
// One goroutine at a time may call Freeze, Drain and Release.
type Recorder interface {
	// Freeze begins a drain, and reports up to when in CLOCK_MONOTONIC the
	// history is that it will read.
	Freeze() (mono uint64, err error)
	// Drain reads what was not read before. Each CPU's records come back oldest
	// first, as one stream or, where some are missing, as several.
	Drain() (Drained, error)
	// Release gives up what outliers before Freeze have kept.
	Release() error
	// Unread is how many records the busiest CPU has written since the last
	// drain. It may be called at any time.
	Unread() int
	// Coverage tells how much history each CPU holds now.
	Coverage() []Coverage
}

// Drained is what was read at once.
type Drained struct {
	CPUs []CPUStream // those of one CPU in the order of time
}

// CPUStream is a part of what was drained of one CPU in which nothing is
// missing, about in the order of time.
type CPUStream struct {
	CPU     int
	Records []trace.Record
	Missing uint64 // records before these that were overwritten before they were read
}

// Coverage is one CPU's state of the recorder.
type Coverage struct {
	CPU             int     `json:"cpu"`
	CoveredNS       int64   `json:"covered_ns"`
	Covered         float64 `json:"-"`
	EventsPerSecond float64 `json:"events_per_second"`
	BytesPerEvent   int     `json:"bytes_per_event"`
	// CoversAtRateNS is how long the ring lasts at that rate: its size divided
	// by events per second and bytes an event; 0: no events.
	CoversAtRateNS int64  `json:"covers_at_rate_ns"`
	Records        uint64 `json:"records"` // written since start
	Lost           uint64 `json:"lost"`    // refused by the ring since start
}

// Clock converts between CLOCK_MONOTONIC and wall time.
type Clock struct {
	// WallMinusMono is CLOCK_REALTIME minus CLOCK_MONOTONIC.
	WallMinusMono time.Duration
}
