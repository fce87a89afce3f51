package outbox

import (
	"errors"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"

	"github.com/tailcam/tailcam/internal/sandbox"
)

// resolving are the files by which names of hosts and certificates are found.
var resolving = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/gai.conf", "/etc/localtime",
}

var resolvingDirs = []string{
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/etc/ssl", "/etc/pki", "/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
}

// confine leaves a sender no capability, and of the file system the spool and what it
// needs to reach its target (Landlock, as far as the kernel has it).
func confine(j *job) error {
	u, err := Parse(j.Target)
	if err != nil {
		return err
	}
	read := append([]string{}, resolvingDirs...)
	if j.Credentials != "" {
		read = append(read, filepath.Dir(j.Credentials)) // it may be replaced by another file
	}
	files := append([]string{}, resolving...)
	for _, f := range []string{j.KnownHosts, j.CA} {
		if f != "" {
			files = append(files, f)
		}
	}
	write := []string{j.Spool}
	if u.Scheme == kindFile {
		write = append(write, u.Path)
	}
	paths := landlock.V8.BestEffort().RestrictPaths(
		landlock.RODirs(read...).IgnoreIfMissing(), landlock.ROFiles(files...).IgnoreIfMissing(),
		landlock.RWDirs(write...).IgnoreIfMissing(),
	)
	if u.Scheme == kindFile {
		paths = errors.Join(paths, landlock.V8.BestEffort().RestrictNet()) // it needs none
	}
	return errors.Join(paths, sandbox.DropCapabilities())
}
