package pagecache

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
)

// mostCgroups bounds how many directories of a hierarchy of cgroup v1 are looked at.
const mostCgroups = 65536

// ownersOf returns what names the cgroups that pages are charged to: those of v2, or of v1
// where that has the memory controller.
func ownersOf(table *process.Table) func(id uint64) string {
	point := ""
	// What cannot be read has no names.
	_ = linux.MountsOf("/proc/self/mountinfo", func(m *linux.Mount) {
		if m.Type == "cgroup" && m.Root == "/" && slices.Contains(strings.Split(m.Options, ","), "memory") {
			point = m.Point
		}
	})
	if point == "" {
		return func(id uint64) string {
			if id == 0 {
				return ""
			}
			path, _ := table.CgroupPath(id)
			return path
		}
	}
	paths := map[uint64]string{}
	// Cgroups that go meanwhile are left out.
	_ = filepath.WalkDir(point, func(full string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		switch {
		case err != nil || !d.IsDir():
			return nil
		case len(paths) >= mostCgroups:
			return fs.SkipAll
		case unix.Lstat(full, &st) == nil:
			paths[st.Ino] = cmp.Or(strings.TrimPrefix(full, point), "/")
		}
		return nil
	})
	return func(id uint64) string { return paths[id] }
}
