package main

import (
	"context"
	"fmt"
)

// ftraceScript records the recorder's group sched into ftrace's own ring, of an
// instance that goes with it.
const ftraceScript = `d=/sys/kernel/tracing/instances/tailcam-bench-$$
mkdir $d || exit 1
trap 'echo 0 >$d/tracing_on; echo >$d/set_event; rmdir $d; exit 0' INT TERM
echo %d >$d/buffer_size_kb || exit 1
for e in sched_switch sched_waking sched_wakeup_new sched_migrate_task; do echo 1 >$d/events/sched/$e/enable || exit 1; done
while :; do sleep 0.2; done`

// startFtrace shows in hackbench alone: ftrace is no BPF program.
func startFtrace(ctx context.Context) (running, error) {
	return started(startPeer(ctx, []string{"sh", "-c", fmt.Sprintf(ftraceScript, ringSize>>10)}, func(files) bool { return true }))
}
