package inject

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

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
	fs := &slowFS{}
	if err := fs.mount(mount); err != nil {
		return fmt.Errorf("mount the slow file system: %w (needs root and /dev/fuse; try modprobe fuse)", err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH) //nolint:errcheck // ends with the namespace anyway
	dev, err := AttachLoop(filepath.Join(mount, diskName), os.O_RDONLY)
	if err != nil {
		return err
	}
	name := filepath.Base(dev.Name())
	disk := &loopDisk{name: name, seq: diskSeq(name), dev: dev}
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
	dev int // /dev/fuse

	mu      sync.Mutex
	armed   message // Hold is 0: not armed
	stopped bool
}

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
		sleepUntil(min(now+step, end)) // an absolute time keeps the sum of the steps exact
	}
}

// lookup finds a file by the name that the kernel has sent; 0: there is none.
func lookup(parent uint64, name []byte) (inode uint64) {
	if parent != fuseRoot {
		return 0
	}
	return map[string]uint64{diskName: diskInode, fileName: fileInode}[string(bytes.TrimRight(name, "\x00"))]
}
