package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/support/child"
)

// TestHostileClients: a user of the socket who opens 10,000 connections of every
// slow kind, and keeps what he gets, takes nothing of others: outliers are told,
// another user's and root's commands work, and the daemon's descriptors are bounded.
func TestHostileClients(t *testing.T) {
	needRoot(t)
	program := buildC(t, "clients")
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: [user]", "snapshot: false")))
	for _, path := range []string{d.dir, d.socket} { // as if both were of the group
		assert.NilError(t, os.Chmod(path, 0o777))
	}
	before := openFiles(t, d.pid())
	follow := followLate(t, d, "nap")

	hostile := newUID()
	cmd := exec.Command(program, d.socket, "10000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(hostile), Gid: uint32(hostile)}}
	t.Logf("the hostile user has connected %s times", child.Talk(t, cmd).Line())

	files := openFiles(t, d.pid()) - before
	t.Logf("the daemon has %d descriptors more than before", files)
	assert.Check(t, files <= 300, "%d descriptors more than before", files)
	const naps20 = 20
	naps(t, uid, naps20, 2*time.Millisecond, 1)
	eventually(t, "the outliers are told", func() bool { return follow.count() >= naps20 })
	d.ok("status") // of root
	other := newUID()
	a := asUser(t, other, other, built.tailcam, "status", "--socket", d.socket)
	assert.Check(t, a.code == 0, "another user does not get in: %s", a.err)
	s := d.status()
	assert.Check(t, s.loss("connection_refused", "") != 0,
		"no connection was refused: this test proves nothing")
	assert.Check(t, len(s.Panics) != 0, "status lists no place that is guarded")
	for _, p := range s.Panics {
		assert.Check(t, p.Count <= 0, "%d panics in %s", p.Count, p.Place)
	}
}

// asUser runs a command as a user and group.
func asUser(t *testing.T, uid, gid int, argv ...string) answer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return outcome(t, cmd)
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	assert.NilError(t, err)
	return len(list)
}

// TestNoDescriptors: a daemon whose descriptors are used up goes on, and serves
// again once there are some.
func TestNoDescriptors(t *testing.T) {
	needRoot(t)
	needTool(t, "prlimit", "util-linux")
	notUnderUnit(t, "its limits are the unit's")
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: []", "snapshot: false")))
	limit := strconv.Itoa(openFiles(t, d.pid()) + 5)
	out, err := exec.Command("prlimit", "--pid", strconv.Itoa(d.pid()), "--nofile="+limit+":"+limit).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	var open []net.Conn
	for range 50 {
		c, err := net.Dial("unix", d.socket)
		assert.NilError(t, err)
		defer c.Close()
		open = append(open, c)
	}
	naps(t, uid, 5, 2*time.Millisecond, 1)
	for _, c := range open {
		c.Close()
	}
	settled(t, d, "nap", 5)
	d.ok("status")
}

// TestBidiNames: a process whose name turns the direction of writing does not
// turn that of whoever reads the events, whatever prints them.
func TestBidiNames(t *testing.T) {
	needRoot(t)
	program := buildC(t, "noisy")
	uid := newUID()
	d := start(t, rulesFile(entry("nap", "syscall", "1ms", "{uid: "+strconv.Itoa(uid)+", syscall: clock_nanosleep}", "stacks: [user]", "snapshot: {after: 1ms, every: 1us, burst: 100}")))
	const name = "a\u202eb\u009bc"
	startNoisy(t, program, uid, name, 3, 5*time.Millisecond, 0, 1)
	events := settled(t, d, "nap", 3)
	assert.Check(t, events[0].Task.Comm == name, "the name became %q", events[0].Task.Comm)
	dir := filepath.Join(d.snaps, *events[0].Snapshot)
	eventually(t, "the snapshot is on disk", func() bool { _, err := os.Stat(dir); return err == nil })
	texts := map[string]string{
		"events": d.ok("events", "-v"), "events -o json": d.ok("events", "-o", "json"),
		"explain": d.ok("explain", dir), "explain -o json": d.ok("explain", dir, "-o", "json"),
	}
	for _, file := range []string{"snapshot.json", "tasks.json", "explain.json", "explain.txt", "stacks.folded"} {
		texts[file] = readText(t, dir, file)
	}
	for _, format := range []string{"folded", "svg", "text", "json"} {
		path := filepath.Join(t.TempDir(), "out")
		a := tailcam(t, "export", dir, "--format", format, "-O", path)
		assert.Assert(t, a.code == 0, "export as %s: %s", format, a.err)
		texts["export as "+format] = readText(t, filepath.Dir(path), "out")
	}
	for what, text := range texts {
		for _, r := range []rune{'\u202e', '\u009b'} {
			assert.Check(t, !strings.ContainsRune(text, r), "%s holds %U", what, r)
		}
	}
	resp, err := net.Dial("unix", d.socket)
	assert.NilError(t, err)
	defer resp.Close()
	_, err = io.WriteString(resp, "GET /v1/events HTTP/1.0\r\n\r\n")
	assert.NilError(t, err)
	raw, err := io.ReadAll(resp)
	assert.Check(t, err == nil && !strings.ContainsRune(string(raw), '\u202e') &&
		strings.Contains(string(raw), `a\u202eb`), "the socket: %v, %s", err, raw)
}

// A reader of the events that stops reading is no reason for others to wait, nor
// one that has gone half.
func TestHalfOpenStream(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: []", "snapshot: false")))
	half, err := net.Dial("unix", d.socket)
	assert.NilError(t, err)
	defer half.Close()
	_, err = io.WriteString(half, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.NilError(t, err)
	assert.NilError(t, half.(*net.UnixConn).CloseWrite())
	_, err = io.ReadAll(half)
	assert.Check(t, err == nil || errors.Is(err, syscall.ECONNRESET), "it does not end: %v", err)
	naps(t, uid, 3, 2*time.Millisecond, 1)
	settled(t, d, "nap", 3)
	_, err = api.NewClient(d.socket).Status(t.Context())
	assert.Check(t, err)
}
