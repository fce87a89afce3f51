package systemd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gotest.tools/v3/assert"
)

// startJournal is the part of the manager's script that gives it a journal of its own,
// in its mount namespace: a real systemd-journald, with memory only.
const startJournal = `mkdir -p /run/systemd/journal /run/log/journal && mount -t tmpfs -o mode=755 tailcam-unit /run/systemd/journal &&
	mount -t tmpfs -o mode=755 tailcam-unit /run/log/journal && mount --bind "$dir/journald.conf" /etc/systemd/journald.conf || exit
/lib/systemd/systemd-journald & echo $! >"$dir/journald.pid"
until [ -S /run/systemd/journal/stdout ] && [ -S /run/systemd/journal/socket ]; do sleep 0.05; done
`

const journalConfig = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=\nForwardToWall=no\nRateLimitIntervalSec=0\n"

// Entry is a line of the journal.
type Entry map[string]any

// Text returns a field as text; what journalctl does not take for text is "".
func (e Entry) Text(field string) string {
	s, _ := e[field].(string)
	return s
}

// JournalEntries returns the entries that all have these fields, such as
// TAILCAM_RULE=wakeup. For Options.Journal.
func (s *Service) JournalEntries(match ...string) []Entry {
	s.t.Helper()
	cmd := exec.Command("journalctl", append([]string{"--directory", s.inside("/run/log/journal"),
		"--output", "json", "--all", "--no-pager", "--quiet"}, match...)...)
	out, err := cmd.Output()
	assert.NilError(s.t, err, "journalctl %s", match)
	var list []Entry
	for line := range strings.Lines(string(out)) {
		e := Entry{}
		assert.NilError(s.t, json.Unmarshal([]byte(line), &e), "%s", line)
		list = append(list, e)
	}
	return list
}

// SignalJournal sends a signal to journald.
func (s *Service) SignalJournal(sig syscall.Signal) {
	s.t.Helper()
	assert.NilError(s.t, syscall.Kill(s.journald(), sig))
}

// StopJournal ends journald and removes its sockets; StartJournal starts it again.
func (s *Service) StopJournal() {
	s.t.Helper()
	s.SignalJournal(syscall.SIGKILL)
	for _, name := range []string{"socket", "stdout", "dev-log"} {
		assert.NilError(s.t, os.Remove(s.inside("/run/systemd/journal/"+name)))
	}
}

// StartJournal starts journald again.
func (s *Service) StartJournal() {
	s.t.Helper()
	cmd := exec.Command("nsenter", "--mount=/proc/"+strconv.Itoa(s.manager)+"/ns/mnt", "/lib/systemd/systemd-journald")
	startDaemon(s.t, cmd)
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(s.inside("/run/systemd/journal/socket")); err == nil {
			return
		}
		assert.Assert(s.t, !time.Now().After(deadline), "journald did not start")
	}
}

// inside is a path as the manager sees it.
func (s *Service) inside(path string) string {
	return filepath.Join("/proc", strconv.Itoa(s.manager), "root", path)
}

func (s *Service) journald() int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "journald.pid"))
	assert.NilError(s.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	assert.NilError(s.t, err)
	return pid
}
