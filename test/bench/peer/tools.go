package peer

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// ftraceScript records into ftrace's own ring, of an instance that goes when
// its input ends, which it does however the program ends that has started it. Until
// then each line of it, on or off, changes what is recorded. Instances whose script was
// killed go as well. It forks nothing meanwhile.
const ftraceScript = `trap '' INT
end() {
	echo 0 >$1/tracing_on
	echo >$1/set_event
	rmdir $1
}
for d in /sys/kernel/tracing/instances/tailcam-bench-*; do
	[ ! -d $d ] || [ -d /proc/${d##*-} ] || end $d
done
d=/sys/kernel/tracing/instances/tailcam-bench-$$
mkdir $d || exit 1
status=0
echo %d >$d/buffer_size_kb || status=1
on() {
	for e in %s; do echo $e >>$d/set_event || status=1; done
}
off() { echo >$d/set_event; }
on
[ $status = 1 ] || echo recording >&2
while [ $status = 0 ] && read -r line; do
	$line
	echo $line >&2
done
end $d
exit $status`

// Ftrace records events, as perf names them, into rings of ftrace; bytes are a
// CPU's. It is no BPF program: only wall clocks show what it costs.
func Ftrace(ctx context.Context, bytes int, events []string) (*Peer, error) {
	script := fmt.Sprintf(ftraceScript, bytes>>10, strings.Join(events, " "))
	p, err := start(ctx, []string{"sh", "-c", script}, 0, func(f Files) bool { return strings.Contains(f.Said, "recording\n") })
	if err != nil {
		return nil, err
	}
	p.on, p.off, p.answers = "on", "off", true
	return p, nil
}

// PerfRecord keeps the last events in perf's overwritten rings; bytes are a CPU's.
func PerfRecord(ctx context.Context, dir string, bytes int, events []string) (*Peer, error) {
	args := []string{
		"perf", "record", "--overwrite", "--switch-output=signal", "--all-cpus",
		"--mmap-pages", fmt.Sprint(bytes / 4096), "--quiet",
		"--output", filepath.Join(dir, "perf.data"), "--event", strings.Join(events, ","), "--control", "fd:0",
	}
	p, err := Start(ctx, args, func(f Files) bool { return f.Events >= len(events) })
	if err != nil {
		return nil, err
	}
	p.on, p.off = "enable", "disable"
	return p, nil
}

// Bpftrace runs a script, which becomes so many programs.
func Bpftrace(ctx context.Context, script string, programs int) (*Peer, error) {
	return Start(ctx, []string{"bpftrace", "-o", "/dev/null", "-e", script},
		func(f Files) bool { return len(f.Programs) >= programs })
}

// Find finds a tool's program, as bcc's and libbpf's are installed under several names.
func Find(name string) string {
	for _, n := range []string{name, "libbpf-" + name} {
		if path, err := exec.LookPath(n); err == nil {
			return path
		}
	}
	return ""
}
