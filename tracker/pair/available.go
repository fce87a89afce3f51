package pair

import (
	"os"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/tracefs"
)

// Probes tells which kinds of hooks declared pairs may have here.
func Probes() []kernel.Probe {
	var list []kernel.Probe
	add := func(name string, why error, others ...rules.Track) {
		p := kernel.Probe{Name: name, Trackers: append([]rules.Track{rules.Pair}, others...), Available: why == nil, Declared: true}
		if why != nil {
			p.Reason = why.Error()
		}
		list = append(list, p)
	}
	add("raw_tracepoint:NAME", nil) // every kernel that is supported has them
	trace, err := tracefs.Open()
	if err == nil {
		err = trace.Close()
	}
	add("tracepoint:CATEGORY:NAME", err)
	why := canProbe()
	add("kprobe:FUNCTION", why)
	add("kretprobe:FUNCTION", why)
	why = kernel.CanTrace()
	add("fentry:FUNCTION", why, rules.Syscall)
	add("fexit:FUNCTION", why, rules.Syscall)
	_, err = os.Stat("/sys/bus/event_source/devices/uprobe/type")
	add("uprobe:PATH:SYMBOL", err)
	add("uretprobe:PATH:SYMBOL", err)
	add("usdt:PATH:PROVIDER:NAME", err)
	return list
}
