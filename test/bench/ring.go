package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/perf"

	"github.com/tailcam/tailcam/tracker"
)

// startRing attaches the recorder's ring alone: a record of constants at each
// context switch, without the clock and without anything of the event. In perf
// rings that is bpf_perf_event_output, in overwrite mode and without wake-ups.
func startRing(backend string) func(context.Context) (running, error) {
	return func(context.Context) (running, error) {
		o := &own{}
		if err := o.ring(backend); err != nil {
			return nil, errors.Join(err, o.stop())
		}
		return o, nil
	}
}

func (o *own) ring(backend string) error {
	spec, err := LoadRing()
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	const records = ringSize / 64
	part := records / tracker.RingParts
	spec.Maps["record_rings"].MaxEntries = uint32(cpus)
	if backend == "mmap" {
		spec.Maps["records"].MaxEntries = uint32(cpus * records)
		for name, value := range map[string]any{
			"record_mmap": true, "record_mask": uint32(part - 1), "record_shift": uint32(bits.Len(uint(part)) - 1),
		} {
			if err := spec.Variables[name].Set(value); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load the ring alone: %w", err)
	}
	o.Others = append(o.Others, closer(objects.Close))
	if backend != "mmap" {
		for _, bank := range []string{"bank0", "bank1"} {
			r, err := perf.NewReaderWithOptions(objects.Maps[bank], ringSize/2, perf.ReaderOptions{Overwritable: true, WakeupEvents: 1 << 30})
			if err != nil {
				return err
			}
			o.Others = append(o.Others, r)
		}
	}
	p := objects.Programs["ring_alone"]
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("attach the ring alone: %w", err)
	}
	o.Add("sched_switch", p, l)
	return nil
}

// closer is a clean-up that cannot fail.
type closer func()

func (c closer) Close() error { c(); return nil }
