package snapshot

import "github.com/tailcam/tailcam/rules"

// TriggerJSON is rules.TriggerSpec; absent fields have no condition.
type TriggerJSON struct {
	Source   string                `json:"source"`           // psi, kmsg, oom, probe
	Cgroup   string                `json:"cgroup,omitempty"` // psi; absent: the machine
	PSI      []PSIJSON             `json:"psi,omitempty"`
	Messages []rules.KernelMessage `json:"messages,omitempty"` // kmsg
	Probe    *ProbeJSON            `json:"probe,omitempty"`
	Target   *TargetJSON           `json:"target,omitempty"`
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
	if to := &t.Target; to.Named() || to.Last != 0 {
		out.Target = &TargetJSON{
			PID: to.PID, Cgroup: to.Places.Cgroup, Unit: to.Places.Unit, Container: to.Places.Container,
			Pod: to.Places.Pod, Namespace: to.Places.Namespace, LastNS: int64(to.Last),
		}
	}
	return out
}
