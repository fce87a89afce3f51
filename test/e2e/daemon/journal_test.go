package daemon

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/systemd"
	"github.com/tailcam/tailcam/tracker/events"
)

// nap lets a user sleep for 20 ms in a process with this name.
func nap(t *testing.T, dir string, uid int, comm string) {
	t.Helper()
	path := filepath.Join(dir, comm)
	out, err := exec.Command("cp", "/bin/sleep", path).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	cmd := exec.CommandContext(t.Context(), path, "0.02")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Run())
}

// uidRule is a rule for all naps of a user, whatever the process calls itself.
func uidRule(name string, uid int, more ...string) string {
	return entry(name, "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid), more...)
}

// hostileComm would add a field and clear the screen.
const hostileComm = "a\nTAILCAM_X=\x1bc"

// TestOutlierLines: each outlier is one line of JSON on standard output, with the verdict
// of its snapshot.
func TestOutlierLines(t *testing.T) {
	needRoot(t)
	uid, other := newUID(), newUID()
	d := start(t, rulesFile(
		uidRule("explained", uid, "snapshot: {after: 5ms, every: 1ms, burst: 10}"),
		uidRule("plain", other, "snapshot: false")))
	nap(t, d.dir, uid, hostileComm)
	nap(t, d.dir, other, "plain")
	type line struct {
		Level, Message, ID, Rule, Comm, Cause, Snapshot, Verdict string
		DelayNS                                                  int64 `json:"delay_ns"`
		PID                                                      int
	}
	found := map[string]line{}
	eventually(t, "both outliers are logged", func() bool {
		for text := range strings.Lines(d.log.String()) {
			var l line
			if json.Unmarshal([]byte(text), &l) == nil && l.ID != "" {
				found[l.Rule] = l
			}
		}
		return len(found) == 2
	})
	for rule, l := range found {
		list := d.events(rule)
		assert.Assert(t, is.Len(list, 1))
		o := &list[0]
		assert.Check(t, l.Level == "info" && l.ID == o.ID && l.Comm == o.Task.Comm && l.DelayNS == o.DelayNS &&
			l.PID == o.Task.PID && l.Cause == string(o.Cause), "%+v\nis not\n%+v", l, o)
		assert.Check(t, (o.Snapshot != nil) == (l.Snapshot != "") && (o.Explained != nil) == (l.Verdict != ""), "%+v\n%+v", l, o)
		assert.Check(t, strings.HasPrefix(l.Message, rule+": ") && strings.HasSuffix(l.Message, l.Verdict), "%s", l.Message)
	}
	assert.Check(t, found["explained"].Verdict != "" && found["explained"].Comm == hostileComm, "%+v", found["explained"])
	assert.Check(t, is.Equal(d.log.count(`"id":"`+found["explained"].ID+`"`), 1))
	d.stop(syscall.SIGTERM)
}

// journaled starts a daemon under the shipped unit, with a journal of its own.
func journaled(t *testing.T, h *home) (*running, *systemd.Service) {
	t.Helper()
	binary := filepath.Join(h.dir, "tailcam")
	writeFile(t, binary, readText(t, built.tailcam), 0o755)
	argv := h.command()
	argv[0] = binary
	s := systemd.Start(t, systemd.Options{
		Dir: h.dir, Unit: readText(t, shippedUnit), Journal: true, Writable: []string{h.dir},
		Pre: []string{binary, "check", h.rules}, Argv: argv,
	})
	d := &running{home: h, t: t, main: serviceProcess{s}}
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range s.JournalEntries("_PID=" + strconv.Itoa(d.pid())) {
				t.Logf("journal: %s %s", e.Text("PRIORITY"), e.Text("MESSAGE"))
			}
		}
	})
	eventually(t, "the daemon watches", func() bool {
		assert.Assert(t, !d.ended(), "the daemon ended")
		return len(s.JournalEntries("SYSLOG_IDENTIFIER=tailcam", "TAILCAM_RULES=1")) > 0
	})
	return d, s
}

// TestJournal: under systemd, outliers and messages have fields of the real journal,
// whatever a process calls itself; and no state of the journal holds up the daemon.
func TestJournal(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := unitHome(t, rulesFile(uidRule("nap", uid, "snapshot: {after: 5ms, every: 1ms, burst: 100}")))
	d, s := journaled(t, h)
	logged := func() []systemd.Entry { return s.JournalEntries("TAILCAM_RULE=nap", "_TRANSPORT=journal") }
	outliers := func() []events.Outlier { return d.events("nap") }

	nap(t, h.dir, uid, hostileComm)
	eventually(t, "the outlier is in the journal", func() bool { return len(logged()) == 1 })
	o, e := outliers()[0], logged()[0]
	for field, want := range map[string]string{
		"TAILCAM_ID": o.ID, "TAILCAM_DELAY_NS": strconv.FormatInt(o.DelayNS, 10), "TAILCAM_CAUSE": "threshold",
		"TAILCAM_SNAPSHOT": *o.Snapshot, "TAILCAM_VERDICT": o.Explained.Verdict, "TAILCAM_PID": strconv.Itoa(o.Task.PID),
		"TAILCAM_COMM": `a\x0aTAILCAM_X=\x1bc`, "PRIORITY": "6", "SYSLOG_IDENTIFIER": "tailcam",
		"_PID": strconv.Itoa(d.pid()),
	} {
		assert.Check(t, is.Equal(e.Text(field), want), field)
	}
	assert.Check(t, is.Len(s.JournalEntries("MESSAGE_ID="+e.Text("MESSAGE_ID")), 1))
	assert.Check(t, strings.HasPrefix(e.Text("MESSAGE"), `nap: `) && strings.Contains(e.Text("MESSAGE"), `a\x0aTAILCAM_X=\x1bc[`) &&
		strings.HasSuffix(e.Text("MESSAGE"), " snapshot="+*o.Snapshot), "%q", e.Text("MESSAGE"))
	_, forged := e["TAILCAM_X"]
	assert.Check(t, !forged, "a process has added a field: %v", e)
	start := s.JournalEntries("TAILCAM_RULES=1")[0]
	assert.Check(t, strings.HasPrefix(start.Text("MESSAGE"), "watching rules=1 "), "%v", start)
	assert.Check(t, is.Len(s.JournalEntries("_TRANSPORT=stdout", "_PID="+strconv.Itoa(d.pid())), 0), "lines without fields")

	// It stands still, like on a disk that hangs: its queue is soon full.
	s.SignalJournal(syscall.SIGSTOP)
	const more = 20
	for i := range more {
		nap(t, h.dir, uid, fmt.Sprint("stopped", i))
	}
	eventually(t, "all is known of them while the journal stands still", func() bool {
		explained := 0
		for _, o := range outliers()[1:] {
			if o.Partial || o.Snapshot != nil && o.Explained == nil {
				return false
			}
			if o.Explained != nil {
				explained++
			}
		}
		return explained > 0 && len(outliers()) == 1+more // many at once may have one snapshot
	})
	s.SignalJournal(syscall.SIGCONT)
	eventually(t, "the journal has them later", func() bool { return len(logged()) == 1+more })
	assert.Check(t, is.Equal(d.status().loss("log_lost", ""), uint64(0)))

	// It is gone.
	s.StopJournal()
	nap(t, h.dir, uid, "gone")
	eventually(t, "the lost line is counted", func() bool { return d.status().loss("log_lost", "") > 0 })
	assert.Check(t, is.Len(outliers(), 2+more))
	s.StartJournal()
	nap(t, h.dir, uid, "back")
	eventually(t, "the journal has the next one", func() bool { return len(logged()) == 2+more })
	eventually(t, "the journal is told what was lost", func() bool {
		return len(s.JournalEntries("TAILCAM_LOST=1", "PRIORITY=4")) > 0 // one for each stream that lost something
	})
	d.stop(syscall.SIGTERM)
	complete(t, h.snaps)
}
