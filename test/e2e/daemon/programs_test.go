package daemon

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// functionRule is a rule over the calls of a function of a program.
func functionRule(name, path, function string) string {
	return "  - {name: " + name + ", track: pair, entry: 'uprobe:" + path + ":" + function + "', exit: 'uretprobe:" + path + ":" + function +
		"', key: tid, threshold: 1ms, snapshot: false}\n"
}

// TestHostileTargets: rules over a program that is made to hurt who parses it,
// and over one that nobody answers for, are inactive and say why. The others
// run, also across a reload, and the daemon ends when it is told to.
func TestHostileTargets(t *testing.T) {
	needRoot(t)
	program := buildC(t, "napper", "-static")
	hung := stuckfs.Mount(t, "napper", program)
	hung.Hang()
	t.Cleanup(hung.Answer)
	uid := newUID()
	list := rulesFile(napRule("nap", uid, "snapshot: false")) +
		functionRule("hostile", child.Overlapping(t), "main") + functionRule("hung", hung.Path(), "main") +
		functionRule("absent", program, "no_such_function") + functionRule("fine", program, "main")
	h := newHome(t, list)
	begin := time.Now()
	d := h.start(t)
	t.Logf("the daemon watches after %v", time.Since(begin))
	inactive := func() {
		t.Helper()
		s := d.status()
		for name, want := range map[string]string{"hostile": "overlapping", "hung": "does not answer", "absent": "unknown function"} {
			r := s.rule(name)
			assert.Check(t, strings.Contains(r.Inactive, want),
				"rule %s is inactive because of %q; want %q", name, r.Inactive, want)
		}
		good := []string{"nap", "fine"}
		if underUnit {
			good = good[:1] // perf_event_open gives uprobes to CAP_SYS_ADMIN only: see configs/systemd/programs.conf
		}
		for _, name := range good {
			r := s.rule(name)
			assert.Check(t, r.Inactive == "", "rule %s is inactive: %s", name, r.Inactive)
		}
		n := inD(d.pid())
		assert.Check(t, n <= 0, "%d threads of the daemon hang in the kernel", n)
	}
	inactive()
	naps(t, uid, 2, 20*time.Millisecond, 1)
	eventually(t, "naps are told", func() bool { return len(d.events("nap")) >= 2 })

	d.reload(reloaded)
	inactive()
	naps(t, uid, 2, 20*time.Millisecond, 1)
	eventually(t, "naps are told after the reload", func() bool { return len(d.events("nap")) >= 4 })

	a := tailcam(t, "check", "--load", h.rules)
	assert.Check(t, a.code != 0 && strings.Contains(a.err+a.out, "does not answer"),
		"check --load: exit status %d, %q", a.code, a.err)
	d.stop(syscall.SIGTERM)
}
