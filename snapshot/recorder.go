package snapshot

import (
	"time"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Recorder is what a snapshot needs of the flight recorder. The kernel side
// has two banks of rings: one is written, the other is frozen or empty.
//
// One goroutine at a time may call Freeze, Drain and Release.
type Recorder interface {
	// Freeze makes the kernel side write into the other bank, unless an
	// outlier has done so already, and reports when in CLOCK_MONOTONIC.
	Freeze() (mono uint64, err error)
	// Drain reads and empties the frozen bank. Records come back as one
	// stream a CPU, oldest first.
	Drain() (Drained, error)
	// Release lets the next outlier freeze again.
	Release() error
	// Coverage tells how much history each CPU holds now.
	Coverage() []Coverage
}

// Drained is what one bank held.
type Drained struct {
	CPUs []CPUStream
}

// CPUStream is one CPU's part of a drained bank, ordered by time.
type CPUStream struct {
	CPU     int
	Records []trace.Record
}

// Coverage is one CPU's state of the recorder.
type Coverage struct {
	CPU             int     `json:"cpu"`
	CoveredNS       int64   `json:"covered_ns"`
	Covered         float64 `json:"-"`
	EventsPerSecond float64 `json:"events_per_second"`
	Records         uint64  `json:"records"` // written since start
	Lost            uint64  `json:"lost"`    // refused by the ring since start
}

// Clock converts between CLOCK_MONOTONIC and wall time.
type Clock struct {
	// WallMinusMono is CLOCK_REALTIME minus CLOCK_MONOTONIC.
	WallMinusMono time.Duration
}
