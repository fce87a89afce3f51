package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Bits of /proc/PID/status's CapEff, from linux/capability.h.
const (
	capIPCLock   = 14
	capSysPtrace = 19
	capSysAdmin  = 21
	capSyslog    = 34
	capPerfmon   = 38
	capBPF       = 39
)

// capability is one that the daemon needs, or can use.
type capability struct {
	name    string
	bit     uint
	without string // what does not work without it; empty: required
}

var capabilities = []capability{
	{"CAP_BPF", capBPF, ""},
	{"CAP_PERFMON", capPerfmon, ""},
	{"CAP_SYSLOG", capSyslog, "kernel stacks are addresses"},
	{"CAP_IPC_LOCK", capIPCLock, "the recorder is limited to less than 4 MiB per CPU"},
	{"CAP_SYS_PTRACE", capSysPtrace, "user stacks and command lines of other users are not resolved"},
}

// checkPrivileges fails early if a required capability is missing, and returns
// what does not work without the optional ones.
func checkPrivileges() (without []string, err error) { return privilegesOf(0) }

// privilegesOf does the same for another process. pid 0: this one.
func privilegesOf(pid int) (without []string, err error) {
	of, dir := "own", "/proc/self"
	if pid != 0 {
		of, dir = fmt.Sprintf("process %d's", pid), fmt.Sprintf("/proc/%d", pid)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return nil, fmt.Errorf("read %s capabilities: %w", of, err)
	}
	have, err := effective(string(status))
	if err != nil {
		return nil, fmt.Errorf("read %s capabilities: %w", of, err)
	}
	return checkCapabilities(have, os.Geteuid() == 0)
}

// checkCapabilities compares a set of capabilities with those of the daemon.
// CAP_SYS_ADMIN implies CAP_BPF and CAP_PERFMON.
func checkCapabilities(have uint64, root bool) (without []string, err error) {
	var missing []string
	for _, c := range capabilities {
		held := have&(1<<c.bit) != 0
		switch {
		case held, c.without == "" && have&(1<<capSysAdmin) != 0:
		case c.without == "":
			missing = append(missing, c.name)
		default:
			without = append(without, c.name+": "+c.without)
		}
	}
	switch {
	case len(missing) == 0:
		return without, nil
	case root:
		return nil, fmt.Errorf("missing %s although running as root: in a container, add them or use --privileged",
			strings.Join(missing, ", "))
	}
	return nil, fmt.Errorf("needs root, or the capabilities CAP_BPF and CAP_PERFMON (missing: %s): use sudo",
		strings.Join(missing, ", "))
}

// effective finds the set CapEff in a /proc/PID/status.
func effective(status string) (uint64, error) {
	lines := bufio.NewScanner(strings.NewReader(status))
	for lines.Scan() {
		if hex, ok := strings.CutPrefix(lines.Text(), "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, errors.New("no CapEff line in /proc/self/status")
}
