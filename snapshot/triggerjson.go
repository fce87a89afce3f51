package snapshot

import "github.com/tailcam/tailcam/rules"

// TriggerJSON is rules.TriggerSpec; absent fields have no condition.
type TriggerJSON struct {
	Source   string                `json:"source"`           // psi, kmsg, oom, probe, coredump, alert, slo, trace
	Cgroup   string                `json:"cgroup,omitempty"` // psi; absent: the machine
	PSI      []PSIJSON             `json:"psi,omitempty"`
	Messages []rules.KernelMessage `json:"messages,omitempty"` // kmsg
	Probe    *ProbeJSON            `json:"probe,omitempty"`
	Target   *TargetJSON           `json:"target,omitempty"`
	Coredump *CoredumpJSON         `json:"coredump,omitempty"`
	Alert    *AlertJSON            `json:"alert,omitempty"`
	SLO      *SLOJSON              `json:"slo,omitempty"`
	Trace    *TraceJSON            `json:"trace,omitempty"`
}

// CoredumpJSON is rules.CoredumpSource.
type CoredumpJSON struct {
	Signals  []string `json:"signals,omitempty"`
	Comm     []string `json:"comm,omitempty"`
	Undumped bool     `json:"undumped,omitempty"`
}

// AlertJSON is rules.AlertSource: lists of globs.
type AlertJSON struct {
	Name   []string            `json:"name,omitempty"`
	Labels map[string][]string `json:"labels,omitempty"`
}

// TraceJSON is rules.TraceSource: lists of globs.
type TraceJSON struct {
	Host []string `json:"host,omitempty"`
	Rule []string `json:"rule,omitempty"`
}

// SLOJSON is rules.SLOSource.
type SLOJSON struct {
	Of        string  `json:"of"` // a rule or a tracker
	Quantile  float64 `json:"quantile"`
	BelowNS   int64   `json:"below_ns"`
	OverNS    int64   `json:"over_ns"`
	MinEvents uint64  `json:"min_events"`
}

// PSIJSON is rules.PSITrigger.
type PSIJSON struct {
	Resource string `json:"resource"`
	Kind     string `json:"kind"` // some, full
	StallNS  int64  `json:"stall_ns"`
	WindowNS int64  `json:"window_ns"`
}

// ProbeJSON is rules.ProbeSource; its limits are the rule's.
type ProbeJSON struct {
	HTTP    string `json:"http,omitempty"`
	TCP     string `json:"tcp,omitempty"`
	EveryNS int64  `json:"every_ns"`
}

// TargetJSON is rules.Target: lists of globs.
type TargetJSON struct {
	PID       uint32   `json:"pid,omitempty"`
	Cgroup    []string `json:"cgroup,omitempty"`
	Unit      []string `json:"unit,omitempty"`
	Container []string `json:"container,omitempty"`
	Pod       []string `json:"pod,omitempty"`
	Namespace []string `json:"namespace,omitempty"`
	Activity  []string `json:"activity,omitempty"`
	LastNS    int64    `json:"last_ns,omitempty"` // 0: what the source measured, or 1s
}

func triggerJSON(t *rules.TriggerSpec) *TriggerJSON {
	if t == nil {
		return nil
	}
	out := &TriggerJSON{Source: t.Source(), Messages: t.Kmsg}
	if t.PSI != nil {
		out.Cgroup = t.PSI.Cgroup
		for _, p := range t.PSI.Triggers {
			out.PSI = append(out.PSI, PSIJSON{p.Resource, p.Kind, int64(p.Stall), int64(p.Window)})
		}
	}
	if p := t.Probe; p != nil {
		out.Probe = &ProbeJSON{p.HTTP, p.TCP, int64(p.Every)}
	}
	if c := t.Coredump; c != nil {
		out.Coredump = &CoredumpJSON{c.Signals, c.Comm, c.Undumped}
	}
	if a := t.Alert; a != nil {
		out.Alert = &AlertJSON{Name: a.Name}
		for _, l := range a.Labels {
			if out.Alert.Labels == nil {
				out.Alert.Labels = map[string][]string{}
			}
			out.Alert.Labels[l.Name] = l.Value
		}
	}
	if s := t.SLO; s != nil {
		out.SLO = &SLOJSON{s.Of, s.Quantile, int64(s.Below), int64(s.Over), s.MinEvents}
	}
	if from := t.Trace; from != nil {
		out.Trace = &TraceJSON{from.Host, from.Rule}
	}
	if to := &t.Target; to.Named() || to.Last != 0 {
		out.Target = &TargetJSON{
			PID: to.PID, Cgroup: to.Places.Cgroup, Unit: to.Places.Unit, Container: to.Places.Container,
			Pod: to.Places.Pod, Namespace: to.Places.Namespace, Activity: to.Activity, LastNS: int64(to.Last),
		}
	}
	return out
}
