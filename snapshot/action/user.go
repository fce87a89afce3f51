package action

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// identity is the user an action runs as.
type identity struct {
	name     string
	uid, gid uint32
	groups   []uint32
}

// lookup finds a user by name or number, with all groups. It returns nil for an empty
// name and for the daemon's own user.
func lookup(name string) (*identity, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		var byID error
		if u, byID = user.LookupId(name); byID != nil {
			return nil, fmt.Errorf("unknown user %q: name one of /etc/passwd", name)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q: bad uid %q: %w", name, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q: bad gid %q: %w", name, u.Gid, err)
	}
	if int(uid) == os.Geteuid() {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("run as user %q: only root can change the user: run tailcam as root, or leave user out", name)
	}
	id := &identity{name: u.Username, uid: uint32(uid), gid: uint32(gid)}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %q: %w", name, err)
	}
	for _, g := range groups {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("groups of user %q: bad gid %q: %w", name, g, err)
		}
		id.groups = append(id.groups, uint32(n))
	}
	return id, nil
}

// Credential finds a user by name or number, with all groups. It is nil for this
// process's own user; only root can change to another.
func Credential(name string) (*syscall.Credential, error) {
	id, err := lookup(name)
	return id.credential(), err
}

func (id *identity) credential() *syscall.Credential {
	if id == nil {
		return nil
	}
	return &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}
}

func (id *identity) String() string {
	if id == nil {
		return strconv.Itoa(os.Geteuid())
	}
	return id.name
}

// mayExecute reports whether the identity has the execute permission on st.
func (id *identity) mayExecute(st *syscall.Stat_t) bool {
	uid, inGroup := uint32(os.Geteuid()), int(st.Gid) == os.Getegid()
	if id != nil {
		uid = id.uid
		inGroup = st.Gid == id.gid || slices.Contains(id.groups, st.Gid)
	} else if own, err := os.Getgroups(); err == nil && slices.Contains(own, int(st.Gid)) {
		inGroup = true
	}
	switch {
	case uid == 0:
		return st.Mode&0o111 != 0
	case uid == st.Uid:
		return st.Mode&0o100 != 0
	case inGroup:
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}

// Modes of a snapshot's directory while actions of another user run: their group may
// add files, but not replace or remove those of others (sticky bit).
const (
	sharedMode  = 0o770 | fs.ModeSticky
	privateMode = 0o750
)

// share lets the identity read the snapshot and add files to it.
func share(dir string, id *identity) error {
	if id == nil || dir == "" {
		return nil
	}
	own := uint32(os.Geteuid())
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !(d.IsDir() || d.Type().IsRegular()) {
			return nil
		}
		// Files of actions stay as they are. One with a second name may be a hard link
		// to a file elsewhere.
		if st.Uid != own || (!d.IsDir() && st.Nlink != 1) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return os.Lchown(path, -1, int(id.gid)) //nolint:gosec // sticky: nobody replaces what is ours, and all else was left out
	})
	if err != nil {
		return fmt.Errorf("share snapshot with user %s: %w", id, err)
	}
	if err := os.Chmod(dir, sharedMode); err != nil {
		return fmt.Errorf("share snapshot with user %s: %w", id, err)
	}
	return nil
}

// unshare revokes the permission to add files; reading remains allowed.
func unshare(dir string) {
	if dir == "" {
		return
	}
	if info, err := os.Lstat(dir); err != nil || info.Mode()&fs.ModeSticky == 0 {
		return
	}
	// This fails only if the snapshot is being removed; otherwise its own group could
	// add files.
	_ = os.Chmod(dir, privateMode)
}
