package inject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// The file system is one directory with two files full of zeros.
const (
	diskName  = "disk" // behind the loop device
	fileName  = "file" // for slow system calls
	diskInode = 2
	fileInode = 3
	fileSize  = 1 << 34
)

// slowfs serves the file system and owns the loop device. It runs in a mount
// namespace of its own, so it may hide a directory of the machine under its
// mount: no directory has to be made, and none is left behind.
func slowfs(w *wire) error {
	if err := lockThread(CommServer); err != nil {
		return err
	}
	mount, err := mountPoint()
	if err != nil {
		return err
	}
	fs := &slowFS{RawFileSystem: fuse.NewDefaultRawFileSystem()}
	server, err := fuse.NewServer(fs, mount, &fuse.MountOptions{
		DirectMountStrict: true,
		FsName:            "tailcam",
		Name:              "tailcam-slowfs",
		DisableXAttrs:     true,
	})
	if err != nil {
		return fmt.Errorf("mount the slow file system: %w (needs root and /dev/fuse; try modprobe fuse)", err)
	}
	go server.Serve()
	defer unix.Unmount(mount, unix.MNT_DETACH) //nolint:errcheck // ends with the namespace anyway
	if err := server.WaitMount(); err != nil {
		return fmt.Errorf("mount the slow file system: %w", err)
	}
	disk, err := attachLoop(filepath.Join(mount, diskName))
	if err != nil {
		return err
	}
	err = w.serve(func(order message) (message, error) {
		if order.Hold == 0 {
			return message{Device: disk.name, Path: filepath.Join(mount, fileName)}, nil
		}
		fs.arm(order)
		return message{}, nil
	})
	fs.stop()
	return errors.Join(err, disk.detach())
}

func mountPoint() (string, error) {
	for _, dir := range []string{"/mnt", "/media", "/run", "/tmp", "/var", "/sys"} {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("mount the slow file system: no directory found to mount over (wanted /mnt or /tmp)")
}

// slowFS answers everything at once but the one read that it was armed for.
type slowFS struct {
	fuse.RawFileSystem

	mu      sync.Mutex
	armed   message // Hold is 0: not armed
	stopped bool
}

func (fs *slowFS) String() string { return "tailcam-slowfs" }

func (fs *slowFS) arm(order message) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.armed = order
}

// stop answers a read that is being held, and holds no more.
func (fs *slowFS) stop() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.stopped = true
}

// hold returns when a read may be answered.
func (fs *slowFS) hold(inode uint64, offset, size int64) {
	fs.mu.Lock()
	armed := fs.armed
	hit := armed.Hold != 0 && armed.File == inode && offset <= armed.Offset && armed.Offset < offset+size
	if hit {
		fs.armed = message{}
	}
	fs.mu.Unlock()
	if !hit {
		return
	}
	const step = uint64(5 * time.Millisecond) // how soon stop is seen
	for now, end := linux.Monotonic(), linux.Monotonic()+armed.Hold; now < end; now = linux.Monotonic() {
		fs.mu.Lock()
		stopped := fs.stopped
		fs.mu.Unlock()
		if stopped {
			return
		}
		// The absolute time keeps the sum of the steps exact; unlike
		// time.Sleep it is not rounded to milliseconds.
		ts := unix.NsecToTimespec(int64(min(now+step, end)))
		//nolint:errcheck // interrupted: the loop looks at the clock
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
	}
}

// Lookup implements fuse.RawFileSystem.
func (fs *slowFS) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	inode := map[string]uint64{diskName: diskInode, fileName: fileInode}[name]
	if header.NodeId != fuse.FUSE_ROOT_ID || inode == 0 {
		return fuse.ENOENT
	}
	out.NodeId = inode
	out.SetEntryTimeout(time.Hour)
	out.SetAttrTimeout(time.Hour)
	attributes(inode, &out.Attr)
	return fuse.OK
}

// GetAttr implements fuse.RawFileSystem.
func (fs *slowFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(time.Hour)
	attributes(in.NodeId, &out.Attr)
	return fuse.OK
}

func attributes(inode uint64, attr *fuse.Attr) {
	attr.Ino = inode
	attr.Nlink = 1
	attr.Mode = fuse.S_IFREG | 0o400
	attr.Size = fileSize
	if inode == fuse.FUSE_ROOT_ID {
		attr.Mode = fuse.S_IFDIR | 0o500
		attr.Size = 0
	}
}

// Open implements fuse.RawFileSystem. The plain file bypasses the page cache,
// so that a system call waits for this process and not for a page.
func (fs *slowFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId == fileInode {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
	return fuse.OK
}

// Read implements fuse.RawFileSystem.
func (fs *slowFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := min(int64(in.Size), int64(len(buf)), max(0, fileSize-int64(in.Offset)))
	fs.hold(in.NodeId, int64(in.Offset), n)
	clear(buf[:n])
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Flush implements fuse.RawFileSystem.
func (fs *slowFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// StatFs implements fuse.RawFileSystem.
func (fs *slowFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize = readSize
	out.Frsize = readSize
	out.NameLen = 255
	return fuse.OK
}
