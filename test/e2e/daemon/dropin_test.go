package daemon

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/systemd"
)

// withDropIn runs a daemon under the shipped unit with one of its drop-ins.
func withDropIn(t *testing.T, name, rules string) *running {
	t.Helper()
	d := unitHome(t, rules).serve(t, readText(t, shippedUnit), []string{filepath.Join(filepath.Dir(shippedUnit), name)})
	d.watches()
	return d
}

// TestUnitTriggers: with its drop-in, the shipped unit lets the daemon watch the pressure of
// cgroups and the kernel's log.
func TestUnitTriggers(t *testing.T) {
	needRoot(t)
	triggerRules(t, func(rules string) *running { return withDropIn(t, "triggers.conf", rules) })
}

// TestUnitActions: under the shipped unit, actions of rules run, and know what happened; with its
// drop-in, each has a cgroup of its own, with which all ends that it leaves running, even if it has
// killed who watches it.
func TestUnitActions(t *testing.T) {
	needRoot(t)
	for _, dropIn := range []string{"", "actions.conf"} {
		t.Run(cmp.Or(dropIn, "shipped"), func(t *testing.T) {
			uid, mark := newUID(), strconv.Itoa(400000+os.Getpid())+"."+strconv.Itoa(len(dropIn))
			h := unitHome(t, "")
			tell := script(t, h, "tell", `cat /proc/self/cgroup; echo "verdict: $TAILCAM_VERDICT"`)
			leaves := script(t, h, "leaves", `setsid sh -c 'trap "" TERM HUP; while :; do sleep `+mark+`; done' & sleep 0.2`)
			kills := script(t, h, "kills", `setsid sh -c 'trap "" TERM HUP; while :; do sleep `+mark+`; done' & sleep 0.2; kill -9 $PPID; sleep `+mark)
			actions := []string{"  - {run: [" + tell + "]}", "  - {run: [" + leaves + "]}"}
			if dropIn != "" {
				actions = append(actions, "  - {run: ["+kills+"], timeout: 2s, on_failure: continue}")
			}
			writeFile(t, h.rules, rulesFile(napRule("nap", uid, append([]string{"snapshot: {after: 5ms}", "actions:"}, actions...)...)), 0o644)
			var dropIns []string
			if dropIn != "" {
				dropIns = []string{filepath.Join(filepath.Dir(shippedUnit), dropIn)}
			}
			d := h.serveWith(t, systemd.Options{Unit: readText(t, shippedUnit), DropIns: dropIns, Delegated: dropIn != ""})
			d.watches()
			naps(t, uid, 1, 10*time.Millisecond, 1)
			eventually(t, "there is a snapshot", func() bool { return len(d.list()) == 1 })
			dir := filepath.Join(h.snaps, d.list()[0].ID)
			results := actionResults(t, dir)
			assert.Check(t, len(results) == len(actions) && results[0].Result == "succeeded" && results[1].Result == "succeeded", "%s", words(results))
			log := readText(t, dir, "action-0.log")
			assert.Check(t, strings.Contains(log, "verdict: inj-syscall"), "%s", log)
			own := regexp.MustCompile(`(?m)^0::.*/tailcam\.service/actions/action-\d+-\d+$`).MatchString(log)
			assert.Check(t, own == (dropIn != ""), "%s", log)
			eventually(t, "nothing is left of the actions", func() bool {
				return exec.Command("pgrep", "--full", "sleep "+regexp.QuoteMeta(mark)).Run() != nil
			})
			assert.Check(t, !d.log.has("cgroups of their own") && !d.log.has("cgroup of its own"), "the log tells of errors")
			d.stop(syscall.SIGTERM)
		})
	}
}
