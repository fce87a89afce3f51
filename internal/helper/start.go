package helper

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/sandbox"
)

// User is the system user of helpers. If it does not exist they use an unused uid.
const User = "tailcam-helper"

// firstFreeID is where the search for an unused uid starts. Nobody's uid is no choice:
// other processes with it could signal the helpers.
const firstFreeID = 64731

// starter starts helpers on one thread that never ends: with PR_SET_PDEATHSIG the
// kernel kills them when that thread ends.
type starter struct {
	exe      string
	orders   chan func()
	uid, gid int
	// ownUser: helpers run as another user than the daemon.
	ownUser  bool
	ambient  []uintptr // of openers
	guard    *guard.Guard
	missing  string // what reduces the confinement
	children sync.WaitGroup

	mu      sync.Mutex
	pids    []int // of all that run
	changed func(pids []int)
}

// note notes that a process runs, or has ended.
func (s *starter) note(pid int, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if runs {
		s.pids = append(s.pids, pid)
	} else {
		s.pids = slices.DeleteFunc(s.pids, func(other int) bool { return other == pid })
	}
	if s.changed != nil {
		s.changed(s.pids)
	}
}

func newStarter(exe string) (*starter, error) {
	have, err := sandbox.Capabilities()
	if err != nil {
		return nil, err
	}
	s := &starter{exe: exe, orders: make(chan func()), uid: firstFreeID, gid: firstFreeID}
	has := func(c uint) bool { return have&(1<<c) != 0 }
	s.ownUser = has(sandbox.CapSetUID) && has(sandbox.CapSetGID)
	if !s.ownUser {
		s.missing = "helpers run as the daemon's own user: it lacks CAP_SETUID or CAP_SETGID"
	} else if u, err := user.Lookup(User); err == nil {
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			s.uid, s.gid = uid, gid
		}
	} else {
		for idInUse(s.uid) {
			s.uid, s.gid = s.uid+1, s.gid+1
		}
	}
	for _, c := range []uint{sandbox.CapSysPtrace, sandbox.CapCheckpointRestore, sandbox.CapDACReadSearch} {
		if has(c) {
			s.ambient = append(s.ambient, uintptr(c))
		}
	}
	if !has(sandbox.CapDACReadSearch) && has(sandbox.CapDACOverride) {
		s.ambient = append(s.ambient, sandbox.CapDACOverride)
	}
	go func() {
		runtime.LockOSThread()
		_ = linux.SetTimerSlack(linux.LazySlack) // otherwise helpers are as precise as anybody
		for do := range s.orders {
			do()
		}
	}()
	return s, nil
}

// idInUse reports whether a user or group has the id.
func idInUse(id int) bool {
	_, noUser := user.LookupId(strconv.Itoa(id))
	_, noGroup := user.LookupGroupId(strconv.Itoa(id))
	return noUser == nil || noGroup == nil
}

func (s *starter) close() { close(s.orders) }

// child is one process of a helper.
type child struct {
	role   string
	proc   *os.Process
	ended  chan struct{} // closed when the process has exited; state is valid then
	state  *os.ProcessState
	stderr *stderrBuffer
}

// start starts a process with the given files as descriptors 3 and up.
func (s *starter) start(o role, files ...*os.File) (*child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	attr := &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}, Files: append([]*os.File{null, null, write}, files...),
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}, // not reached by signals of a terminal
	}
	if s.ownUser {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}
	}
	if o.name != roleParse {
		attr.Sys.AmbientCaps = s.ambient
	}
	c := &child{role: o.name, ended: make(chan struct{}), stderr: &stderrBuffer{}}
	failed := make(chan error)
	s.orders <- func() {
		var err error
		c.proc, err = os.StartProcess(s.exe, append([]string{"tailcam"}, o.args()...), attr)
		failed <- err
	}
	if err := <-failed; err != nil {
		read.Close()
		return nil, fmt.Errorf("start helper: %w", err)
	}
	go func() {
		_, _ = io.Copy(c.stderr, read)
		read.Close()
	}()
	s.note(c.proc.Pid, true)
	s.children.Go(func() {
		c.state, _ = c.proc.Wait()
		s.note(c.proc.Pid, false)
		close(c.ended)
	})
	return c, nil
}

// stderrBuffer keeps the first bytes of a helper's standard error.
type stderrBuffer struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (s *stderrBuffer) Write(b []byte) (int, error) {
	const most = 4096
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, b[:min(len(b), most-min(most, len(s.text)))]...)
	return len(b), nil
}

// firstLine returns the first line, printable.
func (s *stderrBuffer) firstLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, _, _ := bytes.Cut(s.text, []byte{'\n'})
	return scrub(string(line), 256)
}

// cpu returns the CPU time of the process.
func (c *child) cpu() time.Duration { return linux.ProcessCPU(c.proc.Pid) }

// resident returns the resident memory of the process in bytes.
func (c *child) resident() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.proc.Pid))
	var size, all, shared int64
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &size, &all, &shared); err != nil {
		return 0
	}
	return all * int64(os.Getpagesize())
}
