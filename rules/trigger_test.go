package rules

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestTriggers: what the rules of track trigger say, in the kernel's form and with durations.
func TestTriggers(t *testing.T) {
	list, err := Parse("f", []byte(`rules:
  - {name: a, track: trigger, on: {psi: {memory: "some 150000 1000000", io: ["full 1ms 10s", "some 1s 1s"]}}}
  - {name: b, track: trigger, on: {psi: {cgroup: /a/b, cpu: "some 150ms 1s"}}, target: {unit: ["x.service"], last: 3s}}
  - {name: c, track: trigger, on: oom, snapshot: {after: 1ms}}
  - {name: d, track: trigger, on: {kmsg: [hung_task]}, target: {pid: 4}}
  - {name: e, track: trigger, on: {probe: {http: "http://h/x"}}, threshold: 1ms, timeout: 2s}
  - {name: f, track: offcpu, threshold: 1ms}
`), testMachine{})
	assert.NilError(t, err)
	assert.Equal(t, list[0].Trigger.PSI.Triggers[0].String(), "some 150000 1000000")
	assert.DeepEqual(t, list[0].Trigger.PSI.Triggers[1], PSITrigger{"io", "full", time.Millisecond, 10 * time.Second})
	assert.DeepEqual(t, list[1].Trigger.PSI.Triggers, []PSITrigger{{"cpu", "some", 150 * time.Millisecond, time.Second}})
	assert.DeepEqual(t, list[1].Trigger.Target, Target{Places: Places{Unit: []string{"x.service"}}, Last: 3 * time.Second})
	assert.Check(t, list[2].Trigger.Source() == "oom" && list[3].Trigger.Source() == "kmsg" && list[3].Trigger.Target.PID == 4)
	assert.DeepEqual(t, *list[4].Trigger.Probe, ProbeSource{HTTP: "http://h/x", Every: 10 * time.Second, Threshold: time.Millisecond, Timeout: 2 * time.Second})
	assert.Check(t, len(Tracked(list)) == 1 && len(Triggers(list)) == 5)
}

// TestMoreTriggers: what core dumps, alerts and promises match.
func TestMoreTriggers(t *testing.T) {
	list, err := Parse("f", []byte(`rules:
  - {name: f, track: offcpu, threshold: 1ms, histogram: true}
  - {name: g, track: trigger, on: coredump}
  - {name: h, track: trigger, on: {coredump: {signals: [SIGSEGV, SIGABRT], comm: "pos*", undumped: true}}}
  - {name: i, track: trigger, on: {alert: {name: [High*], labels: {severity: [page, ticket], instance: "here:*"}}}}
  - {name: j, track: trigger, on: alert}
  - {name: k, track: trigger, on: {slo: "p99.9(f) < 20ms over 5m"}}
  - {name: l, track: trigger, on: {slo: {objective: p50(wakeup)<1ms over 5s, min_events: 7}}}
  - {name: m, track: trigger, on: {trace: {host: [web*, db1], rule: checkout}}}
  - {name: n, track: trigger, on: trace}
  - {name: o, track: trigger, on: alert, target: {activity: check*, unit: [x.service]}}
`), testMachine{})
	assert.NilError(t, err)
	every, some := list[1].Trigger.Coredump, list[2].Trigger.Coredump
	assert.Check(t, every.Wants("SIGXCPU", "a", true) && !every.Wants("SIGSEGV", "a", false))
	assert.Check(t, some.Wants("SIGSEGV", "postgres", false) && !some.Wants("SIGSEGV", "bash", true) && !some.Wants("SIGBUS", "postgres", true))
	labels := map[string]string{"alertname": "HighLatency", "severity": "page", "instance": "here:9100"}
	alert, all := list[3].Trigger.Alert, list[4].Trigger.Alert
	assert.Check(t, alert.Matches(labels) && all.Matches(labels) && all.Matches(nil) && !alert.Matches(nil))
	labels["instance"] = "there:9100"
	assert.Check(t, !alert.Matches(labels))
	slo := *list[5].Trigger.SLO
	assert.DeepEqual(t, slo, SLOSource{Of: "f", Quantile: 0.9990000000000001, Below: 20 * time.Millisecond, Over: 5 * time.Minute, MinEvents: 10000})
	assert.Equal(t, slo.String(), "p99.9(f) < 20ms over 5m")
	assert.DeepEqual(t, *list[6].Trigger.SLO, SLOSource{Of: "wakeup", Quantile: 0.5, Below: time.Millisecond, Over: 5 * time.Second, MinEvents: 7})
	ofSome, ofAll := list[7].Trigger.Trace, list[8].Trigger.Trace
	assert.Check(t, ofSome.Matches("web7", "checkout") && !ofSome.Matches("web7", "other") && !ofSome.Matches("db2", "checkout") && ofAll.Matches("", ""))
	assert.DeepEqual(t, list[9].Trigger.Target, Target{Activity: []string{"check*"}, Places: Places{Unit: []string{"x.service"}}})
	for i, want := range []string{"coredump", "coredump", "alert", "alert", "slo", "slo", "trace", "trace"} {
		assert.Equal(t, list[i+1].Trigger.Source(), want)
	}
}

// TestNewTarget: globs of a request are read as those of rules.
func TestNewTarget(t *testing.T) {
	got, err := NewTarget(map[string]string{"cgroup": "/a/**", "activity": "check*"})
	assert.NilError(t, err)
	assert.DeepEqual(t, got, Target{Activity: []string{"check*"}, Places: Places{Cgroup: []string{"/a/**"}}})
	for _, c := range []struct{ key, glob, want string }{
		{"cgroup", "a", `cgroup "a" does not begin with /; allowed: a cgroup v2 path from its root, such as /system.slice/**`},
		{"unit", "a", `unit "a" has no type; allowed: a unit with its type, such as a.service, or a glob such as a.*`},
		{"pod", "[a]", `pod "[a]" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket`},
		{"activity", "", "activity is empty; allowed: a string"},
		{"namespace", "a\x00", `namespace "a\x00" contains a NUL; allowed: a string without a NUL`},
	} {
		_, err := NewTarget(map[string]string{c.key: c.glob})
		assert.Error(t, err, c.want)
	}
}

// TestBadTriggers: each mistake beside what is said of it.
func TestBadTriggers(t *testing.T) {
	const psi = "; allowed: " + psiAllowed
	for _, c := range []struct{ more, want string }{
		{"x: 1", "f:1:9: rule has no on; allowed: on: with one of psi, kmsg, oom, probe, coredump, alert, slo, trace\n" + `f:1:35: unknown key "x"` + ruleAllowed},
		{"on: psi", `f:1:39: on: "psi" has no settings, or is unknown; allowed: oom, kmsg, coredump, alert, trace, or a mapping with one of psi, kmsg, oom, probe, coredump, alert, slo, trace`},
		{"on: {}", "f:1:39: on has 0 sources; allowed: one of psi, kmsg, oom, probe, coredump, alert, slo, trace; others in separate rules"},
		{"on: {kmsg: [hung]}", `f:1:47: unknown kmsg "hung"; allowed: hung_task, soft_lockup, hard_lockup, rcu_stall`},
		{"on: {oom: 4}", "f:1:45: oom has no settings; allowed: on: oom"},
		{"on: {psi: {}}", "f:1:45: psi has no trigger; allowed: cpu, memory, io, irq"},
		{`on: {psi: {cpu: "some 1 2 3"}}`, `f:1:51: cpu: invalid trigger "some 1 2 3"` + psi},
		{`on: {psi: {cpu: "any 1ms 1s"}}`, `f:1:51: cpu: invalid trigger "any 1ms 1s"` + psi},
		{`on: {psi: {cpu: "some 2s 1s"}}`, `f:1:51: cpu: stall 2s is too long` + psi},
		{`on: {psi: {cpu: "some 1ms 11s"}}`, `f:1:51: cpu: window 11s is too long` + psi},
		{`on: {psi: {cpu: "some 1ms 1s", cgroup: /a/../b}}`, `f:1:74: invalid cgroup "/a/../b"; allowed: a path below the root of cgroup v2, such as /system.slice/nginx.service, without globs`},
		{"on: oom, threshold: 1ms", "f:1:44: threshold does not apply to this trigger; allowed: on: {probe: …}"},
		{"on: oom, when: {pid: 4}", "f:1:44: when does not apply to track trigger; allowed: name, track, on, target, snapshot, actions, action_limits, extend"},
		{"on: oom, target: {pid: 4, unit: a.service}", "f:1:61: unit cannot be combined with pid; allowed: pid alone, or conditions without pid"},
		{"on: oom, target: {cgroup: a}", `f:1:61: cgroup "a" does not begin with /; allowed: a cgroup v2 path from its root, such as /system.slice/**`},
		{"on: oom, target: {activity: a}", "f:1:52: target: activity does not apply to oom, which names tasks itself; allowed: on: psi, probe, alert"},
		{"on: alert, target: {pid: 4, activity: a}", "f:1:63: activity cannot be combined with pid; allowed: pid alone, or conditions without pid"},
		{"on: alert, target: {activity: [" + strings.Repeat("a", 32) + "]}", `f:1:66: activity "` + strings.Repeat("a", 32) + `" is too long; allowed: at most 31 bytes (names of activities are no longer); use * for a prefix`},
		{"on: alert, target: {activities: a}", `f:1:55: unknown key "activities", did you mean "activity"; allowed: pid, last, cgroup, unit, container, pod, namespace, activity`},
		{"on: {probe: {}}", "f:1:47: probe needs one of http and tcp; allowed: http: URL, or tcp: HOST:PORT"},
		{"on: {probe: {http: 'ftp://x'}}", `f:1:54: http: invalid URL "ftp://x"; allowed: ` + probeURLAllowed},
		{"on: {probe: {http: 'http://u:p@x'}}", `f:1:54: http: invalid URL "http://u:p@x"; allowed: ` + probeURLAllowed},
		{"on: {probe: {tcp: 'x'}}", `f:1:53: tcp: invalid address "x"; allowed: HOST:PORT, such as 127.0.0.1:5432`},
		{"on: {probe: {tcp: 'x:99'}}, threshold: 2s, timeout: 1s", "f:1:87: timeout 1s is below the threshold; allowed: at least the threshold, 2s, or no threshold"},
	} {
		_, err := Parse("f", []byte("rules: [{name: a, track: trigger, "+c.more+"}]"), testMachine{})
		assert.Check(t, err != nil && err.Error() == c.want, "%s:\n got %v\nwant %s", c.more, err, c.want)
	}
	for _, c := range []struct{ more, want string }{
		{"on: {coredump: {signals: [SIGTERM]}}", `f:1:61: unknown signals "SIGTERM"; allowed: SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGFPE, SIGSEGV, SIGBUS, SIGSYS, SIGXCPU, SIGXFSZ`},
		{"on: {coredump: {undumped: often}}", "f:1:61: undumped is a string; allowed: true, false"},
		{"on: {alert: {labels: [a]}}", "f:1:56: labels is a list; allowed: a mapping of label names to globs"},
		{"on: {alert: {labels: {a-b: c}}}", `f:1:57: invalid label name "a-b"; allowed: letters, digits and _, such as severity`},
		{"on: {alert: {labels: {a: b, a: c}}}", "f:1:63: duplicate label a; allowed: each label once, with a list of globs"},
		{"on: {slo: p99 < 2ms}", `f:1:45: slo: invalid objective "p99 < 2ms"; allowed: ` + sloAllowed},
		{"on: {slo: p0(b) < 2ms over 5m}", "f:1:45: slo: invalid quantile p0; allowed: p1 to p99.9999"},
		{"on: {slo: p99(b) < 2 over 5m}", "f:1:45: slo: limit 2 has no unit; allowed: " + sloAllowed + "; a window from 5s to 24h"},
		{"on: {slo: p99(b) < 2ms over 1s}", "f:1:45: slo: window 1s is too short; allowed: " + sloAllowed + "; a window from 5s to 24h"},
		{"on: {slo: {min_events: 3}}", "f:1:45: slo has no objective; allowed: objective: " + sloAllowed},
		{"on: {slo: p99(b) < 2ms over 5m}", `f:1:9: slo: there is no rule and no tracker "b"; allowed: the name of a rule, or track wakeup, offcpu, syscall, block, irq, softirq, pair, span, workqueue, activity`},
		{"on: {slo: p99(a) < 2ms over 5m}", "f:1:9: slo: rule a has no histogram; allowed: histogram: true in that rule"},
		{"on: {slo: p99(block) < 2ms over 5m}, target: {pid: 4}", "f:1:72: target does not apply to slo; allowed: on: psi, oom, kmsg, probe, coredump, alert, trace"},
		{"on: {trace: {host: '[a]', rule: x}}", `f:1:54: host "[a]" contains a bracket; allowed: the wildcards * and ?; ? also matches a bracket`},
		{"on: {trace: {id: 4}}", `f:1:48: unknown key "id"; allowed: host, rule`},
	} {
		_, err := Parse("f", []byte("rules: [{name: a, track: trigger, "+c.more+"}]"), testMachine{})
		assert.Check(t, err != nil && err.Error() == c.want, "%s:\n got %v\nwant %s", c.more, err, c.want)
	}
	_, err := Parse("f", []byte("rules: [{name: a, track: offcpu, threshold: 1ms, on: oom, target: {pid: 1}}]"), testMachine{})
	assert.Error(t, err, "f:1:50: on does not apply to track offcpu; allowed: track trigger\nf:1:59: target does not apply to track offcpu; allowed: track trigger")
}
