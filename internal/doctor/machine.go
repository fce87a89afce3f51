package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/term"
)

// read returns the content of a small file without its last line break; "" if it cannot be read.
func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// checkPrivileges looks at this process, and at the daemon if it answers.
func checkPrivileges(_ context.Context, o *Options, f facts) (facts, []Result) {
	without, err := o.Privileges(0)
	f.privileged = err == nil
	who := "this process"
	if f.daemon != nil {
		who = "the daemon"
		without, err = o.Privileges(f.daemon.PID)
		if errors.Is(err, os.ErrNotExist) {
			return f, []Result{pass("the daemon's are not visible from here", "it runs in another PID namespace")}
		}
	}
	if err != nil {
		r := warn(err.Error(), "what needs them is not checked", "sudo tailcam doctor")
		if os.Geteuid() == 0 {
			r.Status, r.Why, r.Do = Fail, "nothing can be loaded", "in a container: --privileged, or --cap-add BPF,PERFMON"
		}
		return f, []Result{r}
	}
	results := []Result{pass(who + " may load BPF programs")}
	for _, w := range without {
		results = append(results, warn("no "+w,
			"", "add it to the container, or to the unit's CapabilityBoundingSet="))
	}
	return f, results
}

// checkLimits looks at this process's limits, as the daemon would inherit them. One that
// runs has passed.
func checkLimits(o *Options, f facts) []Result {
	if f.occupied {
		return nil
	}
	limited, err := o.Limits()
	if err != nil {
		return []Result{fail(err.Error(), "the daemon does not start with these limits", "ulimit -Hn 65536")}
	}
	results := []Result{pass("of this process: enough files and address space")}
	for _, l := range limited {
		results = append(results, warn(l, "", ""))
	}
	return results
}

func checkProcesses(*Options, facts) []Result {
	var results []Result
	for _, h := range process.Hindrances("/proc") {
		status := Warn
		if h.Fatal {
			status = Fail
		}
		what, do, _ := strings.Cut(h.Advice, ": ")
		results = append(results, Result{Status: status, What: strings.ReplaceAll(h.Name, "_", " ") + ": " + what, Do: do})
	}
	if len(results) == 0 {
		return []Result{pass("the host's PID namespace, nothing hidden")}
	}
	return results
}

func checkTracefs(_ *Options, f facts) []Result {
	p, ok := f.probes["tracepoint:CATEGORY:NAME"]
	mounted := mountOf("tracefs")
	users := declaring(f.rules, "tracepoint:")
	switch {
	case mounted != "":
		return []Result{pass("mounted on " + mounted)}
	case len(users) == 0:
		return []Result{pass("not mounted", "only rules with tracepoint: hooks need it; there are none")}
	case ok && p.Available:
		return []Result{warn("not mounted",
			"needed by "+strings.Join(users, ", ")+"; under the shipped unit tailcam may not mount it",
			"mount -t tracefs nodev /sys/kernel/tracing")}
	}
	return []Result{fail("not mounted: inactive: "+strings.Join(users, ", "),
		p.Reason, "mount -t tracefs nodev /sys/kernel/tracing")}
}

// mountOf is where a kind of file system is mounted first; "": nowhere.
func mountOf(kind string) (at string) {
	_ = linux.MountsOf("/proc/self/mountinfo", func(m *linux.Mount) { // without it, nothing is known to be mounted
		if at == "" && m.Type == kind {
			at = m.Point
		}
	})
	return at
}

func checkCgroup(*Options, facts) []Result {
	hosts := process.New(nil)
	defer hosts.Close() //nolint:errcheck // only read from
	if _, err := hosts.CgroupPath(1); errors.Is(err, process.ErrNoCgroup2) {
		return []Result{warn("no cgroup v2 hierarchy is mounted",
			"outliers have no cgroup, and rules with cgroup: do not fire",
			"mount -t cgroup2 none /sys/fs/cgroup/unified")}
	}
	return []Result{pass("v2 is mounted")}
}

// checkPerf tells what limits perf events, which the recorder's perf backend and hooks in
// programs need.
func checkPerf(_ *Options, f facts) []Result {
	var lock unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lock); err != nil {
		return []Result{warn("read the limit of locked memory: "+err.Error(), "", "")}
	}
	locked := "unlimited"
	if lock.Cur < 1<<62 {
		locked = term.Bytes(lock.Cur)
	}
	what := fmt.Sprintf("perf_event_paranoid %s, perf_event_mlock_kb %s, locked memory %s",
		read("/proc/sys/kernel/perf_event_paranoid"), read("/proc/sys/kernel/perf_event_mlock_kb"), locked)
	r := pass(what, "none applies to a daemon with CAP_PERFMON and CAP_IPC_LOCK")
	if f.cfg != nil && f.cfg.Recorder.Backend == "mmap" {
		r.Why += "; recorder.backend mmap locks no memory"
	}
	return []Result{r}
}

// checkTracers looks for what makes every event cost more.
func checkTracers(*Options, facts) []Result {
	var results []Result
	if read("/proc/sys/kernel/bpf_stats_enabled") == "1" {
		results = append(results, warn("BPF run-time statistics are on",
			"every run of every BPF program of this machine takes some 60 ns more",
			"sysctl -w kernel.bpf_stats_enabled=0"))
	}
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if tracer := read(dir + "/current_tracer"); tracer != "" && tracer != "nop" {
			results = append(results, warn("ftrace's tracer "+tracer+" is on",
				"it slows down what tailcam measures", "echo nop > "+dir+"/current_tracer"))
			break
		}
	}
	if len(results) > 0 {
		if others := tracersRunning(); len(others) > 0 {
			results[0].Why += "; running: " + strings.Join(others, ", ")
		}
		return results
	}
	return []Result{pass("none that makes events cost more")}
}

// tracerNames are programs that share hooks and limits of the kernel with tailcam.
var tracerNames = []string{"bpftrace", "lttng-sessiond", "perf", "trace-cmd", "stap", "stapio", "sysdig"}

// tracersRunning lists such processes: name and pid.
func tracersRunning() []string {
	paths, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is valid
	var found []string
	for _, path := range paths {
		if name := read(path); slices.Contains(tracerNames, name) {
			found = append(found, name+" (pid "+filepath.Base(filepath.Dir(path))+")")
		}
	}
	return found
}

// slowClocks are clock sources that need a device, and so microseconds.
var slowClocks = []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies"}

func checkClock(*Options, facts) []Result {
	var results []Result
	source := read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if slices.Contains(slowClocks, source) {
		results = append(results, warn("clock source "+source,
			"reading the clock, twice for each event, takes about a microsecond",
			"boot with clocksource=tsc, if the machine's is stable"))
	}
	now := time.Now()
	var state unix.Timex
	code, err := unix.Adjtimex(&state)
	switch {
	case now.Year() < 2020:
		results = append(results, warn("the time is "+now.UTC().Format(time.RFC3339),
			"snapshots are named by it", "set it: timedatectl set-ntp true"))
	case err == nil && (code == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0):
		results = append(results, warn("the wall clock is not synchronized",
			"times of outliers may not match other machines; delays are right", "timedatectl set-ntp true"))
	}
	if len(results) > 0 {
		return results
	}
	return []Result{pass("clock source " + source + ", " + now.UTC().Format(time.RFC3339))}
}
