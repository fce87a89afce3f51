package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/schema"
	"github.com/tailcam/tailcam/tracker/events"
)

// home is where one daemon after the other lives.
type home struct {
	dir, rules, socket, snaps string
	dropIns                   []string // of the unit, if it runs under that
}

func newHome(t *testing.T, rules string) *home {
	t.Helper()
	return homeBelow(t, "", rules)
}

// homeBelow is a home in a directory of its own below another one; "" is the temporary one.
func homeBelow(t *testing.T, base, rules string) *home {
	t.Helper()
	dir := publicDir(t, base)
	h := &home{
		dir: dir, rules: filepath.Join(dir, "rules.yaml"),
		socket: filepath.Join(dir, "s.sock"), snaps: filepath.Join(dir, "snaps"),
	}
	writeFile(t, h.rules, rules, 0o644)
	return h
}

// command is the daemon's command line. Tests load small machines on purpose: the
// budget is kept, but so large that nothing is shed, unless a test asks for less. The
// recorder has its plain size unless a test asks for time to cover, as that is measured
// for a second before the daemon watches.
func (h *home) command(args ...string) []string {
	return append([]string{
		built.tailcam, "run", "--rules", h.rules, "--socket-path", h.socket,
		"--snapshots-dir", h.snaps, "--snapshots-min-free", "0", "--budget-cpu", "100%", "--budget-softirqs", "off", "--budget-locks", "off",
		"--recorder-cover", "0s", "--otlp-spool", filepath.Join(h.dir, "otlp"),
	}, args...)
}

// running is one daemon.
type running struct {
	*home
	t    *testing.T
	log  logText
	main process
	root string // prefix of paths as it sees them
}

// process is the daemon's own: a child of the test, or the service of a systemd.
type process interface {
	PID() int
	Signal(syscall.Signal) error
	Done() <-chan struct{} // closed when it has ended
	// Exit is its status, not 0 where a signal has ended it, and how it ended in
	// words; only after Done.
	Exit() (status int, how string)
}

// childDaemon is the daemon as a child of the test.
type childDaemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func startChild(argv []string, out io.Writer) (*childDaemon, error) {
	c := &childDaemon{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	c.cmd.Stderr, c.cmd.Stdout = out, out
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := child.Start(c.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.done)
		c.cmd.Wait() // looked at in ProcessState
	}()
	return c, nil
}

func (c *childDaemon) PID() int                      { return c.cmd.Process.Pid }
func (c *childDaemon) Signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }
func (c *childDaemon) Done() <-chan struct{}         { return c.done }
func (c *childDaemon) Exit() (status int, how string) {
	return c.cmd.ProcessState.ExitCode(), c.cmd.ProcessState.String()
}

// start runs a daemon in a home of its own. It is stopped at the end of the test.
func start(t *testing.T, rules string, args ...string) *running {
	t.Helper()
	return newHome(t, rules).start(t, args...)
}

func (h *home) start(t *testing.T, args ...string) *running {
	t.Helper()
	return h.exec(t, h.command(args...))
}

// exec runs a command that is, or becomes, the daemon, and waits until it watches.
func (h *home) exec(t *testing.T, argv []string) *running {
	t.Helper()
	d := &running{home: h, t: t}
	if underUnit {
		d.main = startService(t, argv, h.dropIns, &d.log)
	} else {
		c, err := startChild(argv, &d.log)
		assert.NilError(t, err)
		d.main = c
	}
	t.Cleanup(func() {
		if !d.ended() {
			d.stop(syscall.SIGTERM)
		}
		addUp(t, h.snaps)
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log.String())
		}
	})
	d.watches()
	return d
}

// watches waits until the daemon has attached; it must not end.
func (d *running) watches() {
	d.t.Helper()
	eventually(d.t, "the daemon watches", func() bool {
		if d.ended() {
			_, how := d.main.Exit()
			d.t.Fatalf("the daemon ended: %s\n%s", how, d.log.String())
		}
		return d.log.has(`"message":"watching"`)
	})
}

// pid of the daemon.
func (d *running) pid() int { return d.main.PID() }

func (d *running) ended() bool {
	select {
	case <-d.main.Done():
		return true
	default:
		return false
	}
}

func (d *running) signal(s syscall.Signal) {
	d.t.Helper()
	assert.NilError(d.t, d.main.Signal(s))
}

// pause stops the daemon like a debugger would; it returns when it stands still.
func (d *running) pause() {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	eventually(d.t, "the daemon stands still", func() bool { return strings.Trim(child.States(d.pid()), "T") == "" })
}

// reload has the rules read again, and waits until the log says how that ended.
func (d *running) reload(says string) {
	d.t.Helper()
	before := d.log.count(says)
	d.signal(syscall.SIGHUP)
	eventually(d.t, "the log says "+says, func() bool { return d.log.count(says) > before })
}

const reloaded = "rules reloaded" // what it says if they are in use

func (d *running) resume() {
	d.t.Helper()
	d.signal(syscall.SIGCONT)
}

// stop ends the daemon with a signal, waits for its end, and holds that
// nothing of it stays.
func (d *running) stop(s syscall.Signal) {
	d.t.Helper()
	left := heldBy(d.t, d.pid())
	assert.Check(d.t, len(left) != 0, "the daemon holds no BPF object: this test would prove nothing")
	d.signal(s)
	eventually(d.t, fmt.Sprintf("the daemon ends after %s", s), d.ended)
	if s != syscall.SIGKILL {
		code, how := d.main.Exit()
		assert.Check(d.t, code == 0, "after %s the daemon ended with %s", s, how)
		_, err := os.Lstat(d.socket)
		assert.Check(d.t, is.ErrorIs(err, os.ErrNotExist), "the socket stays after %s", s)
	}
	left.gone(d.t)
	nothingPinned(d.t)
	unlocked(d.t, d.socket+".lock")
	if d.root == "" {
		unlocked(d.t, filepath.Join(d.snaps, ".lock"))
	}
}

// answer is what a verb printed, and its exit status.
type answer struct {
	out, err string
	code     int
}

// verb runs one of the command line's other verbs against this daemon.
func (d *running) verb(args ...string) answer {
	d.t.Helper()
	return tailcam(d.t, append(args, "--socket", d.socket)...)
}

// ok runs a verb that must work and returns what it printed.
func (d *running) ok(args ...string) string {
	d.t.Helper()
	a := d.verb(args...)
	assert.Assert(d.t, a.code == 0 && a.err == "",
		"tailcam %s: exit status %d\n%s%s", strings.Join(args, " "), a.code, a.out, a.err)
	return a.out
}

func tailcam(t *testing.T, args ...string) answer {
	t.Helper()
	return outcome(t, exec.CommandContext(t.Context(), built.tailcam, args...))
}

func outcome(t *testing.T, cmd *exec.Cmd) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	assert.Assert(t, err == nil || errors.As(err, &exit), "%v: %v", cmd.Args, err)
	return answer{stdout.String(), withoutProgress(stderr.String()), cmd.ProcessState.ExitCode()}
}

// withoutProgress leaves out the lines that a verb prints when it takes long.
func withoutProgress(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, " …\n") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

const schemaDir = "../../../configs/schemas"

// lines decodes one JSON object a line; fields that T lacks are an error. What names a schema
// must be as that says.
func lines[T any](t *testing.T, text string) []T {
	t.Helper()
	var list []T
	for line := range strings.Lines(text) {
		var fields map[string]json.RawMessage
		assert.NilError(t, json.Unmarshal([]byte(line), &fields), "in %q", line)
		if fields["schema"] != nil {
			_, err := schema.Check(schemaDir, []byte(line))
			assert.NilError(t, err)
		}
		delete(fields, "schema")
		rest, err := json.Marshal(fields)
		assert.NilError(t, err)
		var v T
		dec := json.NewDecoder(bytes.NewReader(rest))
		dec.DisallowUnknownFields()
		assert.NilError(t, dec.Decode(&v), "in %q", line)
		list = append(list, v)
	}
	return list
}

// status is what the daemon says of itself.
type status struct {
	api.Status
	t *testing.T
}

func (d *running) status() *status {
	d.t.Helper()
	list := lines[api.Status](d.t, d.ok("status", "-o", "json"))
	assert.Assert(d.t, len(list) == 1, "status is %d objects", len(list))
	return &status{list[0], d.t}
}

func (d *running) events(rule string) []events.Outlier {
	d.t.Helper()
	return lines[events.Outlier](d.t, d.ok("events", "--rule", rule, "-o", "json"))
}

func (d *running) list() []catalog.Snapshot {
	d.t.Helper()
	return lines[catalog.Snapshot](d.t, d.ok("list", "snapshots", "-o", "json"))
}

// rule finds one rule's line.
func (s *status) rule(name string) api.RuleInfo {
	s.t.Helper()
	i := slices.IndexFunc(s.Rules, func(r api.RuleInfo) bool { return r.Name == name })
	assert.Assert(s.t, i >= 0, "no rule %s in %+v", name, s.Rules)
	return s.Rules[i]
}

// loss finds one loss; rule is empty for those of the whole daemon.
func (s *status) loss(cause, rule string) uint64 {
	s.t.Helper()
	i := slices.IndexFunc(s.Losses, func(l api.Loss) bool { return l.Cause == cause && l.Rule == rule })
	assert.Assert(s.t, i >= 0, "no loss %s of rule %q in %+v", cause, rule, s.Losses)
	return s.Losses[i].Count
}

// lost lists what is not 0 of the losses, for messages.
func (s *status) lost() []api.Loss {
	return slices.DeleteFunc(slices.Clone(s.Losses), func(l api.Loss) bool { return l.Count == 0 })
}

// logText collects what the daemon prints.
type logText struct {
	child.Output
	file string // that a service prints into; empty: the output
}

func (l *logText) String() string {
	if l.file != "" {
		text, _ := os.ReadFile(l.file) // not there yet: nothing was printed
		return string(text)
	}
	return l.Output.String()
}

func (l *logText) has(text string) bool { return strings.Contains(l.String(), text) }

// count tells how often a text occurs.
func (l *logText) count(text string) int { return strings.Count(l.String(), text) }
