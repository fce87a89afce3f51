// Package config reads and validates the daemon's configuration. Flags take
// precedence over environment variables, those over the file, and that over the
// defaults.
package config

import "time"

// DefaultFile is read if it exists and no other file is given.
const DefaultFile = "/etc/tailcam/tailcam.yaml"

// Config is the validated configuration of the daemon. The keys of the file are the
// names of the fields in lower case with underscores, such as snapshots.min_free.
type Config struct {
	File       string   // path of the file; empty: none
	Self       string   // path of this program, to start helper processes; empty: none. Not a key.
	Rules      []string // rule files, and directories of them
	Socket     Socket
	Recorder   Recorder
	Snapshots  Snapshots
	Actions    Actions
	Capacity   Capacity
	Outliers   Outliers
	Histograms Histograms
	Symbols    Symbols
	Log        Log
}

// Socket is the daemon's socket for the command line.
type Socket struct {
	Path  string
	Group string // may connect; if it does not exist, only root may
}

// Recorder is the flight recorder.
type Recorder struct {
	Enabled   bool
	Backend   string        // mmap or perf
	Size      int           // bytes for each CPU
	Cover     time.Duration // history that the rings should hold, measured at start; 0: use Size
	MaxMemory int64         // bytes that Cover may use for all CPUs
	Events    []string      // groups of EventGroups
}

// EventGroups lists the groups of events that can be recorded.
var EventGroups = []string{
	"sched", "irq", "timer", "block", "workqueue", "process", "syscall",
	"reclaim", "memory", "lock", "power", "net", "throttle", "kvm",
}

// Snapshots is where snapshots are kept, and for how long.
type Snapshots struct {
	Dir        string
	Keep       Keep
	MinFree    int64 // bytes to leave free on the file system
	RTPriority int   // SCHED_FIFO priority of the threads that take snapshots; 0: none
}

// Keep limits the snapshots: when one limit is exceeded, the oldest are removed.
type Keep struct {
	Count int
	Bytes int64
	Age   time.Duration
}

// Actions is how rule actions are run.
type Actions struct {
	User        string // default for actions
	Concurrency int    // running at the same time
	Queue       int    // waiting; more are skipped and counted
}

// Capacity is the number of slots in the pending tables, powers of two.
type Capacity struct {
	Initial Slots // at start
	Max     Slots // after growing; at most Initial: tables do not grow
	Pairs   int   // pending work of declared pairs
	Chains  int   // tasks that carry a chain at the same time
	Spans   int   // pending spans
}

// Slots are the sizes of the tables that grow.
type Slots struct {
	Tasks     int // wakeup and offcpu: live tasks
	Syscalls  int // calls in progress that rules name
	Block     int // requests in flight
	Workqueue int // work items that wait or run
}

// Outliers is how outliers reach the daemon.
type Outliers struct {
	Buffer int // bytes of the BPF ring buffer
	Rate   int // per rule and second, on average; 0: no limit
	Burst  int // per rule
}

// Histograms are the distributions of all delays.
type Histograms struct {
	Enabled bool // false: no histograms, and no adaptive thresholds
}

// Symbols is how stack frames are resolved.
type Symbols struct {
	Lines     bool  // source lines, inlined functions, separate debug files
	MaxMemory int64 // bytes for each helper that reads symbols and debug information
}

// Log is the daemon's log, on standard error.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // json, console
}
