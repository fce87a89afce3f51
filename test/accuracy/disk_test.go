package accuracy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/child"
)

// slowDisk is a loop device over a file of a FUSE file system that answers as
// late as it is told, and an ext4 on it. A child of ours serves it, in a mount
// namespace of its own: all goes with it, however it ends.
type slowDisk struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	device string // loop0
	number uint64 // the kernel's own
}

// roleSlowDisk makes the test program serve a slow disk.
const roleSlowDisk = "serve-slow-disk"

// where the child mounts, hiding what is there from itself alone.
const (
	fuseDir = "/media"
	ext4Dir = "/mnt"
)

const diskSize = 512 << 20

// startDisk returns a disk that is not slow yet. It goes at the end of the test.
func startDisk(t testing.TB) *slowDisk {
	t.Helper()
	d := &slowDisk{t: t, cmd: exec.Command("/proc/self/exe", roleSlowDisk)}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := d.cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := d.cmd.StdoutPipe()
	assert.NilError(t, err)
	d.in, d.out = in, bufio.NewScanner(out)
	assert.NilError(t, child.Start(d.cmd))
	t.Cleanup(func() {
		in.Close() // it leaves then
		gone := make(chan error, 1)
		go func() { gone <- d.cmd.Wait() }()
		select {
		case err := <-gone:
			assert.Check(t, err, "the slow disk")
		case <-time.After(20 * time.Second):
			d.cmd.Process.Kill() // what it held goes with it
			t.Errorf("the slow disk did not come down: %v", <-gone)
		}
	})
	_, err = fmt.Sscan(d.answer(), &d.device, &d.number)
	assert.NilError(t, err)
	return d
}

func (d *slowDisk) answer() string {
	d.t.Helper()
	if !d.out.Scan() {
		d.t.Fatalf("the slow disk has ended: %v", d.out.Err())
	}
	return d.out.Text()
}

// slow sets how late each request is answered from now on.
func (d *slowDisk) slow(read, write, sync time.Duration) {
	d.t.Helper()
	_, err := fmt.Fprintln(d.in, int64(read), int64(write), int64(sync))
	assert.NilError(d.t, err)
	d.answer()
}

// dir is where its file system is seen from here.
func (d *slowDisk) dir() string { return fmt.Sprintf("/proc/%d/root%s", d.cmd.Process.Pid, ext4Dir) }

// inside is a command line that runs where the file system is mounted.
func (d *slowDisk) inside(argv ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", d.cmd.Process.Pid), "--"}, argv...)
}

// ------------------------------------------------------------- the child

// serveSlowDisk is the child. It ends when its standard input does.
func serveSlowDisk() (err error) {
	fd, err := unix.MemfdCreate("slow-disk", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.Ftruncate(fd, diskSize); err != nil {
		return err
	}
	fs := &slowFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), fd: fd}
	server, err := fuse.NewServer(fs, fuseDir, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "tailcam", Name: "tailcam-scenario", DisableXAttrs: true, MaxWrite: 1 << 20,
	})
	if err != nil {
		return fmt.Errorf("mount the slow file system (needs root and /dev/fuse): %w", err)
	}
	go server.Serve()
	defer unix.Unmount(fuseDir, unix.MNT_DETACH) // ends with the namespace anyway
	if err := server.WaitMount(); err != nil {
		return err
	}
	device, err := inject.AttachLoop(filepath.Join(fuseDir, diskFile), os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() {
		fs.delays(0, 0, 0)
		err = errors.Join(err, device.Close())
	}()
	// All there is of it at once: nothing writes to it later on its own.
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
		"-J", "size=8", device.Name()).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w\n%s", err, out)
	}
	// Nor does it read on its own: ext4lazyinit would read its block bitmaps in the first seconds. Who
	// reads a file only reads: its time of access would be written, behind whatever syncs.
	if err := unix.Mount(device.Name(), ext4Dir, "ext4", unix.MS_NOATIME, "no_prefetch_block_bitmaps"); err != nil {
		return fmt.Errorf("mount %s: %w", device.Name(), err)
	}
	defer func() {
		fs.delays(0, 0, 0)
		err = errors.Join(err, unix.Unmount(ext4Dir, 0))
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		return err
	}
	fmt.Println(filepath.Base(device.Name()), unix.Major(st.Rdev)<<20|unix.Minor(st.Rdev))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("ok") {
		var read, write, sync int64
		if _, err := fmt.Sscan(in.Text(), &read, &write, &sync); err != nil {
			return err
		}
		fs.delays(read, write, sync)
	}
	return nil
}

// slowFS is a file system of one file, which is in memory.
type slowFS struct {
	fuse.RawFileSystem
	fd                int
	read, write, sync atomic.Int64
}

const (
	diskFile  = "disk"
	diskInode = 2
)

func (fs *slowFS) delays(read, write, sync int64) {
	fs.read.Store(read)
	fs.write.Store(write)
	fs.sync.Store(sync)
}

// wait returns when a request that came now may be answered.
func wait(delay int64) {
	if delay <= 0 {
		return
	}
	until := unix.NsecToTimespec(int64(linux.Monotonic()) + delay)
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil), unix.EINTR) { // to its end
	}
}

func (fs *slowFS) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId != fuse.FUSE_ROOT_ID || name != diskFile {
		return fuse.ENOENT
	}
	out.NodeId = diskInode
	out.SetEntryTimeout(time.Hour)
	out.SetAttrTimeout(time.Hour)
	attributes(diskInode, &out.Attr)
	return fuse.OK
}

func (fs *slowFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(time.Hour)
	attributes(in.NodeId, &out.Attr)
	return fuse.OK
}

func (fs *slowFS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(time.Hour)
	attributes(in.NodeId, &out.Attr)
	return fuse.OK
}

func attributes(inode uint64, attr *fuse.Attr) {
	attr.Ino, attr.Nlink, attr.Mode, attr.Size = inode, 1, fuse.S_IFREG|0o600, diskSize
	if inode == fuse.FUSE_ROOT_ID {
		attr.Mode, attr.Size = fuse.S_IFDIR|0o500, 0
	}
}

// Open lets each request through to here: nothing is cached.
func (fs *slowFS) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

func (fs *slowFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	wait(fs.read.Load())
	n, err := unix.Pread(fs.fd, buf[:min(int(in.Size), len(buf))], int64(in.Offset))
	if err != nil {
		return nil, fuse.ToStatus(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (fs *slowFS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	wait(fs.write.Load())
	n, err := unix.Pwrite(fs.fd, data, int64(in.Offset))
	return uint32(max(n, 0)), fuse.ToStatus(err)
}

func (fs *slowFS) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	wait(fs.sync.Load())
	return fuse.OK
}

func (fs *slowFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (fs *slowFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	return fuse.OK
}
