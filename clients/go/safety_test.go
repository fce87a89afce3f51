package tailcam

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// roleVar makes this test program a process of another user.
const roleVar = "TAILCAM_TEST_CLIENT_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "owner":
		own(os.Args[1], os.Args[2])
	case "thief":
		steal(os.Args[1], os.Args[2])
	default:
		os.Exit(m.Run())
	}
}

// become becomes a user, without anything that root has.
func become(user string) {
	uid, err := strconv.Atoi(user)
	if err == nil && uid != 0 {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid))
	}
	// After another user's id, only root may look at a process unless it says so.
	if err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)); err != nil {
		panic(err)
	}
}

// prey says where the maps of a process are.
type prey struct {
	PID      int
	Conn     int // its connection's descriptor
	Accounts uint64
	Maps     []ebpf.MapID
}

// own opens as a user, says where its maps are, and keeps them until the end of its standard input.
func own(user, path string) {
	become(user)
	h, err := Open(path, nil)
	if err != nil {
		panic(err)
	}
	p := prey{PID: os.Getpid(), Accounts: uint64(uintptr(unsafe.Pointer(&h.accounts[0])))}
	raw, err := h.conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { p.Conn = int(fd) })
	}
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(p)); err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	h.Close()
}

// steal tries, as a user, each way that there is to the maps of a process, and prints which succeeded.
func steal(user, text string) {
	become(user)
	runtime.LockOSThread() // for ptrace
	var p prey
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	taken := map[string]bool{}
	for _, id := range p.Maps {
		m, err := ebpf.NewMapFromID(id)
		taken[fmt.Sprint("map ", id)] = err == nil
		if err == nil {
			m.Close()
		}
	}
	buf := make([]byte, 8)
	_, err := unix.ProcessVMReadv(p.PID, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: uintptr(p.Accounts), Len: 8}}, 0)
	taken["process_vm_readv"] = err == nil
	for _, file := range []string{"mem", "map_files", "fd"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", p.PID, file))
		taken[file] = err == nil
		if err == nil {
			f.Close()
		}
	}
	process, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		panic(err)
	}
	_, err = unix.PidfdGetfd(process, p.Conn, 0)
	taken["pidfd_getfd"] = err == nil
	taken["ptrace"] = unix.PtraceSeize(p.PID) == nil
	if err := json.NewEncoder(os.Stdout).Encode(taken); err != nil {
		panic(err)
	}
}

// TestOtherUser: no way leads another user to the maps of a process. Root has all of them, so they
// are ways.
func TestOtherUser(t *testing.T) {
	k := activitypeer.StartKernel(t)
	const owner, other, root = "65533", "65534", "0"
	p := exec.CommandContext(t.Context(), "/proc/self/exe", owner, k.Path)
	p.Env, p.Stderr = append(os.Environ(), roleVar+"=owner"), os.Stderr
	in, err := p.StdinPipe()
	assert.NilError(t, err)
	out, err := p.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, p.Start())
	defer func() {
		assert.Check(t, in.Close())
		assert.Check(t, p.Wait())
	}()
	var victim prey
	assert.NilError(t, json.NewDecoder(out).Decode(&victim))
	victim.Maps = k.Maps()
	assert.Check(t, is.Len(victim.Maps, 2))
	text, err := json.Marshal(victim)
	assert.NilError(t, err)
	for user, succeeds := range map[string]bool{other: false, root: true} {
		thief := exec.CommandContext(t.Context(), "/proc/self/exe", user, string(text))
		thief.Env, thief.Stderr = append(os.Environ(), roleVar+"=thief"), os.Stderr
		out, err := thief.Output()
		assert.NilError(t, err)
		var taken map[string]bool
		assert.NilError(t, json.Unmarshal(out, &taken))
		assert.Check(t, is.Len(taken, 8))
		for way, has := range taken {
			assert.Check(t, is.Equal(has, succeeds), "user %s, %s", user, way)
		}
	}
}

// TestReopen: a process that closes may open again at once, also while children are started that
// have the descriptor until their exec.
func TestReopen(t *testing.T) {
	k := activitypeer.StartKernel(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.CommandContext(t.Context(), "true").Run()
			}
		}
	}()
	for range 20 {
		h, err := Open(k.Path, nil)
		assert.NilError(t, err)
		assert.Check(t, h.Token("again") != 0)
		h.Close()
	}
	close(stop)
	<-stopped
	assert.Check(t, is.Equal(k.Counts().Refused, uint64(0)))
}
