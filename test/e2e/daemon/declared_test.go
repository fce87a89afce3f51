package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	asked "github.com/tailcam/tailcam/internal/activities/ask"
)

// TestDeclaredActivities: a rule makes each sleep of any program an activity, by libc's
// function. It is listed with its account; the rule finds the slow ones, too; and a reload
// takes it away.
func TestDeclaredActivities(t *testing.T) {
	needRoot(t)
	found, err := filepath.Glob("/lib/*/libc.so.6")
	assert.NilError(t, err)
	assert.Assert(t, len(found) > 0, "no libc in /lib")
	const function = "clock_nanosleep"
	rule := entry("naps", "pair", "200ms", "{comm: sleep}", "snapshot: false", "key: [tid]", "activity: nap",
		fmt.Sprintf("entry: 'uprobe:%s:%s'", found[0], function), fmt.Sprintf("exit: 'uretprobe:%s:%s'", found[0], function))
	other := entry("other", "wakeup", "1h", "{comm: sleep}")
	d := start(t, rulesFile(rule, other), "--activities-enabled", "true")
	assert.NilError(t, exec.CommandContext(t.Context(), "sleep", "0.3").Run())

	assert.Check(t, settled(t, d, "naps", 1)[0].DelayNS >= 300e6)
	naps := func(by string) (of *asked.Row) {
		rows := lines[asked.Row](t, d.ok("activities", "--by", by, "--filter", "name=nap", "-o", "json"))
		for i := range rows {
			if by == "name" || rows[i].Key == "sleep" {
				of = &rows[i]
			}
		}
		return of
	}
	eventually(t, "the nap is listed", func() bool { return naps("comm") != nil })
	all, one := naps("name"), naps("comm")
	assert.Assert(t, all != nil && all.Count >= 1 && all.MaxNS >= 300e6, "%+v", all)
	assert.Assert(t, one.MaxNS >= 300e6, "%+v", one)
	v := one.Values
	assert.Check(t, v["blocked_timer_ns"] >= 290e6 && v["blocked_timer_ns"] <= v["wall_ns"], "%v", v)

	assert.Check(t, len(all.Declared) == 1 && all.Declared[0].Rule == "naps" && all.Declared[0].Count >= 1, "%+v", all.Declared)
	assert.Equal(t, d.status().loss("activity_nested", "naps"), all.Declared[0].Nested)

	assert.Check(t, strings.Contains(d.ok("activities"), "REPLACED"))

	long := background(t, "sleep", "600")
	eventually(t, "the sleep that goes on is listed", func() bool {
		for _, r := range lines[asked.Row](t, d.ok("activities", "--by", "pid", "-o", "json")) {
			if r.Key == strconv.Itoa(long) {
				return r.Live == 1 && r.Values["blocked_timer_ns"] > 0 && r.Values["blocked_timer_ns"] <= r.Values["wall_ns"]
			}
		}
		return false
	})

	assert.NilError(t, os.WriteFile(d.rules, []byte(rulesFile(other)), 0o644))
	d.ok("reload")
	assert.Check(t, naps("name") == nil)
}
