package activities

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
)

// declared reports whether this is the entry that declared programs share.
func (p *Process) declared() bool { return p.flags&abi.ActivityDeclared != 0 }

// OpenDeclared makes the maps that the programs share in which rules declare activities: see
// package declared. The kernel side alone writes both. PID and UID of the process are 0.
func (a *Activities) OpenDeclared() (*Process, error) {
	p := &Process{
		of: a, began: linux.Monotonic(), pidfd: -1, left: make(chan struct{}), flags: abi.ActivityDeclared,
		threads: abi.ActivityMaxThreads, tokens: abi.ActivityMaxThreads,
	}
	p.bytes = p.memory()
	if err := a.admit(p, 0); err != nil {
		return nil, err
	}
	if err := p.open(-1); err != nil {
		p.Close()
		return nil, fmt.Errorf("make the maps of declared activities: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.ready = true
	return p, nil
}

// Owner is the process in the kernel side's table.
func (p *Process) Owner() abi.ActivityOwner {
	return abi.ActivityOwner{Process: p.number, Serial: p.serial}
}

// Maps are those of the kernel side, by name, until Close.
func (a *Activities) Maps() map[string]*ebpf.Map { return a.kernel.shared }

// MapIDs are the ids of those maps.
func (a *Activities) MapIDs() map[string]uint32 {
	ids := map[string]uint32{}
	for name, m := range a.kernel.shared {
		if info, err := m.Info(); err == nil {
			id, _ := info.ID() // 4.13
			ids[name] = uint32(id)
		}
	}
	return ids
}
