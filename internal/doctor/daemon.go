package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/version"
)

// checkDaemon asks the daemon for its status.
func checkDaemon(ctx context.Context, _ *Options, f facts) (facts, []Result) {
	f.socket = cmp.Or(f.socket, api.DefaultSocket)
	client := api.NewClient(f.socket)
	defer client.Close()
	s, err := client.Status(ctx)
	if err == nil {
		f.daemon, f.occupied = s, true
		return f, running(s)
	}
	pid := api.Holder(f.socket)
	f.occupied = pid != 0 || errors.Is(err, context.DeadlineExceeded)
	switch {
	case f.occupied:
		what := "a daemon at " + f.socket + " does not answer"
		if pid != 0 {
			what += fmt.Sprintf(": pid %d", pid)
		}
		return f, []Result{fail(what, firstLine(err.Error()), "tailcam bugtool, then: systemctl restart tailcam")}
	case errors.Is(unix.Access(f.socket, unix.W_OK), fs.ErrPermission):
		f.occupied = true
		return f, []Result{warn(firstLine(err.Error()), "", "sudo tailcam doctor")}
	}
	return f, []Result{warn(firstLine(err.Error()),
		"nothing is watched now", "systemctl start tailcam, or: tailcam run")}
}

// running is what a daemon says of itself.
func running(s *api.Status) []Result {
	results := []Result{pass(fmt.Sprintf("pid %d, up %s", s.PID, term.Duration(s.UptimeNS)))}
	add := func(r Result) { results = append(results, r) }
	if own := version.String(); s.Version != own {
		add(warn("the daemon is "+s.Version+", this program "+own, "", "systemctl restart tailcam"))
	}
	for _, p := range s.Panics {
		if p.Count > 0 {
			add(warn(fmt.Sprintf("%d panics in %s", p.Count, p.Place),
				"the data being processed was dropped", "report it: tailcam bugtool"))
		}
	}
	if s.Reload != nil && !s.Reload.OK {
		add(warn("the last reload did not apply everything",
			"the daemon runs with earlier rules or keys", "tailcam check --diff"))
	}
	for i := range s.Rules {
		if r := rule(&s.Rules[i]); r != nil {
			add(*r)
		}
	}
	if a := s.Activities; a != nil && a.Error != "" {
		add(warn(noAccounts, a.Error, "see the daemon's log, then restart tailcam, or set activities.enabled: false").of("activities"))
	}
	results = append(results, cost(s.Cost)...)
	for _, t := range s.Tables {
		if t.Error != "" {
			add(warn("the pending table "+t.Name+" cannot grow", t.Error, "raise capacity.initial."+t.Name).of("losses"))
		}
	}
	return append(results, losses(s.Losses)...)
}

// rule tells why a rule does not fire now; nil: it may.
func rule(i *api.RuleInfo) *Result {
	r := &Result{Check: "rule " + i.Name, Status: Warn}
	switch {
	case i.Inactive != "":
		r.What, r.Why, r.Do = "inactive", i.Inactive, "add to a file in /etc/tailcam/rules.d: disable: ["+i.Name+"]"
	case i.Storm != nil:
		r.What, r.Why = "paused automatically", fmt.Sprintf("it wanted to fire %d times a second", i.Storm.PerSecond)
		r.Do = "raise its threshold"
		if i.Storm.ConsiderNS > 0 {
			r.Do = "tailcam threshold set " + i.Name + " " + term.Setting(i.Storm.ConsiderNS)
		}
	case i.Paused:
		r.What, r.Do = "paused", "tailcam resume "+i.Name
	case i.Shed:
		r.What, r.Why, r.Do = "shed", "tailcam would cost more than its budget", "raise budget.cpu, or its priority"
	default:
		return nil
	}
	return r
}

// cost tells what is shed.
func cost(c *api.CostStatus) []Result {
	if c == nil {
		return nil
	}
	used := fmt.Sprintf("%.2f%% of %d CPUs, %s", 100*c.CPU, c.CPUs, term.Bytes(c.MemoryBytes))
	results := []Result{pass(used).of("cost")}
	if c.Exceeded {
		results[0] = warn(used, "over budget, and nothing is left to shed",
			"tailcam status, then disable the rule that costs most").of("cost")
	}
	for _, s := range c.Shed {
		if !strings.HasPrefix(s.Part, "rule ") { // see rule
			results = append(results, warn("shed: "+s.Part, s.Why,
				"raise budget.cpu or budget.memory, or need less").of("cost"))
		}
	}
	return results
}

// losses tells what was lost since the daemon started.
func losses(list []api.Loss) []Result {
	var results []Result
	for _, l := range list {
		if l.Count == 0 {
			continue
		}
		what := strings.Join(strings.Fields(l.Cause+" "+term.Count(l.Count)+" "+l.Tracker+" "+l.Rule), " ")
		results = append(results, warn(what, "since the daemon started", l.Advice).of("losses"))
	}
	if len(results) == 0 {
		return []Result{pass("none").of("losses")}
	}
	return results
}

// checkSocket looks who may use the socket.
func checkSocket(_ *Options, f facts) []Result {
	group := api.DefaultGroup
	if f.cfg != nil {
		group = f.cfg.Socket.Group
	}
	var results []Result
	if _, err := user.LookupGroup(group); err != nil {
		results = append(results, warn("there is no group "+group,
			"only root may use the socket", "groupadd --system "+group+", then restart tailcam"))
	}
	info, err := os.Lstat(f.socket)
	if err != nil {
		return results // see daemon
	}
	if info.Mode().Type() != fs.ModeSocket {
		return append(results, fail(f.socket+" is not a socket", "the daemon does not replace it", "rm "+f.socket))
	}
	owner := "?"
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = strconv.Itoa(int(st.Gid))
		if g, err := user.LookupGroupId(owner); err == nil {
			owner = g.Name
		}
	}
	if info.Mode().Perm()&0o007 != 0 {
		return append(results, warn(fmt.Sprintf("%s has mode %#o", f.socket, info.Mode().Perm()),
			"every user may read what runs here and pause rules", "chmod 660 "+f.socket))
	}
	return append(results, pass(f.socket+" is for root and the group "+owner))
}
