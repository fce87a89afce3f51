package snapshot

import (
	"time"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Recorder is the flight recorder: one ring of fixed-size records per CPU. The kernel
// side keeps the records around an outlier until they are drained.
//
// Only one goroutine at a time may call FreezeNow, Freeze, Drain and Release.
type Recorder interface {
	// Freeze starts a drain. It returns the time (CLOCK_MONOTONIC) up to which Drain
	// will read.
	Freeze() (mono uint64, err error)
	// FreezeNow is Freeze for a Drain that does not wait for programs that have read the
	// clock and not begun their record: the time is before that, and the next drain has them.
	FreezeNow() (mono uint64, err error)
	// Drain reads the records not read before. Those of each CPU are ordered by time,
	// split into several streams where records are missing.
	Drain() (Drained, error)
	// Release gives up what the kernel kept for outliers before Freeze.
	Release() error
	// Unread returns how many records the busiest CPU has written since the last drain.
	// It may be called concurrently.
	Unread() int
	// Coverage returns the current state of each CPU's ring. It may be called
	// concurrently.
	Coverage() []Coverage
}

// Drained is the result of one drain.
type Drained struct {
	CPUs []CPUStream // streams of one CPU are ordered by time
}

// CPUStream is a gapless sequence of records of one CPU, roughly ordered by time.
type CPUStream struct {
	CPU     int
	Records []trace.Record
	Missing uint64 // records lost before this stream
}

// Coverage is the state of one CPU's ring.
type Coverage struct {
	CPU             int     `json:"cpu"`
	CoveredNS       int64   `json:"covered_ns"`
	Covered         float64 `json:"-"`
	EventsPerSecond float64 `json:"events_per_second"`
	BytesPerEvent   int     `json:"bytes_per_event"`
	// CoversAtRateNS is how long the ring lasts at the current event rate; 0: no
	// events.
	CoversAtRateNS int64  `json:"covers_at_rate_ns"`
	Records        uint64 `json:"records"` // written since the start
	Lost           uint64 `json:"lost"`    // refused by the ring since the start
	BytesWritten   uint64 `json:"bytes_written"`
}

// Clock converts between CLOCK_MONOTONIC and wall time.
type Clock struct {
	// WallMinusMono is CLOCK_REALTIME minus CLOCK_MONOTONIC.
	WallMinusMono time.Duration
}
