package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Bounds of what is asked about one trace.
const (
	maxNamedTasks = 8192
	maxNamedFiles = 16384
	namingTime    = 2 * time.Second
	promptNaming  = 200 * time.Millisecond // of command lines, for a snapshot that is taken with a real-time priority

	namingFilesTime = time.Second
)

// traceNames is snapshot.Options.Names. What cannot be found out stays a number.
func (d *daemon) traceNames(m trace.Mentioned) (n snapshot.Names) {
	d.promptUntil.Store(time.Now().Add(promptNaming).UnixNano())
	_ = d.guard.Do(guard.TraceNames, func() error { // it is logged
		n = name(d.hosts, d.symbols, m)
		return nil
	})
	return n
}

// promptCmdlines reads command lines of the tasks of a trace as long as there is
// time; the rest is left out. Helpers have no real-time priority: on a machine that
// has too much to do a snapshot would wait for them longer than for all else.
func (d *daemon) promptCmdlines(of []process.Started) map[process.Started]string {
	var known map[process.Started]string
	if time.Now().UnixNano() < d.promptUntil.Load() {
		known = d.symbols.Cmdlines(of)
	}
	all := make(map[process.Started]string, len(of))
	for _, p := range of {
		all[p] = known[p]
	}
	return all
}

// name finds out what the numbers in a trace stand for, as far as it is still
// there to be asked.
func name(hosts *process.Table, kernel interface {
	KernelNames([]uint64) ([]string, error)
}, m trace.Mentioned) snapshot.Names {
	n := snapshot.Names{Tasks: []snapshot.NamedTask{}, Functions: map[string]string{}, Devices: map[string]string{}}
	for _, t := range hosts.Tasks(m.TIDs[:min(len(m.TIDs), maxNamedTasks)], namingTime) {
		n.Tasks = append(n.Tasks, snapshot.NamedTask{
			TID: t.TID, PID: t.PID, PPID: t.PPID, Comm: t.Comm, Cmdline: t.Cmdline, Cgroup: t.Cgroup, Container: t.Container,
			Policy: t.Policy, RTPriority: t.RTPriority, Nice: t.Nice, Kernel: t.Kernel, CPUs: t.CPUs, CPUCgroup: t.CPUCgroup, MemoryCgroup: t.MemoryCgroup,
		})
	}
	// As if each had just called something: frames are return addresses.
	inside := make([]uint64, len(m.Functions))
	for i, f := range m.Functions {
		inside[i] = f + 1
	}
	frames, err := kernel.KernelNames(inside)
	for i := range frames {
		function, module, ok := strings.Cut(frames[i], "+0x1")
		if err == nil && ok && (module == "" || module[0] == ' ') {
			n.Functions[fmt.Sprintf("%#x", m.Functions[i])] = function + module
		}
	}
	for _, dev := range m.Devices {
		if name := linux.DiskName(dev); name != "" {
			n.Devices[linux.Disk(dev)] = name
		}
	}
	end := time.Now().Add(namingFilesTime)
	for _, pid := range slices.Sorted(maps.Keys(m.Files)) {
		if len(n.Files) > maxNamedFiles || time.Now().After(end) {
			break
		}
		files, err := hosts.Files(pid, m.Files[pid])
		if err != nil {
			continue
		}
		for _, f := range files {
			n.Files = append(n.Files, trace.FileState{PID: pid, FD: f.FD, Flags: f.Flags, Name: f.Name})
		}
	}
	return n
}
