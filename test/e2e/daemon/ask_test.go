package daemon

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	asked "github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

//go:embed testdata/requests.py
var requestsProgram string

const (
	usualRequests = 60
	slowSleep     = 250 * time.Millisecond
	hostileName   = "\x1b[2J\"\n{evil}"
	shownName     = `\x1b[2J"\x0a{evil}`
)

// TestAsk: a slow request of a program with the Python client is an outlier, whose snapshot
// has its account and the critical path of its thread; commands and metrics tell of it; what
// the program calls its requests harms nobody. A slow sleep has the request of its thread.
func TestAsk(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(
		entry("slow-requests", "activity", "100ms", `{name: ["check*"], comm: requests}`, "timeout: 2s", "histogram: true"),
		entry("sleeps", "offcpu", "100ms", "{comm: requests, syscall: clock_nanosleep}", "snapshot: false"),
	), "--activities-enabled", "true", "--activities-attributes", "http.route", "--metrics-listen", "127.0.0.1:0")
	script := writeFile(t, filepath.Join(t.TempDir(), "requests.py"), requestsProgram, 0o644)
	client, err := filepath.Abs("../../../clients/python")
	assert.NilError(t, err)
	p := exec.CommandContext(t.Context(), needTool(t, "python3", "python3"), script, d.socket)
	p.Env = append(p.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	in, err := p.StdinPipe()
	assert.NilError(t, err)
	var log logText
	p.Stdout, p.Stderr = &log, &log
	assert.NilError(t, p.Start())
	defer func() {
		assert.Check(t, in.Close())
		assert.Check(t, p.Wait(), "%s", log.String())
	}()
	eventually(t, "the requests are over", func() bool { return log.has("done") || log.has("Error") })

	o := settled(t, d, "slow-requests", 1)[0]
	a := o.Activity
	assert.Assert(t, a != nil)
	assert.Equal(t, a.Name+" "+a.Text, "checkout gold")
	assert.Equal(t, a.Value, uint64(4711))
	assert.Equal(t, o.TraceID, "4bf92f3577b34da6a3ce929d0e0e4736")
	assert.DeepEqual(t, o.Attributes, map[string]string{"http.route": "/cart"})
	assert.Equal(t, o.Task.PID, p.Process.Pid)
	assert.Equal(t, o.Task.TID, p.Process.Pid)
	assert.Assert(t, o.DelayNS >= slowSleep.Nanoseconds() && o.Cause == events.CauseThreshold)
	v := a.Values
	assert.Assert(t, v["blocked_timer_ns"] >= uint64(slowSleep) && v["blocked_timer_ns"] <= v["wall_ns"], "%v", v)
	assert.Equal(t, v["cpu_ns"]+v["runnable_ns"]+v["blocked_ns"]+v["unexplained_ns"], v["wall_ns"])
	assert.Assert(t, strings.HasPrefix(a.Account, "checkout took ") && strings.Contains(a.Account, " asleep until a timer"), a.Account)
	explainsRequest(t, d, &o)
	answersRequests(t, d, &o)

	sleep := settled(t, d, "sleeps", 1)[0]
	assert.Assert(t, sleep.Activity != nil, "%+v", sleep)
	assert.Equal(t, sleep.Activity.Token, a.Token)
	assert.Equal(t, sleep.TraceID, o.TraceID)
}

// explainsRequest checks the verdict of a request's snapshot.
func explainsRequest(t *testing.T, d *running, o *events.Outlier) {
	t.Helper()
	assert.Assert(t, o.Snapshot != nil)
	dir := filepath.Join(d.snaps, *o.Snapshot)
	eventually(t, "the snapshot is written", func() bool {
		_, err := snapshot.ReadMeta(dir)
		return err == nil
	})
	r := lines[explain.Report](t, d.ok("explain", dir, "-o", "json"))[0].Outliers[0]
	assert.Assert(t, strings.HasPrefix(r.Verdict, o.Activity.Account+". In requests"), r.Verdict)
	assert.Equal(t, r.Blame.Cause, explain.Timer, r.Verdict)
}

// answersRequests asks the commands, and a scrape.
func answersRequests(t *testing.T, d *running, o *events.Outlier) {
	t.Helper()
	rows := map[string]asked.Row{}
	eventually(t, "all have been seen to end", func() bool {
		for _, r := range lines[asked.Row](t, d.ok("activities", "-o", "json")) {
			rows[r.Key] = r
		}
		return rows["checkout"].Count+d.status().loss("activity_missed", "") >= usualRequests+1
	})
	assert.Equal(t, rows["checkout"].Count, uint64(usualRequests+1))
	assert.Assert(t, rows["checkout"].MaxNS >= uint64(slowSleep))
	assert.Equal(t, rows[hostileName].Live, uint64(1))
	use := d.status().Activities
	assert.Check(t, use.Processes == 1 && use.LiveTokens == 1 && use.Threads == 1 && use.Bytes > 0 && use.Refused+use.TokensRefused == 0, "%+v", use)
	shown := d.ok("activities")
	assert.Assert(t, strings.Contains(shown, shownName) && !strings.Contains(shown, "\x1b"), "%q", shown)

	slow := lines[asked.Slow](t, d.ok("activities", "slow", "--over", "100ms", "-o", "json"))
	assert.Equal(t, len(slow), 1)
	assert.Equal(t, slow[0].Activity.ID, o.Activity.Token)
	assert.Equal(t, slow[0].Grew[0].Value, "blocked_timer_ns", slow[0].Verdict)
	assert.Assert(t, strings.Contains(slow[0].Verdict, "longer asleep until a timer"), slow[0].Verdict)

	var usual string
	for _, r := range lines[asked.Row](t, d.ok("activities", "--by", "token", "--filter", "name=checkout", "-o", "json")) {
		if r.Key != o.Activity.Token {
			usual = r.Key
		}
	}
	diff := lines[asked.Comparison](t, d.ok("activities", "diff", usual, o.TraceID, "-o", "json"))[0]
	assert.Equal(t, diff.B.ID, o.Activity.Token)
	assert.Equal(t, diff.Values[0].Value, "blocked_timer_ns")

	answersRoutes(t, d, o)

	text := d.scrape()
	for _, want := range []string{
		`tailcam_activity_seconds_count{activity="checkout"} 61`, `tailcam_rule_delay_seconds_count{class="",rule="slow-requests"} 61`,
	} {
		assert.Check(t, strings.Contains(text, want), "no %s", want)
	}
	assert.Check(t, strings.Contains(text, `activity="\\x1b[2J\"\\x0a{evil2}"`), "a name that ended")
	assert.Check(t, strings.Contains(d.ok("histogram", "activity"), "checkout"))
}

// answersRoutes groups, filters and compares requests by what the program says of them.
func answersRoutes(t *testing.T, d *running, o *events.Outlier) {
	t.Helper()
	rows := byKey(t, d, "http.route", "--filter", "name=checkout")
	assert.Check(t, rows["/cart"].Count == usualRequests/2+1 && rows["/pay"].Count == usualRequests/2, "%+v", rows)
	assert.Check(t, rows["/cart"].MaxNS >= uint64(slowSleep) && rows["/pay"].MaxNS < uint64(slowSleep))
	assert.Check(t, len(lines[asked.Row](t, d.ok("activities", "--by", "token", "--filter", "tenant=g*", "-o", "json"))) == 1)
	text := d.ok("activities", "--by", "http.route")
	for _, want := range []string{"HTTP.ROUTE", "/cart", "/pay", "(none)"} {
		assert.Check(t, strings.Contains(text, want), "no %s in\n%s", want, text)
	}
	slow := lines[asked.Slow](t, d.ok("activities", "slow", "--over", "p99", "--by", "http.route", "--filter", "http.route=/cart", "-o", "json"))
	assert.Assert(t, len(slow) == 1, "%+v", slow)
	assert.Check(t, slow[0].Activity.ID == o.Activity.Token && slow[0].Others == usualRequests/2)
	assert.Check(t, strings.HasPrefix(slow[0].Verdict, "checkout with http.route /cart took "), slow[0].Verdict)
	assert.Check(t, strings.Contains(slow[0].Verdict, "longer asleep until a timer"), slow[0].Verdict)
}
