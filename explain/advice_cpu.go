package explain

import "fmt"

// policyIdle is a policy whose tasks have the kernel priority of ordinary ones, and hardly run
// while one of those wants the CPU.
const policyIdle = "SCHED_IDLE"

// adviseRunnable advises on tasks that have the same kernel priority.
func (w *walker) adviseRunnable(a *advised) string {
	switch {
	case a.By.Kind != KindTask || w.m.kernelThread(a.By.TID) || a.By.TID == a.who.TID:
		return ""
	case a.By.Prio == 0:
		return ""
	}
	ordinary := a.By.Prio >= realTime && a.who.Prio >= realTime
	if s := w.adviseGroups(a); ordinary && s != "" {
		return s
	}
	switch {
	case a.By.Prio != a.who.Prio: // it was in the kernel, or its priority has changed
		return ""
	case a.By.Prio < realTime:
		return fmt.Sprintf("%s and %s have the same real-time priority%s: give one a higher one (chrt), or another CPU.", a.who.Name, a.By.Name, priorityText(a.By))
	case a.By.Policy == policyIdle: // the other one goes before it already, or nice values do nothing for either
		return ""
	}
	return fmt.Sprintf("%s and %s have the same nice value (%d): a lower one lets the first go before (renice -n %d -p %d)%s.",
		a.who.Name, a.By.Name, a.By.Prio-120, max(a.By.Prio-125, -20), threadID(a.who.TID), w.weights(a))
}

// adviseGroups advises on two ordinary tasks between which nice values do nothing: one is
// SCHED_IDLE, or they are in groups that share the CPU by the groups' weights; "": neither is
// known.
func (w *walker) adviseGroups(a *advised) string {
	if a.who.Policy == policyIdle && a.By.Policy != policyIdle && a.By.Policy != "" {
		return fmt.Sprintf("%s is SCHED_IDLE: it hardly runs while another wants the CPU, whatever its nice value; chrt -o -p 0 %d makes it an ordinary task.", a.who.Name, threadID(a.who.TID))
	}
	mine, ok := w.m.taskInfo(a.who.TID)
	theirs, also := w.m.taskInfo(a.By.TID)
	if !ok || !also {
		return ""
	}
	kx, ky := w.m.weightOf(&mine), w.m.weightOf(&theirs)
	switch {
	case kx.cgroup != "" && ky.cgroup != "" && !within(kx.cgroup, ky.cgroup) && !within(ky.cgroup, kx.cgroup):
		return fmt.Sprintf("%s and %s are in different cgroups, between which nice values do nothing: the %s decides, %s%s and %s%s.",
			a.who.Name, a.By.Name, kx.name, ky.cgroup, ky.now(), kx.cgroup, kx.now())
	case w.m.autogrouped(&mine, &theirs):
		return fmt.Sprintf("%s and %s are of different sessions, between which nice values do nothing (kernel.sched_autogroup_enabled%s): "+
			"echo -5 > /proc/%d/autogroup lets the first one's go before, or use cgroups.",
			a.who.Name, a.By.Name, w.m.now("kernel.sched_autogroup_enabled"), threadID(a.who.TID))
	}
	return ""
}

// autogrouped reports whether two tasks get CPUs by the autogroups of their sessions.
func (m *model) autogrouped(a, b *TaskInfo) bool {
	return a.Session != b.Session && a.Session > 0 && b.Session > 0 && m.setting("kernel.sched_autogroup_enabled") == "1" &&
		m.weightOf(a).cgroup == "" && m.weightOf(b).cgroup == ""
}

// weightOf returns the weight of the cgroup by which a task gets CPUs: the nearest one that has
// the controller. The root has none: it has the autogroups of sessions.
func (m *model) weightOf(f *TaskInfo) knob {
	for _, at := range m.path(f.quotaCgroup()) {
		if k := m.own(at, "cpu.weight", "cpu.shares"); k.value != "" {
			return k
		}
	}
	return knob{}
}

// weights names the CPU weights of two tasks' cgroups, where they are in different ones.
func (w *walker) weights(a *advised) string {
	mine, _ := w.m.taskInfo(a.who.TID)
	theirs, _ := w.m.taskInfo(a.By.TID)
	x, y := mine.quotaCgroup(), theirs.quotaCgroup()
	if x == "" || y == "" || within(x, y) || within(y, x) {
		return ""
	}
	kx, ky := w.m.own(x, "cpu.weight", "cpu.shares"), w.m.own(y, "cpu.weight", "cpu.shares")
	return fmt.Sprintf(", or the %s of their cgroups, %s%s and %s%s", kx.name, y, ky.now(), x, kx.now())
}
