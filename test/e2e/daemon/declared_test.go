package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	asked "github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/test/support/child"
)

// TestDeclaredActivities: a rule makes each sleep of any program an activity, by libc's
// function. It is listed with its account; the rule finds the slow ones, too; and a reload
// takes it away. Others on the machine sleep as well: ours have a user of their own.
func TestDeclaredActivities(t *testing.T) {
	needRoot(t)
	found, err := filepath.Glob("/lib/*/libc.so.6")
	assert.NilError(t, err)
	assert.Assert(t, len(found) > 0, "no libc in /lib")
	const function = "clock_nanosleep"
	uid := newUID()
	rule := entry("naps", "pair", "200ms", fmt.Sprintf("{uid: %d}", uid), "snapshot: false", "key: [tid]", "activity: nap",
		fmt.Sprintf("entry: 'uprobe:%s:%s'", found[0], function), fmt.Sprintf("exit: 'uretprobe:%s:%s'", found[0], function))
	other := entry("other", "wakeup", "1h", "{comm: sleep}")
	h := newHome(t, rulesFile(rule, other))
	h.dropIns = []string{"../../../configs/systemd/programs.conf"}
	d := h.exec(t, h.command("--activities-enabled", "true"))
	napAs(t, uid)

	assert.Check(t, settled(t, d, "naps", 1)[0].DelayNS >= 300e6)
	naps := func(by string) (of *asked.Row) {
		rows := lines[asked.Row](t, d.ok("activities", "--by", by, "--filter", "name=nap", "-o", "json"))
		for i := range rows {
			if by == "name" || rows[i].Key == strconv.Itoa(uid) {
				of = &rows[i]
			}
		}
		return of
	}
	one := explainedNap(t, uid, naps)
	assert.Assert(t, one.Live == 0 && one.MaxNS >= 300e6, "%+v", one)
	v, n := one.Values, float64(one.Count)
	assert.Check(t, v["blocked_timer_ns"] <= v["wall_ns"] && float64(v["blocked_timer_ns"]+v["unexplained_ns"]) >= n*290e6, "%v", v)

	before := d.status().loss("activity_nested", "naps")
	all := naps("name")
	after := d.status().loss("activity_nested", "naps")
	assert.Assert(t, all != nil && all.Count >= one.Count && all.MaxNS >= one.MaxNS, "%+v, %+v", all, one)
	assert.Assert(t, len(all.Declared) == 1 && all.Declared[0].Rule == "naps" && all.Declared[0].Count >= one.Count, "%+v", all.Declared)
	assert.Check(t, before <= all.Declared[0].Nested && all.Declared[0].Nested <= after, "%d, %+v, %d", before, all.Declared, after)

	assert.Check(t, strings.Contains(d.ok("activities"), "REPLACED"))

	goOn := []string{}
	for range 3 { // see explainedNap
		goOn = append(goOn, strconv.Itoa(background(t, "sleep", "600")))
	}
	eventually(t, "a sleep that goes on is listed", func() bool {
		for _, r := range lines[asked.Row](t, d.ok("activities", "--by", "pid", "-o", "json")) {
			if slices.Contains(goOn, r.Key) && r.Live == 1 && r.Values["blocked_timer_ns"] > 0 {
				return assert.Check(t, r.Values["blocked_timer_ns"] <= r.Values["wall_ns"], "%+v", r)
			}
		}
		return false
	})

	assert.NilError(t, os.WriteFile(d.rules, []byte(rulesFile(other)), 0o644))
	d.ok("reload")
	left := naps("name")
	assert.Check(t, left == nil, "%+v", left)
}

// napAs has a user sleep for 300 ms.
func napAs(t *testing.T, uid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "0.3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, child.Start(cmd))
	assert.NilError(t, cmd.Wait())
}

// explainedNap returns the naps of a user once one of them is known to have waited for a timer:
// the first begin in a process may be refused, and some machines keep a switch in some
// thousand from every tracer. So more than a few are a failure.
func explainedNap(t *testing.T, uid int, naps func(by string) *asked.Row) (of *asked.Row) {
	t.Helper()
	for range 5 {
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if of = naps("uid"); of != nil && of.Values["blocked_timer_ns"] >= 290e6 {
				return of
			}
			if of != nil {
				break
			}
		}
		napAs(t, uid)
	}
	t.Fatalf("no nap waited for a timer: %+v", of)
	return nil
}
