package symbols

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinks      = 40
	maxComponents = 256
)

// open returns an O_PATH descriptor of a path in the process's root directory.
// Symlinks, which may be hostile, do not lead outside. how may be O_NOFOLLOW.
func (v *view) open(path string, how int) (int, error) {
	top := "/"
	if v.pid != 0 {
		top = filepath.Join(v.dir, "root")
	}
	root, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	resolve := uint64(unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS)
	if v.files.opts.Local {
		if !v.localFile(root) {
			return -1, ErrRemote
		}
		resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | uint64(how), Resolve: resolve})
	switch {
	case errors.Is(err, unix.EXDEV) && v.files.opts.Local: // the path crosses mounts
	case errors.Is(err, unix.ENOSYS): // systemd's RestrictSUIDSGID= blocks openat2, as it cannot check its mode
	default:
		return fd, err
	}
	return v.walk(root, path, how)
}

// walk resolves a path one name at a time and checks each mount before accessing it.
func (v *view) walk(root int, path string, how int) (int, error) {
	way := []int{root} // directories on the path; the caller owns the root
	defer func() {
		for _, fd := range way[1:] {
			unix.Close(fd)
		}
	}()
	names := strings.Split(path, "/")
	links := 0
	for steps := 0; len(names) > 0; steps++ {
		if steps > maxComponents {
			return -1, unix.ENAMETOOLONG
		}
		name := names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(way) > 1 {
				unix.Close(way[len(way)-1])
				way = way[:len(way)-1]
			}
			continue
		}
		fd, err := unix.Openat(way[len(way)-1], name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		way = append(way, fd)
		if v.files.opts.Local && !v.localFile(fd) {
			return -1, ErrRemote
		}
		last := len(names) == 0
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return -1, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK || last && how&unix.O_NOFOLLOW != 0 {
			continue
		}
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", target)
		if err != nil {
			return -1, err
		}
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		unix.Close(fd)
		way = way[:len(way)-1]
		if n > 0 && target[0] == '/' {
			for _, fd := range way[1:] {
				unix.Close(fd)
			}
			way = way[:1]
		}
		names = append(strings.Split(string(target[:n]), "/"), names...)
	}
	return unix.FcntlInt(uintptr(way[len(way)-1]), unix.F_DUPFD_CLOEXEC, 0)
}
