package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	ruleAllowed = "; allowed: name, track, from, to, entry, exit, cancel, key, on_duplicate, entry_when, exit_when, labels, forget_after, threshold, timeout, repeat, ratchet, when, overrides, stacks, histogram, snapshot, actions"
	whenAllowed = "; allowed: comm, not_comm, pid, not_pid, tid, not_tid, uid, not_uid, cgroup, not_cgroup, thread, " +
		"syscall, not_syscall, device, not_device, sector, op, state, preempted, irq, not_irq, name, not_name, " +
		"vector, not_vector, phase, cpu, not_cpu, key, not_key"
	timeoutAllowed  = "; allowed: a duration from 10ms to 24h with its unit, such as 5ms"
	durationAllowed = "; allowed: a duration from 1us to 1h with its unit, such as 5ms"
	tracksAllowed   = "; allowed: wakeup, offcpu, syscall, block, irq, softirq, pair, chain, span"
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
	{"a\xffb", "f:1:2: text is not UTF-8"},
	{"\ta: b\n\xc3\xa4\xff\n\xff\n", "f:2:2: text is not UTF-8"},
	{"rules:\n\t- name: a\n  \tb: c\n", "f:2:1: indented with a tab; allowed: spaces\nf:3:3: indented with a tab; allowed: spaces"},
	{"rules: [\n", "f:1:1: not YAML: did not find expected node content"},
	{"rules:\n  - name: a\n   track: b\n", "f:3:4: not YAML: did not find expected '-' indicator"},
	{"rules:\n  - name: 'a\n", "f:2:3: not YAML: found unexpected end of stream"},
	{"rules:\n  - name: a: b\n", "f:2:3: not YAML: mapping values are not allowed in this context"},
	{"rules: []\n---\nrules: []\n", "f:2:1: a second document begins here; allowed: one document a file"},
	{"hello", "f:1:1: file is text; allowed: a mapping with rules"},
	{"- a", "f:1:1: file is a list; allowed: a mapping with rules"},
	{"{}", "f:1:1: rules is missing; allowed: rules: with a list of rules"},
	{"rule: []", `f:1:1: unknown key "rule", did you mean "rules"; allowed: rules`},
	{"rules:", "f:1:7: rules is without a value; allowed: a list of rules"},
	{"rules: {}", "f:1:8: rules is a mapping; allowed: a list of rules"},
	{"rules: []", "f:1:8: rules is an empty list; allowed: at least one rule; remove the file if none is wanted"},
	{"rules: [5]", "f:1:9: rule is a number; allowed: a mapping with name, track, from, to, entry, exit, cancel, key, on_duplicate, entry_when, exit_when, labels, forget_after, threshold, timeout, repeat, ratchet, when, overrides, stacks, histogram, snapshot, actions"},
	{"rules: &a [*a]", "f:1:8: anchors and aliases are not supported; allowed: the value itself\nf:1:12: anchors and aliases are not supported; allowed: the value itself"},
	{"rules:\n  - *b\n", "f:2:3: anchors and aliases are not supported; allowed: the value itself"},
	{"rules: !!str a", `f:1:8: tag "!!str" is not supported; allowed: plain values without a tag`},
	{"rules: " + strings.Repeat("[", 20) + strings.Repeat("]", 20), "f:1:23: nested too deeply; allowed: at most 16 levels"},

	// Spans.
	{rule("wakeup", "when: {key: a}"), "f:1:57: key has no meaning with track wakeup; allowed: key with track span"},
	{rule("span", "when: {key: "+strings.Repeat("k", 64)+"}"), `f:1:60: key "` + strings.Repeat("k", 60) + `…" is too long; allowed: at most 63 bytes, as a key has no more; end it with *`},
	{rule("span", "when: {key: [a, b], not_key: b}"), "f:1:77: b is in both key and not_key; allowed: each value in one of them"},
	{rule("span", "when: {device: a}"), "f:1:55: device has no meaning with track span; allowed: device with track block"},
	{rule("span", "stacks: waker"), "f:1:56: track span has no waker stack; allowed: waker stacks with track wakeup, offcpu"},

	// Keys.
	{"rules: [{}]", "f:1:9: rule has no name; allowed: each rule has name, track, and a threshold or a timeout\n" +
		"f:1:9: rule has no track; allowed: each rule has name, track, and a threshold or a timeout\n" +
		"f:1:9: rule has no threshold; allowed: each rule has a threshold, a timeout, or both"},
	{rule("wakeup", "treshold: 1ms"), `f:1:50: unknown key "treshold", did you mean "threshold"` + ruleAllowed},
	{rule("wakeup", "frobnicate: 1ms"), `f:1:50: unknown key "frobnicate"` + ruleAllowed},
	{rule("wakeup", "[a]: 1ms"), `f:1:50: key is a list` + ruleAllowed},
	{rule("wakeup", "<<: {}"), `f:1:50: unknown key "<<"` + ruleAllowed},
	{rule("wakeup", "threshold: 1ms"), "f:1:50: threshold is already set in line 1; allowed: each key once"},
	{rule("wakeup", "timeout: 1s, repeat: 1s, on_duplicate: keep"), "f:1:75: on_duplicate has no meaning with track wakeup; allowed: on_duplicate with track pair"},

	// Names and tracks.
	{"rules: [{name: A_b, track: block, threshold: 1ms}]", `f:1:16: name "A_b" is not good; allowed: a-z, 0-9 and -, at most 48 characters`},
	{"rules: [{name: " + strings.Repeat("x", 49) + ", track: block, threshold: 1ms}]",
		`f:1:16: name "` + strings.Repeat("x", 49) + `" is not good; allowed: a-z, 0-9 and -, at most 48 characters`},
	{"rules: [{name: 12, track: block, threshold: 1ms}]", `f:1:16: name is a number; allowed: text; in quotes if meant: "12"`},
	{"rules: [{name: true, track: block, threshold: 1ms}]", `f:1:16: name is a boolean; allowed: text; in quotes if meant: "true"`},
	{"rules: [{name: , track: block, threshold: 1ms}]", `f:1:16: name is without a value; allowed: text`},
	{"rules: [{name: '', track: block, threshold: 1ms}]", `f:1:16: name is empty; allowed: text`},
	{"rules:\n- {name: a, track: block, threshold: 1ms}\n- {name: a, track: block, threshold: 1ms}\n",
		`f:3:10: name "a" is already used at f:2:10; allowed: a name for each rule`},
	{"rules: [{name: a, track: wakup, threshold: 1ms}]", `f:1:26: unknown track "wakup", did you mean "wakeup"` + tracksAllowed},
	{"rules: [{name: a, track: [wakeup], threshold: 1ms}]", `f:1:26: track is a list; allowed: text`},

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
	{"rules: [{name: a, track: block, threshold: }]", "f:1:44: threshold is without a value" + durationAllowed + ", or a mapping with quantile"},

	// Conditions.
	{rule("wakeup", "when: {}"), "f:1:56: when is empty; allowed: at least one condition; a rule without when is for everything"},
	{rule("wakeup", "when: postgres"), "f:1:56: when is text; allowed: a mapping with " + strings.TrimPrefix(whenAllowed, "; allowed: ")},
	{rule("wakeup", "when: {com: a}"), `f:1:57: unknown key "com", did you mean "comm"` + whenAllowed},
	{rule("wakeup", "when: {not_op: read}"), `f:1:57: unknown key "not_op", did you mean "not_cpu"` + whenAllowed},
	{rule("wakeup", "when: {comm: []}"), "f:1:63: comm is an empty list; allowed: at least one value, or no comm at all"},
	{rule("wakeup", "when: {comm: {a: b}}"), "f:1:63: comm is a mapping; allowed: a list of values"},
	{rule("wakeup", "when: {comm: [a, 5, ~, [b]]}"), `f:1:67: comm is a number; allowed: text; in quotes if meant: "5"` +
		"\nf:1:70: comm is without a value; allowed: text\nf:1:73: comm is a list; allowed: text"},
	{rule("wakeup", "when: {comm: [a, a]}"), "f:1:67: a is listed twice; allowed: each once"},
	{rule("wakeup", "when: {comm: abcdefghijklmnop}"), `f:1:63: comm "abcdefghijklmnop" is too long; allowed: at most 15 bytes, as the kernel keeps of a task's name; end it with *`},
	{rule("wakeup", "when: {comm: 'a[bc]'}"), `f:1:63: comm "a[bc]" holds a bracket; allowed: * and ?; a ? also stands for a bracket itself`},
	{rule("wakeup", "when: {comm: \"a\\0\"}"), `f:1:63: comm "a\x00" holds a NUL; allowed: text without a NUL`},
	{rule("wakeup", "when: {comm: [a, b], not_comm: [c, b]}"), "f:1:85: b is in both comm and not_comm; allowed: each value in one of them"},
	{rule("wakeup", "when: {pid: [0, 4194305, -1, 1.5, x, 0x10]}"), "f:1:63: pid is 0; allowed: a whole number from 1 to 4194304" +
		"\nf:1:66: pid is 4194305; allowed: a whole number from 1 to 4194304" +
		"\nf:1:75: pid is -1; allowed: a whole number from 1 to 4194304" +
		"\nf:1:79: pid is a number; allowed: a whole number from 1 to 4194304" +
		"\nf:1:84: pid is text; allowed: a whole number from 1 to 4194304" +
		"\nf:1:87: pid is 0x10; allowed: a whole number from 1 to 4194304"},
	{rule("wakeup", "when: {uid: [root, 0]}"), "f:1:69: 0 is listed twice; allowed: each once"},
	{rule("wakeup", "when: {not_uid: [mallory, 4294967295]}"), `f:1:67: unknown user "mallory"; allowed: a user of this machine, or a user id` +
		"\nf:1:76: not_uid is 4294967295; allowed: a whole number from 0 to 4294967294"},
	{rule("wakeup", "when: {cgroup: system.slice}"), `f:1:65: cgroup "system.slice" does not begin with /; allowed: a cgroup v2 path from its root, such as /system.slice/**`},
	{rule("wakeup", "when: {thread: kthread}"), `f:1:65: unknown thread "kthread"; allowed: user, kernel`},
	{rule("wakeup", "when: {preempted: 1}"), "f:1:68: preempted is a number; allowed: true, false"},
	{rule("syscall", "when: {syscall: [opnat, 5]}"), `f:1:75: syscall is a number; allowed: text; in quotes if meant: "5"`},
	{rule("syscall", "when: {syscall: [opnat, 'foo*']}"), `f:1:68: unknown system call "opnat", did you mean "openat"; allowed: names of system calls as in syscalls(2), and globs over them` +
		"\n" + `f:1:75: unknown system call "foo*"; allowed: names of system calls as in syscalls(2), and globs over them`},
	{rule("syscall", "when: {syscall: [exit, 'exit_*']}"), "f:1:68: exit never returns; allowed: calls that return\nf:1:74: exit_* never returns; allowed: calls that return"},
	{rule("syscall", "when: {syscall: fsync, not_syscall: '*sync'}"), "f:1:74: not_syscall takes away every call of syscall; allowed: leave at least one call"},
	{rule("block", "when: {device: [sda, /dev/vda, vda1]}"), `f:1:65: unknown device "sda", did you mean "vda"; allowed: nvme0n1, vda, or a glob for disks to come` +
		"\n" + `f:1:70: device "/dev/vda" is a path; allowed: vda, the name without /dev/` +
		"\n" + `f:1:80: unknown device "vda1", did you mean "vda"; allowed: nvme0n1, vda, or a glob for disks to come`},
	{rule("block", "when: {op: [raed]}"), `f:1:61: unknown op "raed", did you mean "read"; allowed: read, write, flush, discard, other`},
	{rule("offcpu", "when: {state: D}"), `f:1:64: unknown state "D"; allowed: interruptible, uninterruptible, other`},

	// Impossible combinations.
	{rule("wakeup", "when: {device: vda, op: read, state: other, syscall: read}"), "f:1:57: device has no meaning with track wakeup; allowed: device with track block" +
		"\nf:1:70: op has no meaning with track wakeup; allowed: op with track block" +
		"\nf:1:80: state has no meaning with track wakeup; allowed: state with track offcpu" +
		"\nf:1:94: syscall has no meaning with track wakeup; allowed: syscall with track syscall, offcpu"},
	{rule("block", "when: {not_syscall: read, preempted: true}"), "f:1:56: not_syscall has no meaning with track block; allowed: not_syscall with track syscall, offcpu" +
		"\nf:1:75: preempted has no meaning with track block; allowed: preempted with track wakeup"},
	{rule("syscall", "when: {not_device: vda, state: other}"), "f:1:58: not_device has no meaning with track syscall; allowed: not_device with track block" +
		"\nf:1:75: state has no meaning with track syscall; allowed: state with track offcpu"},
	{rule("syscall", "when: {thread: kernel}"), "f:1:66: kernel threads make no system calls; allowed: thread: user"},
	{rule("offcpu", "when: {thread: [kernel], syscall: read}"), "f:1:75: kernel threads make no system calls; allowed: thread: user"},
	{rule("syscall", "stacks: [waker]"), "f:1:59: track syscall has no waker stack; allowed: waker stacks with track wakeup, offcpu"},
	{rule("block", "stacks: [kernel, waker]"), "f:1:57: track block has no stacks: who asked for the request has gone on; allowed: stacks with track wakeup, offcpu, syscall; kernel with a timeout"},
	{rule("block", "stacks: user"), "f:1:57: track block has no stacks: who asked for the request has gone on; allowed: stacks with track wakeup, offcpu, syscall; kernel with a timeout"},
	{rule("offcpu", "when: {thread: kernel}, stacks: [user]"), "f:1:82: kernel threads have no user stack; allowed: kernel, waker"},
	{rule("wakeup", "stacks: [kernel, kernal]"), `f:1:67: unknown stacks "kernal", did you mean "kernel"; allowed: kernel, user, waker, progress`},

	// Interrupts.
	{rule("irq", "when: {irq: [24, virtio], cpu: [0, -1, 9000]}"), "f:1:64: irq is text; allowed: a whole number from 0 to 1048576" +
		"\nf:1:82: cpu is -1; allowed: a whole number from 0 to 8191" +
		"\nf:1:86: cpu is 9000; allowed: a whole number from 0 to 8191"},
	{rule("irq", "when: {name: ['nvme[0-9]', "+strings.Repeat("x", 32)+"], not_irq: [5, 5]}"),
		`f:1:61: name "nvme[0-9]" holds a bracket; allowed: * and ?; a ? also stands for a bracket itself` + "\n" +
			`f:1:74: name "` + strings.Repeat("x", 32) + `" is too long; allowed: at most 31 bytes, which is what is kept of a handler's name; end it with *` +
			"\nf:1:122: 5 is listed twice; allowed: each once"},
	{rule("irq", "when: {vector: timer, phase: run}"), "f:1:54: vector has no meaning with track irq; allowed: vector with track softirq, chain" +
		"\nf:1:69: phase has no meaning with track irq; allowed: phase with track softirq"},
	{rule("softirq", "when: {irq: 4, not_name: a, vector: [net_rc], phase: exit, not_cpu: []}"), "f:1:58: irq has no meaning with track softirq; allowed: irq with track irq, chain" +
		"\nf:1:66: not_name has no meaning with track softirq; allowed: not_name with track irq" +
		"\n" + `f:1:88: unknown vector "net_rc", did you mean "net_rx"; allowed: hi, timer, net_tx, net_rx, block, irq_poll, tasklet, sched, hrtimer, rcu` +
		"\n" + `f:1:104: unknown phase "exit"; allowed: raise, run` +
		"\nf:1:119: not_cpu is an empty list; allowed: at least one value, or no not_cpu at all"},
	{rule("softirq", "when: {vector: timer, not_vector: [rcu, timer]}"), "f:1:73: not_vector takes away every vector; allowed: leave at least one vector"},
	{rule("irq", "when: {irq: [4, 5], not_irq: 5, cpu: 1, not_cpu: 1}"), "f:1:76: 5 is in both irq and not_irq; allowed: each value in one of them" +
		"\nf:1:96: 1 is in both cpu and not_cpu; allowed: each value in one of them"},
	{rule("wakeup", "when: {cpu: 8192}"), "f:1:62: cpu is 8192; allowed: a whole number from 0 to 8191"},
	{rule("block", "when: {tid: [5, 5], not_tid: 0}"), "f:1:65: 5 is listed twice; allowed: each once" +
		"\nf:1:78: not_tid is 0; allowed: a whole number from 1 to 4194304"},
	{rule("syscall", "when: {tid: 5, not_tid: 5}"), "f:1:75: 5 is in both tid and not_tid; allowed: each value in one of them"},
	{rule("block", "when: {sector: [5-1, 7]}"), "f:1:70: sector has 2 ranges; allowed: first-last, such as 0-2047; further ranges in overrides of their own"},
	{rule("block", "when: {sector: 5-1}"), "f:1:64: sector is \"5-1\"; allowed: first-last, such as 0-2047; further ranges in overrides of their own"},
	{rule("block", "when: {sector: /dev/sda}"), "f:1:64: sector is \"/dev/sda\"; allowed: first-last, such as 0-2047; further ranges in overrides of their own"},
	{rule("wakeup", "when: {sector: 5}"), "f:1:57: sector has no meaning with track wakeup; allowed: sector with track block"},
	{rule("syscall", "ratchet: 1"), "f:1:60: ratchet is a number; allowed: true, false"},
	{rule("syscall", "timeout: 1s, ratchet: true"), "f:1:64: ratchet does not go with a timeout, which fires before the end; allowed: ratchet with thresholds only; timeouts in a rule of their own"},
	{rule("syscall", "ratchet: true, overrides: [{when: {pid: 5}, timeout: 1s}]"), "f:1:51: ratchet does not go with a timeout, which fires before the end; allowed: ratchet with thresholds only; timeouts in a rule of their own"},
	{"rules: [{name: a, track: syscall, threshold: {quantile: 0.99}, ratchet: true}]", "f:1:64: ratchet does not go with a threshold that follows the load; allowed: ratchet with thresholds that are durations"},
	{rule("softirq", "stacks: [waker]"), "f:1:59: track softirq has no waker stack; allowed: waker stacks with track wakeup, offcpu"},

	// Overrides.
	{rule("block", "overrides: {}"), "f:1:60: overrides is a mapping; allowed: a list, each entry an override"},
	{rule("block", "overrides: []"), "f:1:60: overrides is an empty list; allowed: a list, each entry an override"},
	{rule("block", "overrides: [{}, 5]"), "f:1:61: override has no when; allowed: each override has when, and a threshold, a timeout, or both" +
		"\nf:1:61: override has no threshold; allowed: each override has when, and a threshold, a timeout, or both" +
		"\nf:1:65: override is a number; allowed: a mapping with when, threshold, timeout"},
	{rule("block", "overrides: [{when: {state: other}, threshold: 5, timeout: 1}]"), "f:1:69: state has no meaning with track block; allowed: state with track offcpu" +
		"\nf:1:95: threshold 5 has no unit" + durationAllowed +
		"\nf:1:107: timeout 1 has no unit" + timeoutAllowed},
	{rule("wakeup", "timeout: 500us"), "f:1:59: timeout 500us is too short" + timeoutAllowed},
	{rule("wakeup", "timeout: 25h"), "f:1:59: timeout 25h is too long" + timeoutAllowed},
	{rule("wakeup", "repeat: 1s"), "f:1:50: repeat has no meaning without timeout; allowed: repeat beside a timeout of the rule"},
	{rule("wakeup", "timeout: 1s, repeat: 1ms"), "f:1:71: repeat 1ms is too short" + timeoutAllowed},
	{"rules: [{name: a, track: block, threshold: 1s, timeout: 500ms}]", "f:1:57: timeout 500ms is below the threshold; " +
		"allowed: at least the threshold, 1s; a rule without a threshold may have any timeout"},
	{rule("wakeup", "timeout: 1s, overrides: [{when: {uid: 5}, threshold: 2s}]"), "f:1:103: timeout 1s is below the threshold; " +
		"allowed: at least the threshold, 2s; a rule without a threshold may have any timeout"},
	{rule("block", "timeout: 1s, stacks: [user]"), "f:1:70: track block has no stacks: who asked for the request has gone on; " +
		"allowed: stacks with track wakeup, offcpu, syscall; kernel with a timeout"},

	// Chains.
	{rule("wakeup", "from: irq, to: [run]"), "f:1:50: from has no meaning with track wakeup; allowed: from with track chain" +
		"\nf:1:61: to has no meaning with track wakeup; allowed: to with track chain"},
	{rule("chain", "from: [irq, timer], to: [runn, run, run]"), `f:1:61: unknown from "timer"; allowed: irq, hrtimer, softirq` +
		"\n" + `f:1:74: unknown to "runn", did you mean "run"; allowed: run, user, block` +
		"\nf:1:85: run is listed twice; allowed: each once"},
	{rule("chain", "from: [], to: {}"), "f:1:55: from is an empty list; allowed: at least one value, or no from at all" +
		"\nf:1:63: to is a mapping; allowed: a list of values"},
	{rule("chain", "timeout: 1s, repeat: 1s"), "f:1:49: track chain has no timeout; allowed: threshold with track chain; a timeout with track wakeup or offcpu" +
		"\nf:1:62: track chain has no repeat; allowed: threshold with track chain; a timeout with track wakeup or offcpu"},
	{rule("chain", "when: {not_vector: rcu, device: vda, phase: run}"), "f:1:56: not_vector has no meaning with track chain; allowed: not_vector with track softirq" +
		"\nf:1:73: device has no meaning with track chain; allowed: device with track block" +
		"\nf:1:86: phase has no meaning with track chain; allowed: phase with track softirq"},
	{rule("chain", "stacks: [waker]"), "f:1:57: track chain has no waker stack; allowed: waker stacks with track wakeup, offcpu"},
	{rule("chain", "when: {thread: kernel}, to: user"), "f:1:77: kernel threads never return to user space; allowed: run, block"},
	{rule("chain", "overrides: [{when: {uid: 5}, timeout: 1s}]"), "f:1:78: track chain has no timeout; allowed: threshold with track chain; a timeout with track wakeup or offcpu"},

	// Snapshots and actions.
	{rule("block", "snapshot: 5"), "f:1:59: snapshot is a number; allowed: true, false, or a mapping with before, after, every, burst"},
	{rule("block", "snapshot: {}"), "f:1:59: snapshot is an empty mapping; allowed: true, false, or a mapping with before, after, every, burst"},
	{rule("block", "snapshot: {before: 2, after: 2m, every: 0, burst: 0, rate: 5}"), "f:1:68: before 2 has no unit; allowed: a duration from 0s to 1h with its unit, such as 5ms" +
		"\nf:1:78: after 2m is too long; allowed: a duration from 0s to 1m with its unit, such as 5ms" +
		"\nf:1:89: every is zero" + durationAllowed +
		"\nf:1:99: burst is 0; allowed: a whole number from 1 to 1000" +
		"\n" + `f:1:102: unknown key "rate"; allowed: before, after, every, burst`},
	{rule("block", "actions: {run: a}"), "f:1:58: actions is a mapping; allowed: a list, each entry an action"},
	{rule("block", "actions: [{}]"), "f:1:59: action has no run; allowed: run: [/path/of/program, argument, …]"},
	{rule("block", "actions: [{run: save}, {run: []}, {run: /bin/nothing}, {run: /etc/passwd}]"), `f:1:65: run: "save" is not an absolute path; allowed: an absolute path, arguments as further entries of the list` +
		"\nf:1:78: run is an empty list; allowed: at least one value, or no run at all" +
		"\nf:1:89: run: /bin/nothing does not exist; allowed: an executable file" +
		"\nf:1:110: run: /etc/passwd is not executable; allowed: an executable file"},
	{rule("block", "actions: [{run: /bin/save, timeout: 5, user: mallory, on: fire}]"), "f:1:85: timeout 5 has no unit" + durationAllowed +
		"\n" + `f:1:94: unknown user "mallory"; allowed: a user of this machine` +
		"\n" + `f:1:107: unknown on "fire"; allowed: snapshot, outlier`},
	{rule("block", "snapshot: false, actions: [{run: /bin/save}]"), "f:1:76: action waits for snapshots, but the rule has snapshot: false; allowed: on: outlier, or a rule with snapshots"},
}

func TestBadInput(t *testing.T) {
	for _, tt := range badInput {
		rules, err := Parse("f", []byte(tt.yaml), testHost{})
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
			"too many rules; allowed: 64, all files together"},
		{"overrides",
			rule("wakeup", "overrides: ["+many(256, "{when: {pid: 1%d}, threshold: 1ms}")+"]"),
			rule("wakeup", "overrides: ["+many(257, "{when: {pid: 1%d}, threshold: 1ms}")+"]"),
			"too many overrides; allowed: 256, all rules together"},
		{"comm globs",
			rule("wakeup", "when: {comm: ["+many(256, "a%d")+"], not_comm: ["+many(256, "b%d")+"]}"),
			rule("wakeup", "when: {comm: ["+many(256, "a%d")+"], not_comm: ["+many(257, "b%d")+"]}"),
			"too many comm globs; allowed: 512 comm globs, all rules together"},
		{"cgroup globs",
			rule("wakeup", "when: {cgroup: ["+many(64, "/a%d")+"]}, overrides: [{threshold: 1ms, when: {not_cgroup: /a1}}]"),
			rule("wakeup", "when: {cgroup: ["+many(64, "/a%d")+"]}, overrides: [{threshold: 1ms, when: {not_cgroup: /b}}]"),
			"too many cgroup globs; allowed: 64 different cgroup globs, all rules together"},
		{"device lists",
			rule("block", "overrides: ["+many(64, "{threshold: 1ms, when: {op: read, device: vda}} # %d\n")+"]"),
			rule("block", "overrides: ["+many(65, "{threshold: 1ms, when: {op: read, device: vda}} # %d\n")+"]"),
			"too many device conditions; allowed: 64, all rules together"},
		{"members",
			rule("syscall", "overrides: ["+many(80, "{threshold: 1ms, when: {syscall: '*'}} # %d\n")+"]"),
			rule("syscall", "overrides: ["+many(120, "{threshold: 1ms, when: {syscall: '*'}} # %d\n")+"]"),
			"too many values, with those of syscall; allowed: 32768 pids, uids, system calls, irqs and CPUs, all rules together"},
		{"values",
			rule("wakeup", "when: {pid: ["+many(1024, "1%d")+"]}"),
			rule("wakeup", "when: {pid: ["+many(1025, "1%d")+"]}"),
			"pid has 1025 values; allowed: at most 1024"},
		{"nodes", "", "rules: [" + many(20000, "%d") + "]", "file holds too many values; allowed: at most 20000"},
		{"size", "", "#" + strings.Repeat(" ", 1<<20), "f: file is too large; allowed: at most 1 MiB"},
		{"mistakes", "", "rules: [{" + many(150, "x%d: y") + "}]", "53 more mistakes from here on are not shown"},
	} {
		if tt.ok != "" {
			if _, err := Parse("f", []byte(tt.ok), testHost{}); err != nil {
				t.Errorf("%s: just fitting: %v", tt.name, err)
			}
		}
		_, err := Parse("f", []byte(tt.bad), testHost{})
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

// TestLoadFiles: several files, with every mistake of each in one error.
func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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

	rules, err := Load([]string{filepath.Join(dir, "good"), last, last}, testHost{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range rules {
		names = append(names, rules[i].Name)
	}
	if got := strings.Join(names, " "); got != "first second last" {
		t.Errorf("got rules %s", got)
	}

	bad, none, missing := filepath.Join(dir, "bad"), filepath.Join(dir, "none"), filepath.Join(dir, "missing.yaml")
	rules, err = Load([]string{bad, none, missing}, testHost{})
	if rules != nil {
		t.Error("rules beside errors")
	}
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("not Errors: %v", err)
	}
	want := strings.ReplaceAll(lines(
		"DIR/bad/e.yaml: is not a file; allowed: only files may be named *.yaml or *.yml here",
		"DIR/none: no rule files in this directory; allowed: at least one *.yaml or *.yml file",
		"DIR/missing.yaml: cannot open: no such file or directory",
		`DIR/bad/b.yaml:1:16: name "first" is already used at DIR/bad/a.yaml:1:16; allowed: a name for each rule`,
		"DIR/bad/b.yaml:1:49: threshold 1 has no unit"+durationAllowed,
		"DIR/bad/c.yaml:1:1: file is empty",
		"DIR/bad/d.yaml: file is too large; allowed: at most 1 MiB",
	), "DIR", dir)
	if err.Error()+"\n" != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := Load(nil, testHost{}); err == nil || err.Error() != "rules: no rule files are named; allowed: files, and directories of *.yaml or *.yml files" {
		t.Errorf("no paths: %v", err)
	}
}
