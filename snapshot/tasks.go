package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TasksFile is the file in a snapshot's directory that names what its trace
// has as numbers.
const TasksFile = "tasks.json"

// NamesVersion is the schema version of tasks.json. Fields are only added to it.
const NamesVersion = 1

// maxNames bounds what a reader takes in of one tasks.json.
const maxNames = 64 << 20

// Names is tasks.json: what was found out about the numbers of a trace when
// it was written. What had ended by then is missing.
type Names struct {
	Version   int               `json:"version"`
	Tasks     []NamedTask       `json:"tasks"`
	Functions map[string]string `json:"functions"` // of the kernel, by address as 0x…
	Devices   map[string]string `json:"devices"`   // by major:minor

	// Files goes into the trace only: open files that its system calls name.
	Files []trace.FileState `json:"-"`
}

// NamedTask is one task, as it was soon after the freeze.
type NamedTask struct {
	TID        int    `json:"tid"`
	PID        int    `json:"pid"`
	PPID       int    `json:"ppid"`
	Comm       string `json:"comm"`
	Cmdline    string `json:"cmdline,omitempty"`
	Cgroup     string `json:"cgroup,omitempty"`
	Container  string `json:"container,omitempty"`
	Policy     string `json:"policy"` // SCHED_OTHER, SCHED_FIFO and so on
	RTPriority int    `json:"rt_priority"`
	Nice       int    `json:"nice"`
	Kernel     bool   `json:"kernel"` // a kernel thread
	CPUs       []int  `json:"cpus"`   // that it may run on
	// Its cgroups in the hierarchies of version 1 that give out CPU time and
	// memory, where there are such.
	CPUCgroup    string `json:"cpu_cgroup,omitempty"`
	MemoryCgroup string `json:"memory_cgroup,omitempty"`
}

// ReadNames reads the tasks.json of a snapshot's directory. One without it, of
// an earlier release, has no names: that is no error.
func ReadNames(dir string) (*Names, error) {
	path := filepath.Join(dir, TasksFile)
	data, err := ReadFile(path, maxNames)
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
		return nil, fmt.Errorf("read names %s: schema version %d is not one that this tailcam knows (%d)", path, n.Version, NamesVersion)
	}
	return &n, nil
}

// lookUpNames asks for what the trace mentions.
func (m *Manager) lookUpNames(j *job) Names {
	if m.opts.Names == nil {
		return Names{Version: NamesVersion, Tasks: []NamedTask{}}
	}
	mentioned := trace.FindReferences(j.cpus, m.opts.SyscallName)
	n := m.opts.Names(mentioned)
	n.Version = NamesVersion
	return n
}

// traceNames is what the trace itself takes of the names.
func (n *Names) traceNames() *trace.Known {
	k := trace.Known{Files: n.Files}
	for i := range n.Tasks {
		t := &n.Tasks[i]
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
