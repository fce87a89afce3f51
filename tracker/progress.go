package tracker

import (
	"slices"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
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
	list  []RawProgress
}

// maxRecent bounds what is kept: CPUs that send at the same time, with room.
const maxRecent = 64

func (p *progress) keep(raw *bpf.TailcamProgress) {
	if len(p.recent) == maxRecent {
		p.recent = p.recent[1:]
	}
	p.recent = append(p.recent, kept{int(raw.Tid), raw.StartNs, progressOf(raw)})
}

// give adds to o what was kept of its call. nil is let pass.
func (p *progress) give(o *Outlier) {
	if o == nil || o.From == nil || !slices.Contains(o.From.Stacks, rules.ProgressStacks) {
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
func progressOf(raw *bpf.TailcamProgress) []RawProgress {
	n := uint64(len(raw.Stack))
	held := min(raw.Count, n)
	list := make([]RawProgress, 0, held)
	for i := range held {
		at := i
		if raw.Count > n && i > 0 { // the oldest of the round stands where the next one would go
			at = 1 + (raw.Count-1+i-1)%(n-1)
		}
		e := &raw.Stack[at]
		state := "runnable"
		if e.State != 0 {
			state = string(stateOf(e.State))
		}
		list = append(list, RawProgress{
			AgeNS: int64(e.AgeNs), State: state, Kernel: frames(e.Kernel[:], uint16(min(e.Frames, uint32(len(e.Kernel))))),
		})
	}
	return list
}
