package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Memory is what both sides write while it is in use, mapped: it is read and
// written without a system call, word by word.
type Memory struct {
	Rules, Overrides *ebpf.Memory
	RuleStates       *ebpf.Memory
	RingUses         *ebpf.Memory
	Cpus             *ebpf.Memory // each CPU's state; nil, as Distributions: no delay is counted
	Distributions    *ebpf.Memory // of all CPUs
}

func (o *Objects) openMemory() error {
	var errs []error
	open := func(m *ebpf.Map) *ebpf.Memory {
		memory, err := m.Memory()
		if err != nil {
			errs = append(errs, fmt.Errorf("map %s: %w", m, err))
		}
		return memory
	}
	o.Memory = Memory{
		Rules: open(o.Maps.Rules), Overrides: open(o.Maps.Overrides),
		RuleStates: open(o.Maps.RuleStates), RingUses: open(o.Maps.RingUses),
	}
	if o.opts.Histograms > 0 {
		o.Memory.Cpus, o.Memory.Distributions = open(o.Maps.Cpus), open(o.Maps.Distributions)
	}
	return errors.Join(errs...)
}

// ReadWord reads the word at an offset.
func ReadWord(m *ebpf.Memory, offset int) (uint64, error) {
	var word [8]byte
	_, err := m.ReadAt(word[:], int64(offset))
	return binary.LittleEndian.Uint64(word[:]), err
}

// WriteWord writes the word at an offset, at once: programs may be reading it.
func WriteWord(m *ebpf.Memory, offset int, v uint64) error {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], v)
	_, err := m.WriteAt(word[:], int64(offset))
	return err
}
