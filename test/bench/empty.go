package main

import (
	"context"
	"errors"
	"strings"

	"github.com/tailcam/tailcam/test/bench/hooked"
	"github.com/tailcam/tailcam/tracker"
)

// own is a setup of programs that this program made and attached itself.
type own struct{ hooked.Set }

// startEmpty attaches a program that does nothing to every hook that any
// setup uses: what it is said to cost is the cost of the statistics.
func startEmpty(context.Context) (running, error) {
	probes, err := tracker.Probes()
	if err != nil {
		return nil, err
	}
	o := &own{}
	for _, p := range probes {
		hook, ours := strings.CutPrefix(p.Name, "tp_btf:") // the others are what pairs may have
		if !ours || !p.Available {
			continue
		}
		if err := o.Attach(hook, hooked.Empty(), nil); err != nil {
			return nil, errors.Join(err, o.stop())
		}
	}
	return o, o.Attach("sched_wakeup", hooked.Empty(), nil)
}

func (o *own) programs() ([]program, error) {
	var list []program
	for i, p := range o.Programs {
		s, err := p.Stats()
		if err != nil {
			return nil, err
		}
		list = append(list, program{o.Hooks[i], s.RunCount, s.Runtime})
	}
	return list, nil
}

func (o *own) stop() error { return o.Close() }
