// Package config holds the daemon's configuration: where it comes from (flags,
// then environment, then file, then defaults), and what is allowed in it.
package config

import "time"

// DefaultFile is read if it is there and no other file is named.
const DefaultFile = "/etc/tailcam/tailcam.yaml"

// Config is the daemon's configuration, validated. The keys of the file are the
// names of the fields in lower case with underscores, such as
// snapshots.min_free.
type Config struct {
	File       string   // where it was read from; empty: defaults only
	Self       string   // this program, to start parts of the daemon as processes; empty: it cannot be. No key.
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

// Socket is where the command line talks to the daemon.
type Socket struct {
	Path  string
	Group string // may connect; it need not exist, then only root may
}

// Recorder is the flight recorder.
type Recorder struct {
	Enabled   bool
	Backend   string        // mmap or perf
	Size      int           // bytes for each CPU
	Cover     time.Duration // history to size the rings for at start, Size at least; 0: Size
	MaxMemory int64         // bytes that Cover may spend on all CPUs together
	Events    []string      // groups of EventGroups
}

// EventGroups are the groups of events that the recorder knows.
var EventGroups = []string{
	"sched", "irq", "timer", "block", "workqueue", "process", "syscall",
	"reclaim", "memory", "lock", "power", "net", "throttle", "kvm",
}

// Snapshots is where snapshots lie, and for how long.
type Snapshots struct {
	Dir        string
	Keep       Keep
	MinFree    int64 // bytes that must stay free on the file system
	RTPriority int   // of the thread that reads the recorder, SCHED_FIFO; 0: none
}

// Keep says when old snapshots are removed: when any of these is passed.
type Keep struct {
	Count int
	Bytes int64
	Age   time.Duration
}

// Actions is how the operator's executables are run.
type Actions struct {
	User        string // unless the action names one
	Concurrency int    // at once
	Queue       int    // waiting; more are skipped and counted
}

// Capacity is the number of places in the pending tables, powers of two.
type Capacity struct {
	Initial Places // made at start
	Max     Places // that a crowded table grows to; below Initial: it does not
	Pairs   int    // begun work of declared pairs
	Chains  int    // tasks that carry a chain at once
	Spans   int    // spans that have begun at once
}

// Places are those of the tables that grow.
type Places struct {
	Tasks    int // wakeup and offcpu: tasks alive at once
	Syscalls int // calls that rules name, in progress at once
	Block    int // requests in flight at once
}

// Outliers is the way of outliers from the kernel.
type Outliers struct {
	Buffer int // bytes of the BPF ring buffer
	Rate   int // of one rule, a second, in the long run; 0: no limit
	Burst  int // of one rule at once
}

// Histograms are the distributions of every delay.
type Histograms struct {
	Enabled bool // false: no histograms, and no adaptive thresholds
}

// Symbols are the names of the frames of stacks.
type Symbols struct {
	Lines     bool  // source lines, inlined functions, separate debug files
	MaxMemory int64 // bytes of memory of each helper that reads symbols and debug information
}

// Log is the daemon's log on standard error.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // json, console
}
