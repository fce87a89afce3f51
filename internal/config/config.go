// Package config reads and validates the daemon's configuration. Flags take
// precedence over environment variables, those over the files of conf.d, those over the
// file, and that over the defaults.
package config

import (
	"os"
	"time"

	"github.com/tailcam/tailcam/internal/redact"
)

// DefaultFile is read if it exists and no other file is given.
const DefaultFile = "/etc/tailcam/tailcam.yaml"

// Config is the validated configuration of the daemon. The keys of the file are the
// names of the fields in lower case with underscores, such as snapshots.min_free.
type Config struct {
	File       string                 // path of the file; empty: none
	Files      []string               // all files read: File, then those of conf.d beside it
	Self       string                 // path of this program, to start helper processes; empty: none. Not a key.
	Hidden     bool                   // the socket may be removed: whoever needs it is connected. Not a key.
	EachRule   bool                   // each rule has a histogram, asked for or not. Not a key.
	Rules      []string               // rule files, and directories of them
	Host       string                 // of what is sent and saved; empty: HostName asks the machine
	Again      func() (Config, error) // reads it again, from the same flags; nil: it cannot. Not a key.
	Reload     Reload
	Pin        string // where the kernel side is kept if the daemon dies: PinAuto, PinOff, or a directory
	Socket     Socket
	Recorder   Recorder
	Snapshots  Snapshots
	Actions    Actions
	Capacity   Capacity
	Outliers   Outliers
	Histograms Histograms
	Activities Activities
	Symbols    Symbols
	Containers Containers
	Budget     Budget
	Metrics    Metrics
	Alerts     Alerts
	Peers      Peers
	OTLP       OTLP
	Upload     Upload
	Log        Log
}

// HostName is the name by which others know this host.
func (c *Config) HostName() (string, error) {
	if c.Host != "" {
		return c.Host, nil
	}
	return os.Hostname()
}

// Values of Config.Pin that are no directories.
const (
	PinAuto = "auto" // with systemd, if that offers it
	PinOff  = "off"
)

// DefaultPinDir is what --pin alone means.
const DefaultPinDir = "/sys/fs/bpf/tailcam"

// Reload is when the daemon reads its files again without being told to.
type Reload struct {
	Watch bool // when they change
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
	IRQFloor  time.Duration // interrupts and softirqs that take less have no record of their own; 0: all have
}

// EventGroups lists the groups of events that can be recorded.
var EventGroups = []string{
	"sched", "irq", "timer", "block", "workqueue", "process", "syscall",
	"reclaim", "memory", "lock", "power", "net", "throttle", "kvm", "wait", "run", "sample",
}

// Snapshots is where snapshots are kept, and for how long.
type Snapshots struct {
	Dir        string
	Keep       Keep
	MinFree    int64 // bytes to leave free on the file system
	Compress   string
	Boost      time.Duration // CPU time for which one snapshot may raise the daemon's priority; 0: never
	RTPriority int           // SCHED_FIFO priority of the threads that take snapshots; 0: none
}

// Values of Snapshots.Compress.
const (
	CompressZstd = "zstd"
	CompressNone = "none"
)

// Keep limits the snapshots, see snapshot.Retention.
type Keep struct {
	Count int
	Bytes int64
	Age   time.Duration
	Worst int // of each rule and of each culprit, kept before newer ones
}

// Actions is how rule actions are run.
type Actions struct {
	User        string // default for actions
	Concurrency int    // running at the same time
	Queue       int    // waiting; more are skipped and counted

	// Of one action, with all that it starts:
	MaxCPU    time.Duration // 0: no limit
	MaxMemory int64         // bytes
	MaxOutput int64         // bytes that are kept; more is dropped

	// Of all that run, together:
	TotalCPU    float64 // share of the time of all CPUs; 0: no limit
	TotalMemory int64   // bytes; 0: no limit
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

// Activities are the requests that threads work for.
type Activities struct {
	Enabled    bool     // read the contexts that programs publish for their threads, and keep accounts
	Attributes []string // of these contexts, that outliers carry
	Groups     []string // of accounts, of accounts.Names
	UserMemory int64    // bytes of the maps of one user's processes
	Memory     int64    // bytes of the maps of all processes
	Socket     string   // path of a socket that serves nothing else, to everybody; empty: none
}

// Symbols is how stack frames are resolved.
type Symbols struct {
	Lines     bool  // source lines, inlined functions, separate debug files
	MaxMemory int64 // bytes for each helper that reads symbols and debug information
}

// Containers is how containers and pods get their names.
type Containers struct {
	Sockets []string // of container runtimes, see containers.ParseSocket
	Labels  []string // of pods and containers, that outliers carry
}

// Budget is what tailcam may cost before it sheds work.
type Budget struct {
	CPU      float64 // share of the time of all CPUs; 0: no limit
	Softirqs float64 // the same, of the hooks of softirqs
	Locks    float64 // and of those of contended locks of the kernel
	Memory   int64   // bytes; 0: no limit; budget.AutoMemory: what budget.MemoryLimit says
}

// Metrics is where Prometheus finds the daemon.
type Metrics struct {
	Listen    string // HOST:PORT, or unix:PATH; empty: nowhere
	WebConfig string // path of a web configuration file of the exporter toolkit; empty: no TLS, no authentication
}

// Alerts is where Alertmanager's webhook finds the daemon.
type Alerts struct {
	Listen    string // HOST:PORT, or unix:PATH; empty: only the daemon's socket
	WebConfig string // as in Metrics; without it, Listen is of this machine alone
}

// open reports whether other machines may send alerts without authentication.
func (a *Alerts) open() bool { return a.WebConfig == "" && isOpen(a.Listen) }

// OTLP is the OpenTelemetry collector that outliers and metrics are sent to.
type OTLP struct {
	Endpoint string            // URL without the path of a signal; empty: nothing is sent
	Protocol string            // http/protobuf, grpc
	Signals  []string          // of OTLPSignals
	Headers  map[string]string // of each request; may have secrets
	Resource map[string]string // attributes that replace or add to the host's; an empty value removes one
	TLS      ClientTLS
	Interval time.Duration // of metrics
	Spool    string        // directory of outliers that wait; empty: they wait in memory alone
	Quota    int64         // bytes of Spool
}

// OTLPSignals lists what can be sent.
var OTLPSignals = []string{"logs", "metrics"}

// ClientTLS are paths of PEM files, for connections to others.
type ClientTLS struct {
	CA        string // authorities; empty: the system's
	Cert, Key string // of the client; empty: none
}

// Upload is where snapshots are sent to. It has no secrets, only paths of files with them.
type Upload struct {
	Target      string // URL, see outbox.Parse; empty: nowhere
	Credentials string // path; empty: none, or with S3 the environment
	KnownHosts  string // path; keys of SFTP servers
	CA          string // path of a PEM file; empty: the system's
	S3          UploadS3
	Spool       string // directory of what waits
	Quota       int64  // bytes of the spool
	Age         time.Duration
	Bandwidth   int64         // bytes a second; 0: no limit
	Redact      []redact.Kind // names that are sent as pseudonyms; nil: none
}

// UploadS3 is a store with the API of S3.
type UploadS3 struct {
	Endpoint string // URL
	Region   string // empty: as the store says
}

// Log is the daemon's log, on standard error, and its lines about outliers, on standard
// output.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // auto (journal or json), json, console
}
