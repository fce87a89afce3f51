package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/kernel"
)

// TestSyscallRulesInactive: where the kernel does not let functions be attached
// to, a syscall rule that has not asked for every call is left out, and check,
// status and the log say so, and what attach: all would do.
func TestSyscallRulesInactive(t *testing.T) {
	needRoot(t)
	rule := func(name string, more ...string) string {
		text := []string{"  - name: " + name, "track: syscall", "threshold: 1h", "when: {syscall: [openat, fsync]}"}
		return strings.Join(append(text, more...), "\n    ") + "\n"
	}
	const says = "with attach: all it works, but every system call of the machine pays for it"
	possible := kernel.CanTrace() == nil
	d := start(t, rulesFile(rule("files"), entry("sleep", "offcpu", "1h", "{comm: x}")))
	for _, r := range d.status().Rules {
		inactive := r.Name == "files" && !possible
		assert.Check(t, strings.Contains(r.Inactive, says) == inactive, "rule %s: %q", r.Name, r.Inactive)
	}
	for _, p := range d.status().Programs {
		assert.Check(t, !strings.HasPrefix(p.Hook, "tp_btf:sys_enter"), "attached to %s", p.Hook)
	}
	table := d.ok("status")
	assert.Check(t, strings.Contains(table, "inactive: functions of the kernel cannot be attached to here") == !possible, "%s", table)
	assert.Check(t, d.log.has(says) == !possible, "the log: %s", d.log.String())

	dir := publicDir(t, "")
	auto := writeFile(t, filepath.Join(dir, "auto.yaml"), rulesFile(rule("files")), 0o644)
	function := writeFile(t, filepath.Join(dir, "function.yaml"), rulesFile(rule("files", "attach: function")), 0o644)
	both := writeFile(t, filepath.Join(dir, "both.yaml"), rulesFile(rule("files"), rule("paid", "attach: all")), 0o644)
	a := tailcam(t, "check", "--load", auto)
	assert.Check(t, a.code == 0 && strings.Contains(a.out, "inactive: rule files: ") == !possible, "%d\n%s\n%s", a.code, a.out, a.err)
	a = tailcam(t, "check", "--load", function)
	assert.Check(t, (a.code == 1 && strings.Contains(a.err, "rule files: ") && strings.Contains(a.err, says)) == !possible, "%d\n%s\n%s", a.code, a.out, a.err)
	a = tailcam(t, "check", "--load", both)
	assert.Check(t, a.code == 0 && !strings.Contains(a.out, "inactive"), "%d\n%s\n%s", a.code, a.out, a.err)
}
