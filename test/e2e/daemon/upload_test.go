package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/outbox"
)

// senders lists the processes that send snapshots of a spool: those that are started by
// the daemon with that pid.
func senders(pid int) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		text, _ := os.ReadFile(f)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "status"))
		if strings.Contains(string(text), "\x00"+outbox.Verb+"\x00") && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// TestUpload: snapshots of rules and those taken by hand reach their place, also after the
// daemon was killed; a target that hangs hangs neither snapshots nor the daemon's end.
func TestUpload(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("naps", uid, "snapshot: {every: 100ms}", "actions: [{run: [/bin/echo, done]}]")))
	disk := newDisk(t, t.TempDir(), 32, 1000)
	target := filepath.Join(disk.dir, "archive")
	assert.NilError(t, os.Mkdir(target, 0o755))
	args := []string{"--upload-target", "file://" + target, "--upload-spool", filepath.Join(h.dir, "spool"), "--metrics-listen", "127.0.0.1:0"}
	const host = "node-1"
	sent := func(id string) string { return filepath.Join(target, host, id+".tailcam") }
	arrives := func(id string) {
		t.Helper()
		eventually(t, id+" arrives", func() bool { _, err := os.Stat(sent(id)); return err == nil })
		assert.Check(t, tailcam(t, "explain", sent(id)).code == 0)
	}
	byHand := func(d *running) string { return filepath.Base(strings.TrimSpace(d.ok("snapshot", "--reason", "test"))) }

	run := func() *running {
		return h.exec(t, append([]string{"env", "TAILCAM_HOST=" + host}, h.command(args...)...))
	}
	d := run()
	naps(t, uid, 1, 5*time.Millisecond, 1)
	o := settled(t, d, "naps", 1)[0]
	assert.Assert(t, o.Snapshot != nil)
	arrives(*o.Snapshot)
	shown := tailcam(t, "snapshots", "show", sent(*o.Snapshot))
	assert.Check(t, is.Contains(shown.out, host+", "), "it has another host")
	assert.Check(t, is.Contains(shown.out, "action-0.log"), "packed before its action had ended: %s", shown.err)
	arrives(byHand(d))
	eventually(t, "both are counted", func() bool { u := d.status().Upload; return u.Sent == 2 && u.State == "idle" })
	assert.Check(t, is.Contains(fetch(t, d.metricsURL()), `tailcam_uploads_total{result="sent"} 2`))
	pids := senders(d.pid())
	assert.Assert(t, is.Len(pids, 1))
	status, err := os.ReadFile("/proc/" + pids[0] + "/status")
	assert.NilError(t, err)
	assert.Check(t, is.Contains(string(status), "\nCapPrm:\t0000000000000000\n"))
	assert.Check(t, is.Contains(string(status), "\nNoNewPrivs:\t1\n"))

	d.stop(syscall.SIGKILL)
	eventually(t, "the sender has ended, too", func() bool { return len(senders(d.pid())) == 0 && !alive(pids[0]) })
	d = run()
	arrives(byHand(d))
	eventually(t, "one more is counted", func() bool { u := d.status().Upload; return u.Sent == 1 && u.Existed == 0 })

	disk.ioctl(fiFreeze)
	late := byHand(d)
	eventually(t, "it waits", func() bool { u := d.status().Upload; return u.Waiting == 1 && u.Sent == 1 })
	byHand(d)
	d.stop(syscall.SIGTERM)
	disk.ioctl(fiThaw)
	d = run()
	arrives(late)
}

// TestUploadRedacted: with upload.redact, what arrives has none of the names that the
// snapshot has, also what had been packed before it was set.
func TestUploadRedacted(t *testing.T) {
	needRoot(t)
	dir, pid, secrets := secretive(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	host, err := os.Hostname()
	assert.NilError(t, err)
	target := filepath.Join(dir, "archive")
	config := filepath.Join(h.dir, "tailcam.yaml")
	upload := func(redact string) {
		writeFile(t, config, "upload: {target: 'file://"+target+"', spool: "+filepath.Join(h.dir, "spool")+", redact: "+redact+"}\n", 0o644)
	}
	upload("off")
	d := h.start(t, "--config", config, "--recorder-size", "16MiB", "--recorder-events", "sched,irq,timer,block,workqueue,process,syscall")
	taken := func() string {
		time.Sleep(time.Second)
		var s struct{ ID string }
		text := d.ok("snapshot", "-o", "json", "--pid", strconv.Itoa(pid), "--last", "300ms")
		assert.NilError(t, json.Unmarshal([]byte(text), &s), "%s", text)
		return s.ID
	}
	arrives := func(name string) string {
		file := filepath.Join(target, outbox.HostDir(host), name+".tailcam")
		eventually(t, name+" arrives", func() bool { _, err := os.Stat(file); return err == nil })
		return file
	}
	waits := taken() // the directory is not there yet
	eventually(t, "it waits", func() bool { u := d.status().Upload; return u.Waiting == 1 && u.Failed > 0 })
	upload("[users, commands, arguments, files, addresses, hosts, places, labels]") // as usual
	d.reload(reloaded)
	assert.NilError(t, os.Mkdir(target, 0o755))
	assert.Check(t, is.Len(secretsIn(t, arrives(waits+".redacted-usual"), secrets), 0))
	assert.Check(t, is.Len(secretsIn(t, arrives(taken()+".redacted-usual"), secrets), 0))
	upload("off")
	d.reload(reloaded)
	assert.Check(t, is.DeepEqual(secretsIn(t, arrives(taken()), secrets), secrets), "the search must find them where they are")
	all, err := os.ReadDir(filepath.Join(target, outbox.HostDir(host)))
	assert.Check(t, err == nil && len(all) == 3, "%v", all)
}

// alive reports whether a process exists and is no zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
