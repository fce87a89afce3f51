package process

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

const (
	// fileIDKernfs is the type of file handles that contain a kernfs node's id
	// (FILEID_KERNFS). On 64-bit machines this is the inode of the cgroup's directory
	// and its id in BPF.
	fileIDKernfs  = 0xfe
	deletedSuffix = " (deleted)"
)

// ErrNoCgroup2 means that cgroup v2 is not mounted.
var ErrNoCgroup2 = errors.New("no cgroup2 file system is mounted: mount one, " +
	"for instance with mount -t cgroup2 none /sys/fs/cgroup/unified")

// CgroupPath returns the cgroup v2 path of an id returned by bpf_get_current_cgroup_id;
// "/" is the root. If the cgroup no longer exists it returns the cached path, or an
// error wrapping fs.ErrNotExist. Without CAP_DAC_READ_SEARCH each new id requires a
// search of the hierarchy.
func (t *Table) CgroupPath(id uint64) (string, error) {
	if path, ok := t.paths.Load(id); ok {
		return path, nil
	}
	path, err := t.hierarchy.path(id)
	if err != nil {
		return "", fmt.Errorf("find cgroup %d: %w", id, err)
	}
	t.paths.Store(id, path)
	if t.paths.Size() > t.opts.MaxEntries && t.trimming.TryLock() {
		trim(t.paths, t.opts.MaxEntries)
		t.trimming.Unlock()
	}
	return path, nil
}

// Walk calls visit for each v2 cgroup, parents first, with paths as returned by
// CgroupPath. Cgroups created or removed meanwhile may be missing.
func (t *Table) Walk(visit func(id uint64, path string)) error {
	err := t.hierarchy.walk(func(id uint64, path string) bool {
		visit(id, path)
		return true
	})
	if err != nil {
		return fmt.Errorf("walk cgroups: %w", err)
	}
	return nil
}

// hierarchy is the cgroup v2 file system.
type hierarchy struct {
	proc      string
	noHandles atomic.Bool // open_by_handle_at is not permitted or not available

	mu   sync.Mutex
	root *os.File // nil: not found yet
}

// open finds the mount point on first use.
func (h *hierarchy) open() (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root != nil {
		return h.root, nil
	}
	f, err := os.Open(filepath.Join(h.proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mounts, err := cgroup2Points(f)
	if err != nil {
		return nil, err
	}
	err = ErrNoCgroup2
	for _, m := range mounts {
		var root *os.File
		if root, err = openCgroup2(m); err == nil {
			h.root = root
			return root, nil
		}
	}
	return nil, err
}

func openCgroup2(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		f.Close()
		return nil, fmt.Errorf("open cgroups: something else is mounted over %s", path)
	}
	return f, nil
}

func (h *hierarchy) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root == nil {
		return nil
	}
	err := h.root.Close()
	h.root = nil
	return err
}

func (h *hierarchy) path(id uint64) (string, error) {
	root, err := h.open()
	if err != nil {
		return "", err
	}
	if !h.noHandles.Load() {
		path, err := pathByHandle(root, id)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			h.noHandles.Store(true)
		}
	}
	found := ""
	err = h.walk(func(at uint64, path string) bool {
		if at == id {
			found = path
		}
		return found == ""
	})
	if err == nil && found == "" {
		err = fs.ErrNotExist
	}
	return found, err
}

// pathByHandle opens the directory of an id by file handle.
func pathByHandle(root *os.File, id uint64) (string, error) {
	var raw [8]byte
	binary.NativeEndian.PutUint64(raw[:], id)
	fd, err := unix.OpenByHandleAt(int(root.Fd()), unix.NewFileHandle(fileIDKernfs, raw[:]), unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY)
	if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR) {
		return "", fs.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("open cgroup by its id: %w", err)
	}
	defer unix.Close(fd)
	full, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(full, strings.TrimSuffix(root.Name(), "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", fmt.Errorf("cgroup %d is outside of the part mounted at %s", id, root.Name())
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Nlink == 0 || strings.HasSuffix(rest, deletedSuffix) {
		return "", fs.ErrNotExist
	}
	// For a directory not in the dentry cache, readlink may return the root's path on a
	// busy machine: verify it.
	var there unix.Stat_t
	if err := unix.Lstat(full, &there); err != nil || there.Ino != st.Ino {
		return "", fmt.Errorf("cgroup %d not found at %s", id, full)
	}
	return cmp.Or(rest, "/"), nil
}

// walk visits all cgroups, parents first, until visit returns false.
func (h *hierarchy) walk(visit func(id uint64, path string) bool) error {
	root, err := h.open()
	if err != nil {
		return err
	}
	base := root.Name()
	return filepath.WalkDir(base, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			if full == base {
				return err
			}
			return nil // removed or not accessible
		}
		if !d.IsDir() {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(full, &st) != nil {
			return fs.SkipDir
		}
		if !visit(st.Ino, cmp.Or(strings.TrimPrefix(full, strings.TrimSuffix(base, "/")), "/")) {
			return fs.SkipAll
		}
		return nil
	})
}

// cgroup2Points returns the mount points of cgroup v2, complete hierarchies first.
func cgroup2Points(r io.Reader) ([]string, error) {
	var whole, parts []string
	err := linux.Mounts(r, func(m *linux.Mount) {
		switch {
		case m.Type != "cgroup2":
		case m.Root == "/":
			whole = append(whole, m.Point)
		default:
			parts = append(parts, m.Point)
		}
	})
	return append(whole, parts...), err
}

// CgroupDir returns the directory of a cgroup v2 path. It need not exist.
func (t *Table) CgroupDir(path string) (string, error) {
	root, err := t.hierarchy.open()
	if err != nil {
		return "", err
	}
	return filepath.Join(root.Name(), path), nil
}

// maxThreads is how many threads of one cgroup are listed.
const maxThreads = 512

// CgroupThreads lists threads of one cgroup, without those of cgroups below it: at most
// 512 of them.
func (t *Table) CgroupThreads(path string) ([]int, error) {
	dir, err := t.CgroupDir(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.threads"))
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer f.Close()
	var tids []int
	for lines := bufio.NewScanner(f); len(tids) < maxThreads && lines.Scan(); {
		if tid, err := strconv.Atoi(lines.Text()); err == nil && tid > 0 { // 0: of another pid namespace
			tids = append(tids, tid)
		}
	}
	return tids, nil
}
