package symbols

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// localTypes are file systems that depend on local disks only. Others may wait for a
// server, or for a FUSE daemon, for ever. For "overlay" see mountTable.
var localTypes = map[string]bool{
	"aufs": true, "bcachefs": true, "btrfs": true, "cramfs": true, "devtmpfs": true, "erofs": true, "exfat": true, "ext2": true, "ext3": true,
	"ext4": true, "f2fs": true, "hugetlbfs": true, "iso9660": true, "jffs2": true, "jfs": true, "minix": true, "nilfs2": true, "ntfs3": true,
	"overlay": true, "proc": true, "ramfs": true, "reiserfs": true, "romfs": true, "rootfs": true, "squashfs": true, "sysfs": true,
	"tmpfs": true, "ubifs": true, "udf": true, "vfat": true, "xfs": true, "zfs": true,
}

// mountTable is a parsed /proc/PID/mountinfo.
type mountTable struct {
	byID  map[uint64]mount
	byDev map[uint64]mount
}

type mount struct {
	dev  uint64
	kind string
}

func readMounts(r io.Reader) (mountTable, error) {
	t := mountTable{map[uint64]mount{}, map[uint64]mount{}}
	err := linux.Mounts(r, func(m *linux.Mount) {
		t.byID[m.ID] = mount{m.Dev, m.Type}
		t.byDev[m.Dev] = t.byID[m.ID]
	})
	return t, err
}

// ownMounts is the cached mount table of the calling process.
type ownMounts struct {
	mu    sync.Mutex
	file  *os.File
	table mountTable
}

func (o *ownMounts) get(proc string) mountTable {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil {
		f, err := os.Open(filepath.Join(proc, "self/mountinfo"))
		if err != nil {
			return mountTable{}
		}
		o.file = f
	} else {
		poll := []unix.PollFd{{Fd: int32(o.file.Fd()), Events: unix.POLLPRI}}
		if n, err := unix.Ppoll(poll, &unix.Timespec{}, nil); err == nil && n == 0 {
			return o.table
		}
	}
	if _, err := o.file.Seek(0, io.SeekStart); err != nil {
		return mountTable{}
	}
	t, err := readMounts(o.file)
	if err != nil {
		t = mountTable{}
	}
	o.table = t
	return t
}

// view is the file system as seen by a process, for one call; pid 0: tailcam.
type view struct {
	files  *Files
	pid    int
	dir    string // /proc/PID
	loaded bool
	mounts mountTable // of the process
}

func (f *Files) view(pid int) *view { return &view{files: f, pid: pid, dir: f.dir(pid)} }

// processMounts reads the mounts of the process, once.
func (v *view) processMounts() mountTable {
	if v.loaded || v.pid == 0 {
		return v.mounts
	}
	v.loaded = true
	f, err := os.Open(filepath.Join(v.dir, "mountinfo"))
	if err != nil {
		return v.mounts
	}
	defer f.Close()
	if t, err := readMounts(f); err == nil {
		v.mounts = t
	}
	return v.mounts
}

// local reports whether a mount is local. Users may mount overlays over anything in
// their own namespace, so only those that tailcam sees as well are trusted, such as
// those of container engines.
func (v *view) local(m mount) bool {
	if m.kind == "overlay" && v.files.own.get(v.files.opts.Proc).byDev[m.dev].kind != "overlay" {
		return false
	}
	return localTypes[m.kind]
}

// localDevice reports whether a mapping's device is local. One without a mount is not:
// it may have been FUSE.
func (v *view) localDevice(dev uint64) bool {
	if m, ok := v.files.own.get(v.files.opts.Proc).byDev[dev]; ok {
		return v.local(m)
	}
	m, ok := v.processMounts().byDev[dev]
	return ok && v.local(m)
}

// localFile reports whether an O_PATH descriptor is on a local file system, without
// accessing it.
func (v *view) localFile(fd int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), "mnt_id:")
	number, _, _ := strings.Cut(rest, "\n")
	id, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return false
	}
	if m, ok := v.files.own.get(v.files.opts.Proc).byID[id]; ok {
		return v.local(m)
	}
	if m, ok := v.processMounts().byID[id]; ok {
		return v.local(m)
	}
	// The root mount of a chroot may be missing in the table; its device may be listed.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st); err != nil {
		return false
	}
	return v.localDevice(unix.Mkdev(st.Dev_major, st.Dev_minor))
}
