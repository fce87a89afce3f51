package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
)

// variant is one table with its pair of programs (table.bpf.c).
type variant struct {
	name  string   // of the programs, before _waking and _switch
	title string   // for people
	maps  []string // that the programs use, beside the sums
	plant func(m map[string]*ebpf.Map, keys int) error
}

// places is the capacity of every table.
const places = 1 << 18

var variants = []variant{
	{"empty", "no table", nil, nil},
	{"kept", "pending table, places kept (wakeup, offcpu)", []string{"bench_keys", "bench_values"}, plantNumbered},
	{"pending", "pending table, places claimed (calls, requests)", []string{"bench_keys", "bench_values"}, plantHashed},
	{"hash_pre", "BPF hash, preallocated", []string{"hash_pre"}, plantHash("hash_pre")},
	{"hash_dyn", "BPF hash, not preallocated", []string{"hash_dyn"}, plantHash("hash_dyn")},
	{"hash_lru", "BPF LRU hash", []string{"hash_lru"}, plantHash("hash_lru")},
	{"storage", "task storage", []string{"storage"}, nil}, // other tasks' are not in its way
}

// cost of one event in nanoseconds, statistics included.
type cost struct{ waking, swtch float64 }

// measure loads a variant, plants the keys, and lets hackbench run on some CPUs.
func measure(ctx context.Context, v variant, col column, loops int) (c cost, err error) {
	coll, err := load(v)
	if err != nil {
		return c, err
	}
	defer coll.Close()
	if v.plant != nil {
		if err := v.plant(coll.Maps, col.Keys); err != nil {
			return c, fmt.Errorf("plant %d keys: %w", col.Keys, err)
		}
	}
	waking, swtch := coll.Programs[v.name+"_waking"], coll.Programs[v.name+"_switch"]
	for _, p := range []*ebpf.Program{waking, swtch} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return c, fmt.Errorf("attach: %w", err)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	if err := hackbench(ctx, col.CPUs, loops/10+1); err != nil { // warms up
		return c, err
	}
	on, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return c, fmt.Errorf("enable BPF statistics: %w", err)
	}
	defer on.Close()
	if err := hackbench(ctx, col.CPUs, loops); err != nil {
		return c, err
	}
	c.waking, err = perRun(waking)
	if err != nil {
		return c, err
	}
	c.swtch, err = perRun(swtch)
	return c, err
}

func perRun(p *ebpf.Program) (float64, error) {
	s, err := p.Stats()
	if err != nil {
		return 0, err
	}
	if s.RunCount == 0 {
		return 0, errors.New("a program did not run")
	}
	return float64(s.Runtime.Nanoseconds()) / float64(s.RunCount), nil
}

// load loads one variant alone.
func load(v variant) (*ebpf.Collection, error) {
	spec, err := LoadTable()
	if err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != v.name+"_waking" && name != v.name+"_switch" {
			delete(spec.Programs, name)
		}
	}
	used := append([]string{"sums"}, v.maps...)
	for name, m := range spec.Maps {
		keep := strings.HasPrefix(name, ".")
		for _, u := range used {
			keep = keep || u == name
		}
		if !keep {
			delete(spec.Maps, name)
			continue
		}
		switch name {
		case "sums":
			m.MaxEntries = uint32(cpus)
		case "bench_keys":
			m.MaxEntries = places / 8
		case "bench_values", "hash_pre", "hash_dyn", "hash_lru":
			m.MaxEntries = places
		}
	}
	if err := spec.Variables["mask"].Set(uint32(places/8 - 1)); err != nil {
		return nil, err
	}
	return ebpf.NewCollection(spec)
}

// other is key i of those that no task has.
func other(i int) uint64 { return 1<<32 | uint64(i) }

// plantHashed puts keys where bpf/lib/pending.h would have claimed a place for them.
func plantHashed(m map[string]*ebpf.Map, keys int) error {
	return plantBuckets(m, keys, func(key uint64) uint32 { return uint32(key*0x9e3779b97f4a7c15>>40) % (places / 8) })
}

// plantNumbered puts them where tasks with such numbers have theirs.
func plantNumbered(m map[string]*ebpf.Map, keys int) error {
	return plantBuckets(m, keys, func(key uint64) uint32 { return uint32(key>>3) % (places / 8) })
}

func plantBuckets(m map[string]*ebpf.Map, keys int, home func(uint64) uint32) error {
	buckets := make([]abi.Bucket, places/8)
	at := make([]uint32, len(buckets))
	for i := range at {
		at[i] = uint32(i)
	}
	for i := range keys {
		b := home(other(i))
		if !place(&buckets[b], other(i)) && !place(&buckets[b^1], other(i)) {
			return fmt.Errorf("no place for key %d", i)
		}
	}
	_, err := m["bench_keys"].BatchUpdate(at, buckets, nil)
	return err
}

func place(b *abi.Bucket, key uint64) bool {
	for i := range b.Key {
		if b.Key[i] == 0 {
			b.Key[i] = key
			return true
		}
	}
	return false
}

func plantHash(name string) func(map[string]*ebpf.Map, int) error {
	return func(m map[string]*ebpf.Map, keys int) error {
		list, values := make([]uint64, keys), make([]uint64, keys)
		for i := range list {
			list[i], values[i] = other(i), 1
		}
		_, err := m[name].BatchUpdate(list, values, nil)
		return err
	}
}

// hackbench lets 80 tasks exchange messages over pipes, on the first CPUs.
func hackbench(ctx context.Context, cpus, loops int) error {
	cmd := exec.CommandContext(ctx, "taskset", "-c", fmt.Sprintf("0-%d", cpus-1),
		"hackbench", "--pipe", "--groups", "2", "--loops", strconv.Itoa(loops))
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run hackbench: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
