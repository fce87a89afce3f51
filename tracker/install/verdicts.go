package install

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/stats"
)

// Cgroup, device, name and function conditions are patterns over names that the kernel
// side does not match: it is taught a verdict for each id that it meets.

// teachAll decides the conditions for every cgroup and interrupt handler that
// there is. Devices, and what comes later, are decided when first asked for.
func (r *Rules) teachAll(g *compile.Generation) error {
	if err := r.teachCgroups(g); err != nil {
		return err
	}
	return r.teachHandlers(g)
}

func (r *Rules) teachCgroups(g *compile.Generation) error {
	if len(g.Cgroups) == 0 {
		return nil
	}
	var failed error
	err := r.opts.Cgroups.WalkCgroups(func(id uint64, path string) {
		if e := r.teachCgroup(g, id, r.opts.Cgroups.PlaceOf(path)); e != nil && failed == nil {
			failed = e
		}
	})
	return errors.Join(err, failed)
}

// teachCgroup leaves a cgroup open while its container is being asked for.
func (r *Rules) teachCgroup(g *compile.Generation, id uint64, at CgroupPlace) error {
	if at.Pending && g.NeedRuntime() {
		return nil
	}
	return r.teach(g, abi.VerdictCgroup, id, g.CgroupVerdict(&at.Place))
}

// NeedRuntime reports whether a rule that runs has a condition that only a container
// runtime can decide.
func (r *Rules) NeedRuntime() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.NeedRuntime()
}

// TeachCgroups decides the conditions for every cgroup that there is anew: after a
// container runtime did not answer, they may have been decided without it.
func (r *Rules) TeachCgroups() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.teachCgroups(r.current)
}

func (r *Rules) teachDevice(g *compile.Generation, dev uint64, name string) error {
	return r.teach(g, abi.VerdictDevice, dev, compile.Verdict(g.Devices, rules.GlobMatch, name))
}

func (r *Rules) teachName(g *compile.Generation, name string) error {
	return r.teach(g, abi.VerdictName, nameHash(name), compile.Verdict(g.Names, rules.GlobMatch, name))
}

func (r *Rules) teachFunction(g *compile.Generation, address uint64, symbol string) error {
	return r.teach(g, abi.VerdictFunction, address, compile.Verdict(g.Functions, rules.GlobMatch, symbol))
}

func (r *Rules) teachHandlers(g *compile.Generation) error {
	if len(g.Names) == 0 {
		return nil
	}
	files, err := filepath.Glob("/sys/kernel/irq/*/actions")
	if err != nil {
		return err // the pattern is good
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // this interrupt is gone
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), ",") {
			if err := r.teachName(g, name[:min(len(name), abi.WorkNameLen-1)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Rules) teach(g *compile.Generation, kind uint32, id, bits uint64) error {
	key := abi.VerdictKey{Id: id, Kind: kind, Generation: g.Number}
	if err := r.kernel.Maps().Verdicts.Update(key, bits, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("teach verdict: %w", err)
	}
	return nil
}

// Answer tells the kernel side what it asked: a rule with a histogram waits for it.
func (r *Rules) Answer(q *abi.Question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.generation(q.Generation)
	if g == nil {
		return
	}
	// Without an answer the same question comes again.
	switch q.Kind {
	case abi.VerdictCgroup:
		_ = r.teachCgroup(g, q.Id, r.place(q.Id))
	case abi.VerdictDevice:
		_ = r.teachDevice(g, q.Id, stats.DiskName(uint32(q.Id)))
	case abi.VerdictName:
		_ = r.teachName(g, kinds.Text(q.Name[:]))
	case abi.VerdictFunction:
		_ = r.teachFunction(g, q.Id, r.symbol(q.Id))
	}
}

// cgroupPath is the path of a cgroup. One that is gone stays unnamed: its id is no name.
func (r *Rules) cgroupPath(id uint64) string {
	if r.opts.Cgroups == nil {
		return ""
	}
	path, err := r.opts.Cgroups.CgroupPath(id)
	if err != nil {
		return ""
	}
	return path
}

// place is what is known of a cgroup now.
func (r *Rules) place(id uint64) CgroupPlace {
	path := r.cgroupPath(id)
	if path == "" {
		return CgroupPlace{}
	}
	return r.opts.Cgroups.PlaceOf(path)
}

// symbol names a function of the kernel; "": nobody knows it.
func (r *Rules) symbol(address uint64) string {
	if r.opts.Symbol == nil {
		return ""
	}
	return r.opts.Symbol(address)
}

// nameHash is the id of the name of a handler or a queue in verdicts (name_hash of the kernel side).
func nameHash(name string) uint64 {
	var b [abi.WorkNameLen]byte
	copy(b[:abi.WorkNameLen-1], name)
	var h uint64
	for i := 0; i < len(b); i += 8 {
		h = (h ^ binary.LittleEndian.Uint64(b[i:])) * abi.NameHashFactor
		h ^= h >> abi.NameHashShift
	}
	return h
}
