package catalog

import (
	"cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/process"
)

// KindNone is the kind of the row of tasks that are in no unit, pod or container.
const KindNone = "none"

// IsPlace reports whether a grouping is by where culprits run.
func IsPlace(by string) bool {
	return by == ByCgroup || by == ByUnit || by == ByPod || by == ByContainer || by == ByImage
}

// place returns the row of a culprit that runs somewhere, a task or a cgroup; false: it
// does not, such as a device.
func place(by string, w *explain.Who) (name, kind string, ok bool) {
	if w == nil || w.Kind != explain.KindTask && w.Kind != explain.KindCgroup {
		return "", "", false
	}
	at := process.PlaceOf(w.Cgroup) // of a quota, and where names are missing
	switch by {
	case ByCgroup:
		name = w.Cgroup
	case ByUnit:
		name = cmp.Or(w.Unit, at.Unit)
	case ByPod:
		name = podName(&w.Place)
	case ByContainer:
		name = containerName(&w.Place, at.Container)
	case ByImage:
		name = w.Image
	}
	switch {
	case name != "":
		return name, by, true
	case w.Cgroup == "", by == ByPod && at.PodUID != "", by == ByImage && at.Container != "":
		return by + " not known", explain.KindUnknown, true
	}
	return "no " + by, KindNone, true
}

func podName(p *explain.Place) string {
	if p.Pod == "" || p.Namespace == "" {
		return p.Pod
	}
	return p.Namespace + "/" + p.Pod
}

// containerName is unique on a machine: containers of pods have their pod before it, and
// one without a name has its id.
func containerName(p *explain.Place, id string) string {
	if pod := podName(p); pod != "" && p.ContainerName != "" {
		return pod + "/" + p.ContainerName
	}
	return cmp.Or(p.ContainerName, p.Container, id)
}
