package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
)

// disk is a file system of its own for snapshots.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts an ext4 of so many MiB with so many inodes at dir, until the end
// of the test.
func newDisk(t *testing.T, dir string, mib, inodes int) *disk {
	t.Helper()
	mkfs := needTool(t, "mkfs.ext4", "e2fsprogs")
	image := filepath.Join(publicDir(t, ""), "image")
	f, err := os.Create(image)
	assert.NilError(t, err)
	assert.NilError(t, errors.Join(f.Truncate(int64(mib)<<20), f.Close(), os.MkdirAll(dir, 0o755)))
	for _, argv := range [][]string{{mkfs, "-q", "-N", fmt.Sprint(inodes), image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no loop device with a file system here: %v: %s", err, out)
		}
	}
	cleanup.Unmount(t, dir)
	return &disk{t, dir}
}

const (
	fiFreeze = 0xc0045877 // FIFREEZE, FITHAW of linux/fs.h
	fiThaw   = 0xc0045878
)

func (d *disk) ioctl(request uint) {
	d.t.Helper()
	fd, err := unix.Open(d.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	assert.NilError(d.t, err)
	defer unix.Close(fd)
	assert.NilError(d.t, unix.IoctlSetInt(fd, request, 0))
}

// answers holds that a verb answers while the disk does not.
func answers(d *running, args ...string) answer {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), hang)
	defer cancel()
	begin := time.Now()
	a := outcome(d.t, exec.CommandContext(ctx, built.tailcam, append(args, "--socket", d.socket)...))
	d.t.Logf("tailcam %s: status %d after %s", strings.Join(args, " "), a.code, time.Since(begin).Round(time.Millisecond))
	return a
}

// attached are the programs and links that a daemon has, without its maps: those
// stay with the memory of a process until its last thread has ended.
func attached(t *testing.T, pid int) objects {
	t.Helper()
	held := heldBy(t, pid)
	for name := range held {
		if strings.HasPrefix(name, "map") {
			delete(held, name)
		}
	}
	assert.Check(t, len(held) != 0, "the daemon holds no BPF program: this test would prove nothing")
	return held
}

// inD counts the threads of a process that hang in the kernel, as for a disk.
func inD(pid int) int { return strings.Count(child.States(pid), "D") }

// TestFrozenDisk: the file system of the snapshots hangs. Outliers are told, all
// verbs answer, and neither TERM nor KILL leaves a BPF program, a lock or the
// socket behind, although a thread waits for the disk and cannot end.
func TestFrozenDisk(t *testing.T) {
	needRoot(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			uid := newUID()
			h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 10ms, burst: 20}")))
			h.snaps = filepath.Join(t.TempDir(), "snaps")
			disk := newDisk(t, h.snaps, 64, 1024)
			d := h.start(t, "--pin=off") // what systemd keeps goes when it gives the process up
			byHand(d, "before")
			disk.ioctl(fiFreeze)
			thaw := func() { disk.ioctl(fiThaw) }
			defer func() { thaw() }()

			naps(t, uid, 40, 3*time.Millisecond, 1)
			eventually(t, "a thread waits for the disk", func() bool { return inD(d.pid()) > 0 })
			n := len(settled(t, d, "nap", 40))
			assert.Check(t, n == 40, "%d of 40 outliers are told", n)
			eventually(t, "the disk counts as stalled", func() bool {
				return d.status().loss("snapshot_disk_stalled", "") == 1
			})
			a := answers(d, "status", "-o", "json")
			assert.Check(t, a.code == 0 && strings.Contains(a.out, "does not answer"), "status: %+v", a)
			s := d.status()
			assert.Check(t, s.Snapshots.Count == 1 && s.Snapshots.Failed == 0, "status: %+v", s.Snapshots)
			a = answers(d, "wait", "--timeout", "1s")
			assert.Check(t, a.code == 3, "wait: %+v", a)
			if a := answers(d, "snapshot"); a.code != 1 || !strings.Contains(a.err, "are already in progress") && !strings.Contains(a.err, "does not answer") {
				t.Errorf("snapshot: %+v", a)
			}

			held := attached(t, d.pid())
			begin := time.Now()
			d.signal(sig)
			held.gone(t)
			t.Logf("%s: all BPF programs are gone after %s; %d threads wait for the disk", sig, time.Since(begin).Round(time.Millisecond), inD(d.pid()))
			eventually(t, "the lock of the socket is free", func() bool { return free(t, h.socket+".lock") })
			eventually(t, "the lock of the directory is free", func() bool { return free(t, filepath.Join(h.snaps, ".lock")) })
			t.Logf("%s: and its locks after %s", sig, time.Since(begin).Round(time.Millisecond))

			// The same socket, while the old process cannot end.
			other := *h
			other.snaps = filepath.Join(h.dir, "elsewhere")
			begin = time.Now()
			next := other.start(t)
			t.Logf("the next one watched after %s", time.Since(begin).Round(time.Millisecond))
			byHand(next, "elsewhere")
			next.stop(syscall.SIGTERM)

			thaw()
			thaw = func() {}
			eventually(t, "the old process has ended", d.ended)
		})
	}
}

// free tells whether nobody has a lock on a file.
func free(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// TestSnapshotByHandOnFrozenDisk: whoever asks for a snapshot is told in time why
// it does not come, and has it when the disk answers again.
func TestSnapshotByHandOnFrozenDisk(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	h.snaps = filepath.Join(t.TempDir(), "snaps")
	disk := newDisk(t, h.snaps, 64, 1024)
	d := h.start(t)
	disk.ioctl(fiFreeze)
	frozen := true
	defer func() {
		if frozen {
			disk.ioctl(fiThaw)
		}
	}()
	a := answers(d, "snapshot", "--reason", "late")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "does not answer"), "snapshot: %+v", a)
	disk.ioctl(fiThaw)
	frozen = false
	eventually(t, "the snapshot is there", func() bool { return len(d.list()) == 1 })
	s := d.status()
	assert.Check(t, s.Snapshots.Count == 1 && s.Snapshots.Failed == 0, "%+v", s.Snapshots)
	byHand(d, "after")
	a = tailcam(t, "snapshots", "verify", "--dir", h.snaps)
	assert.Check(t, a.code == 0 && strings.HasSuffix(a.out, "ok: 2 snapshots\n"), "verify: %+v", a)
}

// TestDiskTrouble: what a disk can do to one snapshot costs that snapshot, is
// counted and told, and the next one is taken when the disk is well again.
func TestDiskTrouble(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	h.snaps = filepath.Join(t.TempDir(), "snaps")
	disk := newDisk(t, h.snaps, 16, 128)
	d := h.start(t, "--snapshots-keep-count", "3")
	byHand(d, "before")
	failed := uint64(0)
	for _, trouble := range []struct {
		name       string
		harm, mend func() error
		want       string
	}{
		{"read-only", func() error { return unix.Mount("", disk.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
			func() error { return unix.Mount("", disk.dir, "", unix.MS_REMOUNT, "") }, "read-only file system"},
		{"no inodes", func() error { return fillInodes(disk.dir) }, func() error { return os.RemoveAll(filepath.Join(disk.dir, "hog")) }, "inodes free"},
		{"full", func() error { return fill(filepath.Join(disk.dir, "hog")) }, func() error { return os.Remove(filepath.Join(disk.dir, "hog")) }, "free"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			assert.NilError(t, trouble.harm())
			a := d.verb("snapshot")
			s := d.status()
			failed++
			assert.Check(t, a.code == 1 && strings.Contains(a.err, trouble.want) && s.loss("snapshot_failed", "") == failed,
				"%+v; %d failed, want %d", a, s.loss("snapshot_failed", ""), failed)
			assert.NilError(t, trouble.mend())
			byHand(d, "after "+trouble.name)
		})
	}
	a := tailcam(t, "snapshots", "verify", "--dir", h.snaps)
	assert.Check(t, a.code == 0 && strings.HasSuffix(a.out, "ok: 3 snapshots\n"), "verify: %+v", a)
}

// fillInodes makes files until there is no inode left.
func fillInodes(dir string) error {
	hog := filepath.Join(dir, "hog")
	err := os.Mkdir(hog, 0o755)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(hog, fmt.Sprint(i)), nil, 0o600)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// fill writes a file until the file system is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	f.Close() // there is no room for it
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// TestReplacedDirectory: snapshots go on in a directory that was removed and made
// anew, or is another one now; never do two daemons write into one.
func TestReplacedDirectory(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	number := func(path string) string { return path[strings.LastIndexByte(path, '-'):] }
	first := byHand(d, "first")
	assert.Check(t, number(first) == "-000001", "the first is %s", first)
	assert.NilError(t, os.RemoveAll(d.snaps))
	if second := byHand(d, "removed"); number(second) != "-000002" || len(d.list()) != 1 {
		t.Errorf("after a removal: %s", second)
	}
	// It is locked again.
	a := tailcam(t, "run", "--rules", d.rules, "--socket-path", d.socket+"2", "--snapshots-dir", d.snaps)
	assert.Check(t, a.code != 0 && strings.Contains(a.err+a.out, "another tailcam uses this directory"),
		"a second daemon: %+v", a)
	moved := d.snaps + ".moved"
	assert.NilError(t, errors.Join(os.Rename(d.snaps, moved), os.Symlink(moved, d.snaps)))
	byHand(d, "moved to another disk")
	n := len(d.list())
	assert.Check(t, n == 2, "%d snapshots after the move", n)
	// Somebody else has it meanwhile: an error that says so, and nothing written.
	assert.NilError(t, errors.Join(os.Remove(d.snaps), os.Mkdir(d.snaps, 0o755)))
	other := *d.home
	other.socket += "2"
	second := other.start(t)
	a = d.verb("snapshot")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "another tailcam uses this directory"),
		"in the directory of another one: %+v", a)
	only(t, d.snaps, 0)
	second.stop(syscall.SIGTERM)
	byHand(d, "the other one has ended")
	if n := d.status().loss("snapshot_dir_replaced", ""); n != 2 {
		t.Errorf("replaced %d times, counted %d", 2, n)
	}
}

// TestStartOnBadDisk: after a restart of the machine, a disk that is full or read-only
// keeps no daemon from watching, if it has had snapshots there before.
func TestStartOnBadDisk(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "its mounts are copies: one that was read-only stays so")
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms}")))
	h.snaps = filepath.Join(t.TempDir(), "snaps")
	disk := newDisk(t, h.snaps, 16, 128)
	d := h.start(t)
	byHand(d, "before")
	d.stop(syscall.SIGTERM)
	remount := func(flags uintptr) error { return unix.Mount("", disk.dir, "", unix.MS_REMOUNT|flags, "") }
	hog := filepath.Join(disk.dir, "hog")
	for i, trouble := range []struct {
		name       string
		harm, mend func() error
	}{
		{"read-only", func() error { return remount(unix.MS_RDONLY) }, func() error { return remount(0) }},
		{"full", func() error { return fill(hog) }, func() error { return os.Remove(hog) }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			assert.NilError(t, trouble.harm())
			d := h.start(t)
			naps(t, uid, 3, 5*time.Millisecond, 1)
			settled(t, d, "nap", 3)
			a := d.verb("snapshot")
			assert.Check(t, a.code == 1 && d.status().loss("snapshot_failed", "") > 0, "%+v", a)
			assert.NilError(t, trouble.mend())
			byHand(d, "after "+trouble.name)
			assert.Check(t, len(d.list()) == i+2, "%d snapshots", len(d.list()))
			d.stop(syscall.SIGTERM)
		})
	}
}
