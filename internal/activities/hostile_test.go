package activities

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/linux"
)

const hostileEnv = "TAILCAM_TEST_HOSTILE"

func TestMain(m *testing.M) {
	if os.Getenv(hostileEnv) != "" {
		scribble()
		return
	}
	os.Exit(m.Run())
}

// scribble fills its own tokens with anything, while its threads come and go, wait and run.
// It takes the map from its parent, which says where it has it.
func scribble() {
	var number int
	_, _ = fmt.Scan(&number)
	parent, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil {
		os.Exit(1)
	}
	fd, err := unix.PidfdGetfd(parent, number, 0)
	if err != nil {
		os.Exit(1)
	}
	n := (1 + abi.ActivityDefaultThreads + abi.ActivityDefaultTokens) * abi.ActivitySharedBytes
	shared, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&shared[0])), n/4)
	for seed := range 4 {
		go func() {
			random := rand.New(rand.NewPCG(2, uint64(seed)))
			for i := 0; ; i++ {
				value := random.Uint32()
				switch random.IntN(4) {
				case 0: // ids of its own threads, and indexes of tokens
					value = uint32(os.Getpid()) + value%16
				case 1:
					value %= 2048
				}
				words[random.IntN(len(words))] = value
				if i%64 == 0 {
					for slot := range abi.ActivityDefaultThreads {
						words[(1+slot)*abi.ActivitySharedBytes/4] = uint32(os.Getpid()) + uint32(random.IntN(16))
					}
					time.Sleep(10 * time.Microsecond)
				}
			}
		}()
	}
	for {
		done := make(chan struct{})
		go func() {
			_ = exec.Command("true").Run() // forks, execs, exits
			close(done)
		}()
		<-done
	}
}

// watched is a process as the daemon's watcher sees it.
type watched struct{ *Process }

func (p watched) Read(fn func(m *watch.Maps)) {
	p.Process.Read(func(shared, accounts []byte) {
		fn(&watch.Maps{Shared: shared, Accounts: accounts, Threads: p.Threads(), Tokens: p.Tokens()})
	})
}

// watchAll reads the maps of all processes over and over, as the daemon does, until ctx is done.
func watchAll(ctx context.Context, a *Activities, hostile *Process) (records int) {
	w := watch.New(&watch.Options{Processes: func() (list []watch.Process) {
		for _, p := range a.Processes() {
			list = append(list, watched{p})
		}
		return list
	}})
	for ctx.Err() == nil {
		w.Scan()
		w.Slow(hostile.Key(), uint32(1+hostile.Threads()+records%hostile.Tokens()))
		r := w.Report(true)
		for _, r := range append(r.Live, r.Ended...) {
			if r.End < r.Begin || r.End > linux.Monotonic() {
				panic(fmt.Sprintf("%+v", r))
			}
			records++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return records
}

// silent opens for a process that does nothing. What it returns says whether anything is in
// its maps but what the daemon has put there.
func silent(t *testing.T, a *Activities) (p *Process, touched func() bool) {
	t.Helper()
	sleeps := exec.CommandContext(t.Context(), "sleep", "1000")
	assert.NilError(t, sleeps.Start())
	t.Cleanup(func() { _ = sleeps.Process.Kill(); _ = sleeps.Wait() })
	fd, err := unix.PidfdOpen(sleeps.Process.Pid, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	p, err = a.Open(&Opening{PID: sleeps.Process.Pid, PidFD: fd, Threads: 8, Tokens: 64})
	assert.NilError(t, err)
	t.Cleanup(p.Close)
	return p, func() (is bool) {
		p.Read(func(shared, accounts []byte) {
			is = len(bytes.Trim(shared, "\x00"))+len(bytes.Trim(accounts[abi.ActivityAccountBytes:], "\x00")) > 0
		})
		return is
	}
}

// table is what the kernel side knows of all processes.
func table(t *testing.T, a *Activities) (list [abi.ActivityProcesses]abi.ActivityProcess) {
	t.Helper()
	for i := range list {
		assert.NilError(t, a.kernel.maps.ActivityProcesses.Lookup(uint32(i), &list[i]))
	}
	return list
}

// Whatever a process writes into its maps, the kernel side with all of its groups survives, and
// so does the daemon, which reads it; the accounts of another process are exact, and nothing is
// written elsewhere.
func TestHostile(t *testing.T) {
	a := start(t, &Options{Groups: accounts.Names()})
	c, _ := newClient(t, a, Opening{})
	_, touched := silent(t, a)
	hostile := exec.Command("/proc/self/exe")
	hostile.Env = append(os.Environ(), hostileEnv+"=1")
	in, err := hostile.StdinPipe()
	assert.NilError(t, err)
	out, err := hostile.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, hostile.Start())
	defer hostile.Process.Kill()
	fd, err := unix.PidfdOpen(hostile.Process.Pid, 0)
	assert.NilError(t, err)
	p, err := a.Open(&Opening{PID: hostile.Process.Pid, PidFD: fd, Inherit: true})
	assert.NilError(t, errors.Join(err, unix.Close(fd)))
	defer p.Close()
	fmt.Fprintln(in, p.maps[0].FD())
	_, err = out.Read(make([]byte, 8))
	assert.NilError(t, err)

	before := table(t, a)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	records := make(chan int, 1)
	go func() { records <- watchAll(ctx, a, p) }()
	token := c.begin()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			c.onThread(func(s *thread) {
				for end := linux.Monotonic() + uint64(3*time.Second); linux.Monotonic() < end; {
					s.carry(token)
					ts := unix.NsecToTimespec(200_000)
					_ = unix.Nanosleep(&ts, nil)
					for next := linux.Monotonic() + 50_000; linux.Monotonic() < next; {
					}
					s.carry(0)
				}
			})
		})
	}
	wg.Wait()
	stop()
	t.Logf("%d times the daemon has read an activity", <-records)
	assert.Check(t, !touched(), "maps of a process that does nothing")
	assert.Check(t, table(t, a) == before)
	assert.NilError(t, hostile.Process.Kill())
	_ = hostile.Wait()
	m := c.read(token)
	parts(t, &m)
	t.Logf("wall %d, unexplained %d, counts %+v", m.wall, m.unexplained(), a.Counts())
	assert.Check(t, m.unexplained() >= 0 && m.value[abi.ActivitySwitches] > 0, "%+v", m)
}
