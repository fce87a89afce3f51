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

func (l *loaded) openMemory() error {
	var errs []error
	open := func(m *ebpf.Map) *ebpf.Memory {
		memory, err := m.Memory()
		if err != nil {
			errs = append(errs, fmt.Errorf("map %s: %w", m, err))
		}
		return memory
	}
	l.memory = Memory{
		Rules: open(l.maps.Rules), Overrides: open(l.maps.Overrides),
		RuleStates: open(l.maps.RuleStates), RingUses: open(l.maps.RingUses),
	}
	if l.opts.Histograms > 0 {
		l.memory.Cpus, l.memory.Distributions = open(l.maps.Cpus), open(l.maps.Distributions)
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
