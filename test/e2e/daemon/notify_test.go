package daemon

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/watchdog"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// notified is a daemon whose messages to systemd the test reads.
type notified struct {
	*running
	messages chan string
}

// startNotified starts a daemon that has further variables.
func (h *home) startNotified(t *testing.T, variables ...string) *notified {
	t.Helper()
	if underUnit {
		t.Skip("the service's systemd listens there")
	}
	path := filepath.Join(h.dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, socket.Close()) })
	messages := make(chan string, 1000)
	go func() {
		defer close(messages)
		buffer := make([]byte, 4096)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return // the end of the test
			}
			messages <- string(buffer[:n])
		}
	}()
	argv := append([]string{"/usr/bin/env", "NOTIFY_SOCKET=" + path}, variables...)
	return &notified{h.exec(t, append(argv, h.command()...)), messages}
}

// next is the next message.
func (d *notified) next() string {
	d.t.Helper()
	select {
	case text := <-d.messages:
		return text
	case <-time.After(hang):
		d.t.Fatal("no message")
		return ""
	}
}

// nextWith is the next message that begins with a text.
func (d *notified) nextWith(begin string) string {
	d.t.Helper()
	for {
		if text := d.next(); strings.HasPrefix(text, begin) {
			return text
		}
	}
}

// TestNotify: systemd is told of each step of the start, of the beginning and the end of
// a reload, and of the stop.
func TestNotify(t *testing.T) {
	needRoot(t)
	nap := func() string { return rulesFile(napRule("nap", newUID(), "snapshot: false")) }
	d := newHome(t, nap()).startNotified(t)
	for _, step := range []string{"read rules", "load the kernel side", "attach"} {
		d.nextWith("STATUS=starting: " + step + "\nEXTEND_TIMEOUT_USEC=60000000")
	}
	ready := d.nextWith("READY=1\n")
	assert.Equal(t, ready, "READY=1\nSTATUS=rules: 1 watching; outliers: 0")
	assert.Check(t, d.log.has("watching"))
	for _, c := range []struct{ rules, status string }{
		{nap(), "STATUS=rules: 1 watching; outliers: 0"},
		{"rules: 5", "STATUS=rules: 1 watching; outliers: 0; errors of the last reload: 1, see tailcam status"},
	} {
		writeFile(t, d.rules, c.rules, 0o644)
		before := linux.Monotonic() / 1000
		d.signal(syscall.SIGHUP)
		_, stamp, ok := strings.Cut(d.nextWith("RELOADING=1\n"), "MONOTONIC_USEC=")
		stamp, _, _ = strings.Cut(stamp, "\n")
		usec, err := strconv.ParseUint(stamp, 10, 64)
		assert.Assert(t, ok && err == nil && usec >= before, "%q, signal at %d", stamp, before)
		assert.Equal(t, d.nextWith("READY=1\n"), "READY=1\n"+c.status)
	}
	assert.Check(t, d.verb("reload").code == 1, "a bad file is no error")
	d.nextWith("RELOADING=1\n")
	d.nextWith("READY=1\n")
	d.stop(syscall.SIGTERM)
	assert.Check(t, strings.Contains(d.nextWith("STOPPING=1\n"), "WATCHDOG=1"))
}

// TestWatchdogDisk: a disk that does not answer is told to systemd, and is no reason for
// a restart, however long it takes.
func TestWatchdogDisk(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms}")))
	disk := stuckfs.MountMirror(t, publicDir(t, ""))
	h.snaps = disk.Path()
	d := h.startNotified(t, fmt.Sprintf("WATCHDOG_USEC=%d", (8*time.Second).Microseconds()))
	d.nextWith("WATCHDOG=1")
	disk.Slow(time.Hour, stuckfs.Sync)
	defer disk.Mend()
	naps(t, uid, 1, 20*time.Millisecond, 1)
	for !strings.Contains(d.next(), "snapshot writer waits for the disk of the snapshots: sync ") {
	}
	for range 2 * watchdog.Patience {
		d.nextWith("WATCHDOG=1")
	}
	assert.Check(t, !d.log.has(" hangs"), "waiting for the disk counts as a hang")
	disk.Mend()
	eventually(t, "the snapshot is written", func() bool { return len(d.list()) == 1 })
	for strings.Contains(d.nextWith("STATUS="), "waits for") {
	}
}

// TestNotifyUnread: a systemd that reads no message holds nothing up.
func TestNotifyUnread(t *testing.T) {
	needRoot(t)
	if underUnit {
		t.Skip("the service's systemd listens there")
	}
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: false")))
	path := filepath.Join(h.dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	assert.NilError(t, err)
	defer socket.Close()
	d := h.exec(t, append([]string{"/usr/bin/env", "NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=1"}, h.command()...))
	naps(t, uid, 1, 20*time.Millisecond, 1)
	eventually(t, "an outlier is told", func() bool { return len(d.events("nap")) == 1 })
	d.ok("reload")
	d.stop(syscall.SIGTERM)
}
