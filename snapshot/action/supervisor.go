package action

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// Verb is the argument that makes a program the supervisor of an action: it must pass
// its arguments to Supervise. As a child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER),
// the supervisor stays the ancestor of all processes that the action starts, whatever
// sessions and groups they create, and so can end all of them with the action.
const Verb = "tailcam-action"

// File descriptors of a supervisor, besides the action's three.
const (
	reportFD = 3 // the result is written here
	orderFD  = 4 // one byte: terminate the action; EOF: kill everything
	cgroupFD = 5 // the cgroup to start the action in, if there is one
	homeFD   = 6 // and that of the supervisor
)

// maxProcesses bounds the processes of the action's user. Root has no limit.
const maxProcesses = 4096

// orders are the daemon's requests.
type orders struct {
	end, kill chan struct{}
}

// Supervise runs one action as described by the arguments, until all processes that it
// started have ended. It returns the supervisor's exit status.
func Supervise(args []string) int {
	report := os.NewFile(reportFD, "report")
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(orderFD)
	// Not ignored, as the action would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	if err := supervise(args, report); err != nil {
		fmt.Fprintf(report, "error %v\n", err)
		return 1
	}
	return 0
}

func supervise(args []string, report *os.File) error {
	if len(args) < 9 {
		return errors.New("the supervisor is internal: it is started by the daemon")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	credential, err := parseCredential(args[:3])
	if err != nil {
		return err
	}
	limits, err := parseBounds(args[3:6])
	if err != nil {
		return err
	}
	if credential != nil {
		linux.LowerLimit(unix.RLIMIT_NPROC, maxProcesses)
	}
	linux.LimitPriority()
	restore := limits.limitData()
	o := orders{end: make(chan struct{}), kill: make(chan struct{})}
	go o.listen()
	// Signal masks, parent-death signals and timer slack are per thread.
	runtime.LockOSThread()
	_ = linux.SetTimerSlack(linux.OrdinarySlack) // what the daemon has is not for others' programs
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Setsid: true, Credential: credential}
	if args[6] == "true" {
		syscall.CloseOnExec(cgroupFD)
		syscall.CloseOnExec(homeFD)
		attr.UseCgroupFD, attr.CgroupFD, limits.cgroup = true, cgroupFD, cgroupFD
	}
	start := func() (int, error) {
		return syscall.ForkExec(args[7], args[8:], &syscall.ProcAttr{ //nolint:gosec // the program of an action is the operator's, from a rule file
			Dir: dir, Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attr,
		})
	}
	pid, err := start()
	if attr.UseCgroupFD && errors.Is(err, unix.ENOSYS) { // clone3(2) is filtered, as by RestrictNamespaces= of systemd
		attr.UseCgroupFD = false
		pid, err = within(start)
	}
	restore()
	if err != nil {
		return fmt.Errorf("start: %w", &os.PathError{Op: "exec", Path: args[7], Err: err})
	}
	fmt.Fprintf(report, "started %d\n", pid)
	ended := make(chan syscall.WaitStatus, 1)
	none := make(chan struct{})
	go reap(pid, ended, none)
	over := make(chan string, 1)
	go limits.watch(over, report)

	select {
	case status := <-ended:
		tell(report, status)
	case <-o.end:
		signalGroup(pid, unix.SIGTERM)
		select {
		case <-none:
		case <-o.kill:
		}
	case what := <-over:
		fmt.Fprintf(report, "over %s\n", what)
	case <-o.kill:
	}
	killAll(none)
	fmt.Fprintf(report, "cpu %d\n", cpuTime(nil))
	select {
	case status := <-ended:
		tell(report, status)
	default:
	}
	return nil
}

func tell(report *os.File, s syscall.WaitStatus) {
	if s.Signaled() {
		fmt.Fprintf(report, "signal %d\n", int(s.Signal()))
	} else {
		fmt.Fprintf(report, "exit %d\n", s.ExitStatus())
	}
}

// listen reads the daemon's requests. EOF means that the daemon died.
func (o *orders) listen() {
	buf := make([]byte, 1)
	if n, _ := syscall.Read(orderFD, buf); n > 0 {
		close(o.end)
		for n > 0 {
			n, _ = syscall.Read(orderFD, buf)
		}
	}
	close(o.kill)
}

// reap waits for all children; none is closed when there are no more.
func reap(main int, ended chan<- syscall.WaitStatus, none chan<- struct{}) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(none)
			return
		case pid == main:
			ended <- status
		}
	}
}

// killAll kills all descendants, repeatedly, as some may be forking.
func killAll(none <-chan struct{}) {
	for {
		for _, pid := range descendants(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL) // may have ended
		}
		select {
		case <-none:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// descendants lists the living descendants of a process.
func descendants(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone
		}
		// pid (comm) state ppid …: comm may contain anything, so parse from the last
		// parenthesis.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for queue := children[pid]; len(queue) > 0; {
		all = append(all, queue[0])
		queue = append(queue[1:], children[queue[0]]...)
	}
	return all
}

// credentialArgs formats the identity of the action: uid, gid, groups.
func credentialArgs(id *identity) []string {
	if id == nil {
		return []string{"", "", ""}
	}
	var groups []string
	for _, g := range id.groups {
		groups = append(groups, strconv.FormatUint(uint64(g), 10))
	}
	return []string{strconv.FormatUint(uint64(id.uid), 10), strconv.FormatUint(uint64(id.gid), 10), strings.Join(groups, ",")}
}

func parseCredential(args []string) (*syscall.Credential, error) {
	if args[0] == "" {
		return nil, nil
	}
	number := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return ^uint32(0) // no valid id: refused by the kernel
		}
		return uint32(n)
	}
	c := &syscall.Credential{Uid: number(args[0]), Gid: number(args[1])}
	for g := range strings.SplitSeq(args[2], ",") {
		if g != "" {
			c.Groups = append(c.Groups, number(g))
		}
	}
	return c, nil
}
