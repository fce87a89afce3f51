package daemon

import (
	"maps"
	"slices"
	"time"

	"github.com/tailcam/tailcam/internal/process/within"
	"github.com/tailcam/tailcam/internal/settings"
	"github.com/tailcam/tailcam/snapshot"
)

const (
	settingsTimeout = 200 * time.Millisecond
	maxSettingTasks = 1024 // tasks whose cgroups are asked for
)

// settingsGate lets one reading of settings be under way: a disk that hangs may keep it.
var settingsGate = within.NewGate[string](1)

// addSettings adds the settings that advice may name, as they are now. Tasks are taken in
// order. scaled are CPUs whose frequency has changed.
func addSettings(n *snapshot.Names, scaled []int) {
	if len(n.Tasks)+len(n.Devices)+len(scaled) == 0 {
		return
	}
	var tasks []settings.Paths
	for i := range n.Tasks[:min(len(n.Tasks), maxSettingTasks)] {
		t := &n.Tasks[i]
		tasks = append(tasks, settings.Paths{V2: t.Cgroup, CPU: t.CPUCgroup, Memory: t.MemoryCgroup, IO: t.IOCgroup})
	}
	disks := slices.Sorted(maps.Values(n.Devices))
	type answer struct {
		kernel map[string]string
		groups []settings.Group
	}
	a, err := within.Do(settingsGate, "settings", settingsTimeout, func() answer {
		groups := settings.Cgroups("/proc", tasks, settingsTimeout/2)
		return answer{settings.Kernel("/proc", "/sys", disks, scaled), groups}
	})
	if err != nil {
		return // advice names no values then
	}
	n.Settings = a.kernel
	for _, g := range a.groups {
		n.Limits = append(n.Limits, snapshot.CgroupLimits{Cgroup: g.Cgroup, Limits: g.Limits})
	}
}
