package detect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// shipped takes a rule that is shipped, for one process and with another
// threshold, so that a test need not be as slow as production may be.
func shipped(t *testing.T, name string, threshold time.Duration, when rules.Match) []rules.Rule {
	t.Helper()
	list, err := rules.Load([]string{"../../../configs/rules.more"}, &rules.LocalMachine{})
	assert.NilError(t, err)
	i := slices.IndexFunc(list, func(r rules.Rule) bool { return r.Name == name })
	assert.Assert(t, i >= 0, "no rule %s is shipped", name)
	r := list[i]
	r.Threshold, r.When, r.Snapshot.Enabled = threshold, when, false
	r.Timeout = 0
	return []rules.Rule{r}
}

func self() rules.Match { return rules.Match{PID: []uint32{uint32(os.Getpid())}} }

// within demands that o is as long as what was injected, on the injector's clock.
func within(t *testing.T, o *events.Outlier, begin, end int64) {
	t.Helper()
	assert.Check(t, int64(o.StartMono) >= begin && int64(o.EndMono) <= end,
		"from %d to %d, injected %d to %d", o.StartMono, o.EndMono, begin, end)
}

// A packet that waits for its reader, among packets that do not.
func TestShippedNetReceive(t *testing.T) {
	c := watch(t, shipped(t, "net-receive", 20*time.Millisecond, self()), &tracker.Options{TrackSelf: true})
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer server.Close()
	sender, err := net.Dial("tcp4", server.Addr().String())
	assert.NilError(t, err)
	defer sender.Close()
	reader, err := server.Accept()
	assert.NilError(t, err)
	defer reader.Close()
	late := 0
	send := func(n int) {
		_, err := sender.Write(make([]byte, n))
		assert.NilError(t, err)
	}
	receive := func() {
		_, err := reader.Read(make([]byte, 2000))
		assert.NilError(t, err)
	}
	for range 500 {
		begin := time.Now()
		send(100)
		if receive(); time.Since(begin) >= 20*time.Millisecond {
			late++ // the machine may have made it slow
		}
	}
	begin := int64(linux.Monotonic())
	send(777)
	time.Sleep(40 * time.Millisecond)
	receive()
	end := int64(linux.Monotonic())
	got := c.settle()
	assert.Assert(t, len(got) != 0 && len(got) <= 1+late,
		"%d outliers, want one, and at most %d more", len(got), late)
	o := got[len(got)-1]
	t.Logf("%v, labels %v", time.Duration(o.DelayNS), o.Labels)
	within(t, o, begin, end)
	assert.Check(t, o.DelayNS >= (40*time.Millisecond).Nanoseconds() && o.Labels["device"] == "lo" &&
		o.Labels["taken"] == int64(777), "outlier %+v", o)
}

// A connection whose first packets find the other side's queue full.
func TestShippedTCPConnect(t *testing.T) {
	c := watch(t, shipped(t, "tcp-connect", 200*time.Millisecond, rules.Match{}), &tracker.Options{TrackSelf: true})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	assert.NilError(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1)))
	name, err := unix.Getsockname(fd)
	assert.NilError(t, err)
	port := name.(*unix.SockaddrInet4).Port
	address := "127.0.0.1:" + strconv.Itoa(port)
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	connect := func() time.Duration {
		begin := time.Now()
		conn, err := net.DialTimeout("tcp4", address, 10*time.Second)
		assert.NilError(t, err)
		open = append(open, conn)
		return time.Since(begin)
	}
	fast := []time.Duration{connect(), connect()} // they fill the queue
	time.AfterFunc(300*time.Millisecond, func() {
		for range 2 {
			if peer, _, err := unix.Accept(fd); err == nil {
				unix.Close(peer)
			}
		}
	})
	begin := int64(linux.Monotonic())
	took := connect()
	end := int64(linux.Monotonic())
	var mine []*events.Outlier
	for _, o := range c.settle() {
		if o.Labels["port"] == int64(port) || o.Labels["port"] == uint64(port) {
			mine = append(mine, o)
		}
	}
	assert.Assert(t, len(mine) == 1, "%d outliers, want one: connected after %v and %v", len(mine), fast, took)
	o := mine[0]
	t.Logf("%v of %v, labels %v", time.Duration(o.DelayNS), took, o.Labels)
	within(t, o, begin, end)
	assert.Check(t, o.Labels["source"] == "127.0.0.1" && o.Labels["destination"] == "127.0.0.1",
		"labels %v", o.Labels)
}

// A server that thinks before it answers, among connections that it answers at once or drops.
func TestShippedFirstByte(t *testing.T) {
	c := watch(t, shipped(t, "first-byte", 20*time.Millisecond, self()), &tracker.Options{TrackSelf: true})
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer server.Close()
	var began, ended int64
	serve := func(pause time.Duration, answer bool) {
		t.Helper()
		var wait sync.WaitGroup
		wait.Add(1)
		go func() {
			defer wait.Done()
			client, err := net.Dial("tcp4", server.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer client.Close()
			client.Read(make([]byte, 1)) // until it answers or closes
		}()
		began = int64(linux.Monotonic())
		conn, err := server.Accept()
		assert.NilError(t, err)
		time.Sleep(pause)
		if answer {
			_, err := conn.Write([]byte("x"))
			assert.NilError(t, err)
			ended = int64(linux.Monotonic())
		}
		conn.Close()
		wait.Wait()
	}
	late := 0
	for range 50 {
		begin := time.Now()
		if serve(0, true); time.Since(begin) >= 20*time.Millisecond {
			late++ // the machine may have made it slow
		}
	}
	serve(50*time.Millisecond, false) // closed without an answer
	serve(50*time.Millisecond, true)
	got := c.settle()
	assert.Assert(t, len(got) != 0 && len(got) <= 1+late,
		"%d outliers, want one, and at most %d more", len(got), late)
	o := got[len(got)-1]
	t.Logf("%v, key %v", time.Duration(o.DelayNS), o.Key)
	within(t, o, began, ended)
	assert.Check(t, o.DelayNS >= (50*time.Millisecond).Nanoseconds() && o.Task.PID == os.Getpid(), "outlier %+v", o)
}

// fsync of a file with much to write, with the inode that it is.
func TestShippedExt4Sync(t *testing.T) {
	needRoot(t)
	disk := newOrdinary(t, 1<<20)
	var fs unix.Statfs_t
	assert.NilError(t, unix.Statfs(disk.path, &fs))
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Skipf("needs a file on ext4, but %s is of type %#x", disk.path, fs.Type)
	}
	c := watch(t, shipped(t, "ext4-sync", time.Microsecond, self()), &tracker.Options{TrackSelf: true})
	f, err := os.OpenFile(disk.path, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer f.Close()
	var st unix.Stat_t
	assert.NilError(t, unix.Fstat(int(f.Fd()), &st))
	type span struct{ begin, end int64 }
	var syncs []span
	for range 20 {
		_, err := f.WriteAt(make([]byte, 1<<20), 0)
		assert.NilError(t, err)
		begin := int64(linux.Monotonic())
		assert.NilError(t, f.Sync())
		syncs = append(syncs, span{begin, int64(linux.Monotonic())})
	}
	got := c.settle()
	assert.Assert(t, len(got) == len(syncs), "%d outliers of %d calls", len(got), len(syncs))
	for i, o := range got {
		within(t, o, syncs[i].begin, syncs[i].end)
		assert.Check(t, fmt.Sprint(o.Labels["inode"]) == fmt.Sprint(st.Ino) && fmt.Sprint(o.Labels["error"]) == "0",
			"labels %v, want inode %d", o.Labels, st.Ino)
	}
	t.Logf("the last %v, labels %v", time.Duration(got[len(got)-1].DelayNS), got[len(got)-1].Labels)
}

// A lock of a program that is held, by the C injector's clock.
func TestShippedFutex(t *testing.T) {
	list := shipped(t, "futex-wait", 10*time.Millisecond, rules.Match{Comm: []string{"inj-syscall"}})
	c := watch(t, list, nil)
	injected := inject.Run(t, "syscall", "futex", "50", micros(20*time.Millisecond), "500", micros(5*time.Millisecond), "8")
	found := c.balance(t, 10*time.Millisecond, injected, c.settle(), "futex-wait").check(45, 400)
	for _, p := range found {
		assert.Check(t, p.reports[0].Labels["address"] != nil, "labels %v", p.reports[0].Labels)
	}
}

// Contention on the address space of a process: threads that map and unmap.
func TestShippedLockWait(t *testing.T) {
	c := watch(t, shipped(t, "lock-wait", 50*time.Microsecond, self()), &tracker.Options{TrackSelf: true, Buffer: 64 << 20})
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	var wait sync.WaitGroup
	for range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for ctx.Err() == nil {
				b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
				if err != nil {
					t.Error(err)
					return
				}
				assert.Check(t, unix.Munmap(b))
			}
		}()
	}
	wait.Wait()
	c.arrived() // a lock that a program of ours meets inside another's is left out, and counted
	got := c.from(0)
	assert.Assert(t, len(got) != 0, "no lock was waited for")
	sleeps := 0
	for _, o := range got {
		if frames, err := c.names.Kernel(o.Raw.Kernel); err == nil && strings.Contains(strings.Join(frames.Frames, " "), "rwsem_down") {
			sleeps++
		}
	}
	t.Logf("%d waits, %d of them for a semaphore; the last %v, labels %v", len(got), sleeps, time.Duration(got[len(got)-1].DelayNS), got[len(got)-1].Labels)
	assert.Check(t, sleeps != 0, "none waited for the lock of the address space")
}

// Work that the kernel queues: from the queue to the worker, and its run.
func TestShippedWorkQueue(t *testing.T) {
	list := append(shipped(t, "work-queue-wait", time.Microsecond, rules.Match{Phase: []rules.Phase{rules.Wait}}),
		shipped(t, "work-queue-run", time.Microsecond, rules.Match{Phase: []rules.Phase{rules.Run}})...)
	for i := range list {
		list[i].Stacks = nil // which timeouts alone have, and the test has none
	}
	c := watch(t, list, nil)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	assert.NilError(t, err)
	defer f.Close()
	for range 20 {
		assert.NilError(t, errors.Join(f.Truncate(0), write(f, 1<<16), f.Sync()))
	}
	c.eventually("work is reported", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.received["work-queue-wait"] == 0 || c.received["work-queue-run"] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	for _, o := range c.settle() {
		w := o.Work
		assert.Assert(t, w != nil && w.Address != 0 && "work-queue-"+w.Phase == o.Rule &&
			(w.Phase != "wait" || w.Queue != "" && w.QueuedBy != nil), "rule %s reported %+v", o.Rule, w)
	}
}

func write(f *os.File, n int) error {
	_, err := f.Write(make([]byte, n))
	return err
}

// A process whose cgroup has too little memory makes room itself.
func TestShippedDirectReclaim(t *testing.T) {
	needRoot(t)
	g := provoke.NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", fmt.Sprint(16<<20))
	c := watch(t, shipped(t, "direct-reclaim", time.Microsecond, rules.Match{Comm: []string{"dd"}}), nil)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo $$ > "+g.Dir+"/cgroup.procs && exec dd if=/dev/zero of="+filepath.Join(t.TempDir(), "f")+" bs=1M count=64")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	got := c.settle()
	assert.Assert(t, len(got) != 0, "no reclaim was reported")
	for _, o := range got {
		assert.Check(t, o.Task.PID == cmd.Process.Pid, "task %+v, want %d", o.Task, cmd.Process.Pid)
	}
	t.Logf("%d reclaims; the last %v, labels %v", len(got), time.Duration(got[len(got)-1].DelayNS), got[len(got)-1].Labels)
}
