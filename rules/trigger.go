package rules

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Trigger is the track of rules that no tracker serves: something else than the delay of
// a piece of work takes the snapshot. It is not one of Tracks.
const Trigger Track = "trigger"

// TriggerSpec is what a rule of track trigger watches. One of its sources is set.
type TriggerSpec struct {
	PSI   *PSISource
	Kmsg  []KernelMessage // messages of the kernel's log
	Probe *ProbeSource

	Coredump *CoredumpSource
	Alert    *AlertSource
	SLO      *SLOSource
	Trace    *TraceSource
	// Target is whose time is explained: the thread of PID, or one of the threads that
	// run where the conditions of Places hold, or work for an activity. Sources that name a task (kmsg, oom,
	// coredump, trace) are limited to tasks there.
	Target Target
}

// Source names what the rule watches, as in rule files.
func (t *TriggerSpec) Source() string {
	switch {
	case t.PSI != nil:
		return sourcePSI
	case t.Probe != nil:
		return sourceProbe
	case t.Coredump != nil:
		return sourceCoredump
	case t.Alert != nil:
		return sourceAlert
	case t.SLO != nil:
		return sourceSLO
	case t.Trace != nil:
		return sourceTrace
	case slices.Equal(t.Kmsg, []KernelMessage{OutOfMemory}):
		return sourceOOM
	}
	return sourceKmsg
}

// Names of sources.
const (
	sourcePSI  = "psi"
	sourceKmsg = "kmsg"
	sourceOOM  = "oom"
)

// Target is the conditions of target.
type Target struct {
	PID    uint32 // 0: none
	Places Places
	// Activity is globs on the name of live activities: a thread that works for one.
	Activity []string
	// Last is how much of its time before the trigger is explained; 0: what the source
	// measured, or a second.
	Last time.Duration
}

// Named reports whether there is a target.
func (t *Target) Named() bool { return t.PID != 0 || !t.Places.Empty() || len(t.Activity) > 0 }

// PSISource is pressure stall information of the machine or of one cgroup.
type PSISource struct {
	Cgroup   string // cgroup v2 path; empty: the machine's
	Triggers []PSITrigger
}

// PSITrigger is one trigger of the kernel: see psi(5) and
// Documentation/accounting/psi.rst.
type PSITrigger struct {
	Resource string // cpu, memory, io, irq
	Kind     string // some, full
	Stall    time.Duration
	Window   time.Duration
}

// String returns the trigger in the kernel's form.
func (p *PSITrigger) String() string {
	return fmt.Sprintf("%s %d %d", p.Kind, p.Stall.Microseconds(), p.Window.Microseconds())
}

// PSIResources are the files of pressure stall information.
var PSIResources = []string{"cpu", "memory", "io", "irq"}

// Limits of the kernel: WINDOW_MIN_US and WINDOW_MAX_US in kernel/sched/psi.c.
const (
	minPSIWindow = 500 * time.Millisecond
	maxPSIWindow = 10 * time.Second
	minPSIStall  = time.Microsecond
)

// KernelMessage is a kind of message in the kernel's log.
type KernelMessage string

// Kinds of messages. OutOfMemory is a source of its own, oom.
const (
	HungTask    KernelMessage = "hung_task"
	SoftLockup  KernelMessage = "soft_lockup"
	HardLockup  KernelMessage = "hard_lockup"
	RCUStall    KernelMessage = "rcu_stall"
	OutOfMemory KernelMessage = "oom"
)

var kernelMessages = []KernelMessage{HungTask, SoftLockup, HardLockup, RCUStall}

// Keys of the mappings of a trigger.
var (
	triggerKeys = []string{"name", "track", "on", "target", "snapshot", "actions", "action_limits", "extend"}
	probeLimits = []string{"threshold", "timeout"}
	sources     = []string{sourcePSI, sourceKmsg, sourceOOM, sourceProbe, sourceCoredump, sourceAlert, sourceSLO, sourceTrace}
	psiKeys     = append([]string{"cgroup"}, PSIResources...)
)

const psiAllowed = `some or full, the stall, and the window of 500ms to 10s: "some 150ms 1s"; numbers are microseconds`

// noTrigger rejects the keys of triggers in other rules.
func (r *reader) noTrigger(keys map[string]entry, rule *Rule) {
	for _, key := range []string{"on", "target"} {
		if e, ok := keys[key]; ok && rule.Track != "" {
			r.fail(e.key, "track trigger", "%s does not apply to track %s", key, rule.Track)
		}
	}
}

// trigger reads a rule of track trigger.
func (r *reader) trigger(n *yaml.Node, keys map[string]entry, rule *Rule) {
	rule.Stacks = nil
	rule.Trigger = &TriggerSpec{}
	if e, ok := keys["on"]; ok {
		r.source(e.value, keys, rule)
	} else {
		r.fail(n, "on: with one of "+strings.Join(sources, ", "), "rule has no on")
	}
	for _, key := range ruleKeys {
		e, ok := keys[key]
		switch {
		case !ok || slices.Contains(triggerKeys, key):
		case !slices.Contains(probeLimits, key):
			r.fail(e.key, strings.Join(triggerKeys, ", "), "%s does not apply to track trigger", key)
		case rule.Trigger.Probe == nil:
			r.fail(e.key, "on: {probe: …}", "%s does not apply to this trigger", key)
		}
	}
	if e, ok := keys["target"]; ok && rule.Trigger.SLO != nil { // its target is an outlier
		r.fail(e.key, "on: psi, oom, kmsg, probe, coredump, alert, trace", "target does not apply to slo")
	} else if ok {
		rule.Trigger.Target = r.target(e.value)
		r.activityTarget(e.value, rule.Trigger)
	}
	if e, ok := keys["snapshot"]; ok {
		r.snapshot(e.value, &rule.Snapshot)
	}
	r.ruleActions(keys, rule)
}

// source reads on: the name of a source without settings, or one with them.
func (r *reader) source(n *yaml.Node, rule map[string]entry, to *Rule) {
	t := to.Trigger
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		switch n.Value {
		case sourceOOM:
			t.Kmsg = []KernelMessage{OutOfMemory}
		case sourceKmsg:
			t.Kmsg = kernelMessages
		case sourceCoredump:
			t.Coredump = &CoredumpSource{}
		case sourceAlert:
			t.Alert = &AlertSource{}
		case sourceTrace:
			t.Trace = &TraceSource{}
		default:
			r.fail(n, "oom, kmsg, coredump, alert, trace, or a mapping with one of "+strings.Join(sources, ", "), "on: %q has no settings, or is unknown", cut(n.Value))
		}
		return
	}
	keys := r.mapping(n, "on", sources)
	if keys == nil {
		return
	}
	if len(keys) != 1 {
		r.fail(n, "one of "+strings.Join(sources, ", ")+"; others in separate rules", "on has %d sources", len(keys))
		return
	}
	for name, e := range keys {
		switch name {
		case sourcePSI:
			t.PSI = r.psi(e.value)
		case sourceKmsg:
			t.Kmsg = words(r, e.value, "kmsg", kernelMessages)
		case sourceProbe:
			t.Probe = r.probe(e.value, rule, to)
		case sourceCoredump:
			t.Coredump = r.coredump(e.value)
		case sourceAlert:
			t.Alert = r.alert(e.value)
		case sourceSLO:
			t.SLO = r.slo(e.value)
		case sourceTrace:
			t.Trace = r.trace(e.value)
		case sourceOOM:
			r.fail(e.value, "on: oom", "oom has no settings")
		}
	}
}

func (r *reader) psi(n *yaml.Node) *PSISource {
	p := &PSISource{}
	keys := r.mapping(n, sourcePSI, psiKeys)
	if keys == nil {
		return p
	}
	if e, ok := keys["cgroup"]; ok {
		p.Cgroup = r.cgroup(e.value)
	}
	for _, resource := range PSIResources {
		e, ok := keys[resource]
		if !ok {
			continue
		}
		for _, v := range r.list(e.value, resource) {
			if t, ok := r.psiTrigger(v, resource); ok {
				p.Triggers = append(p.Triggers, t)
			}
		}
	}
	if !slices.ContainsFunc(PSIResources, func(name string) bool { _, ok := keys[name]; return ok }) {
		r.fail(n, strings.Join(PSIResources, ", "), "psi has no trigger")
	}
	if len(p.Triggers) > maxPSITriggers {
		r.fail(n, fmt.Sprintf("at most %d in a rule", maxPSITriggers), "psi has %d triggers", len(p.Triggers))
	}
	return p
}

// maxPSITriggers bounds those of one rule: each is a file that stays open.
const maxPSITriggers = 8

// psiTrigger reads a trigger in the kernel's form, or with durations.
func (r *reader) psiTrigger(n *yaml.Node, resource string) (PSITrigger, bool) {
	t := PSITrigger{Resource: resource}
	text, ok := r.text(n, resource)
	if !ok {
		return t, false
	}
	fields := strings.Fields(text)
	if len(fields) != 3 || !slices.Contains([]string{"some", "full"}, fields[0]) {
		r.fail(n, psiAllowed, "%s: invalid trigger %q", resource, cut(text))
		return t, false
	}
	t.Kind = fields[0]
	what := "window"
	var err error
	if t.Window, err = psiDuration(fields[2], minPSIWindow, maxPSIWindow); err == nil {
		what = "stall"
		t.Stall, err = psiDuration(fields[1], minPSIStall, t.Window)
	}
	if err != nil {
		r.fail(n, psiAllowed, "%s: %s %v", resource, what, err)
	}
	return t, err == nil
}

// psiDuration parses a duration, or microseconds as the kernel does.
func psiDuration(text string, least, most time.Duration) (time.Duration, error) {
	if _, err := strconv.ParseUint(text, 10, 32); err == nil {
		text += "us"
	}
	return ParseDuration(text, least, most)
}

// cgroup reads the path of one cgroup.
func (r *reader) cgroup(n *yaml.Node) string {
	p, ok := r.text(n, "cgroup")
	if !ok {
		return ""
	}
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "*?[\x00\n") {
		r.fail(n, "a path below the root of cgroup v2, such as /system.slice/nginx.service, without globs", "invalid cgroup %q", cut(p))
		return ""
	}
	return strings.TrimSuffix(p, "/") // the root has the files of the machine
}

// Tracked returns the rules that trackers serve: all but triggers and activities.
func Tracked(list []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(list), func(r Rule) bool { return !r.Tracked() })
}

// Tracked reports whether a tracker of the kernel side serves the rule.
func (r *Rule) Tracked() bool { return r.Track != Trigger && r.Track != Activity }

// Triggers returns the rules of track trigger.
func Triggers(list []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(list), func(r Rule) bool { return r.Track != Trigger })
}
