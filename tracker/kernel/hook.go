package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/tailcam/tailcam/tracker/kinds"
)

// Jump is what is attached to a hook: a few instructions that jump into the program in
// their table. To puts another program there with one exchange of a pointer, so that each
// event meets either the one or the other. The kernel offers no other way: links to
// tracepoints and functions have no update (bpf_raw_tp_link_lops and bpf_tracing_link_lops
// of kernel/bpf/syscall.c, to 6.18 and later). On x86 the jump is patched into the code.
type Jump struct {
	Program *ebpf.Program
	table   *ebpf.Map // of one program; what is in it goes when its last descriptor is closed
}

// NewJump loads what jumps into programs like that of spec. It does nothing until To.
func NewJump(spec *ebpf.ProgramSpec) (*Jump, error) {
	jumps, err := newJumps(map[string]*ebpf.ProgramSpec{spec.Name: spec})
	return jumps[spec.Name], err
}

// newJumps loads several at once, by the names of their programs.
func newJumps(specs map[string]*ebpf.ProgramSpec) (map[string]*Jump, error) {
	all := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}, Programs: map[string]*ebpf.ProgramSpec{}}
	for name, like := range specs {
		all.Maps[name] = &ebpf.MapSpec{Name: name, Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}
		spec := like.Copy()
		spec.Instructions = asm.Instructions{
			asm.LoadMapPtr(asm.R2, 0).WithReference(name),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		}
		all.Programs[name] = spec
	}
	c, err := ebpf.NewCollection(all)
	if err != nil {
		return nil, fmt.Errorf("load what jumps into the programs: %w", err)
	}
	jumps := make(map[string]*Jump, len(specs))
	for name := range specs {
		jumps[name] = &Jump{c.Programs[name], c.Maps[name]}
	}
	return jumps, nil
}

// To has the hook run p from its next event on. p may be closed then.
func (j *Jump) To(p *ebpf.Program) error {
	if err := j.table.Put(uint32(0), p); err != nil {
		return fmt.Errorf("change the program of %s: %w", j.table, err)
	}
	return nil
}

// Runs is the id of the program that its hook runs.
func (j *Jump) Runs() (id ebpf.ProgramID, err error) {
	err = j.table.Lookup(uint32(0), &id)
	return id, err
}

// Close unloads it. It must be detached before.
func (j *Jump) Close() error { return errors.Join(j.Program.Close(), j.table.Close()) }

// hooks are those of what is loaded, by the name of their program.
type hooks map[string]*Jump

// newHooks makes those of kinds.Hooks that have a program jump into it.
func newHooks(specs map[string]*ebpf.ProgramSpec, programs map[string]*ebpf.Program) (hooks, error) {
	wanted := map[string]*ebpf.ProgramSpec{}
	for i := range kinds.Hooks {
		if name := kinds.Hooks[i].Program; programs[name] != nil {
			wanted[name] = specs[name]
		}
	}
	made, err := newJumps(wanted)
	if err != nil {
		return nil, err
	}
	for name, j := range made {
		if err := j.To(programs[name]); err != nil {
			return nil, errors.Join(err, hooks(made).close())
		}
	}
	return made, nil
}

func (h hooks) close() error {
	var errs []error
	for _, j := range h {
		errs = append(errs, j.Close())
	}
	return errors.Join(errs...)
}
