package reader

import (
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// progress holds where the system call of the next outlier was meanwhile: the
// kernel side sends that before the outliers themselves, but other CPUs' may
// come in between.
type progress struct {
	recent []kept // newest last
}

type kept struct {
	tid   int
	start uint64
	list  []events.RawProgress
}

// maxRecent bounds what is kept: CPUs that send at the same time, with room.
const maxRecent = 64

func (p *progress) keep(raw *abi.Progress) {
	if len(p.recent) == maxRecent {
		p.recent = p.recent[1:]
	}
	p.recent = append(p.recent, kept{int(raw.Tid), raw.StartNs, progressOf(raw)})
}

// add adds to o what was kept of its call.
func (p *progress) add(o *events.Outlier) {
	if o.MatchedRule == nil || !slices.Contains(o.MatchedRule.Stacks, rules.ProgressStacks) {
		return
	}
	for i := len(p.recent) - 1; i >= 0; i-- {
		if k := &p.recent[i]; k.tid == o.Task.TID && k.start == o.StartMono {
			o.Raw.Progress = k.list
			return
		}
	}
}

// progressOf puts in order what the kernel side keeps: the first, and a round
// of the last ones. Any bytes will do.
func progressOf(raw *abi.Progress) []events.RawProgress {
	n := uint64(len(raw.Stack))
	held := min(raw.Count, n)
	list := make([]events.RawProgress, 0, held)
	for i := range held {
		index := i
		if raw.Count > n && i > 0 { // the oldest of the round stands where the next one goes
			index = 1 + (raw.Count-1+i-1)%(n-1)
		}
		e := &raw.Stack[index]
		list = append(list, events.RawProgress{
			AgeNS: int64(e.AgeNs), State: kinds.StateAtSwitch(e.State), Kernel: kinds.Frames(e.Kernel[:], uint64(e.Frames)),
		})
	}
	return list
}
