package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/bench/peer"
)

// ringSize is recorder.size's default: what every recorder may use of each CPU.
const ringSize = 2 << 20

// recorded are the events of every other recorder: those that explain most latencies.
var recorded = []string{
	"sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task",
	"irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit",
	"block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete",
}

// slowQueue prints each wake-up that takes as long as tailcam's shipped rule allows.
const slowQueue = `tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @q[args->pid] = nsecs }
tracepoint:sched:sched_switch {
	if (args->prev_state == 0) { @q[args->prev_pid] = nsecs }
	$s = @q[args->next_pid];
	if ($s && nsecs - $s > 20000000) { printf("%s %d us\n", args->next_comm, (nsecs - $s) / 1000) }
	delete(@q[args->next_pid])
}`

// variant is what is attached while loads run.
type variant struct {
	name  string
	title string
	ours  bool          // a tailcam
	warm  time.Duration // that a load runs before it is measured
	start func(context.Context, *env) (running, error)

	host      string // variants with the same one share what the first starts
	tokens    carried
	accounted bool     // requests are activities
	only      []string // loads; nil: all
}

// Names of variants.
const (
	vNothing  = "nothing"
	vAgain    = "again"
	vTailcam  = "tailcam"
	vBudget   = "budget"
	vFtrace   = "ftrace"
	vPerf     = "perf"
	vBpftrace = "bpftrace"
)

// nothing is what all others are compared with; again, how far two equal runs differ.
var (
	nothing = variant{name: vNothing, title: "nothing", start: attachNone}
	again   = variant{name: vAgain, title: "nothing, once more", start: attachNone}
)

func attachNone(context.Context, *env) (running, error) { return none{}, nil }

var peers = []variant{
	{name: vFtrace, title: "ftrace's ring, sched, irq and block", start: func(ctx context.Context, _ *env) (running, error) {
		return attached(ctx)(peer.Ftrace(ctx, ringSize, recorded))
	}},
	{name: vPerf, title: "`perf record --overwrite`, the same", start: func(ctx context.Context, e *env) (running, error) {
		return attached(ctx)(peer.PerfRecord(ctx, e.dir, ringSize, recorded))
	}},
	{name: vBpftrace, title: "bpftrace, slow run queue only", start: func(ctx context.Context, _ *env) (running, error) {
		return attached(ctx)(peer.Bpftrace(ctx, slowQueue, 3))
	}},
}

// settled is how long a load runs before tailcam has shed what it sheds for it:
// after two windows of ten seconds above the budget, and in further steps.
const settled = 75 * time.Second

// limited reports whether it is a tailcam with a budget.
func (v *variant) limited() bool { return v.name == vBudget }

// firstRun has a load run once before it is measured under a tailcam that is seconds old:
// it then has read the symbols of the load's programs. Further runs are those of calm.
const firstRun = time.Nanosecond

// ownProgram is this tree's.
const ownProgram = "bin/tailcam"

// variantNames are those that -variants knows.
func variantNames(more []tailcam) []string {
	names := []string{vAgain, vTailcam, vBudget}
	for i := range withActivities {
		names = append(names, withActivities[i].name)
	}
	for i := range floors {
		names = append(names, floors[i].name)
	}
	for _, t := range more {
		names = append(names, t.name)
	}
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// selectVariants lists nothing and those that are wanted. Another tool that is
// not installed is left out, and named, unless it was asked for.
func selectVariants(o *options) (list []variant, missing []string, err error) {
	for _, name := range o.variants {
		if name != vNothing && !slices.Contains(variantNames(o.tailcams), name) {
			return nil, nil, fmt.Errorf("no variant %q: there are %s", name, strings.Join(variantNames(o.tailcams), ", "))
		}
	}
	wanted := func(name string) bool { return len(o.variants) == 0 || slices.Contains(o.variants, name) }
	list = []variant{nothing}
	if slices.Contains(o.variants, vAgain) {
		list = append(list, again)
	}
	tailcams := o.tailcams
	if !slices.ContainsFunc(tailcams, func(t tailcam) bool { return t.name == vTailcam }) {
		tailcams = append([]tailcam{{name: vTailcam, program: ownProgram}}, tailcams...)
	}
	for _, t := range tailcams {
		if !wanted(t.name) {
			continue
		}
		if err := t.unlimited(); err != nil {
			return nil, nil, err
		}
		list = append(list, variant{name: t.name, title: t.title(), ours: true, warm: firstRun, start: t.start})
	}
	if slices.Contains(o.variants, vBudget) { // each of its runs takes most of a minute
		t := tailcam{name: vBudget, program: ownProgram}
		if _, err := os.Stat(t.program); err != nil {
			return nil, nil, fmt.Errorf("%s: %w (make build)", t.name, err)
		}
		list = append(list, variant{name: t.name, title: "tailcam within its budget", ours: true, warm: settled, start: t.start})
	}
	for i := range withActivities {
		if a := &withActivities[i]; slices.Contains(o.variants, a.name) {
			v, err := a.variant()
			if err != nil {
				return nil, nil, err
			}
			list = append(list, v)
		}
	}
	for _, f := range floors {
		if slices.Contains(o.variants, f.name) {
			list = append(list, f)
		}
	}
	for _, p := range peers {
		switch _, err := exec.LookPath(p.name); {
		case !wanted(p.name):
		case p.name == vFtrace || err == nil:
			list = append(list, p)
		case len(o.variants) > 0:
			return nil, nil, fmt.Errorf("%s is not installed (make deps-bench)", p.name)
		default:
			missing = append(missing, p.name)
		}
	}
	return list, missing, nil
}

// none is nothing attached.
type none struct{}

func (none) stop() error { return nil }

// other is another tool at work.
type other struct{ *peer.Peer }

func (o other) stop() error { return o.Stop() }

// attached waits until a tool is done with starting.
func attached(ctx context.Context) func(*peer.Peer, error) (running, error) {
	return func(p *peer.Peer, err error) (running, error) {
		if err != nil {
			return nil, err
		}
		settle(ctx, p.PID())
		return other{p}, nil
	}
}

// tailcam is a daemon: this tree's as it is shipped, or another.
type tailcam struct {
	name    string
	program string
	flags   []string // of run, after those that keep it private
	asked   bool     // for, on the command line
}

// parseTailcam reads 'NAME=PROGRAM [FLAG...]'.
func parseTailcam(s string) (tailcam, error) {
	name, command, ok := strings.Cut(s, "=")
	f := strings.Fields(command)
	if !ok || name == "" || len(f) == 0 || name == vNothing || name != vTailcam && slices.Contains(variantNames(nil), name) || strings.Contains(name, ",") {
		return tailcam{}, fmt.Errorf("%q is not NAME=PROGRAM [FLAG...]", s)
	}
	return tailcam{name: name, program: f[0], flags: f[1:], asked: true}, nil
}

func (t *tailcam) title() string {
	if t.name == vTailcam && !t.asked {
		return "tailcam as shipped, no budget"
	}
	return "tailcam " + t.name
}

// unlimited takes the budget off, unless flags set it or the program has none:
// what is shed would change what is measured, from run to run. It is an error if there is no program.
func (t *tailcam) unlimited() error {
	if _, err := os.Stat(t.program); err != nil {
		return fmt.Errorf("%s: %w (make build)", t.name, err)
	}
	const flag = "--budget-cpu"
	if slices.ContainsFunc(t.flags, func(f string) bool { return f == flag || strings.HasPrefix(f, flag+"=") }) {
		return nil
	}
	help, err := exec.Command(t.program, "run", "--help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s run --help: %w", t.name, t.program, err)
	}
	if bytes.Contains(help, []byte(flag)) {
		t.flags = append(slices.Clip(t.flags), flag, "off")
	}
	return nil
}

// args are those of the program: the configuration beside its bin directory, or
// that of the current directory, unless flags say otherwise.
func (t *tailcam) args(dir string) []string {
	configs := filepath.Join(filepath.Dir(t.program), "..", "configs")
	if _, err := os.Stat(configs); err != nil {
		configs = "configs"
	}
	args := []string{"run", "--socket-path", filepath.Join(dir, socket), "--snapshots-dir", filepath.Join(dir, "snapshots")}
	for flag, value := range map[string]string{"--config": "tailcam.yaml", "--rules": "rules.d"} {
		if !slices.ContainsFunc(t.flags, func(f string) bool { return f == flag || strings.HasPrefix(f, flag+"=") }) {
			args = append(args, flag, filepath.Join(configs, value))
		}
	}
	if slices.Contains(t.flags, "--activities-enabled") {
		args = append(args, "--activities-socket", filepath.Join(dir, activitySocket))
	}
	return append(args, t.flags...)
}

// start runs the daemon until it watches and is done with starting.
func (t tailcam) start(ctx context.Context, e *env) (running, error) {
	dir, err := os.MkdirTemp(e.dir, "tailcam-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // servers have users of their own
		return nil, err
	}
	watches := func(s *server) error {
		if !strings.Contains(s.out.String(), `"watching"`) && !strings.Contains(s.out.String(), "\twatching\t") {
			return errors.New("it does not watch")
		}
		return nil
	}
	s, err := serve(ctx, nil, watches, t.program, t.args(dir)...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	settle(ctx, s.cmd.Process.Pid)
	return &daemon{name: t.name, server: s, dir: dir, api: api.NewClient(filepath.Join(dir, socket))}, nil
}

// Sockets of the daemon, in its directory.
const (
	socket         = "tailcam.sock"
	activitySocket = "activities.sock" // everybody may connect to it
)

// daemon is a tailcam at work.
type daemon struct {
	*server
	name string
	dir  string
	api  *api.Client
}

func (d *daemon) stop() error {
	d.api.Close()
	return errors.Join(d.server.stop(), os.RemoveAll(d.dir))
}
