package kernel

import (
	"errors"
	"os"

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
	f, err := os.Open("/proc/kallsyms")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var knobs []knob
	all := errors.New("all are found")
	err = linux.ReadSymbols(f, func(s *linux.Symbol) error {
		to := wanted[string(s.Name)]
		if to == nil || len(s.Module) > 0 {
			return nil
		}
		knobs = append(knobs, knob{to, s.Addr})
		if len(knobs) == len(wanted) {
			return all
		}
		return nil
	})
	if err != nil && !errors.Is(err, all) {
		return err
	}
	return set(knobs)
}
