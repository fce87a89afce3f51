package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const (
	ruleAllowed = "; allowed: name, track, attach, from, to, entry, exit, cancel, key, on_duplicate, entry_when, exit_when, labels, forget_after, activity, threshold, timeout, repeat, ratchet, when, overrides, stacks, histogram, on, target, snapshot, actions, action_limits, priority, extend"
	whenAllowed = "; allowed: comm, not_comm, pid, not_pid, tid, not_tid, uid, not_uid, cgroup, not_cgroup, thread, " +
		"unit, not_unit, container, not_container, pod, not_pod, namespace, not_namespace, " +
		"syscall, not_syscall, device, not_device, sector, op, state, preempted, irq, not_irq, name, not_name, " +
		"vector, not_vector, phase, cpu, not_cpu, key, not_key, " +
		"queue, not_queue, function, not_function"
	timeoutAllowed  = "; allowed: a duration from 10ms to 24h, such as 5ms"
	durationAllowed = "; allowed: a duration from 1us to 1h, such as 5ms"
	tracksAllowed   = "; allowed: wakeup, offcpu, syscall, block, irq, softirq, pair, chain, span, workqueue, activity, trigger"
)

// rule is a rule of a track in one line, with more of it.
func rule(track, more string) string {
	return "rules: [{name: a, track: " + track + ", threshold: 1ms, " + more + "}]"
}

// badInput are rule files beside all that Parse says of them.
var badInput = []struct{ yaml, want string }{
	// Not a rule file at all.
	{"", "f:1:1: file is empty"},
	{"# nothing\n", "f:1:1: file is empty"},
	{"---\n", "f:1:1: file is empty"},
	{"null", "f:1:1: file is empty"},
	{"a\xffb", "f:1:2: invalid UTF-8"},
	{"\ta: b\n\xc3\xa4\xff\n\xff\n", "f:2:2: invalid UTF-8"},
	{"rules:\n\t- name: a\n  \tb: c\n", "f:2:1: indented with a tab; allowed: spaces\nf:3:3: indented with a tab; allowed: spaces"},
	{"rules: [\n", "f:1:1: invalid YAML: did not find expected node content"},
	{"rules:\n  - name: a\n   track: b\n", "f:3:4: invalid YAML: did not find expected '-' indicator"},
	{"rules:\n  - name: 'a\n", "f:2:3: invalid YAML: found unexpected end of stream"},
	{"rules:\n  - name: a: b\n", "f:2:3: invalid YAML: mapping values are not allowed in this context"},
	{"rules: []\n---\nrules: []\n", "f:2:1: second document; allowed: one document per file"},
	{"hello", "f:1:1: file is a string; allowed: a mapping with rules, disable, actions"},
	{"- a", "f:1:1: file is a list; allowed: a mapping with rules, disable, actions"},
	{"{}", "f:1:1: missing key rules; allowed: a mapping with rules"},
	{"rule: []", `f:1:1: unknown key "rule", did you mean "rules"; allowed: rules, disable, actions`},
	{"rules:", "f:1:7: rules is empty; allowed: a list of rules"},
	{"rules: {}", "f:1:8: rules is a mapping; allowed: a list of rules"},
	{"rules: []", "f:1:8: rules is an empty list; allowed: at least one rule"},
	{"rules: [5]", "f:1:9: rule is a number; allowed: a mapping with name, track, attach, from, to, entry, exit, cancel, key, on_duplicate, entry_when, exit_when, labels, forget_after, activity, threshold, timeout, repeat, ratchet, when, overrides, stacks, histogram, on, target, snapshot, actions, action_limits, priority, extend"},
	{"rules: &a [*a]", "f:1:8: anchors and aliases are not supported; allowed: plain values\nf:1:12: anchors and aliases are not supported; allowed: plain values"},
	{"rules:\n  - *b\n", "f:2:3: anchors and aliases are not supported; allowed: plain values"},
	{"rules: !!str a", `f:1:8: tag "!!str" is not supported; allowed: values without a tag`},
	{"rules: " + strings.Repeat("[", 20) + strings.Repeat("]", 20), "f:1:23: nested too deeply; allowed: at most 16 levels"},

	// Activities.
	{rule("activity", "stacks: [kernel], ratchet: true"), "f:1:52: stacks does not apply to track activity; allowed: threshold, timeout, repeat, when, overrides, histogram, snapshot, actions" +
		"\nf:1:70: ratchet does not apply to track activity; allowed: threshold, timeout, repeat, when, overrides, histogram, snapshot, actions"},
	{rule("activity", "when: {tid: 5, cpu: 1, name: ["+strings.Repeat("n", 32)+", \"a[b\"], syscall: read}"), "f:1:59: tid does not apply to track activity; allowed: track wakeup, offcpu, syscall, block, irq, softirq, pair, chain, span, workqueue" +
		"\nf:1:67: cpu does not apply to track activity; allowed: track wakeup, offcpu, syscall, block, irq, softirq, pair, chain, span, workqueue" +
		"\nf:1:82: name \"" + strings.Repeat("n", 32) + "\" is too long; allowed: at most 31 bytes (names of activities are no longer); use * for a prefix" +
		"\nf:1:116: name \"a[b\" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket" +
		"\nf:1:124: syscall does not apply to track activity; allowed: track syscall, offcpu"},
	{rule("activity", "attach: all, on: oom, histogram: {by: device}, from: irq"), "f:1:52: attach does not apply to track activity; allowed: track syscall" +
		"\nf:1:65: on does not apply to track activity; allowed: track trigger" +
		"\nf:1:90: unknown by \"device\"; allowed: override" +
		"\nf:1:99: from does not apply to track activity; allowed: track chain"},
	{"rules: [{name: a, track: activity}]", "f:1:9: rule has no threshold; allowed: rules with threshold, timeout, or both"},

	// What a syscall rule is attached to.
	{rule("syscall", "attach: functions"), `f:1:59: unknown attach "functions", did you mean "function"; allowed: auto, function, all`},
	{rule("syscall", "attach: true"), `f:1:59: attach is a boolean; allowed: a quoted string, "true"`},
	{rule("syscall", "attach: [auto, all]"), "f:1:59: attach has 2 values; allowed: one of auto, function, all"},
	{rule("syscall", "attach: []"), "f:1:59: attach is an empty list; allowed: at least one value, or no attach"},
	{rule("offcpu", "attach: all"), "f:1:50: attach does not apply to track offcpu; allowed: track syscall"},

	// Spans.
	{rule("wakeup", "when: {key: a}"), "f:1:57: key does not apply to track wakeup; allowed: track span"},
	{rule("span", "when: {key: "+strings.Repeat("k", 64)+"}"), `f:1:60: key "` + strings.Repeat("k", 60) + `…" is too long; allowed: at most 63 bytes (the longest key); use * for a prefix`},
	{rule("span", "when: {key: [a, b], not_key: b}"), "f:1:77: b is in both key and not_key; allowed: each value in one of them"},
	{rule("span", "when: {device: a}"), "f:1:55: device does not apply to track span; allowed: track block"},
	{rule("span", "stacks: waker"), "f:1:56: track span has no waker stack; allowed: waker with track wakeup, offcpu"},

	// Keys.
	{"rules: [{}]", "f:1:9: rule has no name; allowed: rules with name, track, and threshold or timeout\n" +
		"f:1:9: rule has no track; allowed: rules with name, track, and threshold or timeout\n" +
		"f:1:9: rule has no threshold; allowed: rules with threshold, timeout, or both"},
	{rule("wakeup", "treshold: 1ms"), `f:1:50: unknown key "treshold", did you mean "threshold"` + ruleAllowed},
	{rule("wakeup", "frobnicate: 1ms"), `f:1:50: unknown key "frobnicate"` + ruleAllowed},
	{rule("wakeup", "[a]: 1ms"), `f:1:50: key is a list` + ruleAllowed},
	{rule("wakeup", "<<: {}"), `f:1:50: unknown key "<<"` + ruleAllowed},
	{rule("wakeup", "threshold: 1ms"), "f:1:50: duplicate key threshold, first set in line 1; allowed: each key once"},
	{rule("wakeup", "timeout: 1s, repeat: 1s, on_duplicate: keep"), "f:1:75: on_duplicate does not apply to track wakeup; allowed: track pair"},

	// Names and tracks.
	{"rules: [{name: A_b, track: block, threshold: 1ms}]", `f:1:16: invalid name "A_b"; allowed: a-z, 0-9 and -, at most 48 characters`},
	{"rules: [{name: " + strings.Repeat("x", 49) + ", track: block, threshold: 1ms}]",
		`f:1:16: invalid name "` + strings.Repeat("x", 49) + `"; allowed: a-z, 0-9 and -, at most 48 characters`},
	{"rules: [{name: 12, track: block, threshold: 1ms}]", `f:1:16: name is a number; allowed: a quoted string, "12"`},
	{"rules: [{name: true, track: block, threshold: 1ms}]", `f:1:16: name is a boolean; allowed: a quoted string, "true"`},
	{"rules: [{name: , track: block, threshold: 1ms}]", `f:1:16: name is empty; allowed: a string`},
	{"rules: [{name: '', track: block, threshold: 1ms}]", `f:1:16: name is empty; allowed: a string`},
	{"rules:\n- {name: a, track: block, threshold: 1ms}\n- {name: a, track: block, threshold: 1ms}\n",
		`f:3:10: duplicate name "a", first used at f:2:10; allowed: a unique name for each rule`},
	{"rules: [{name: a, track: wakup, threshold: 1ms}]", `f:1:26: unknown track "wakup", did you mean "wakeup"` + tracksAllowed},
	{"rules: [{name: a, track: [wakeup], threshold: 1ms}]", `f:1:26: track is a list; allowed: a string`},

	// Durations.
	{"rules: [{name: a, track: block, threshold: 5}]", "f:1:44: threshold 5 has no unit" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 0}]", "f:1:44: threshold is zero" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 0ms}]", "f:1:44: threshold is zero" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: -5ms}]", "f:1:44: threshold -5ms is negative" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 5 ms}]", `f:1:44: threshold "5 ms" is not a duration` + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 1d}]", `f:1:44: threshold "1d" is not a duration` + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 999ns}]", "f:1:44: threshold 999ns is too short" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 61m}]", "f:1:44: threshold 61m is too long" + durationAllowed},
	{"rules: [{name: a, track: block, threshold: 9999999999999h}]", `f:1:44: threshold "9999999999999h" is not a duration` + durationAllowed},
	{"rules: [{name: a, track: block, threshold: [1ms]}]", "f:1:44: threshold is a list" + durationAllowed + ", or a mapping with quantile"},
	{"rules: [{name: a, track: block, threshold: }]", "f:1:44: threshold is empty" + durationAllowed + ", or a mapping with quantile"},

	// Conditions.
	{rule("wakeup", "when: {}"), "f:1:56: when is empty; allowed: at least one condition, or no when"},
	{rule("wakeup", "when: postgres"), "f:1:56: when is a string; allowed: a mapping with " + strings.TrimPrefix(whenAllowed, "; allowed: ")},
	{rule("wakeup", "when: {com: a}"), `f:1:57: unknown key "com", did you mean "comm"` + whenAllowed},
	{rule("wakeup", "when: {not_op: read}"), `f:1:57: unknown key "not_op", did you mean "not_pod"` + whenAllowed},
	{rule("wakeup", "when: {comm: []}"), "f:1:63: comm is an empty list; allowed: at least one value, or no comm"},
	{rule("wakeup", "when: {comm: {a: b}}"), "f:1:63: comm is a mapping; allowed: a list of values"},
	{rule("wakeup", "when: {comm: [a, 5, ~, [b]]}"), `f:1:67: comm is a number; allowed: a quoted string, "5"` +
		"\nf:1:70: comm is empty; allowed: a string\nf:1:73: comm is a list; allowed: a string"},
	{rule("wakeup", "when: {comm: [a, a]}"), "f:1:67: duplicate value a; allowed: each value once"},
	{rule("wakeup", "when: {comm: abcdefghijklmnop}"), `f:1:63: comm "abcdefghijklmnop" is too long; allowed: at most 15 bytes (the kernel truncates task names); use * for a prefix`},
	{rule("wakeup", "when: {comm: 'a[bc]'}"), `f:1:63: comm "a[bc]" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket`},
	{rule("wakeup", "when: {comm: \"a\\0\"}"), `f:1:63: comm "a\x00" contains a NUL; allowed: a string without a NUL`},
	{rule("wakeup", "when: {comm: [a, b], not_comm: [c, b]}"), "f:1:85: b is in both comm and not_comm; allowed: each value in one of them"},
	{rule("wakeup", "when: {pid: [0, 4194305, -1, 1.5, x, 0x10]}"), "f:1:63: pid is 0; allowed: an integer from 1 to 4194304" +
		"\nf:1:66: pid is 4194305; allowed: an integer from 1 to 4194304" +
		"\nf:1:75: pid is -1; allowed: an integer from 1 to 4194304" +
		"\nf:1:79: pid is a number; allowed: an integer from 1 to 4194304" +
		"\nf:1:84: pid is a string; allowed: an integer from 1 to 4194304" +
		"\nf:1:87: pid is 0x10; allowed: an integer from 1 to 4194304"},
	{rule("wakeup", "when: {uid: [root, 0]}"), "f:1:69: duplicate value 0; allowed: each value once"},
	{rule("wakeup", "when: {not_uid: [mallory, 4294967295]}"), `f:1:67: unknown user "mallory"; allowed: an existing user, or a user id` +
		"\nf:1:76: not_uid is 4294967295; allowed: an integer from 0 to 4294967294"},
	{rule("wakeup", "when: {unit: nginx}"), `f:1:63: unit "nginx" has no type; allowed: a unit with its type, such as nginx.service, or a glob such as nginx.*`},
	{rule("wakeup", "when: {pod: shop/web}"), `f:1:62: pod "shop/web" contains a slash; allowed: a name without slashes`},
	{rule("wakeup", "when: {namespace: ''}"), "f:1:68: namespace is empty; allowed: a string"},
	{rule("wakeup", "when: {pod: [a, b], not_pod: b}"), "f:1:79: b is in both pod and not_pod; allowed: each value in one of them"},
	{rule("wakeup", "when: {pods: a}"), `f:1:57: unknown key "pods", did you mean "pod"` + whenAllowed},
	{rule("wakeup", "when: {cgroup: system.slice}"), `f:1:65: cgroup "system.slice" does not begin with /; allowed: a cgroup v2 path from its root, such as /system.slice/**`},
	{rule("wakeup", "when: {thread: kthread}"), `f:1:65: unknown thread "kthread"; allowed: user, kernel`},
	{rule("wakeup", "when: {preempted: 1}"), "f:1:68: preempted is a number; allowed: true, false"},
	{rule("syscall", "when: {syscall: [opnat, 5]}"), `f:1:75: syscall is a number; allowed: a quoted string, "5"`},
	{rule("syscall", "when: {syscall: [opnat, 'foo*']}"), `f:1:68: unknown system call "opnat", did you mean "openat"; allowed: system calls as in syscalls(2), or globs` +
		"\n" + `f:1:75: unknown system call "foo*"; allowed: system calls as in syscalls(2), or globs`},
	{rule("syscall", "when: {syscall: [exit, 'exit_*']}"), "f:1:68: exit never returns; allowed: calls that return\nf:1:74: exit_* never returns; allowed: calls that return"},
	{rule("syscall", "when: {syscall: fsync, not_syscall: '*sync'}"), "f:1:74: not_syscall excludes every call of syscall; allowed: at least one remaining call"},
	{rule("block", "when: {device: [sda, /dev/vda, vda1]}"), `f:1:65: unknown device "sda", did you mean "vda"; allowed: nvme0n1, vda, or a glob` +
		"\n" + `f:1:70: device "/dev/vda" is a path; allowed: vda, the name without /dev/` +
		"\n" + `f:1:80: unknown device "vda1", did you mean "vda"; allowed: nvme0n1, vda, or a glob`},
	{rule("block", "when: {op: [raed]}"), `f:1:61: unknown op "raed", did you mean "read"; allowed: read, write, flush, discard, other`},
	{rule("offcpu", "when: {state: D}"), `f:1:64: unknown state "D"; allowed: interruptible, uninterruptible, other`},

	// Impossible combinations.
	{rule("wakeup", "when: {device: vda, op: read, state: other, syscall: read}"), "f:1:57: device does not apply to track wakeup; allowed: track block" +
		"\nf:1:70: op does not apply to track wakeup; allowed: track block" +
		"\nf:1:80: state does not apply to track wakeup; allowed: track offcpu" +
		"\nf:1:94: syscall does not apply to track wakeup; allowed: track syscall, offcpu"},
	{rule("block", "when: {not_syscall: read, preempted: true}"), "f:1:56: not_syscall does not apply to track block; allowed: track syscall, offcpu" +
		"\nf:1:75: preempted does not apply to track block; allowed: track wakeup"},
	{rule("syscall", "when: {not_device: vda, state: other}"), "f:1:58: not_device does not apply to track syscall; allowed: track block" +
		"\nf:1:75: state does not apply to track syscall; allowed: track offcpu"},
	{rule("syscall", "when: {thread: kernel}"), "f:1:66: kernel threads make no system calls; allowed: thread: user"},
	{rule("offcpu", "when: {thread: [kernel], syscall: read}"), "f:1:75: kernel threads make no system calls; allowed: thread: user"},
	{rule("syscall", "stacks: [waker]"), "f:1:59: track syscall has no waker stack; allowed: waker with track wakeup, offcpu"},
	{rule("block", "stacks: [kernel, waker]"), "f:1:57: track block has only the kernel stack of a timeout; allowed: stacks: [kernel] with a timeout"},
	{rule("block", "stacks: user"), "f:1:57: track block has only the kernel stack of a timeout; allowed: stacks: [kernel] with a timeout"},
	{rule("offcpu", "when: {thread: kernel}, stacks: [user]"), "f:1:82: kernel threads have no user stack; allowed: kernel, waker"},
	{rule("wakeup", "stacks: [kernel, kernal]"), `f:1:67: unknown stacks "kernal", did you mean "kernel"; allowed: kernel, user, waker, progress`},

	// Interrupts.
	{rule("irq", "when: {irq: [24, virtio], cpu: [0, -1, 9000]}"), "f:1:64: irq is a string; allowed: an integer from 0 to 1048576" +
		"\nf:1:82: cpu is -1; allowed: an integer from 0 to 8191" +
		"\nf:1:86: cpu is 9000; allowed: an integer from 0 to 8191"},
	{rule("irq", "when: {name: ['nvme[0-9]', "+strings.Repeat("x", 32)+"], not_irq: [5, 5]}"),
		`f:1:61: name "nvme[0-9]" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket` + "\n" +
			`f:1:74: name "` + strings.Repeat("x", 32) + `" is too long; allowed: at most 31 bytes (names are truncated); use * for a prefix` +
			"\nf:1:122: duplicate value 5; allowed: each value once"},
	{rule("irq", "when: {vector: timer, phase: run}"), "f:1:54: vector does not apply to track irq; allowed: track softirq, chain" +
		"\nf:1:69: phase does not apply to track irq; allowed: track softirq, workqueue"},
	{rule("softirq", "when: {irq: 4, not_name: a, vector: [net_rc], phase: exit, not_cpu: []}"), "f:1:58: irq does not apply to track softirq; allowed: track irq, chain" +
		"\nf:1:66: not_name does not apply to track softirq; allowed: track irq, activity" +
		"\n" + `f:1:88: unknown vector "net_rc", did you mean "net_rx"; allowed: hi, timer, net_tx, net_rx, block, irq_poll, tasklet, sched, hrtimer, rcu` +
		"\n" + `f:1:104: unknown phase "exit"; allowed: raise, run` +
		"\nf:1:119: not_cpu is an empty list; allowed: at least one value, or no not_cpu"},
	{rule("workqueue", "when: {phase: raise, queue: 'a[b]', vector: timer, function: [x, x], not_queue: '' }"),
		"f:1:67: unknown phase \"raise\"; allowed: wait, run" +
			"\nf:1:81: queue \"a[b]\" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket" +
			"\nf:1:89: vector does not apply to track workqueue; allowed: track softirq, chain" +
			"\nf:1:118: duplicate value x; allowed: each value once\nf:1:133: not_queue is empty; allowed: a string"},
	{rule("softirq", "when: {phase: wait, queue: events}"), `f:1:65: unknown phase "wait"; allowed: raise, run` +
		"\nf:1:71: queue does not apply to track softirq; allowed: track workqueue"},
	{rule("workqueue", "stacks: [kernel]"), "f:1:61: track workqueue has only the kernel stack of a timeout; allowed: stacks: [kernel] with a timeout"},
	{rule("workqueue", "timeout: 1s, stacks: [kernel, user]"), "f:1:74: track workqueue has only the kernel stack of a timeout; allowed: stacks: [kernel] with a timeout"},
	{rule("workqueue", "when: {queue: events, not_queue: events}"), "f:1:86: events is in both queue and not_queue; allowed: each value in one of them"},
	{rule("softirq", "when: {vector: timer, not_vector: [rcu, timer]}"), "f:1:73: not_vector excludes every vector; allowed: at least one remaining vector"},
	{rule("irq", "when: {irq: [4, 5], not_irq: 5, cpu: 1, not_cpu: 1}"), "f:1:76: 5 is in both irq and not_irq; allowed: each value in one of them" +
		"\nf:1:96: 1 is in both cpu and not_cpu; allowed: each value in one of them"},
	{rule("wakeup", "when: {cpu: 8192}"), "f:1:62: cpu is 8192; allowed: an integer from 0 to 8191"},
	{rule("block", "when: {tid: [5, 5], not_tid: 0}"), "f:1:65: duplicate value 5; allowed: each value once" +
		"\nf:1:78: not_tid is 0; allowed: an integer from 1 to 4194304"},
	{rule("syscall", "when: {tid: 5, not_tid: 5}"), "f:1:75: 5 is in both tid and not_tid; allowed: each value in one of them"},
	{rule("block", "when: {sector: [5-1, 7]}"), "f:1:70: sector has 2 ranges; allowed: one range first-last, such as 0-2047; use overrides for more"},
	{rule("block", "when: {sector: 5-1}"), "f:1:64: sector is \"5-1\"; allowed: one range first-last, such as 0-2047; use overrides for more"},
	{rule("block", "when: {sector: /dev/sda}"), "f:1:64: sector is \"/dev/sda\"; allowed: one range first-last, such as 0-2047; use overrides for more"},
	{rule("wakeup", "when: {sector: 5}"), "f:1:57: sector does not apply to track wakeup; allowed: track block"},
	{rule("syscall", "priority: 101"), "f:1:61: priority is 101; allowed: an integer from 0 to 100"},
	{rule("syscall", "priority: -1"), "f:1:61: priority is -1; allowed: an integer from 0 to 100"},
	{rule("syscall", "priority: high"), "f:1:61: priority is a string; allowed: an integer from 0 to 100"},
	{rule("syscall", "ratchet: 1"), "f:1:60: ratchet is a number; allowed: true, false"},
	{rule("syscall", "timeout: 1s, ratchet: true"), "f:1:64: ratchet cannot be combined with a timeout; allowed: ratchet without timeout; timeouts in a separate rule"},
	{rule("syscall", "ratchet: true, overrides: [{when: {pid: 5}, timeout: 1s}]"), "f:1:51: ratchet cannot be combined with a timeout; allowed: ratchet without timeout; timeouts in a separate rule"},
	{"rules: [{name: a, track: syscall, threshold: {quantile: 0.99}, ratchet: true}]", "f:1:64: ratchet cannot be combined with a threshold with quantile; allowed: ratchet with durations as thresholds"},
	{rule("softirq", "stacks: [waker]"), "f:1:59: track softirq has no waker stack; allowed: waker with track wakeup, offcpu"},

	// Overrides.
	{rule("block", "overrides: {}"), "f:1:60: overrides is a mapping; allowed: a list of overrides"},
	{rule("block", "overrides: []"), "f:1:60: overrides is an empty list; allowed: a list of overrides"},
	{rule("block", "overrides: [{}, 5]"), "f:1:61: override has no when; allowed: overrides with when, and threshold, timeout, or both" +
		"\nf:1:61: override has no threshold; allowed: overrides with when, and threshold, timeout, or both" +
		"\nf:1:65: override is a number; allowed: a mapping with when, threshold, timeout"},
	{rule("block", "overrides: [{when: {state: other}, threshold: 5, timeout: 1}]"), "f:1:69: state does not apply to track block; allowed: track offcpu" +
		"\nf:1:95: threshold 5 has no unit" + durationAllowed +
		"\nf:1:107: timeout 1 has no unit" + timeoutAllowed},
	{rule("wakeup", "timeout: 500us"), "f:1:59: timeout 500us is too short" + timeoutAllowed},
	{rule("wakeup", "timeout: 25h"), "f:1:59: timeout 25h is too long" + timeoutAllowed},
	{rule("wakeup", "repeat: 1s"), "f:1:50: repeat requires timeout; allowed: repeat together with timeout"},
	{rule("wakeup", "timeout: 1s, repeat: 1ms"), "f:1:71: repeat 1ms is too short" + timeoutAllowed},
	{"rules: [{name: a, track: block, threshold: 1s, timeout: 500ms}]", "f:1:57: timeout 500ms is below the threshold; " +
		"allowed: at least the threshold, 1s, or no threshold"},
	{rule("wakeup", "timeout: 1s, overrides: [{when: {uid: 5}, threshold: 2s}]"), "f:1:103: timeout 1s is below the threshold; " +
		"allowed: at least the threshold, 2s, or no threshold"},
	{rule("block", "timeout: 1s, stacks: [user]"), "f:1:70: track block has only the kernel stack of a timeout; " +
		"allowed: stacks: [kernel] with a timeout"},

	// Chains.
	{rule("wakeup", "from: irq, to: [run]"), "f:1:50: from does not apply to track wakeup; allowed: track chain" +
		"\nf:1:61: to does not apply to track wakeup; allowed: track chain"},
	{rule("chain", "from: [irq, timer], to: [runn, run, run]"), `f:1:61: unknown from "timer"; allowed: irq, hrtimer, softirq` +
		"\n" + `f:1:74: unknown to "runn", did you mean "run"; allowed: run, user, block` +
		"\nf:1:85: duplicate value run; allowed: each value once"},
	{rule("chain", "from: [], to: {}"), "f:1:55: from is an empty list; allowed: at least one value, or no from" +
		"\nf:1:63: to is a mapping; allowed: a list of values"},
	{rule("chain", "timeout: 1s, repeat: 1s"), "f:1:49: timeout does not apply to track chain; allowed: threshold; timeouts with track wakeup, offcpu" +
		"\nf:1:62: repeat does not apply to track chain; allowed: threshold; timeouts with track wakeup, offcpu"},
	{rule("chain", "when: {not_vector: rcu, device: vda, phase: run}"), "f:1:56: not_vector does not apply to track chain; allowed: track softirq" +
		"\nf:1:73: device does not apply to track chain; allowed: track block" +
		"\nf:1:86: phase does not apply to track chain; allowed: track softirq, workqueue"},
	{rule("chain", "stacks: [waker]"), "f:1:57: track chain has no waker stack; allowed: waker with track wakeup, offcpu"},
	{rule("chain", "when: {thread: kernel}, to: user"), "f:1:77: kernel threads never return to user space; allowed: run, block"},
	{rule("chain", "overrides: [{when: {uid: 5}, timeout: 1s}]"), "f:1:78: timeout does not apply to track chain; allowed: threshold; timeouts with track wakeup, offcpu"},

	// Snapshots and actions.
	{rule("block", "snapshot: 5"), "f:1:59: snapshot is a number; allowed: true, false, or a mapping with before, after, every, burst"},
	{rule("block", "snapshot: {}"), "f:1:59: snapshot is an empty mapping; allowed: true, false, or a mapping with before, after, every, burst"},
	{rule("block", "snapshot: {before: 2, after: 2m, every: 0, burst: 0, rate: 5}"), "f:1:68: before 2 has no unit; allowed: a duration from 0s to 1h, such as 5ms" +
		"\nf:1:78: after 2m is too long; allowed: a duration from 0s to 1m, such as 5ms" +
		"\nf:1:89: every is zero" + durationAllowed +
		"\nf:1:99: burst is 0; allowed: an integer from 1 to 1000" +
		"\n" + `f:1:102: unknown key "rate"; allowed: before, after, every, burst`},
	{rule("block", "actions: {run: a}"), "f:1:58: actions is a mapping; allowed: a list of actions"},
	{rule("block", "actions: [{}]"), "f:1:59: action has no run; allowed: run: [/path/to/program, argument, …]"},
	{rule("block", "actions: [{run: save}, {run: []}, {run: /bin/nothing}, {run: /etc/passwd}]"), `f:1:65: run: "save" is not an absolute path; allowed: an absolute path, with arguments as further list entries` +
		"\nf:1:78: run is an empty list; allowed: at least one value, or no run" +
		"\nf:1:89: run: /bin/nothing does not exist; allowed: an executable file" +
		"\nf:1:110: run: /etc/passwd is not executable; allowed: an executable file"},
	{rule("block", "actions: [{run: /bin/save, timeout: 5, user: mallory, on: fire}]"), "f:1:85: timeout 5 has no unit" + durationAllowed +
		"\n" + `f:1:94: unknown user "mallory"; allowed: an existing user` +
		"\n" + `f:1:107: unknown on "fire"; allowed: snapshot, outlier, trigger`},
	{"actions: [{run: /bin/save, on: [snapshot, trigger], if: {causes: lock, cause: locks, by_kind: disk, by: '[a]', min_share: 50, min_delay: 5}}]",
		`f:1:58: unknown key "causes", did you mean "cause"; allowed: rule, not_rule, cause, not_cause, by_kind, not_by_kind, by, not_by, confidence, not_confidence, min_share, min_delay` +
			"\n" + `f:1:79: unknown cause "locks", did you mean "lock"; allowed: ` + strings.Join(VerdictCauses, ", ") +
			"\n" + `f:1:95: unknown by_kind "disk"; allowed: ` + strings.Join(CulpritKinds, ", ") +
			"\n" + `f:1:105: by "[a]" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket` +
			"\nf:1:123: min_share is 50; allowed: a number above 0, at most 1, such as 0.5" +
			"\nf:1:138: min_delay 5 has no unit; allowed: a duration from 1us to 24h, such as 5ms"},
	{rule("block", "actions: [{run: /bin/save, if: {rule: block}, on: trigger}]"), "f:1:81: rule does not apply to an action of a rule; allowed: rule among the actions of the file, beside rules" +
		"\nf:1:99: snapshots of triggers belong to no rule; allowed: on: trigger among the actions of the file, beside rules"},
	{rule("block", "actions: [{run: /bin/save, if: {cause: lock, min_delay: 5ms}, on: outlier}]"), "f:1:81: cause is not known on outlier: there is no verdict yet; allowed: on: snapshot, on: trigger"},
	{rule("block", "actions: [{run: /bin/save, if: {}}]"), "f:1:80: if is empty; allowed: at least one condition, or no if"},
	{rule("block", "actions: [{run: /bin/save, if: cause == lock}]"), "f:1:80: if is a string; allowed: a mapping with rule, not_rule, cause, not_cause, by_kind, not_by_kind, by, not_by, confidence, not_confidence, min_share, min_delay"},
	{rule("block", "actions: [{run: /bin/save, if: {by: [a, b], not_by: b}}]"), "f:1:101: b is in both by and not_by; allowed: each value in one of them"},
	{rule("block", "actions: [{run: /bin/save, per: culprit, burst: 2}]"), "f:1:76: per requires every; allowed: every, such as every: 1h" +
		"\nf:1:90: burst requires every; allowed: every, such as every: 1h"},
	{rule("block", "actions: [{run: /bin/save, on_failure: [stop, continue], every: 1ms, max_cpu: 0s, max_memory: 1KiB, max_output: lots}]"),
		"f:1:88: on_failure has 2 values; allowed: one of stop, continue" +
			"\nf:1:113: every 1ms is too short; allowed: a duration from 1s to 720h, such as 5ms" +
			"\nf:1:127: max_cpu is zero; allowed: a duration from 1s to 24h, such as 5ms" +
			"\nf:1:143: max_memory 1KiB is too small; allowed: a size from 16MiB to 1TiB, such as 64MiB" +
			"\n" + `f:1:161: max_output "lots" is not a size; allowed: a size from 1 to 1TiB, such as 64MiB`},
	{rule("block", "action_limits: {max_cpu: 1s}"), "f:1:49: action_limits, but the rule has no actions; allowed: actions beside it"},
	{rule("block", "action_limits: {}, actions: [{run: /bin/save}]"), "f:1:64: action_limits is empty; allowed: max_cpu, max_memory, max_output"},
	{rule("block", "action_limits: 64MiB, actions: [{run: /bin/save}]"), "f:1:64: action_limits is a string; allowed: a mapping with max_cpu, max_memory, max_output"},
	{rule("block", "action_limits: {max_cpu: 1ms, max_memory: 1KiB, max_output: -1, timeout: 5s}, actions: [{run: /bin/save}]"),
		"f:1:74: max_cpu 1ms is too short; allowed: a duration from 1s to 24h, such as 5ms" +
			"\nf:1:91: max_memory 1KiB is too small; allowed: a size from 16MiB to 1TiB, such as 64MiB" +
			"\n" + `f:1:109: max_output "-1" is not a size; allowed: a size from 1 to 1TiB, such as 64MiB` +
			"\n" + `f:1:113: unknown key "timeout"; allowed: max_cpu, max_memory, max_output`},
	{rule("block", "action_limits: {max_cpu: 2s, max_memory: 64MiB, max_output: 1KiB}, actions: [{run: /bin/save, max_cpu: 3s, max_memory: 65MiB, max_output: 2KiB}]"),
		"f:1:152: max_cpu 3s is above that of its rule; allowed: at most that of action_limits" +
			"\nf:1:168: max_memory 65MiB is above that of its rule; allowed: at most that of action_limits" +
			"\nf:1:187: max_output 2KiB is above that of its rule; allowed: at most that of action_limits"},
	{rule("block", "snapshot: false, actions: [{run: /bin/save}]"), "f:1:76: action runs on snapshots, but the rule has snapshot: false; allowed: on: outlier, or snapshots"},
}

func TestBadInput(t *testing.T) {
	for _, tt := range badInput {
		rules, err := Parse("f", []byte(tt.yaml), testMachine{})
		switch {
		case err == nil:
			t.Errorf("%q: no error, want\n%s", tt.yaml, tt.want)
		case rules != nil:
			t.Errorf("%q: rules beside errors", tt.yaml)
		case err.Error() != tt.want:
			t.Errorf("%q:\ngot\n%v\nwant\n%s", tt.yaml, err, tt.want)
		}
	}
}

// TestLimits: what does not fit the kernel side's tables.
func TestLimits(t *testing.T) {
	many := func(n int, format string) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprintf(format, i))
		}
		return strings.Join(s, ", ")
	}
	for _, tt := range []struct{ name, ok, bad, want string }{
		{"rules",
			"rules: [" + many(64, "{name: a%d, track: block, threshold: 1ms}") + "]",
			"rules: [" + many(65, "{name: a%d, track: block, threshold: 1ms}") + "]",
			"too many rules; allowed: at most 64 in all files"},
		{"overrides",
			rule("wakeup", "overrides: ["+many(256, "{when: {pid: 1%d}, threshold: 1ms}")+"]"),
			rule("wakeup", "overrides: ["+many(257, "{when: {pid: 1%d}, threshold: 1ms}")+"]"),
			"too many overrides; allowed: at most 256 in all rules"},
		{"comm globs",
			rule("wakeup", "when: {comm: ["+many(256, "a%d")+"], not_comm: ["+many(256, "b%d")+"]}"),
			rule("wakeup", "when: {comm: ["+many(256, "a%d")+"], not_comm: ["+many(257, "b%d")+"]}"),
			"too many comm globs; allowed: at most 512 in all rules"},
		{"cgroup globs",
			rule("wakeup", "when: {cgroup: ["+many(64, "/a%d")+"]}, overrides: [{threshold: 1ms, when: {not_cgroup: /a1}}]"),
			rule("wakeup", "when: {cgroup: ["+many(64, "/a%d")+"]}, overrides: [{threshold: 1ms, when: {not_cgroup: /b}}]"),
			"too many cgroup globs; allowed: at most 64 different ones in all rules"},
		{"device lists",
			rule("block", "overrides: ["+many(64, "{threshold: 1ms, when: {op: read, device: vda}} # %d\n")+"]"),
			rule("block", "overrides: ["+many(65, "{threshold: 1ms, when: {op: read, device: vda}} # %d\n")+"]"),
			"too many device conditions; allowed: at most 64 in all rules"},
		{"members",
			rule("syscall", "overrides: ["+many(80, "{threshold: 1ms, when: {syscall: '*'}} # %d\n")+"]"),
			rule("syscall", "overrides: ["+many(120, "{threshold: 1ms, when: {syscall: '*'}} # %d\n")+"]"),
			"too many values in syscall; allowed: at most 98304 pids, uids, system calls, irqs and CPUs in all rules"},
		{"values",
			rule("wakeup", "when: {pid: ["+many(1024, "1%d")+"]}"),
			rule("wakeup", "when: {pid: ["+many(1025, "1%d")+"]}"),
			"pid has 1025 values; allowed: at most 1024"},
		{"nodes", "", "rules: [" + many(20000, "%d") + "]", "too many values in file; allowed: at most 20000"},
		{"size", "", "#" + strings.Repeat(" ", 1<<20), "f: file is too large; allowed: at most 1 MiB"},
		{"mistakes", "", "rules: [{" + many(150, "x%d: y") + "}]", "53 more errors not shown"},
	} {
		if tt.ok != "" {
			_, err := Parse("f", []byte(tt.ok), testMachine{})
			assert.Check(t, err, "%s: just fitting", tt.name)
		}
		_, err := Parse("f", []byte(tt.bad), testMachine{})
		assert.Check(t, err != nil && strings.HasSuffix(err.Error(), tt.want),
			"%s: got %v, want %s", tt.name, err, tt.want)
	}
}

// TestLoadFiles: several files, with every mistake of each in one error.
func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const one = "rules: [{name: %s, track: block, threshold: 1ms}]"
	write("good/b.yaml", fmt.Sprintf(one, "second"))
	write("good/a.yml", fmt.Sprintf(one, "first"))
	write("good/.#a.yaml", "left behind by an editor")
	write("good/README", "not a rule file")
	last := write("last.conf", fmt.Sprintf(one, "last"))
	write("bad/a.yaml", fmt.Sprintf(one, "first"))
	write("bad/b.yaml", "rules: [{name: first, track: wakeup, threshold: 1}]")
	write("bad/c.yaml", "")
	write("bad/d.yaml", strings.Repeat("# 10 MB\n", 10<<20/8))
	write("bad/e.yaml/f", "")
	write("none/README", "")

	rules, err := Load([]string{filepath.Join(dir, "good"), last, last}, testMachine{})
	assert.NilError(t, err)
	var names []string
	for i := range rules {
		names = append(names, rules[i].Name)
	}
	got := strings.Join(names, " ")
	assert.Check(t, got == "first second last", "got rules %s", got)

	bad, none, missing := filepath.Join(dir, "bad"), filepath.Join(dir, "none"), filepath.Join(dir, "missing.yaml")
	rules, err = Load([]string{bad, none, missing}, testMachine{})
	assert.Check(t, rules == nil, "rules beside errors")
	var all Errors
	assert.Assert(t, errors.As(err, &all), "not Errors: %v", err)
	want := strings.ReplaceAll(lines(
		"DIR/bad/e.yaml: is not a regular file; allowed: regular files named *.yaml or *.yml",
		"DIR/none: no rule files in this directory; allowed: at least one *.yaml or *.yml file",
		"DIR/missing.yaml: cannot open: no such file or directory",
		`DIR/bad/b.yaml:1:16: duplicate name "first", first used at DIR/bad/a.yaml:1:16; allowed: a unique name for each rule`,
		"DIR/bad/b.yaml:1:49: threshold 1 has no unit"+durationAllowed,
		"DIR/bad/c.yaml:1:1: file is empty",
		"DIR/bad/d.yaml: file is too large; allowed: at most 1 MiB",
	), "DIR", dir)
	assert.Check(t, err.Error()+"\n" == want, "got\n%v\nwant\n%s", err, want)
	if _, err := Load(nil, testMachine{}); err == nil || err.Error() != "rules: no rule files given; allowed: files, and directories of *.yaml or *.yml files" {
		t.Errorf("no paths: %v", err)
	}
}
