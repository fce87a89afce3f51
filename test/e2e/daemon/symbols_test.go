package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestStackSources: events and snapshots tell where in the source text a slow
// call was made, inlined functions included; the frames stay as they were.
func TestStackSources(t *testing.T) {
	needRoot(t)
	const source = "testdata/napper.c"
	program := buildC(t, "napper", "-g")
	uid := newUID()
	d := start(t, rulesFile(entry("napper", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid),
		"stacks: [kernel, user]", "snapshot: {after: 1ms, every: 1ms, burst: 1000}")))

	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	p := child.Talk(t, cmd)
	// The first ones may come before debug information is read.
	var o events.Outlier
	for n := 1; o.Stacks.UserSources() == nil; n++ {
		assert.Assert(t, n <= 100, "none of %d outliers has sources; the last: %+v", n, o)
		_, err := p.In.Write([]byte{'x'})
		assert.NilError(t, err)
		eventually(t, "the nap is told", func() bool { return len(d.events("napper")) == n })
		o = d.events("napper")[n-1]
	}
	assert.Assert(t, len(o.Stacks.User) >= 2 && strings.HasPrefix(o.Stacks.User[0], "work+0x") &&
		strings.HasSuffix(o.Stacks.User[0], " (napper)"), "frames %q", o.Stacks.User)
	s := o.Stacks.UserSources()
	assert.Assert(t, len(s) == len(o.Stacks.User), "%d sources of %d frames", len(s), len(o.Stacks.User))
	here, call := lineWith(t, source, "nap is here"), lineWith(t, source, "work calls nap")
	assert.Assert(t, len(s[0].Inlined) == 1 && s[0].Inlined[0].Function == "nap" && s[0].Line == call &&
		filepath.Base(s[0].File) == "napper.c", "innermost frame: %+v", s[0])
	// The statement is several lines long, and the compiler may name any of them.
	got := s[0].Inlined[0]
	assert.Check(t, got.Line >= here-1 && got.Line <= here+4 && filepath.Base(got.File) == "napper.c",
		"the nap is at %s:%d, want line %d", got.File, got.Line, here)
	frame := fmt.Sprintf("nap (inlined)  testdata/napper.c:%d", s[0].Inlined[0].Line)
	text := d.ok("events", "--rule", "napper", "-v")
	assert.Check(t, strings.Contains(text, frame) &&
		strings.Contains(text, fmt.Sprintf("(napper)  testdata/napper.c:%d", call)), "no %q in\n%s", frame, text)

	dir := filepath.Join(d.snaps, *o.Snapshot)
	eventually(t, "the snapshot is on disk", func() bool { _, err := os.Stat(dir); return err == nil })
	m, err := snapshot.ReadMeta(dir)
	assert.NilError(t, err)
	found := false
	for i := range m.Outliers {
		if m.Outliers[i].EndMono == o.EndMono {
			found = true
			assert.Check(t, is.DeepEqual(o.Stacks, m.Outliers[i].Stacks),
				"the snapshot's stacks are not the event's")
		}
	}
	assert.Check(t, found, "the snapshot lacks the outlier")
	for file, want := range map[string]string{snapshot.ExplainTextFile: frame, snapshot.FoldedFile: ";nap_[i]"} {
		text := readText(t, dir, file)
		assert.Check(t, strings.Contains(text, want), "no %q in %s\n%s", want, file, text)
	}
}

// stuckNapper runs a program, as a user, from a file system that will not answer
// once it is told so; one lets the program sleep once.
func stuckNapper(t *testing.T) (fs *stuckfs.FS, uid int, one func()) {
	t.Helper()
	// Static, so that its symbols, at the end, are far from what it needs to run.
	fs = stuckfs.Mount(t, "napper", buildC(t, "napper", "-g", "-static"))
	uid = newUID()
	program := fs.Program(uid)
	p := child.Talk(t, exec.Command(program[0], program[1:]...))
	t.Cleanup(fs.Answer)
	return fs, uid, func() {
		t.Helper()
		_, err := p.In.Write([]byte{'x'})
		assert.NilError(t, err)
		_, err = p.Out.ReadByte()
		assert.NilError(t, err)
	}
}

// TestStuckNames: while the file of a program cannot be read, its outliers come,
// with addresses, and their snapshots, too; and so do those of others. Nothing
// is lost meanwhile.
func TestStuckNames(t *testing.T) {
	needRoot(t)
	fs, uid, one := stuckNapper(t)
	other := newUID()
	one() // from here on it has in memory what it needs, and a daemon that starts now knows nothing of it
	d := start(t, rulesFile(
		entry("napper", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid), "stacks: [kernel, user]", "snapshot: {after: 1ms, every: 1ms, burst: 1000}"),
		napRule("nap", other, "stacks: [user]")))
	nap := func(n int) events.Outlier {
		one()
		var outliers []events.Outlier
		eventually(t, "all is told of the nap that will be", func() bool {
			outliers = d.events("napper")
			return len(outliers) == n && !outliers[n-1].Partial
		})
		return outliers[n-1]
	}
	fs.Hang()
	var o events.Outlier
	for n := 1; n <= 3; n++ {
		o = nap(n)
		assert.Assert(t, len(o.Stacks.User) != 0 && strings.HasPrefix(o.Stacks.User[0], "[unknown] (napper+0x") &&
			o.Stacks.Sources == nil, "while the file system hangs: %+v", o.Stacks)
	}
	naps(t, other, 20, 5*time.Millisecond, 2)
	eventually(t, "others are told", func() bool { return len(d.events("nap")) == 20 })
	dir := filepath.Join(d.snaps, *o.Snapshot)
	eventually(t, "the snapshot is on disk", func() bool { _, err := os.Stat(dir); return err == nil })
	s := d.status()
	assert.Check(t, s.loss("symbols_late", "") != 0, "status tells of no stack without all of its names")
	for _, name := range []string{"napper", "nap"} {
		r := s.rule(name)
		assert.Check(t, r.Lost == 0, "%d outliers of rule %s are lost", r.Lost, name)
	}
	fs.Answer()
	for n := 4; !strings.HasPrefix(o.Stacks.User[0], "work+0x"); n++ {
		assert.Assert(t, n <= 100, "no names after the file system answers: %+v", o.Stacks)
		o = nap(n)
	}
}

// lineWith is the number of the line that has a remark.
func lineWith(t *testing.T, path, remark string) int {
	t.Helper()
	before, _, ok := strings.Cut(readText(t, path), remark)
	assert.Assert(t, ok, "%s has no %q", path, remark)
	return strings.Count(before, "\n") + 1
}
