package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// Inode numbers of the initial namespaces, fixed by the kernel.
const (
	firstUserNamespace = 4026531837
	firstPIDNamespace  = 4026531836
)

// Hindrance is something that prevents identification of processes.
type Hindrance struct {
	Name   string // hidepid, pid_namespace, user_namespace
	Advice string // what it means and how to change it
	Fatal  bool   // what the daemon says of processes would be wrong, not only missing
}

// Hindrances checks whether other processes are hidden from this one or have other ids
// than in the kernel. proc is the mount point of procfs; read errors are ignored.
func Hindrances(proc string) []Hindrance {
	var out []Hindrance
	if mode := hidepid(proc); mode != "" {
		out = append(out, Hindrance{Name: "hidepid", Advice: fmt.Sprintf("%s is mounted with hidepid=%s, which hides the processes of other users: "+
			"outliers have no command line, no container and no user stack; give tailcam CAP_SYS_PTRACE, "+
			"or mount it with gid= of a group that tailcam is in", proc, mode)})
	}
	if n := namespace(proc, "pid"); n != 0 && n != firstPIDNamespace {
		out = append(out, Hindrance{Name: "pid_namespace", Fatal: true, Advice: "tailcam runs in a PID namespace of its own, " +
			"but the kernel reports pids of the first one, so that outliers would have names of other processes: " +
			"run it in the host's PID namespace (docker run --pid=host, hostPID: true)"})
	}
	if n := namespace(proc, "user"); n != 0 && n != firstUserNamespace {
		out = append(out, Hindrance{Name: "user_namespace", Advice: "tailcam runs in a user namespace of its own, where its capabilities do not reach the host's processes: " +
			"run it as the host's root (podman run as root, hostUsers: true)"})
	}
	return out
}

// hidepid returns the mount option of procfs if it hides processes from this one, else
// "".
func hidepid(proc string) string {
	at, err := filepath.EvalSymlinks(proc)
	if err != nil {
		return ""
	}
	mode, group := "", 0
	err = linux.MountsOf(filepath.Join(proc, "self/mountinfo"), func(m *linux.Mount) {
		if m.Type != "proc" || m.Point != at {
			return
		}
		mode, group = "", 0 // later mounts cover earlier ones
		for option := range strings.SplitSeq(m.Options, ",") {
			if value, ok := strings.CutPrefix(option, "hidepid="); ok && value != "off" && value != "0" {
				mode = value
			}
			if value, ok := strings.CutPrefix(option, "gid="); ok {
				group, _ = strconv.Atoi(value)
			}
		}
	})
	if err != nil || mode == "" || mayTrace() {
		return ""
	}
	groups, err := os.Getgroups()
	if mode != "ptraceable" && mode != "4" && err == nil && (os.Getegid() == group || slices.Contains(groups, group)) {
		return ""
	}
	return mode
}

// mayTrace reports whether this thread has CAP_SYS_PTRACE.
func mayTrace() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// namespace returns the number of one of this process's namespaces; 0: unknown.
func namespace(proc, kind string) uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(proc, "self/ns", kind), &st) != nil {
		return 0
	}
	return st.Ino
}
