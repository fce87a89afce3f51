package snapshot

import (
	"strings"

	"github.com/tailcam/tailcam/rules"
)

// RuleJSON is a compiled rule, with defaults, in the stable format of snapshot.json.
type RuleJSON struct {
	Name        string         `json:"name"`
	Track       rules.Track    `json:"track"`
	Attach      rules.Attach   `json:"attach,omitempty"` // track syscall
	ThresholdNS int64          `json:"threshold_ns"`     // 0: none
	Adaptive    *AdaptiveJSON  `json:"adaptive,omitempty"`
	Histogram   *HistogramJSON `json:"histogram,omitempty"`
	TimeoutNS   int64          `json:"timeout_ns,omitempty"`
	RepeatNS    int64          `json:"repeat_ns,omitempty"`
	Ratchet     bool           `json:"ratchet,omitempty"`
	Paused      bool           `json:"paused,omitempty"`
	Priority    int            `json:"priority"`
	Pair        *PairJSON      `json:"pair,omitempty"`
	Trigger     *TriggerJSON   `json:"trigger,omitempty"`
	When        MatchJSON      `json:"when"`
	Overrides   []OverrideJSON `json:"overrides,omitempty"`
	Stacks      []rules.Stack  `json:"stacks,omitempty"`
	Snapshot    PolicyJSON     `json:"snapshot"`
	Actions     []ActionJSON   `json:"actions,omitempty"`
	// ActionLimits are of all actions together that one snapshot or outlier starts.
	ActionLimits *ActionBoundsJSON `json:"action_limits,omitempty"`
	Source       RulePositionJSON  `json:"source"`
}

// MatchJSON is rules.Match; absent fields match everything.
type MatchJSON struct {
	Comm         []string       `json:"comm,omitempty"`
	NotComm      []string       `json:"not_comm,omitempty"`
	PID          []uint32       `json:"pid,omitempty"`
	NotPID       []uint32       `json:"not_pid,omitempty"`
	TID          []uint32       `json:"tid,omitempty"`
	NotTID       []uint32       `json:"not_tid,omitempty"`
	UID          []uint32       `json:"uid,omitempty"`
	NotUID       []uint32       `json:"not_uid,omitempty"`
	Cgroup       []string       `json:"cgroup,omitempty"`
	NotCgroup    []string       `json:"not_cgroup,omitempty"`
	Unit         []string       `json:"unit,omitempty"`
	NotUnit      []string       `json:"not_unit,omitempty"`
	Container    []string       `json:"container,omitempty"`
	NotContainer []string       `json:"not_container,omitempty"`
	Pod          []string       `json:"pod,omitempty"`
	NotPod       []string       `json:"not_pod,omitempty"`
	Namespace    []string       `json:"namespace,omitempty"`
	NotNamespace []string       `json:"not_namespace,omitempty"`
	Syscall      []int          `json:"syscall,omitempty"`
	NotSyscall   []int          `json:"not_syscall,omitempty"`
	Device       []string       `json:"device,omitempty"`
	NotDevice    []string       `json:"not_device,omitempty"`
	Sector       *SectorsJSON   `json:"sector,omitempty"`
	Op           []rules.Op     `json:"op,omitempty"`
	State        []rules.State  `json:"state,omitempty"`
	Thread       []rules.Thread `json:"thread,omitempty"`
	Preempted    *bool          `json:"preempted,omitempty"`
	IRQ          []uint32       `json:"irq,omitempty"`
	NotIRQ       []uint32       `json:"not_irq,omitempty"`
	Name         []string       `json:"name,omitempty"`
	NotName      []string       `json:"not_name,omitempty"`
	Vector       []rules.Vector `json:"vector,omitempty"`
	NotVector    []rules.Vector `json:"not_vector,omitempty"`
	Queue        []string       `json:"queue,omitempty"`
	NotQueue     []string       `json:"not_queue,omitempty"`
	Function     []string       `json:"function,omitempty"`
	NotFunction  []string       `json:"not_function,omitempty"`
	Phase        []rules.Phase  `json:"phase,omitempty"`
	CPU          []uint32       `json:"cpu,omitempty"`
	NotCPU       []uint32       `json:"not_cpu,omitempty"`
	From         []rules.Origin `json:"from,omitempty"`
	Ends         []rules.End    `json:"to,omitempty"`
	Key          []string       `json:"key,omitempty"`
	NotKey       []string       `json:"not_key,omitempty"`
}

// SectorsJSON is rules.Sectors.
type SectorsJSON struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// OverrideJSON is rules.Override.
type OverrideJSON struct {
	When        MatchJSON     `json:"when"`
	ThresholdNS int64         `json:"threshold_ns"` // 0: the rule's
	Adaptive    *AdaptiveJSON `json:"adaptive,omitempty"`
	TimeoutNS   int64         `json:"timeout_ns,omitempty"` // 0: the rule's
}

// AdaptiveJSON is rules.Adaptive.
type AdaptiveJSON struct {
	Quantile   float64 `json:"quantile"`
	Times      float64 `json:"times"`
	FloorNS    int64   `json:"floor_ns"`
	CeilingNS  int64   `json:"ceiling_ns"`
	WindowNS   int64   `json:"window_ns"`
	MinSamples uint64  `json:"min_samples"`
}

// HistogramJSON is rules.Histogram.
type HistogramJSON struct {
	By      rules.Class `json:"by,omitempty"`
	Classes int         `json:"classes,omitempty"`
}

// PolicyJSON is rules.SnapshotPolicy.
type PolicyJSON struct {
	Enabled  bool  `json:"enabled"`
	BeforeNS int64 `json:"before_ns"` // 0: all that is recorded; -1 in what is not of a snapshot: recorder.cover
	AfterNS  int64 `json:"after_ns"`
	EveryNS  int64 `json:"every_ns"`
	Burst    int   `json:"burst"`
}

// ActionBoundsJSON is rules.ActionBounds; 0: no limit by it.
type ActionBoundsJSON struct {
	MaxCPUNS  int64 `json:"max_cpu_ns,omitempty"`
	MaxMemory int64 `json:"max_memory_bytes,omitempty"`
	MaxOutput int64 `json:"max_output_bytes,omitempty"`
}

// ActionJSON is rules.Action.
type ActionJSON struct {
	Run       []string `json:"run"`
	TimeoutNS int64    `json:"timeout_ns"`
	User      string   `json:"user,omitempty"`
	On        string   `json:"on"`

	If               *ConditionJSON   `json:"if,omitempty"`
	StopOnFailure    bool             `json:"stop_on_failure,omitempty"`
	Limit            *ActionLimitJSON `json:"limit,omitempty"`
	ActionBoundsJSON                  // 0: those of the configuration
}

// ConditionJSON is rules.Condition.
type ConditionJSON struct {
	Rule      []string `json:"rule,omitempty"`
	NotRule   []string `json:"not_rule,omitempty"`
	Cause     []string `json:"cause,omitempty"`
	NotCause  []string `json:"not_cause,omitempty"`
	ByKind    []string `json:"by_kind,omitempty"`
	NotByKind []string `json:"not_by_kind,omitempty"`
	By        []string `json:"by,omitempty"`
	NotBy     []string `json:"not_by,omitempty"`

	Confidence    []string `json:"confidence,omitempty"`
	NotConfidence []string `json:"not_confidence,omitempty"`

	MinShare   float64 `json:"min_share,omitempty"`
	MinDelayNS int64   `json:"min_delay_ns,omitempty"`
}

// ActionLimitJSON is rules.ActionLimit.
type ActionLimitJSON struct {
	EveryNS int64             `json:"every_ns"`
	Burst   int               `json:"burst"`
	Per     []rules.ActionKey `json:"per,omitempty"`
}

// RulePositionJSON is the position of a rule in its file.
type RulePositionJSON struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// NewRuleJSON returns a rule in the format of snapshot.json.
func NewRuleJSON(r *rules.Rule) RuleJSON {
	out := RuleJSON{
		Name:        r.Name,
		Track:       r.Track,
		Attach:      r.Attach,
		ThresholdNS: int64(r.Threshold),
		Adaptive:    adaptiveJSON(r.Adaptive),
		TimeoutNS:   int64(r.Timeout),
		RepeatNS:    int64(r.Repeat),
		Ratchet:     r.Ratchet,
		Paused:      r.Paused,
		Priority:    r.Priority,
		Pair:        pairJSON(r),
		Trigger:     triggerJSON(r.Trigger),
		When:        matchJSON(r.When),
		Stacks:      r.Stacks,
		Snapshot: PolicyJSON{
			Enabled:  r.Snapshot.Enabled,
			BeforeNS: int64(r.Snapshot.Before),
			AfterNS:  int64(r.Snapshot.After),
			EveryNS:  int64(r.Snapshot.Every),
			Burst:    r.Snapshot.Burst,
		},
		Source: RulePositionJSON{File: r.Pos.File, Line: r.Pos.Line, Column: r.Pos.Column},
	}
	if h := r.Histogram; h != nil {
		out.Histogram = &HistogramJSON{By: h.By, Classes: h.Classes}
	}
	for _, o := range r.Overrides {
		out.Overrides = append(out.Overrides, OverrideJSON{
			When: matchJSON(o.When), ThresholdNS: int64(o.Threshold), Adaptive: adaptiveJSON(o.Adaptive), TimeoutNS: int64(o.Timeout),
		})
	}
	for _, a := range r.Actions {
		out.Actions = append(out.Actions, actionJSON(&a))
	}
	if b := r.ActionLimits; b != nil {
		limits := boundsJSON(b)
		out.ActionLimits = &limits
	}
	return out
}

func actionJSON(a *rules.Action) ActionJSON {
	out := ActionJSON{
		Run: a.Run, TimeoutNS: int64(a.Timeout), User: a.User, On: a.On, StopOnFailure: a.StopOnFailure,
		ActionBoundsJSON: boundsJSON(&a.ActionBounds),
	}
	if c := a.If; c != nil {
		out.If = &ConditionJSON{
			Rule: c.Rule, NotRule: c.NotRule, Cause: c.Cause, NotCause: c.NotCause, ByKind: c.ByKind, NotByKind: c.NotByKind,
			By: c.By, NotBy: c.NotBy, Confidence: c.Confidence, NotConfidence: c.NotConfidence, MinShare: c.MinShare, MinDelayNS: int64(c.MinDelay),
		}
	}
	if l := a.Limit; l != nil {
		out.Limit = &ActionLimitJSON{EveryNS: int64(l.Every), Burst: l.Burst, Per: l.Per}
	}
	return out
}

func boundsJSON(b *rules.ActionBounds) ActionBoundsJSON {
	return ActionBoundsJSON{MaxCPUNS: int64(b.MaxCPU), MaxMemory: b.MaxMemory, MaxOutput: b.MaxOutput}
}

func adaptiveJSON(a *rules.Adaptive) *AdaptiveJSON {
	if a == nil {
		return nil
	}
	return &AdaptiveJSON{
		Quantile: a.Quantile, Times: a.Times, FloorNS: int64(a.Floor), CeilingNS: int64(a.Ceiling),
		WindowNS: int64(a.Window), MinSamples: a.MinSamples,
	}
}

func matchJSON(m rules.Match) MatchJSON {
	return MatchJSON{
		Comm: m.Comm, NotComm: m.NotComm,
		PID: m.PID, NotPID: m.NotPID,
		TID: m.TID, NotTID: m.NotTID,
		UID: m.UID, NotUID: m.NotUID,
		Cgroup: m.Cgroup, NotCgroup: m.NotCgroup,
		Unit: m.Unit, NotUnit: m.NotUnit,
		Container: m.Container, NotContainer: m.NotContainer,
		Pod: m.Pod, NotPod: m.NotPod,
		Namespace: m.Namespace, NotNamespace: m.NotNamespace,
		Syscall: m.Syscall, NotSyscall: m.NotSyscall,
		Device: m.Device, NotDevice: m.NotDevice,
		Sector: (*SectorsJSON)(m.Sector),
		Op:     m.Op, State: m.State, Thread: m.Thread,
		Preempted: m.Preempted,
		IRQ:       m.IRQ, NotIRQ: m.NotIRQ,
		Name: m.Name, NotName: m.NotName,
		Vector: m.Vector, NotVector: m.NotVector,
		Queue: m.Queue, NotQueue: m.NotQueue, Function: m.Function, NotFunction: m.NotFunction,
		Phase: m.Phase, CPU: m.CPU, NotCPU: m.NotCPU,
		From: m.From, Ends: m.Ends,
		Key: m.Key, NotKey: m.NotKey,
	}
}

// PairJSON is rules.PairSpec in the syntax of rule files.
type PairJSON struct {
	Entry         []string          `json:"entry"`
	Exit          []string          `json:"exit"`
	Cancel        []string          `json:"cancel,omitempty"`
	Key           []string          `json:"key"` // name, fields at entry, exit and cancel
	OnDuplicate   rules.OnDuplicate `json:"on_duplicate"`
	EntryWhen     []string          `json:"entry_when,omitempty"`
	ExitWhen      []string          `json:"exit_when,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	ForgetAfterNS int64             `json:"forget_after_ns"`
	Activity      string            `json:"activity,omitempty"`
}

func pairJSON(r *rules.Rule) *PairJSON {
	p := r.Pair
	if p == nil {
		return nil
	}
	hooks := func(list []rules.Hook) []string {
		var out []string
		for _, h := range list {
			text := h.Text
			for i, k := range h.Key {
				text += []string{" key ", ", "}[min(i, 1)] + k.Text
			}
			for i, w := range h.When {
				text += []string{" when ", ", "}[min(i, 1)] + w.Text
			}
			out = append(out, text)
		}
		return out
	}
	compares := func(list []rules.Compare) []string {
		var out []string
		for _, c := range list {
			out = append(out, c.Text)
		}
		return out
	}
	out := &PairJSON{
		Entry: hooks(p.Entry), Exit: hooks(p.Exit), Cancel: hooks(p.Cancel), OnDuplicate: p.OnDuplicate,
		EntryWhen: compares(p.EntryWhen), ExitWhen: compares(p.ExitWhen), ForgetAfterNS: int64(r.Forget()), Activity: p.Activity,
	}
	for _, k := range p.Key {
		out.Key = append(out.Key, strings.Join([]string{k.Name, k.Entry.Text, k.Exit.Text, k.Cancel.Text}, " "))
	}
	for _, l := range p.Labels {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		at := ""
		if l.AtExit {
			at = "exit."
		}
		out.Labels[l.Name] = at + l.Field.Text
	}
	return out
}
