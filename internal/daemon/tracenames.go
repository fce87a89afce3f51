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

// Limits per trace.
const (
	maxNamedTasks    = 8192
	maxNamedFiles    = 16384
	taskNamesTimeout = 2 * time.Second
	rtNamesTimeout   = 200 * time.Millisecond // of command lines, for real-time snapshots

	fileNamesTimeout = time.Second
)

// traceNames is snapshot.Options.Names. What cannot be found out stays a number.
func (d *daemon) traceNames(m trace.References) (n snapshot.Names) {
	d.promptUntil.Store(time.Now().Add(rtNamesTimeout).UnixNano())
	_ = d.guard.Do(guard.TraceNames, func() error { // logs its errors
		n = lookUpNames(d.hosts, d.symbols, m, d.placeTasks)
		return nil
	})
	return n
}

// promptCmdlines reads command lines until d.promptUntil and leaves out the rest.
// Helpers run at normal priority, so on an overloaded machine a real-time snapshot
// would wait for them.
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

// lookUpNames looks up the tasks, functions, devices and files that a trace refers to,
// as far as they still exist.
func lookUpNames(hosts *process.Table, kernel interface {
	KernelNames([]uint64) ([]string, error)
}, m trace.References, place func([]snapshot.NamedTask)) snapshot.Names {
	n := snapshot.Names{Tasks: []snapshot.NamedTask{}, Functions: map[string]string{}, Devices: map[string]string{}}
	for _, t := range hosts.Tasks(m.TIDs[:min(len(m.TIDs), maxNamedTasks)], taskNamesTimeout) {
		n.Tasks = append(n.Tasks, snapshot.NamedTask{
			TID: t.TID, PID: t.PID, PPID: t.PPID, Comm: t.Comm, Cmdline: t.Cmdline, Title: t.Title, Exited: t.Exited, Cgroup: t.Cgroup, Container: t.Container,
			Policy: t.Policy, RTPriority: t.RTPriority, Nice: t.Nice, Kernel: t.Kernel, CPUs: t.CPUs, CPUCgroup: t.CPUCgroup, MemoryCgroup: t.MemoryCgroup,
		})
	}
	place(n.Tasks)       // asks for their containers, and waits for nothing;
	defer place(n.Tasks) // by then most have answered
	// KernelNames expects return addresses.
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
	addSettings(&n)
	end := time.Now().Add(fileNamesTimeout)
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
