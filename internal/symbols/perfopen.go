package symbols

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openPerfMap opens the map under the name that the process knows itself by.
// It must belong to the process's user or to root, so that nobody can tell lies
// of another's frames, and must not be writable for everybody. A link is not
// followed: it would show lines of files that only root may read.
func (p *target) openPerfMap() (*os.File, fileID, error) {
	uid, inner, err := p.status()
	if err != nil {
		return nil, fileID{}, err
	}
	root, err := unix.Open(filepath.Join(p.dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fileID{}, err
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, fmt.Sprintf("tmp/perf-%d.map", inner), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fileID{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fileID{}, err
	}
	if err := trustedPerfMap(uid, &st); err != nil {
		unix.Close(fd)
		return nil, fileID{}, err
	}
	return reopen(fd)
}

// trustedPerfMap checks whose a map is.
func trustedPerfMap(uid uint32, st *unix.Stat_t) error {
	switch {
	case st.Uid != uid && st.Uid != 0:
		return fmt.Errorf("perf map belongs to user %d, not to %d", st.Uid, uid)
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&unix.S_IWOTH != 0:
		return fmt.Errorf("perf map of user %d is writable for everybody", st.Uid)
	}
	return nil
}

// status reads the effective user, and the process id in its own namespace.
func (p *target) status() (uid uint32, inner int, err error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "status"))
	if err != nil {
		return 0, 0, err
	}
	inner = p.pid
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case name == "Uid" && len(fields) == 4:
			n, err := strconv.ParseUint(fields[1], 10, 32)
			if err != nil {
				return 0, 0, err
			}
			uid = uint32(n)
		case name == "NStgid" && len(fields) > 0:
			if inner, err = strconv.Atoi(fields[len(fields)-1]); err != nil {
				return 0, 0, err
			}
		}
	}
	return uid, inner, nil
}
