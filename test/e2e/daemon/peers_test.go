package daemon

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

//go:embed testdata/traced.py
var tracedProgram string

var peersAddress = regexp.MustCompile(`"message":"taking traces of peers","address":"([^"]+)"`)

// traced runs a program that works for traces, as its input says, until the end of the test.
func traced(t *testing.T, d *running, comm string) (in io.Writer, log *logText) {
	t.Helper()
	script := writeFile(t, filepath.Join(t.TempDir(), "traced.py"), tracedProgram, 0o644)
	client, err := filepath.Abs("../../../clients/python")
	assert.NilError(t, err)
	p := exec.Command(needTool(t, "python3", "python3"), script, d.socket, comm)
	p.Env = append(p.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	pipe, err := p.StdinPipe()
	assert.NilError(t, err)
	log = &logText{}
	p.Stdout, p.Stderr = log, log
	assert.NilError(t, p.Start())
	t.Cleanup(func() {
		assert.Check(t, pipe.Close())
		assert.Check(t, p.Wait(), "%s", log.String())
	})
	eventually(t, comm+" is ready", func() bool { return log.has("ready") || log.has("Error") })
	return pipe, log
}

// TestPeers: a slow request at one daemon has another one, whose program took part in the same
// trace, save what its threads did for it; in a trace in which it took no part, it saves nothing.
func TestPeers(t *testing.T) {
	needRoot(t)
	back := start(t, rulesFile("  - {name: others, track: trigger, on: trace, snapshot: {after: 5ms, every: 1ms, burst: 10}}\n"),
		"--activities-enabled", "true", "--peers-listen", "127.0.0.1:0")
	const host = "front-1"
	var told []string
	eventually(t, "the daemon listens", func() bool {
		told = peersAddress.FindStringSubmatch(back.log.String())
		return told != nil
	})
	front := start(t, rulesFile(entry("slow", "activity", "100ms", `{name: [gateway]}`, "snapshot: {after: 5ms, every: 1ms, burst: 10}"),
		"  - {name: deaf, track: trigger, on: trace}\n"),
		"--activities-enabled", "true", "--host", host, "--peers-send", "http://"+told[1])
	assert.Check(t, strings.HasSuffix(front.status().rule("deaf").Inactive, "set peers.listen"))
	assert.Check(t, back.status().rule("others").Inactive == "")
	serve, _ := traced(t, back, "backend")
	ask, asked := traced(t, front, "frontend")
	const trace, alone = "4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000abc"
	send := func(to io.Writer, line string) {
		t.Helper()
		_, err := fmt.Fprintln(to, line)
		assert.NilError(t, err)
	}
	send(ask, "gateway 0.15 "+alone)
	eventually(t, "the request is over", func() bool { return asked.has("done") })
	send(ask, "gateway 0.4 "+trace)
	send(serve, "query 0.3 "+trace)

	o := explainedOutlier(back, "others", func(*events.Outlier) bool { return true })
	mine := explainedOutlier(front, "slow", func(o *events.Outlier) bool { return o.TraceID == trace })
	assert.DeepEqual(t, o.Trigger.Peer, &events.PeerOutlier{Host: host, ID: mine.ID, Rule: "slow", DelayNS: mine.DelayNS, Snapshot: *mine.Snapshot})
	assert.Check(t, o.Trigger.Source == "trace" && strings.HasPrefix(o.Trigger.Reason, "outlier of rule slow on host "+host+" took "), "%+v", o.Trigger)
	assert.Check(t, strings.Contains(o.Explained.Verdict, "the last "), "%q", o.Explained.Verdict) // a pattern may be named first

	m, err := snapshot.ReadMeta(filepath.Join(back.snaps, *o.Snapshot))
	assert.NilError(t, err)
	threads := map[int]bool{}
	for i := range m.Outliers {
		w := &m.Outliers[i]
		threads[w.Task.TID] = true
		assert.Check(t, w.TraceID == trace && w.Task.Comm == "backend" && w.Activity.Name == "query" && w.Explained != nil, "%+v", w)
	}
	assert.Equal(t, len(threads), 2)
	assert.Equal(t, len(back.list()), 1)

	s, f := back.status().Peers, front.status().Peers
	assert.Check(t, s.Reported == 2 && s.TookPart == 1 && f.Told == 2 && f.Answered == 1 && f.Peers == 1, "%+v, %+v", s, f)
	resp, err := http.Get("http://" + told[1] + "/v1/status")
	assert.NilError(t, err)
	resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusNotFound)
}
