package explain

import (
	"cmp"
	"fmt"

	"github.com/tailcam/tailcam/internal/linux"
)

// Without estimates how long an outlier would have taken if some tasks had not been there:
// its delay less what the critical path waited behind them for a CPU or a disk. It is an
// estimate: others might have come instead.
type Without struct {
	By    Who    `json:"by"`             // who took most of it
	Name  string `json:"name,omitempty"` // of all of them, if it is not that one's: worker-*
	Tasks int    `json:"tasks"`          // of that name
	NS    int64  `json:"ns"`             // how long it would have taken
}

// without estimates it for the tasks of one name that are in the way of half the delay or
// more; nil: there are none.
func (w *walker) without(r *Result, pieces []piece) *Without {
	sums, tids, names := map[string]uint64{}, map[string]map[int]bool{}, map[string]map[string]bool{}
	longest := map[string]*Who{}
	most := map[string]uint64{}
	leaves(pieces, func(p *piece) {
		if !p.behindTask() && (p.cause != BlockQueue || p.by.Kind != KindTask) || p.by.Comm == "" || w.m.kernelThread(p.by.TID) {
			return
		}
		name := linux.Family(p.by.Comm)
		if tids[name] == nil {
			tids[name], names[name] = map[int]bool{}, map[string]bool{}
		}
		names[name][p.by.Comm] = true
		sums[name] += p.ns()
		tids[name][p.by.TID] = true
		if p.ns() > most[name] {
			most[name], longest[name] = p.ns(), p.by
		}
	})
	for name, ns := range sums {
		if left := r.DelayNS - int64(ns); ns*2 > uint64(max(r.DelayNS, 0)) && left >= 0 {
			x := &Without{By: *longest[name], Tasks: len(tids[name]), NS: left}
			if len(names[name]) > 1 {
				x.Name = commonName(names[name])
			}
			return x
		}
	}
	return nil
}

// Text says it in a sentence about a delay.
func (x *Without) Text(delayNS int64) string {
	who := describe(&x.By)
	if x.Tasks > 1 {
		who = fmt.Sprintf("the %d tasks named %s", x.Tasks, cmp.Or(x.Name, x.By.Comm))
	}
	return printable(fmt.Sprintf("Without %s: about %s instead of %s (an estimate).", who, duration(x.NS), duration(delayNS)))
}
