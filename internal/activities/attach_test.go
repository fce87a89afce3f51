package activities

import (
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/accounts"
)

// attachedPrograms counts the links of the machine whose program is one of the kernel side.
func attachedPrograms(t *testing.T, a *Activities) (n int) {
	t.Helper()
	ours := map[ebpf.ProgramID]bool{}
	for _, c := range a.kernel.loaded {
		for _, p := range c.Programs {
			info, err := p.Info()
			assert.NilError(t, err)
			id, _ := info.ID()
			ours[id] = true
		}
	}
	for {
		it := new(link.Iterator)
		n = 0
		for it.Next() {
			if info, err := it.Link.Info(); err == nil && ours[info.Program] {
				n++
			}
		}
		err := it.Err()
		it.Close()
		if !errors.Is(err, unix.EAGAIN) { // another one makes a link that has no descriptor yet
			assert.NilError(t, err)
			return n
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if is() {
			return poll.Success()
		}
		return poll.Continue("%s", what)
	}, poll.WithTimeout(30*time.Second), poll.WithDelay(10*time.Millisecond))
}

// sleeper is a process that only sleeps, as an opening.
func sleeper(t *testing.T) *Opening {
	t.Helper()
	sleeps := exec.CommandContext(t.Context(), "sleep", "1000")
	assert.NilError(t, sleeps.Start())
	t.Cleanup(func() { _ = sleeps.Process.Kill(); _ = sleeps.Wait() })
	fd, err := unix.PidfdOpen(sleeps.Process.Pid, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, unix.Close(fd)) })
	return &Opening{PID: sleeps.Process.Pid, PidFD: fd, Threads: 8, Tokens: 64, Wait: 4 * time.Second}
}

// Nothing is attached while nobody takes part: before the first process opens, and some time
// after the last one has left.
func TestAttachedWhileUsed(t *testing.T) {
	a := start(t, &Options{Groups: accounts.Names(), Linger: 300 * time.Millisecond})
	assert.Equal(t, attachedPrograms(t, a), 0)
	begin := time.Now()
	first, err := a.Open(sleeper(t))
	assert.NilError(t, err)
	t.Logf("the first opening took %s", time.Since(begin))
	all := attachedPrograms(t, a)
	assert.Check(t, all >= len(required)+len(a.kernel.programs), "%d", all)

	begin = time.Now()
	second, err := a.Open(sleeper(t))
	assert.NilError(t, err)
	t.Logf("the second one took %s", time.Since(begin))
	first.Close()
	time.Sleep(2 * a.hooks.linger)
	assert.Equal(t, attachedPrograms(t, a), all)
	second.Close()
	assert.Equal(t, attachedPrograms(t, a), all)
	eventually(t, "still attached", func() bool { return attachedPrograms(t, a) == 0 })

	declared, err := a.OpenDeclared()
	assert.NilError(t, err)
	time.Sleep(2 * a.hooks.linger)
	assert.Equal(t, attachedPrograms(t, a), all)
	declared.Close()
	eventually(t, "still attached", func() bool { return attachedPrograms(t, a) == 0 })
}

// A process that is refused does not have the programs attached.
func TestAttachedForNobodyRefused(t *testing.T) {
	a := start(t, &Options{Memory: 1})
	_, err := a.Open(sleeper(t))
	assert.ErrorIs(t, err, ErrQuota)
	assert.Equal(t, attachedPrograms(t, a), 0)
}

// Whoever opens has an account of all it does from the first moment on, however the programs
// are being attached and detached at that time.
func TestAttachedInTime(t *testing.T) {
	a := start(t, &Options{Linger: time.Microsecond})
	stop := make(chan struct{})
	var others sync.WaitGroup
	o := sleeper(t)
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p, err := a.Open(o)
			if assert.Check(t, err) {
				p.Close()
			}
		}
	})
	for range 30 {
		c, p := newClient(t, a, Opening{Wait: 4 * time.Second})
		token := c.begin()
		c.onThread(func(s *thread) {
			s.carry(token)
			for range 10 { // of which the machine may keep some from every tracer
				ts := unix.NsecToTimespec(200_000)
				_ = unix.Nanosleep(&ts, nil)
			}
			s.carry(0)
		})
		m := c.read(token)
		assert.Check(t, m.value[abi.ActivitySwitches] > 0 && m.value[abi.ActivityBlockedTimerNs] > 0, "%+v", m)
		p.Close()
	}
	close(stop)
	others.Wait()
	eventually(t, "still attached", func() bool { return attachedPrograms(t, a) == 0 })
}

// What the kernel side has seen of interrupts is forgotten before it is attached again.
func TestAttachedAgain(t *testing.T) {
	a := start(t, &Options{Groups: []string{accounts.Interrupts}, Linger: time.Microsecond})
	times := a.kernel.shared["interrupt_times"]
	cpus, err := ebpf.PossibleCPU()
	assert.NilError(t, err)
	stuck := make([][]byte, cpus)
	for i := range stuck {
		stuck[i] = make([]byte, times.ValueSize())
		stuck[i][8] = 100 // the depth
	}
	assert.NilError(t, times.Put(uint32(0), stuck))
	p, err := a.Open(sleeper(t))
	assert.NilError(t, err)
	defer p.Close()
	now := make([][]byte, cpus)
	assert.NilError(t, times.Lookup(uint32(0), &now))
	for _, cpu := range now {
		assert.Check(t, cpu[8] < 50, "%v", now)
	}
}
