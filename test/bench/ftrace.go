package main

import (
	"context"
	"fmt"
	"strings"
)

// ftraceScript records events, as perf names them, into ftrace's own ring, of
// an instance that goes with it.
const ftraceScript = `d=/sys/kernel/tracing/instances/tailcam-bench-$$
mkdir $d || exit 1
trap 'echo 0 >$d/tracing_on; echo >$d/set_event; rmdir $d; exit 0' INT TERM
echo %d >$d/buffer_size_kb || exit 1
for e in %s; do echo $e >>$d/set_event || exit 1; done
while :; do sleep 0.2; done`

// ftrace shows in wall clocks alone: it is no BPF program.
func ftrace(events []string) func(context.Context) (running, error) {
	return func(ctx context.Context) (running, error) {
		script := fmt.Sprintf(ftraceScript, ringSize>>10, strings.Join(events, " "))
		return started(startPeer(ctx, []string{"sh", "-c", script}, func(files) bool { return true }))
	}
}
