package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
)

// linkFunctions tells the programs where functions of the kernel are that they find in its
// timers and wait queues (bpf/recorder/tcp.h). Without the right to read addresses
// (CAP_SYSLOG), and for functions that a kernel lacks, they stay unknown: timers of TCP are
// recorded without their sockets.
func linkFunctions(v *bpf.TailcamVariableSpecs) error {
	wanted := map[string]*ebpf.VariableSpec{
		"tcp_write_timer": v.FnTcpWriteTimer, "tcp_delack_timer": v.FnTcpDelackTimer, "tcp_keepalive_timer": v.FnTcpKeepaliveTimer,
		"woken_wake_function": v.FnWokenWakeFunction, "pollwake": v.FnPollwake,
		"ep_poll_callback": v.FnEpPollCallback, "ep_autoremove_wake_function": v.FnEpAutoremoveWakeFunction,
	}
	symbols, err := coreSymbols()
	if err != nil {
		return err
	}
	var knobs []knob
	for name, to := range wanted {
		if address, ok := symbols[name]; ok {
			knobs = append(knobs, knob{to, address})
		}
	}
	return set(knobs)
}

// coreSymbols are the addresses of those symbols of the kernel itself, without its modules,
// that are asked for here, as far as it has them; 0: hidden. Where the list cannot be read there
// are none. They do not change, and the list is long: it is read once.
var coreSymbols = sync.OnceValues(func() (map[string]uint64, error) {
	wanted := map[string]bool{
		stealVariable: true, "__preempt_count": true, "pcpu_hot": true,
		"tcp_write_timer": true, "tcp_delack_timer": true, "tcp_keepalive_timer": true,
		"woken_wake_function": true, "pollwake": true, "ep_poll_callback": true, "ep_autoremove_wake_function": true,
	}
	f, err := os.Open("/proc/kallsyms")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]uint64{}
	err = linux.ReadSymbols(f, func(s *linux.Symbol) error {
		if wanted[string(s.Name)] && len(s.Module) == 0 {
			found[string(s.Name)] = s.Addr
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	return found, nil
})
