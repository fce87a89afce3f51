package activities

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/accounts"
)

// required are the programs of the group scheduler, and of the daemon itself, in the order
// in which they are attached: who is seen to come has been seen to leave.
var required = []string{"activity_exit", "activity_exec", "activity_fork", "activity_switch", "activity_waking"}

const publish = "activity_publish"

// kernelSide is the loaded object.
type kernelSide struct {
	shared   map[string]*ebpf.Map // of all programs, by name
	maps     bpf.ActivityMaps     // some of shared
	open     *ebpf.Variable
	publish  *ebpf.Program
	rings    rings
	inner    [2]*ebpf.MapSpec // of shared and accounts
	missing  map[string]error // by program: why this kernel does not have it
	programs map[string]*ebpf.Program
	loaded   []*ebpf.Collection
	types    *btf.Cache // of the kernel, which every load wants
}

// load loads the programs of some groups, and attaches none. What this kernel refuses beyond
// the scheduler's is missing.
func load(groups []string) (k *kernelSide, err error) {
	k = &kernelSide{programs: map[string]*ebpf.Program{}, types: btf.NewCache()}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
			k = nil
		}
	}()
	spec, err := bpf.LoadActivity()
	if err != nil {
		return k, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if k.missing, err = accounts.Prepare(spec, groups); err != nil {
		return k, err
	}
	if err := sizeRings(spec); err != nil {
		return k, err
	}
	k.inner = [2]*ebpf.MapSpec{spec.Maps["activity_shared"].InnerMap, spec.Maps["activity_accounts"].InnerMap}
	if err := k.loadRequired(spec); err != nil {
		return k, err
	}
	k.loadOthers(spec)
	if slices.Contains(groups, accounts.Hardware) {
		if err := accounts.CountHardware(k.shared); err != nil {
			k.missing[accounts.Hardware] = err
		}
	}
	k.types = nil
	return k, nil
}

// only returns a copy with some of the programs.
func only(spec *ebpf.CollectionSpec, programs ...string) *ebpf.CollectionSpec {
	some := spec.Copy()
	maps.DeleteFunc(some.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(programs, name) })
	return some
}

func (k *kernelSide) loadRequired(spec *ebpf.CollectionSpec) error {
	base, err := ebpf.NewCollectionWithOptions(only(spec, append(slices.Clone(required), publish)...),
		ebpf.CollectionOptions{Cache: k.types})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	k.loaded = append(k.loaded, base)
	k.shared = maps.Clone(base.Maps) // what is assigned is base's no more
	if err := base.Assign(&k.maps); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	k.open, k.publish = base.Variables["activities_open"], base.Programs[publish]
	return k.rings.open(k.maps.Carried, k.maps.Evicted)
}

// loadOthers loads each program of the other groups by itself, with the same maps.
func (k *kernelSide) loadOthers(spec *ebpf.CollectionSpec) {
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		if name == publish || slices.Contains(required, name) {
			continue
		}
		c, err := ebpf.NewCollectionWithOptions(only(spec, name), ebpf.CollectionOptions{
			MapReplacements: k.shared, Cache: k.types,
		})
		if err != nil {
			k.missing[name] = fmt.Errorf("this kernel refuses it: %w", err)
			continue
		}
		k.loaded = append(k.loaded, c)
		k.programs[name] = c.Programs[name]
	}
}

func (k *kernelSide) close() error {
	var errs []error
	for _, c := range k.loaded {
		c.Close()
	}
	errs = append(errs, k.rings.close())
	for _, m := range k.shared {
		_ = m.Close() // it was only read and written
	}
	return errors.Join(errs...)
}
