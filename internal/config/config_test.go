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

	"github.com/tailcam/tailcam/internal/budget"
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
		Rules:  []string{"/usr/lib/tailcam/rules.d", "/etc/tailcam/rules.d"},
		Pin:    "auto",
		Socket: Socket{Path: "/run/tailcam/tailcam.sock", Group: "tailcam"},
		Recorder: Recorder{
			Enabled: true, Backend: "mmap", Size: 2 << 20, Cover: 5 * time.Second, MaxMemory: 128 << 20,
			Events:   []string{"sched", "irq", "timer", "block", "workqueue", "process", "reclaim", "lock", "throttle", "wait", "run"},
			IRQFloor: 10 * time.Microsecond,
		},
		Snapshots: Snapshots{
			Dir: "/var/lib/tailcam/snapshots", MinFree: 512 << 20, Compress: CompressZstd, Boost: 500 * time.Millisecond,
			Keep: Keep{Count: 100, Bytes: 1 << 30, Age: 7 * 24 * time.Hour, Worst: 3},
		},
		Actions: Actions{
			User: "nobody", Concurrency: 2, Queue: 16,
			MaxCPU: 10 * time.Minute, MaxMemory: 1 << 30, MaxOutput: 1 << 20,
		},
		Capacity: Capacity{
			Initial: Slots{Tasks: 65536, Syscalls: 16384, Block: 16384, Workqueue: 16384},
			Max:     Slots{Tasks: 524288, Syscalls: 131072, Block: 131072, Workqueue: 131072}, Pairs: 16384, Chains: 4096, Spans: 16384,
		},
		Outliers:   Outliers{Buffer: 4 << 20, Rate: 100, Burst: 500},
		Histograms: Histograms{Enabled: true},
		Activities: Activities{
			Groups:     []string{"scheduler", "block", "pagecache", "network", "memory", "workqueues"},
			UserMemory: 96 << 20, Memory: 192 << 20,
		},
		OTLP:    OTLP{Protocol: "http/protobuf", Signals: []string{"logs", "metrics"}, Interval: time.Minute, Spool: "/var/lib/tailcam/otlp", Quota: 64 << 20},
		Symbols: Symbols{Lines: true, MaxMemory: 256 << 20},
		Containers: Containers{
			Sockets: []string{
				"cri:/run/containerd/containerd.sock", "cri:/run/k3s/containerd/containerd.sock", "cri:/run/crio/crio.sock",
				"docker:/run/docker.sock", "docker:/run/podman/podman.sock",
			},
			Labels: []string{
				"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component", "app.kubernetes.io/part-of",
				"app.kubernetes.io/version", "app", "k8s-app", "com.docker.compose.project", "com.docker.compose.service",
			},
		},
		Budget: Budget{CPU: 0.01, Softirqs: 0.001, Locks: 0.001, Memory: budget.AutoMemory},
		Upload: Upload{
			KnownHosts: "/etc/ssh/ssh_known_hosts", S3: UploadS3{Endpoint: "https://s3.amazonaws.com"},
			Spool: "/var/lib/tailcam/spool", Quota: 1 << 30, Age: 7 * 24 * time.Hour, // Redact nil: off
		},
		Log: Log{Level: "info", Format: "auto"},
	}
	assert.Check(t, is.DeepEqual(want, Default()))
}

// TestShippedFile: the file that is shipped has every key, at its default.
func TestShippedFile(t *testing.T) {
	got, err := load(t, shipped)
	assert.NilError(t, err)
	want := Default()
	want.File, want.Files = shipped, []string{shipped}
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

// TestMoreFiles: files of conf.d override keys of the file, in the order of their names.
func TestMoreFiles(t *testing.T) {
	write(t, "log: {level: warn}\nactions: {queue: 3, concurrency: 3}\nrules: [a]\n")
	assert.NilError(t, os.Mkdir("conf.d", 0o700))
	for name, text := range map[string]string{
		"10.yaml": "actions: {queue: 4}\nlog: {level: debug}", "20.yml": "actions: {queue: 5}\nrules: [/b]", ".30.yaml": "hidden", "40.yaml~": "backup",
	} {
		assert.NilError(t, os.WriteFile("conf.d/"+name, []byte(text), 0o600))
	}
	got, err := load(t, "f", "--log-level", "error")
	assert.NilError(t, err)
	want := Default()
	want.File, want.Files = "f", []string{"f", "conf.d/10.yaml", "conf.d/20.yml"}
	want.Actions.Queue, want.Actions.Concurrency, want.Rules, want.Log.Level = 5, 3, []string{"/b"}, "error"
	assert.Check(t, is.DeepEqual(want, got))

	assert.NilError(t, os.WriteFile("conf.d/10.yaml", []byte("log: {level: lots}\nlogs: 5"), 0o600))
	_, err = load(t, "f")
	assert.ErrorContains(t, err, `conf.d/10.yaml:1:14: log.level "lots" is unknown; allowed: debug, info, warn, error`)
	assert.ErrorContains(t, err, `conf.d/10.yaml:2:1: unknown key "logs"`)
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
	want.File, want.Files = "f", []string{"f"}
	want.Recorder = Recorder{Backend: "mmap", Size: 4 << 20, MaxMemory: 128 << 20, Events: []string{"sched", "irq"}, IRQFloor: 10 * time.Microsecond}
	want.Log.Level = "error"
	want.Actions.Queue = 5
	want.Rules = []string{filepath.Join(dir, "a"), filepath.Join(dir, "b,c")}
	want.Capacity.Initial.Tasks = 1024
	want.Snapshots.MinFree = 0
	want.Socket.Path = filepath.Join(dir, "s.sock")
	assert.Check(t, is.DeepEqual(want, got))

	write(t, "metrics: {listen: 'unix:m.sock', web_config: web.yaml}")
	dir, err = os.Getwd()
	assert.NilError(t, err)
	got, err = load(t, "f")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(Metrics{"unix:" + dir + "/m.sock", dir + "/web.yaml"}, got.Metrics))
	got, err = load(t, "f", "--metrics-listen", "")
	assert.NilError(t, err)
	assert.Check(t, is.Equal("", got.Metrics.Listen))

	for _, listen := range []string{"127.0.0.1:9847", "localhost:0", "[::1]:9847", "unix:/run/a.sock"} {
		got, err = load(t, "", "--alerts-listen", listen)
		assert.Check(t, err == nil && got.Alerts.Listen == listen, "%v, %+v", err, got.Alerts)
	}
	got, err = load(t, "", "--peers-send", "https://b:1,http://127.0.0.1:2", "--peers-credentials", "/c", "--peers-listen", "localhost:0")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(Peers{Listen: "localhost:0", Send: []string{"https://b:1", "http://127.0.0.1:2"}, Credentials: "/c"}, got.Peers))
	_, err = load(t, "", "--alerts-listen", "0.0.0.0:9847", "--alerts-web-config", "/web.yaml")
	assert.NilError(t, err)

	got, err = load(t, "", "--rules", "/x,/y", "--rules", "/z")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual([]string{"/x", "/y", "/z"}, got.Rules))
	_, err = Load(nil)
	assert.Check(t, err, "without flags")
}

func TestBadFile(t *testing.T) {
	const top = "; allowed: rules, host, reload, pin, socket, recorder, snapshots, actions, capacity, outliers, histograms, activities, symbols, containers, budget, metrics, alerts, peers, otlp, upload, log"
	for _, tt := range []struct{ yaml, want string }{
		{"", "f:1:1: file is empty"},
		{"recorder: [", "f:1:1: invalid YAML: did not find expected node content"},
		{"recorder: &a {}", "f:1:11: anchors and aliases are not supported; allowed: plain values"},
		{"- a", "f:1:1: file is not a mapping; allowed: a mapping with rules, host, reload, pin, socket, recorder, snapshots, actions, capacity, outliers, histograms, activities, symbols, containers, budget, metrics, alerts, peers, otlp, upload, log"},
		{"recoder: {}", `f:1:1: unknown key "recoder", did you mean "recorder"` + top},
		{"Log: {}", `f:1:1: unknown key "Log", did you mean "log"` + top},
		{"recorder:\n  sise: 1MiB\n", `f:2:3: unknown key "recorder.sise", did you mean "recorder.size"; allowed: recorder.enabled, recorder.backend, recorder.size, recorder.cover, recorder.max_memory, recorder.events, recorder.irq_floor`},
		{"recorder.size: 1MiB", `f:1:1: unknown key "recorder.size"` + top},
		{"recorder:", "f:1:10: recorder is not a mapping; allowed: a mapping with enabled, backend, size, cover, max_memory, events, irq_floor"},
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
		{"recorder: {irq_floor: 10}", `f:1:23: recorder.irq_floor "10" has no unit; allowed: 0s, or a duration from 1us to 100ms, such as 5ms`},
		{"recorder: {irq_floor: 1s}", `f:1:23: recorder.irq_floor "1s" is too long; allowed: 0s, or a duration from 1us to 100ms, such as 5ms`},
		{"recorder: {irq_floor: -1us}", `f:1:23: recorder.irq_floor "-1us" is negative; allowed: 0s, or a duration from 1us to 100ms, such as 5ms`},
		{"snapshots: {rt_priority: 100}", `f:1:26: snapshots.rt_priority "100" is too large; allowed: an integer from 0 to 99`},
		{"snapshots: {rt_priority: -1}", `f:1:26: snapshots.rt_priority "-1" is too small; allowed: an integer from 0 to 99`},
		{"snapshots: {rt_priority: high}", `f:1:26: snapshots.rt_priority has the wrong type; allowed: an integer from 0 to 99`},
		{"upload: {redact: [users, off]}", `f:1:18: upload.redact "users,off" is no kind of names, or one of several that must stand alone; ` +
			`allowed: off, usual, all, or some of users, commands, arguments, files, addresses, hosts, places, labels, functions`},
		{"recorder: {enabled: yes}", "f:1:21: recorder.enabled has the wrong type; allowed: true, false"},
		{"recorder: {events: [sched, sched]}", `f:1:20: recorder.events "sched,sched" lists sched twice; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm, wait, run, sample`},
		{"recorder: {events: [sched, network]}", `f:1:28: recorder.events "network" has the unknown group "network"; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm, wait, run, sample`},
		{"recorder: {events: []}", "f:1:20: recorder.events is empty; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm, wait, run, sample"},
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
		{"budget: off", "f:1:9: budget is not a mapping; allowed: a mapping with cpu, softirqs, locks, memory"},
		{"budget: {cpu: 1}", `f:1:15: budget.cpu "1" has no %; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: 0.001%}", `f:1:15: budget.cpu "0.001%" is too small; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: 101%}", `f:1:15: budget.cpu "101%" is too large; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: NaN%}", `f:1:15: budget.cpu "NaN%" is not a percentage; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: -1%}", `f:1:15: budget.cpu "-1%" is too small; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: [1%]}", `f:1:15: budget.cpu has the wrong type; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {cpu: true}", `f:1:15: budget.cpu has the wrong type; allowed: off, or a percentage from 0.01% to 100%, such as 1%`},
		{"budget: {memory: 1MiB}", `f:1:18: budget.memory "1MiB" is too small; allowed: auto, off, or a size from 64MiB to 1TiB, such as 64MiB`},
		{"metrics: {listen: localhost, web_config: 5}", `f:1:19: metrics.listen "localhost" is not an address; allowed: HOST:PORT, or unix: and a path` +
			"\nf:1:42: metrics.web_config has the wrong type; allowed: a path"},
		{"metrics: {listen: 'localhost:http'}", `f:1:19: metrics.listen "localhost:http" has no port from 0 to 65535; allowed: HOST:PORT, or unix: and a path`},
		{"metrics: {listen: '[::1]:65536'}", `f:1:19: metrics.listen "[::1]:65536" has no port from 0 to 65535; allowed: HOST:PORT, or unix: and a path`},
		{"metrics: {listen: 'unix:'}", `f:1:19: metrics.listen "unix:" has no path; allowed: HOST:PORT, or unix: and a path`},
		{"metrics: {listen: 'unix:/" + strings.Repeat("x", 107) + "'}", `f:1:19: metrics.listen "unix:/` + strings.Repeat("x", 107) + `" is too long for a socket; allowed: HOST:PORT, or unix: and a path`},
		{"host: a/b", `f:1:7: host "a/b" is not the name of a host; allowed: ` +
			"at most 253 letters, digits, dots, hyphens and underscores, first a letter or digit"},
		{"alerts: {listen: '0.0.0.0:9847'}", "alerts.listen: anybody who reaches 0.0.0.0:9847 could send alerts; allowed: " +
			"alerts.web_config with basic_auth_users, 127.0.0.1 or [::1], or unix: and a path"},
		{"alerts: {listen: ':9847'}", "alerts.listen: anybody who reaches :9847 could send alerts; allowed: " +
			"alerts.web_config with basic_auth_users, 127.0.0.1 or [::1], or unix: and a path"},
		{"peers: {listen: '[::]:9848'}", "peers.listen: anybody who reaches [::]:9848 could have snapshots taken; allowed: " +
			"peers.web_config with basic_auth_users, 127.0.0.1 or [::1], or unix: and a path"},
		{"peers: {send: ['http://b:9848', 'https://c:9848'], credentials: /c}", "peers.send: http://b:9848 would get the password in the clear; allowed: https://, or no peers.credentials"},
		{"peers: {send: [b]}", `f:1:16: peers.send does not begin with https:// or http://; allowed: https://HOST:PORT, or http://HOST:PORT`},
		{"peers: {send: 'https://b'}", `f:1:15: peers.send has no port; allowed: https://HOST:PORT, or http://HOST:PORT`},
		{"peers: {send: 'https://u:p@b:1'}", `f:1:15: peers.send has more, or less, than a host and a port; allowed: https://HOST:PORT, or http://HOST:PORT`},
		{"otlp: {endpoint: 'collector:4318', protocol: http}", `f:1:18: otlp.endpoint "collector:4318" does not begin with http:// or https://; allowed: a URL, such as https://collector:4318` +
			"\n" + `f:1:46: otlp.protocol "http" is unknown; allowed: http/protobuf, grpc`},
		{"otlp: {signals: [logs, traces]}", `f:1:24: otlp.signals "traces" has the unknown signal "traces"; allowed: logs, metrics`},
		{"otlp: {signals: []}", "f:1:17: otlp.signals is empty; allowed: logs, metrics"},
		{"otlp: {headers: [Bearer secret]}", "f:1:18: otlp.headers has an entry without NAME=; allowed: NAME=VALUE, with a name that HTTP allows"},
		{"otlp: {headers: [a b=secret]}", `f:1:18: otlp.headers has the invalid name "a b"; allowed: NAME=VALUE, with a name that HTTP allows`},
		{"otlp: {headers: [\"x=secret\\nY: z\"]}", `f:1:18: otlp.headers has an invalid value for "x"; allowed: NAME=VALUE, with a name that HTTP allows`},
		{"otlp: {headers: [x=1, x=2]}", `f:1:17: otlp.headers has "x" twice; allowed: NAME=VALUE, with a name that HTTP allows`},
		{"otlp: {interval: 1ms}", `f:1:18: otlp.interval "1ms" is too short; allowed: a duration from 1s to 1h, such as 5ms`},
		{"upload: {target: 'https://u:secret@host/'}", "f:1:18: upload.target has a user or a password: put them into the file upload.credentials; " +
			"allowed: a URL, such as s3://BUCKET/PREFIX, https://HOST/PATH, sftp://USER@HOST/PATH or file:///PATH"},
		{"activities: {attributes: [a, a]}", `f:1:26: activities.attributes "a,a" lists a twice; allowed: keys of attributes`},
		{"activities: {attributes: [a, '']}", `f:1:26: activities.attributes "a," has a key that is empty, or longer than 128 bytes; allowed: keys of attributes`},
		{"activities: {attributes: [\"a\\nb\"]}", `f:1:27: activities.attributes "a\nb" has the key "a\nb" with characters that are not printable; allowed: keys of attributes`},
		{"activities: {attributes: [" + strings.Repeat("x", 129) + "]}", `f:1:27: activities.attributes "` + strings.Repeat("x", 129) +
			`" has a key that is empty, or longer than 128 bytes; allowed: keys of attributes`},
		{"log: {level: verbose, format: text}", `f:1:14: log.level "verbose" is unknown; allowed: debug, info, warn, error` +
			"\n" + `f:1:31: log.format "text" is unknown; allowed: auto, json, console`},
	} {
		write(t, tt.yaml)
		_, err := load(t, "f")
		var all rules.Errors
		assert.Check(t, errors.As(err, &all) && err.Error() == tt.want,
			"%q:\ngot\n%v\nwant\n%s", tt.yaml, err, tt.want)
	}
}

// TestBudget: shares of all CPUs, and the ways to have no budget.
func TestBudget(t *testing.T) {
	for yaml, want := range map[string]Budget{
		"{cpu: 2.5%}":    {CPU: 0.025, Softirqs: 0.001, Locks: 0.001, Memory: budget.AutoMemory},
		"{cpu: '100 %'}": {CPU: 1, Softirqs: 0.001, Locks: 0.001, Memory: budget.AutoMemory},
		"{cpu: off, softirqs: off, locks: off, memory: off}": {},
		"{cpu: 0, softirqs: 0, locks: 0, memory: 0}":         {},
		"{memory: 1GiB, softirqs: 1%}":                       {CPU: 0.01, Softirqs: 0.01, Locks: 0.001, Memory: 1 << 30},
		"{memory: auto}":                                     {CPU: 0.01, Softirqs: 0.001, Locks: 0.001, Memory: budget.AutoMemory},
	} {
		write(t, "budget: "+yaml)
		got, err := load(t, "f")
		assert.NilError(t, err)
		assert.Check(t, is.Equal(want, got.Budget), "%s", yaml)
	}
	got, err := load(t, "f", "--budget-cpu", "off", "--budget-softirqs", "0.5%", "--budget-locks", "0.2%", "--budget-memory", "128MiB")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(Budget{Softirqs: 0.005, Locks: 0.002, Memory: 128 << 20}, got.Budget))
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
		`TAILCAM_RECORDER_EVENTS: recorder.events "sched,network" has the unknown group "network"; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm, wait, run, sample`,
		`environment: unknown variable "TAILCAM_RECORDER_SISE", did you mean "TAILCAM_RECORDER_SIZE"; allowed: TAILCAM_CONFIG, or TAILCAM_ and a key, such as TAILCAM_RECORDER_SIZE`,
		`--recorder-events: recorder.events "irq,irq" lists irq twice; allowed: sched, irq, timer, block, workqueue, process, syscall, reclaim, memory, lock, power, net, throttle, kvm, wait, run, sample`,
		`--actions-queue: actions.queue "many" is not an integer; allowed: an integer from 1 to 10000`,
	}, "\n")
	assert.Check(t, is.Error(err, want))
	_, err = load(t, "missing")
	assert.Check(t, err != nil &&
		strings.HasPrefix(err.Error(), "missing: cannot open: no such file or directory\n"), "missing file: %v", err)
}

// TestServiceVariables: what Kubernetes tells of services whose names begin with
// tailcam does not keep the daemon from starting, and hides no mistake.
func TestServiceVariables(t *testing.T) {
	for _, name := range []string{
		"TAILCAM_SERVICE_HOST", "TAILCAM_SERVICE_PORT", "TAILCAM_SERVICE_PORT_METRICS", "TAILCAM_SERVICE_PORT_HTTP_METRICS",
		"TAILCAM_PORT", "TAILCAM_PORT_9191_TCP", "TAILCAM_PORT_9191_TCP_PROTO", "TAILCAM_PORT_9191_TCP_PORT",
		"TAILCAM_PORT_9191_TCP_ADDR", "TAILCAM_PORT_53_UDP",
		// Services tailcam-metrics and tailcam-recorder-size.
		"TAILCAM_METRICS_SERVICE_HOST", "TAILCAM_METRICS_PORT_9191_TCP_ADDR", "TAILCAM_RECORDER_SIZE_PORT",
	} {
		t.Setenv(name, "tcp://10.96.0.1:9191")
	}
	_, err := Load(nil)
	assert.NilError(t, err)

	for _, k := range keys() {
		assert.Check(t, !serviceVariable.MatchString(k.env()), "the key %s would not be read", k.name)
	}
	for _, name := range []string{"TAILCAM_SERVICE", "TAILCAM_HOSTS", "TAILCAM_PORTS", "TAILCAM_PORT_TCP"} {
		assert.Check(t, !serviceVariable.MatchString(name), "%s is not seen as a mistake", name)
	}
}
