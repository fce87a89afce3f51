package rules

import "slices"

// Place is where a task runs, by its cgroup. Fields are empty if they do not apply, or are
// not known.
type Place struct {
	Cgroup        string // cgroup v2 path
	Unit          string // systemd unit
	Container     string // id
	ContainerName string
	Pod           string
	Namespace     string // of the pod
}

// Places are conditions on a Place: lists of globs.
type Places struct {
	Cgroup, Unit, Container, Pod, Namespace []string
}

// Places are the conditions that must hold, and not those that must not: each list of its
// own.
func (m *Match) Places() (all, not Places) {
	return Places{m.Cgroup, m.Unit, m.Container, m.Pod, m.Namespace},
		Places{m.NotCgroup, m.NotUnit, m.NotContainer, m.NotPod, m.NotNamespace}
}

// Empty reports whether there are no conditions.
func (p *Places) Empty() bool { return len(p.Cgroup)+len(p.Unit) == 0 && !p.NeedRuntime() }

// NeedRuntime reports whether only a container runtime knows all that the conditions are
// about.
func (p *Places) NeedRuntime() bool { return len(p.Container)+len(p.Pod)+len(p.Namespace) > 0 }

// Equal reports whether two have the same lists.
func (p *Places) Equal(o *Places) bool {
	return slices.Equal(p.Cgroup, o.Cgroup) && slices.Equal(p.Unit, o.Unit) && slices.Equal(p.Container, o.Container) &&
		slices.Equal(p.Pod, o.Pod) && slices.Equal(p.Namespace, o.Namespace)
}

// All reports whether every list has a glob that matches. A container matches by its name
// or its id.
func (p *Places) All(at *Place) bool {
	for _, list := range p.lists(at) {
		if len(list.globs) > 0 && !list.hit() {
			return false
		}
	}
	return true
}

// Any reports whether some list has a glob that matches.
func (p *Places) Any(at *Place) bool {
	return slices.ContainsFunc(p.lists(at), func(l placeList) bool { return l.hit() })
}

// placeList is one list, and what its globs are held against.
type placeList struct {
	globs  []string
	match  func(glob, s string) bool
	values []string
}

func (l *placeList) hit() bool {
	return slices.ContainsFunc(l.globs, func(glob string) bool {
		return slices.ContainsFunc(l.values, func(s string) bool { return l.match(glob, s) })
	})
}

// lists has no values for what does not apply: no glob matches that, not even *. A task
// always has a cgroup, known or not.
func (p *Places) lists(at *Place) []placeList {
	return []placeList{
		{p.Cgroup, CgroupMatch, []string{at.Cgroup}},
		{p.Unit, GlobMatch, known(at.Unit)},
		{p.Container, GlobMatch, known(at.ContainerName, at.Container)},
		{p.Pod, GlobMatch, known(at.Pod)},
		{p.Namespace, GlobMatch, known(at.Namespace)},
	}
}

func known(values ...string) []string {
	return slices.DeleteFunc(values, func(s string) bool { return s == "" })
}
