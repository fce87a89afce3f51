package trace

import "slices"

// Known is what is known of what a trace mentions, from elsewhere. It goes
// into the trace as LTTng's state dump. What there was when the trace began is
// taken from the trace itself as far as it can be; the rest may be of later.
type Known struct {
	Tasks   []KnownTask
	Files   []FileState
	Devices []DeviceState
}

// KnownTask is one task.
type KnownTask struct {
	TID, PID, PPID int
	Comm           string
	Kernel         bool // a kernel thread
}

// Modes of a process state in LTTng's terms: not known.
const (
	dumpMode    = 5
	dumpSubmode = 1
)

// dump adds the state dump to the stream of the CPU whose history is the
// shortest, at its begin: from there on the trace is whole, and readers that
// cut a trace down to what all its CPUs have keep the dump. Readers of what was there before
// may go on.
func dump(streams []*stream, known *Known, name func(nr int) string) {
	to := dumped(streams)
	if known == nil || to == nil {
		return
	}
	for _, s := range streams {
		s.extras = slices.Clone(s.extras)
	}
	tasks := tasksAt(streams, to.begin, known.Tasks)
	begin := func(t Type) *extra {
		to.extras = append(to.extras, extra{time: to.begin, typ: t})
		return &to.extras[len(to.extras)-1]
	}
	before := to.extras
	to.extras = nil
	begin(DumpStart)
	for i := range tasks {
		begin(DumpTask).values = tasks[i].values()
	}
	for _, d := range known.Devices {
		v := &begin(DumpDevice).values
		v.num[valDev], v.text[valText] = uint64(d.Dev), d.Name
	}
	opened := openings(streams, to.begin, known.Files, name)
	for i := range known.Files {
		f := &known.Files[i]
		if o, ok := opened[file{f.PID, f.FD}]; ok {
			o.in.extras = append(o.in.extras, extra{time: o.time, after: true, typ: DumpFile, tid: o.tid, values: f.values()})
			continue
		}
		begin(DumpFile).values = f.values()
	}
	begin(DumpEnd)
	to.extras = append(to.extras, before...)
	for _, s := range streams {
		s.sortExtras()
	}
}

// dumped returns the stream that has the state dump; nil: there is none.
func dumped(streams []*stream) (to *stream) {
	for _, s := range streams {
		// Not one that is there for an outlier's sake only.
		if (s.from > 0 || len(s.records) > 0) && (to == nil || s.begin > to.begin) {
			to = s
		}
	}
	return to
}

// withoutDump returns the streams to which dump adds nothing, and the others.
func withoutDump(streams []*stream) (without, rest []*stream) {
	to := dumped(streams)
	for _, s := range streams {
		if s == to || s.hasCalls() { // which may open files, see openings
			rest = append(rest, s)
		} else {
			without = append(without, s)
		}
	}
	return without, rest
}

func (s *stream) hasCalls() bool {
	for i := range s.records {
		if s.records[i].Type() == SyscallExit {
			return true
		}
	}
	return false
}

func (t *TaskState) values() (v values) {
	v.num[valTID], v.num[valPID], v.num[valPPID] = uint64(t.TID), uint64(t.PID), uint64(t.PPID)
	v.num[valMode], v.num[valSubmode] = dumpMode, dumpSubmode
	v.num[valStatus], v.num[valCPU] = uint64(t.Status), uint64(t.CPU)
	v.text[valName] = t.Comm.String()
	if t.Kernel {
		v.num[valKernel] = 1
	}
	return v
}

func (f *FileState) values() (v values) {
	v.num[valPID], v.num[valFD], v.num[valFlags] = uint64(f.PID), uint64(f.FD), uint64(f.Flags)
	v.text[valText] = f.Name
	return v
}
