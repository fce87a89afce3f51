package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// The oldest kernel that tailcam is tested with.
const oldestMajor, oldestMinor = 6, 1

func checkKernel(*Options, facts) []Result {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return []Result{warn("uname: "+err.Error(), "", "")}
	}
	release := unix.ByteSliceToString(u.Release[:])
	r := pass("Linux " + release + " on " + unix.ByteSliceToString(u.Machine[:]))
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor) // other forms are not compared
	if n == 2 && (major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		r.Status, r.Why = Warn, fmt.Sprintf("tailcam is tested with Linux %d.%d and later", oldestMajor, oldestMinor)
		r.Do = "boot a later kernel"
	}
	results := []Result{r}
	if mode := chosen(read("/sys/kernel/security/lockdown")); mode == "confidentiality" {
		results = append(results, fail("kernel lockdown is "+mode,
			"BPF programs must not read kernel memory then", "boot with lockdown=integrity"))
	}
	if read("/proc/sys/net/core/bpf_jit_enable") == "0" {
		results = append(results, warn("BPF programs are interpreted",
			"each event costs several times more", "sysctl -w net.core.bpf_jit_enable=1"))
	}
	return results
}

// checkProbes asks the kernel's BTF.
func checkProbes(_ context.Context, o *Options, f facts) (facts, []Result) {
	probes, err := o.Probes()
	if err != nil {
		return f, []Result{fail(err.Error(),
			"nothing can be loaded without the kernel's types",
			"boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and look for /sys/kernel/btf/vmlinux")}
	}
	f.probes = map[string]tracker.Probe{}
	results := []Result{pass("the kernel describes its types")}
	for _, p := range probes {
		f.probes[p.Name] = p
		if p.Required && !p.Available {
			results = append(results, fail(p.Name+" is missing: "+p.Reason,
				"nothing can be loaded without it", "boot a kernel of 6.1 or later"))
		}
	}
	return f, results
}

// checkHooks compares the hooks of the kernel with what the rules and the recorder need.
func checkHooks(_ *Options, f facts) []Result {
	if f.probes == nil {
		return nil
	}
	var results []Result
	available, all := 0, 0
	var unrecorded []string
	for _, name := range slices.Sorted(maps.Keys(f.probes)) {
		p := f.probes[name]
		if p.Declared || p.Required {
			continue
		}
		all++
		if p.Available {
			available++
			continue
		}
		if hit := rulesOf(f.rules, p.Trackers); len(hit) > 0 {
			results = append(results, fail("inactive: "+strings.Join(hit, ", "),
				p.Reason, "add to a file in /etc/tailcam/rules.d: disable: ["+strings.Join(hit, ", ")+"]"))
		}
		wanted := func(group string) bool { return slices.Contains(f.cfg.Recorder.Events, group) }
		if f.cfg != nil && slices.ContainsFunc(p.Groups, wanted) {
			unrecorded = append(unrecorded, name)
		}
	}
	r := pass(fmt.Sprintf("%d of %d available", available, all))
	if len(unrecorded) > 0 {
		r.Why = "not recorded on this kernel: " + strings.Join(unrecorded, ", ")
	}
	return append([]Result{r}, results...)
}

// rulesOf names the rules of any of these trackers.
func rulesOf(list []rules.Rule, tracks []rules.Track) []string {
	var names []string
	for i := range list {
		if slices.Contains(tracks, list[i].Track) {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// checkDeclared tells which kinds of hooks rules may declare.
func checkDeclared(_ *Options, f facts) []Result {
	var available []string
	var results []Result
	for _, name := range slices.Sorted(maps.Keys(f.probes)) {
		p := f.probes[name]
		kind, _, _ := strings.Cut(name, ":")
		switch {
		case !p.Declared:
		case p.Available:
			available = append(available, kind)
		default:
			results = append(results, declared(&p, kind, f))
		}
	}
	if len(available) == 0 {
		return results
	}
	return append([]Result{pass(strings.Join(available, ", "))}, results...)
}

// declared is the result for a kind of hooks that is not available. It matters to rules
// that declare such; what syscall rules do without, loading tells.
func declared(p *tracker.Probe, kind string, f facts) Result {
	r := pass("no "+kind, p.Reason)
	if hit := declaring(f.rules, kind+":"); len(hit) > 0 && f.privileged {
		r.Status, r.What = Fail, "no "+kind+": inactive: "+strings.Join(hit, ", ")
		r.Do = "use another kind of hook, such as raw_tracepoint:"
	}
	return r
}

// declaring names the rules with a hook that begins with a prefix.
func declaring(list []rules.Rule, prefix string) []string {
	var names []string
	for i := range list {
		pair := list[i].Pair
		if pair != nil && slices.ContainsFunc(slices.Concat(pair.Entry, pair.Exit, pair.Cancel),
			func(h rules.Hook) bool { return strings.HasPrefix(h.Text, prefix) }) {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// checkLoad loads the rules, unless a daemon has: then that tells what is inactive.
func checkLoad(ctx context.Context, o *Options, f facts) (facts, []Result) {
	switch {
	case f.rules == nil || f.probes == nil:
		return f, nil
	case f.occupied:
		return f, nil
	case !f.privileged:
		return f, []Result{warn("not tried", "loading needs root", "sudo tailcam doctor")}
	}
	notes, err := o.CheckLoad(ctx, f.rules)
	f.load = err
	if err != nil {
		r := fail(firstLine(err.Error()),
			"the daemon does not start, or leaves out rules", "tailcam check --load; to report it: tailcam bugtool")
		if others := tracersRunning(); len(others) > 0 {
			r.Why += "; these may hold the hooks: " + strings.Join(others, ", ")
		}
		return f, []Result{r}
	}
	results := []Result{pass(fmt.Sprintf("%d rules loaded and attached on this kernel, then detached", len(f.rules)))}
	for _, note := range notes {
		rule, why, _ := strings.Cut(note, ": ")
		results = append(results, warn("inactive: "+rule, why, "set attach: all in the rule, or disable it"))
	}
	return f, results
}

// checkActivities loads the kernel side of accounts, if they are enabled and no daemon has: see
// running.
func checkActivities(o *Options, f facts) []Result {
	if f.cfg == nil || !f.cfg.Activities.Enabled || f.occupied || !f.privileged {
		return nil
	}
	if err := o.CheckActivities(f.cfg.Activities.Groups); err != nil {
		return []Result{warn(noAccounts, firstLine(err.Error()), "set activities.enabled: false; to report it: tailcam bugtool")}
	}
	return []Result{pass("accounts of activities loaded and attached on this kernel, then detached")}
}

// noAccounts is what is wrong where activities are enabled, and the kernel refuses them.
const noAccounts = "no accounts of activities"

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// chosen is the word in brackets of a file such as "none [integrity] confidentiality".
func chosen(list string) string {
	_, after, _ := strings.Cut(list, "[")
	word, _, _ := strings.Cut(after, "]")
	return word
}
