package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

const shipped = "../../configs/tailcam.yaml"

// load is Load with a file (none if empty) and arguments.
func load(t *testing.T, file string, args ...string) (Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	AddFlags(flags)
	if file != "" {
		args = append([]string{"--config", file}, args...)
	}
	assert.NilError(t, flags.Parse(args))
	return Load(flags)
}

// write puts text into a file named f in a directory that becomes the working
// directory.
func write(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	assert.NilError(t, os.WriteFile("f", []byte(text), 0o600))
}

func TestDefaults(t *testing.T) {
	want := Config{
		Rules:  []string{"/etc/tailcam/rules.d"},
		Socket: Socket{Path: "/run/tailcam/tailcam.sock", Group: "tailcam"},
		Recorder: Recorder{
			Enabled: true, Backend: "mmap", Size: 2 << 20, MaxMemory: 256 << 20,
			Events: []string{"sched", "irq", "timer", "block", "workqueue", "process", "reclaim", "lock", "throttle"},
		},
		Snapshots: Snapshots{
			Dir: "/var/lib/tailcam/snapshots", MinFree: 512 << 20,
			Keep: Keep{Count: 100, Bytes: 1 << 30, Age: 7 * 24 * time.Hour},
		},
		Actions: Actions{User: "nobody", Concurrency: 2, Queue: 16},
		Capacity: Capacity{
			Initial: Slots{Tasks: 65536, Syscalls: 16384, Block: 16384, Workqueue: 16384},
			Max:     Slots{Tasks: 524288, Syscalls: 131072, Block: 131072, Workqueue: 131072}, Pairs: 16384, Chains: 4096, Spans: 16384,
		},
		Outliers:   Outliers{Buffer: 4 << 20, Rate: 100, Burst: 500},
		Histograms: Histograms{Enabled: true},
		Symbols:    Symbols{Lines: true, MaxMemory: 256 << 20},
		Log:        Log{Level: "info", Format: "json"},
	}
	assert.Check(t, is.DeepEqual(want, Default()))
}

// TestShippedFile: the file that is shipped has every key, at its default.
func TestShippedFile(t *testing.T) {
	got, err := load(t, shipped)
	assert.NilError(t, err)
	want := Default()
	want.File = shipped
	assert.Check(t, is.DeepEqual(want, got))
	values, errs := readFile(shipped, keys())
	assert.Assert(t, len(errs) == 0, "%v", errs)
	for _, k := range keys() {
		var at any = values
		for part := range strings.SplitSeq(k.name, ".") {
			at = at.(map[string]any)[part]
		}
		assert.Check(t, at != nil, "%s is missing", k.name)
	}
}

func TestPrecedence(t *testing.T) {
	write(t, "recorder: {size: 4MiB, events: sched, enabled: false}\nlog: {level: warn}\nactions: {queue: 3}\nrules: [a, 'b,c']\ncapacity:\n  initial: {tasks: 1024}\n")
	dir, err := os.Getwd()
	assert.NilError(t, err)
	t.Setenv("TAILCAM_CONFIG", "f")
	t.Setenv("TAILCAM_LOG_LEVEL", "error")
	t.Setenv("TAILCAM_LOG_FORMAT", "") // not set
	t.Setenv("TAILCAM_ACTIONS_QUEUE", "4")
	t.Setenv("TAILCAM_RECORDER_EVENTS", "sched,irq")
	got, err := load(t, "", "--actions-queue=5", "--snapshots-min-free", "0", "--socket-path", "s.sock")
	assert.NilError(t, err)
	want := Default()
	want.File = "f"
	want.Recorder = Recorder{Backend: "mmap", Size: 4 << 20, MaxMemory: 256 << 20, Events: []string{"sched", "irq"}}
	want.Log.Level = "error"
	want.Actions.Queue = 5
	want.Rules = []string{filepath.Join(dir, "a"), filepath.Join(dir, "b,c")}
	want.Capacity.Initial.Tasks = 1024
	want.Snapshots.MinFree = 0
	want.Socket.Path = filepath.Join(dir, "s.sock")
	assert.Check(t, is.DeepEqual(want, got))

	got, err = load(t, "", "--rules", "/x,/y", "--rules", "/z")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual([]string{"/x", "/y", "/z"}, got.Rules))
	_, err = Load(nil)
	assert.Check(t, err, "without flags")
}

func TestBadFile(t *testing.T) {
	const top = "; allowed: rules, socket, recorder, snapshots, actions, capacity, outliers, histograms, symbols, log"
	for _, tt := range []struct{ yaml, want string }{
		{"", "f:1:1: file is empty"},
		{"recorder: [", "f:1:1: invalid YAML: did not find expected node content"},
		{"recorder: &a {}", "f:1:11: anchors and aliases are not supported; allowed: plain values"},
		{"- a", "f:1:1: file is not a mapping; allowed: a mapping with rules, socket, recorder, snapshots, actions, capacity, outliers, histograms, symbols, log"},
		{"recoder: {}", `f:1:1: unknown key "recoder", did you mean "recorder"` + top},
		{"Log: {}", `f:1:1: unknown key "Log", did you mean "log"` + top},
		{"recorder:\n  sise: 1MiB\n", `f:2:3: unknown key "recorder.sise", did you mean "recorder.size"; allowed: recorder.enabled, recorder.backend, recorder.size, recorder.cover, recorder.max_memory, recorder.events`},
		{"recorder.size: 1MiB", `f:1:1: unknown key "recorder.size"` + top},
		{"recorder:", "f:1:10: recorder is not a mapping; allowed: a mapping with enabled, backend, size, cover, max_memory, events"},
		{"log: {level: info}\nlog: {level: info}\n", "f:2:1: duplicate key log, first set in line 1; allowed: each key once"},
		{"recorder: {size: 3MiB}", `f:1:18: recorder.size "3MiB" is not a power of two; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: 64KiB}", `f:1:18: recorder.size "64KiB" is too small; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: 1GiB}", `f:1:18: recorder.size "1GiB" is too large; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: 1MB}", `f:1:18: recorder.size "1MB" is not a size; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: -1}", `f:1:18: recorder.size "-1" is not a size; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: 1.5}", `f:1:18: recorder.size has the wrong type; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {size: 99999999999999TiB}", `f:1:18: recorder.size "99999999999999TiB" is not a size; allowed: a power of two from 128KiB to 512MiB`},
		{"recorder: {cover: 5}", `f:1:19: recorder.cover "5" has no unit; allowed: 0s, or a duration from 100ms to 1h, such as 5ms`},
		{"recorder: {cover: 2h, max_memory: 64KiB}", `f:1:19: recorder.cover "2h" is too long; allowed: 0s, or a duration from 100ms to 1h, such as 5ms` +
			"\n" + `f:1:35: recorder.max_memory "64KiB" is too small; allowed: a size from 1MiB to 1TiB, such as 64MiB`},
		{"snapshots: {rt_priority: 100}", `f:1:26: snapshots.rt_priority "100" is too large; allowed: an integer from 0 to 99`},
		{"snapshots: {rt_priority: -1}", `f:1:26: snapshots.rt_priority "-1" is too small; allowed: an integer from 0 to 99`},
		{"snapshots: {rt_priority: high}", `f:1:26: snapshots.rt_priority has the wrong type; allowed: an integer from 0 to 99`},
		{"recorder: {enabled: yes}", "f:1:21: recorder.enabled has the wrong type; allowed: true, false"},
		{"recorder: {events: [sched, sched]}", `f:1:20: recorder.events "sched,sched" lists sched twice; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm`},
		{"recorder: {events: [sched, network]}", `f:1:28: recorder.events "network" has the unknown group "network"; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm`},
		{"recorder: {events: []}", "f:1:20: recorder.events is empty; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm"},
		{"rules: [5]", "f:1:9: rules has the wrong type; allowed: paths of files or directories"},
		{"rules: ['']", "f:1:9: rules is empty; allowed: paths of files or directories"},
		{"socket: {path: /" + strings.Repeat("x", 107) + "}", `f:1:16: socket.path "/` + strings.Repeat("x", 107) + `" is too long for a socket; allowed: a path of at most 107 bytes`},
		{"socket: {group: [a]}", "f:1:17: socket.group has the wrong type; allowed: the name of a group"},
		{"snapshots: {dir: ''}", "f:1:18: snapshots.dir is empty; allowed: a path"},
		{"snapshots: {keep: {count: 0, bytes: 1KiB, age: 7d}}", `f:1:27: snapshots.keep.count "0" is too small; allowed: an integer from 1 to 1000000` +
			"\n" + `f:1:37: snapshots.keep.bytes "1KiB" is too small; allowed: a size from 1MiB to 1024TiB, such as 64MiB` +
			"\n" + `f:1:48: snapshots.keep.age "7d" is not a duration; allowed: a duration from 1m to 87600h, such as 5ms`},
		{"snapshots: {keep: {age: 60}}", `f:1:25: snapshots.keep.age "60" has no unit; allowed: a duration from 1m to 87600h, such as 5ms`},
		{"actions: {user: mallory-the-unknown, concurrency: 2.5, queue: '5'}", `f:1:17: actions.user "mallory-the-unknown" does not exist; allowed: an existing user` +
			"\nf:1:51: actions.concurrency has the wrong type; allowed: an integer from 1 to 64" +
			"\nf:1:63: actions.queue has the wrong type; allowed: an integer from 1 to 10000"},
		{"capacity: {initial: {tasks: 1000, block: 32}}", `f:1:29: capacity.initial.tasks "1000" is not a power of two; allowed: a power of two from 64 to 4194304` +
			"\n" + `f:1:42: capacity.initial.block "32" is too small; allowed: a power of two from 64 to 4194304`},
		{"log: {level: verbose, format: text}", `f:1:14: log.level "verbose" is unknown; allowed: debug, info, warn, error` +
			"\n" + `f:1:31: log.format "text" is unknown; allowed: json, console`},
	} {
		write(t, tt.yaml)
		_, err := load(t, "f")
		var all rules.Errors
		assert.Check(t, errors.As(err, &all) && err.Error() == tt.want,
			"%q:\ngot\n%v\nwant\n%s", tt.yaml, err, tt.want)
	}
}

// TestBadSources: file, environment and flags are all told of at once, also
// where a better source would hide the mistake.
func TestBadSources(t *testing.T) {
	write(t, "log: {level: loud}")
	t.Setenv("TAILCAM_LOG_LEVEL", "louder")
	t.Setenv("TAILCAM_RECORDER_SISE", "1MiB")
	t.Setenv("TAILCAM_RECORDER_EVENTS", "sched,network")
	_, err := load(t, "f", "--log-level", "debug", "--actions-queue", "many", "--recorder-events", "irq,irq")
	want := strings.Join([]string{
		`f:1:14: log.level "loud" is unknown; allowed: debug, info, warn, error`,
		`TAILCAM_LOG_LEVEL: log.level "louder" is unknown; allowed: debug, info, warn, error`,
		`TAILCAM_RECORDER_EVENTS: recorder.events "sched,network" has the unknown group "network"; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm`,
		`environment: unknown variable "TAILCAM_RECORDER_SISE", did you mean "TAILCAM_RECORDER_SIZE"; allowed: TAILCAM_CONFIG, or TAILCAM_ and a key, such as TAILCAM_RECORDER_SIZE`,
		`--recorder-events: recorder.events "irq,irq" lists irq twice; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm`,
		`--actions-queue: actions.queue "many" is not an integer; allowed: an integer from 1 to 10000`,
	}, "\n")
	assert.Check(t, is.Error(err, want))
	_, err = load(t, "missing")
	assert.Check(t, err != nil &&
		strings.HasPrefix(err.Error(), "missing: cannot open: no such file or directory\n"), "missing file: %v", err)
}
