package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// TasksFile names the tasks, functions and devices of a snapshot's trace.
const TasksFile = "tasks.json"

// NamesVersion is the schema version of tasks.json. Fields are only ever added.
const NamesVersion = 1

// maxNames bounds the size of tasks.json, in bytes.
const maxNames = 64 << 20

// Names is tasks.json: names for the numbers in a trace, looked up when it was written.
// What had disappeared by then is missing.
type Names struct {
	Version   int               `json:"version"`
	Tasks     []NamedTask       `json:"tasks"`
	Functions map[string]string `json:"functions"` // kernel functions and frames, by address in 0x notation
	Devices   map[string]string `json:"devices"`   // by major:minor
	// Settings of the kernel and of disks, by name: vm.dirty_bytes, vda/queue/scheduler.
	Settings map[string]string `json:"settings,omitempty"`
	// Limits of the tasks' cgroups, and of those above them, as far as there are some.
	Limits []CgroupLimits `json:"cgroups,omitempty"`
	// Code is functions of programs in which samples found them, by CodeKey.
	Code map[string]string `json:"code,omitempty"`

	// Sockets of the tasks' processes, as far as they have some.
	Sockets []ProcessSockets `json:"sockets,omitempty"`
	// Listeners are those whose accept queue was full when a task wanted to connect.
	Listeners []Listener `json:"listeners,omitempty"`

	// Activities are requests that tasks of the trace worked for, as far as they are known.
	Activities []CarriedActivity `json:"activities,omitempty"`
	// Contexts are traces that programs had published for threads, each at one moment.
	Contexts []PublishedContext `json:"contexts,omitempty"`

	// Files are the open files that system calls refer to. They go into the trace only.
	Files []trace.FileState `json:"-"`
}

// CgroupLimits has the files of a cgroup that limit its tasks, such as cpu.max.
type CgroupLimits struct {
	Cgroup string            `json:"cgroup"`
	Limits map[string]string `json:"limits"`
}

// ProcessSockets tells which side of its connections a process was on, shortly after the
// freeze: TCP, and UNIX stream sockets.
type ProcessSockets struct {
	PID      int  `json:"pid"`
	Listens  bool `json:"listens,omitempty"`
	Accepted int  `json:"accepted,omitempty"` // connections that others opened
	Opened   int  `json:"opened,omitempty"`   // connections that it opened
	Partial  bool `json:"partial,omitempty"`  // it had more sockets than were looked at
	// Connections are those of TCP, 64 at most.
	Connections []Connection `json:"connections,omitempty"`
}

// Listener is the process that listened on a port of TCP, to which a task wanted to connect.
type Listener struct {
	TID  int `json:"tid"` // of who wanted to connect
	Port int `json:"port"`
	PID  int `json:"pid"` // of who listened; of several that share the socket, the first
}

// Connection is an established connection of TCP. Both ends are ADDRESS:PORT.
type Connection struct {
	Local    string `json:"local_address"`
	Remote   string `json:"remote_address"`
	Accepted bool   `json:"accepted,omitempty"` // the remote side opened it
}

// CarriedActivity is a request, or other unit of work, and when tasks worked for it.
type CarriedActivity struct {
	Token   string        `json:"token"`
	Name    string        `json:"name,omitempty"`
	Text    string        `json:"text,omitempty"`
	TraceID string        `json:"trace_id,omitempty"`
	SpanID  string        `json:"span_id,omitempty"`
	Carried []CarriedTime `json:"carried,omitempty"`
	// Evicted are pages that tasks had to read again, as one that worked for it had evicted them.
	Evicted []EvictedPages `json:"evicted,omitempty"`
}

// PublishedContext is a trace that a program had published for one of its threads (OpenTelemetry's
// thread context) when that was the current task.
type PublishedContext struct {
	WokenTID int    `json:"woken_tid,omitempty"` // whom the thread woke then, after a long sleep
	TID      int    `json:"tid,omitempty"`       // or the thread, which left its CPU then, after a millisecond or more
	MonoNS   uint64 `json:"mono_ns"`
	TraceID  string `json:"trace_id"`
	SpanID   string `json:"span_id"`
}

// EvictedPages are pages of the page cache that a task brought in, from one time to another.
type EvictedPages struct {
	TID           int    `json:"tid"`
	FromMonoNS    uint64 `json:"from_mono_ns"`
	ToMonoNS      uint64 `json:"to_mono_ns"`
	Pages         int    `json:"pages"`
	ByTID         int    `json:"by_tid"` // who had evicted them
	EvictedMonoNS uint64 `json:"evicted_mono_ns"`
}

// CarriedTime is for how long a task carried the token of an activity.
type CarriedTime struct {
	TID        int    `json:"tid"`
	FromMonoNS uint64 `json:"from_mono_ns"`
	ToMonoNS   uint64 `json:"to_mono_ns"`
}

// CodeKey is the key of Names.Code for an address of a process.
func CodeKey(pid int, address uint64) string { return fmt.Sprintf("%d:%#x", pid, address) }

// NamedTask is a task as it was shortly after the freeze.
type NamedTask struct {
	TID        int    `json:"tid"`
	PID        int    `json:"pid"`
	PPID       int    `json:"ppid"`
	Session    int    `json:"session,omitempty"`
	Comm       string `json:"comm"`
	Cmdline    string `json:"cmdline,omitempty"`
	Title      string `json:"title,omitempty"` // what its process calls itself, if that is not Comm
	Cgroup     string `json:"cgroup,omitempty"`
	Container  string `json:"container,omitempty"`
	Policy     string `json:"policy"` // SCHED_OTHER, SCHED_FIFO, …
	RTPriority int    `json:"rt_priority"`
	Nice       int    `json:"nice"`
	Kernel     bool   `json:"kernel"`                    // a kernel thread
	CPUs       []int  `json:"cpus"`                      // CPU affinity
	Anonymous  int64  `json:"anonymous_bytes,omitempty"` // memory of its process that is of no file, and not swapped out
	// CPU, memory and blkio cgroups on cgroup v1.
	CPUCgroup    string `json:"cpu_cgroup,omitempty"`
	MemoryCgroup string `json:"memory_cgroup,omitempty"`
	IOCgroup     string `json:"io_cgroup,omitempty"`
	// Exited: known from before, without what is not known of it. Another task may have
	// had its id since.
	Exited bool `json:"exited,omitempty"`
	events.Place
}

// ReadNames reads tasks.json from a snapshot's directory. If it is missing, as in
// earlier releases, Names is empty and the error nil.
func ReadNames(dir string) (*Names, error) {
	path := filepath.Join(dir, TasksFile)
	data, err := ReadDocument(path, maxNames)
	if errors.Is(err, fs.ErrNotExist) {
		return &Names{Version: NamesVersion}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read names: %w", err)
	}
	var n Names
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("read names %s: %w", path, err)
	}
	if n.Version < 1 || n.Version > NamesVersion {
		return nil, fmt.Errorf("read names %s: unknown schema version %d (supported: up to %d)", path, n.Version, NamesVersion)
	}
	return &n, nil
}

// lookUpNames looks up names for the references of a trace, but for those that were looked up
// while its window went on.
func (m *Manager) lookUpNames(j *job) Names {
	n := Names{Version: NamesVersion, Tasks: []NamedTask{}}
	if m.opts.Names == nil {
		return n
	}
	carried, contexts := m.carried(j) // first: they are forgotten soon
	refs := trace.FindReferences(j.cpus, m.opts.SyscallName)
	refs.First = involved(j.meta.Outliers)
	if j.early == nil {
		n = m.opts.Names(refs)
	} else {
		<-j.early.done // it has limits of its own
		n = j.early.names
		if rest := j.early.rest(&refs); !rest.Empty() {
			more := m.opts.Names(rest)
			n.merge(&more)
		}
	}
	n.Version, n.Activities, n.Contexts = NamesVersion, carried, contexts
	return n
}

// carriedBefore is for how long before the outliers activities are of interest: a work item,
// for one, may have been queued then.
const carriedBefore = uint64(time.Second)

// carried asks what tasks worked for during the outliers.
func (m *Manager) carried(j *job) (list []CarriedActivity, contexts []PublishedContext) {
	if len(j.meta.Outliers) == 0 {
		return nil, nil
	}
	from, to := j.meta.Outliers[0].StartMono, j.meta.Outliers[0].EndMono
	for i := range j.meta.Outliers {
		o := &j.meta.Outliers[i]
		from, to = min(from, o.StartMono), max(to, o.EndMono)
	}
	if m.opts.Activities != nil {
		list = m.opts.Activities(from-min(from, carriedBefore), to)
	}
	if m.opts.Contexts != nil {
		contexts = m.opts.Contexts(from, to)
	}
	return list, contexts
}

// traceNames converts the names to those stored in the trace itself.
func (n *Names) traceNames() *trace.Known {
	k := trace.Known{Files: n.Files}
	for i := range n.Tasks {
		t := &n.Tasks[i]
		if t.Exited {
			continue // it was not there any more
		}
		k.Tasks = append(k.Tasks, trace.KnownTask{TID: t.TID, PID: t.PID, PPID: t.PPID, Comm: t.Comm, Kernel: t.Kernel})
	}
	for number, name := range n.Devices {
		var major, minor uint32
		if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err == nil && major < 1<<12 && minor < 1<<20 {
			k.Devices = append(k.Devices, trace.DeviceState{Dev: major<<20 | minor, Name: name})
		}
	}
	slices.SortFunc(k.Devices, func(a, b trace.DeviceState) int { return cmp.Compare(a.Dev, b.Dev) })
	return &k
}
