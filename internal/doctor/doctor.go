// Package doctor finds out what of tailcam works on this machine, and says what to do about
// the rest. It asks the parts of tailcam that know, changes no setting, and waits for
// nothing that may hang.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// Status is how a check ended.
type Status string

// How a check ended.
const (
	OK   Status = "ok"
	Warn Status = "warn" // tailcam works, but does less or costs more than it could
	Fail Status = "fail" // tailcam, or a rule, does not work
)

// Result is the outcome of one check. The JSON form is stable; fields are only added.
type Result struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	What   string `json:"what"`          // was found
	Why    string `json:"why,omitempty"` // it matters
	Do     string `json:"do,omitempty"`  // a command, or a key of the configuration
}

// pass, warn and fail make results.
func pass(what string, why ...string) Result {
	return Result{Status: OK, What: what, Why: strings.Join(why, "; ")}
}

func warn(what, why, do string) Result { return Result{Status: Warn, What: what, Why: why, Do: do} }

func fail(what, why, do string) Result { return Result{Status: Fail, What: what, Why: why, Do: do} }

// of is the result for a check other than the one that has found it.
func (r Result) of(check string) Result {
	r.Check = check
	return r
}

// Options are what the checks ask. All functions are required.
type Options struct {
	Config func() (config.Config, error)
	Socket string // path of the daemon's socket; "": that of the configuration
	// Privileges tells what does not work without further capabilities of a process, or
	// why it cannot run the daemon. pid 0: this process.
	Privileges func(pid int) (without []string, err error)
	// Limits does the same for this process's resource limits.
	Limits    func() (limited []string, err error)
	LoadRules func(paths []string) ([]rules.Rule, error)
	// CheckLoad loads and attaches rules on this kernel, then detaches them.
	CheckLoad func(ctx context.Context, list []rules.Rule) (notes []string, err error)
	// CheckActivities loads the kernel side of accounts with these groups, and takes it away.
	CheckActivities func(groups []string) error
	Probes          func() ([]tracker.Probe, error)
	// Progress, if set, is called with the name of each check before it runs.
	Progress func(check string)
}

// Report is what Run found.
type Report struct {
	Results []Result
	Config  *config.Config // nil: it has errors
	Daemon  *api.Status    // nil: none answered
	// Load is why the rules could not be loaded, with the verifier's log; nil: they could,
	// or this was not tried.
	Load error
}

// Failed reports whether a check failed.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(r Result) bool { return r.Status == Fail })
}

// facts are what earlier checks found and later ones need. They are copied, so that a
// check that is given up changes nothing.
type facts struct {
	cfg        *config.Config // nil: it has errors
	rules      []rules.Rule   // nil: they have errors
	socket     string
	daemon     *api.Status // nil: none answered
	occupied   bool        // a daemon runs, whether it answers or not
	privileged bool        // this process may load the kernel side
	probes     map[string]tracker.Probe
	load       error
}

// check finds something out, within limit.
type check struct {
	name  string
	limit time.Duration
	run   func(context.Context, *Options, facts) (facts, []Result)
}

// Limits of checks. Loading takes seconds on slow machines.
const (
	fileLimit   = 10 * time.Second
	daemonLimit = 5 * time.Second
	loadLimit   = 2 * time.Minute
)

// checks lists all, in the order of their lines.
var checks = []check{
	{"configuration", fileLimit, checkConfig},
	{"rules", fileLimit, checkRules},
	{"daemon", daemonLimit, checkDaemon},
	{"capabilities", fileLimit, checkPrivileges},
	{"limits", fileLimit, only(checkLimits)},
	{"processes", fileLimit, only(checkProcesses)},
	{"kernel", fileLimit, only(checkKernel)},
	{"btf", fileLimit, checkProbes},
	{"hooks", fileLimit, only(checkHooks)},
	{"declared hooks", fileLimit, only(checkDeclared)},
	{"tracefs", fileLimit, only(checkTracefs)},
	{"cgroup", fileLimit, only(checkCgroup)},
	{"containers", fileLimit, checkContainers},
	{"perf", fileLimit, only(checkPerf)},
	{"load", loadLimit, checkLoad},
	{"activities", loadLimit, only(checkActivities)},
	{"snapshots", fileLimit, only(checkSnapshots)},
	{"socket", fileLimit, only(checkSocket)},
	{"unit", fileLimit, only(checkUnit)},
	{"tracers", fileLimit, only(checkTracers)},
	{"clock", fileLimit, only(checkClock)},
}

// only is a check that later ones do not need.
func only(run func(*Options, facts) []Result) func(context.Context, *Options, facts) (facts, []Result) {
	return func(_ context.Context, o *Options, f facts) (facts, []Result) { return f, run(o, f) }
}

// Run runs all checks. It returns early if ctx ends.
func Run(ctx context.Context, o *Options) *Report {
	r, f := &Report{}, facts{socket: o.Socket}
	for i := range checks {
		if ctx.Err() != nil {
			break
		}
		if o.Progress != nil {
			o.Progress(checks[i].name)
		}
		var results []Result
		f, results = checks[i].within(ctx, o, f)
		for _, result := range results {
			if result.Check == "" {
				result.Check = checks[i].name
			}
			r.Results = append(r.Results, result)
		}
	}
	r.Config, r.Daemon, r.Load = f.cfg, f.daemon, f.load
	return r
}

// within runs a check. One that hangs is left behind: nothing can end a read from a file
// system that does not answer.
func (c *check) within(ctx context.Context, o *Options, f facts) (facts, []Result) {
	type answer struct {
		facts   facts
		results []Result
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		var a answer
		a.facts, a.results = c.run(ctx, o, f)
		done <- a
	}()
	late := time.NewTimer(c.limit + time.Second) // it may end by itself when ctx does
	defer late.Stop()
	select {
	case a := <-done:
		return a.facts, a.results
	case <-late.C:
		return f, []Result{fail(fmt.Sprintf("no answer within %s", c.limit),
			"a file system or a process hangs", "look for processes in state D: ps -eo pid,stat,wchan,comm")}
	}
}
