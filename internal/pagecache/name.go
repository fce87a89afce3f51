package pagecache

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// name is what is known of how a file is called.
type name struct {
	parts []string // from its end; none: it has none, or it is not known
	whole bool     // they begin at the root of the file system
	disk  bool     // it is a block device
	found bool     // the kernel side has told it, be it that there is none
}

func (n *name) known() bool { return n.disk || len(n.parts) > 0 }

// nameOf asks for the name of a file as it was when it was first seen.
func (w *Watch) nameOf(key abi.PagecacheKey) name {
	var n abi.PagecacheName
	if w.coll.Maps["names"].Lookup(key, &n) != nil {
		return name{}
	}
	return name{
		found: true, parts: splitName(n.Text[:min(int(n.Bytes), len(n.Text))]),
		whole: n.Whole == abi.PagecacheWhole, disk: n.Whole == abi.PagecacheDisk,
	}
}

// splitName splits names with a NUL after each. They may have any bytes.
func splitName(text []byte) []string {
	var parts []string
	for len(text) > 0 {
		part, rest, _ := bytes.Cut(text, []byte{0})
		parts = append(parts, string(part))
		text = rest
	}
	return parts
}

// inner is the path of a file in its file system.
func inner(n *name) string {
	parts := slices.Clone(n.parts)
	slices.Reverse(parts)
	p := strings.Join(parts, "/")
	if !n.whole {
		return ".../" + p
	}
	return "/" + p
}

// mount is where a part of a file system is found.
type mount struct{ root, point string }

// mounts are those that this process sees, by the kernel's number of their devices.
func mounts() map[uint32][]mount {
	list := map[uint32][]mount{}
	// What cannot be read is as what is not mounted here.
	_ = linux.MountsOf("/proc/self/mountinfo", func(m *linux.Mount) {
		dev := unix.Major(m.Dev)<<20 | unix.Minor(m.Dev)
		list[dev] = append(list[dev], mount{m.Root, m.Point})
	})
	return list
}

// outer is the path of a file as this process sees it, if it has one: by the mount that has
// most of the file system.
func outer(inner string, list []mount) (string, bool) {
	best := -1
	found := ""
	for _, m := range list {
		rest, ok := strings.CutPrefix(inner, strings.TrimSuffix(m.root, "/"))
		if !ok || !strings.HasPrefix(rest, "/") || best >= 0 && len(m.root) >= best {
			continue
		}
		best, found = len(m.root), path.Join(m.point, rest)
		if m.point == "/" {
			found = rest
		}
	}
	return found, best >= 0
}

// pathOf is the path of a file that has a name; here: as this process sees it.
func pathOf(n *name, list []mount) (p string, here bool) {
	p = inner(n)
	if !n.whole {
		return p, false
	}
	if seen, ok := outer(p, list); ok {
		return seen, true
	}
	return p, false
}

// matches reports whether File matches a file.
func (w *Watch) matches(key abi.PagecacheKey, n *name) bool {
	if n.disk {
		return false
	}
	if !strings.Contains(w.opts.File, "/") {
		return rules.CgroupMatch(w.opts.File, n.parts[0])
	}
	p, _ := pathOf(n, w.places()[key.Device])
	return rules.CgroupMatch(w.opts.File, p)
}

// mountsFor is how long the table of mounts is used before it is read again.
const mountsFor = 5 * time.Second

// places are the mounts as they were a moment ago.
func (w *Watch) places() map[uint32][]mount {
	if w.mounts == nil || time.Since(w.mounted) > mountsFor {
		w.mounts, w.mounted = mounts(), time.Now()
	}
	return w.mounts
}
