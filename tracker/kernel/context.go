package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
)

// ErrNoContexts means that Plan.Contexts is not set.
var ErrNoContexts = errors.New("contexts of threads are not read: set activities.enabled")

// SetContext tells where process pid has the contexts of its threads. It is forgotten when
// the process ends, and not believed after an exec. Its children have the same place until
// they exec, or have their own.
func (o *Objects) SetContext(pid int, place *abi.ContextPlace) error {
	if !o.Plan().Contexts {
		return ErrNoContexts
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := o.Maps().ContextPlaces.Update(uint32(fd), place, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("tell where process %d has its contexts: %w", pid, err)
	}
	return nil
}
