package detect

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker"
)

// softirqRun is one softirq net_rx as the recorder has it, and whom it woke.
type softirqRun struct {
	entry, exit uint64
	tid         int
	woke        []trace.Wake
}

// recordedRuns reads what a CPU has recorded since the last call: runs of net_rx, and
// how many were added up.
func recordedRuns(t *testing.T, ring flight.Recorder, cpu int) (runs []softirqRun, short trace.ShortRuns) {
	t.Helper()
	_, err := ring.Freeze()
	assert.NilError(t, err)
	drained, err := ring.Drain()
	assert.NilError(t, err)
	assert.NilError(t, ring.Release())
	var open *softirqRun
	for _, s := range drained.CPUs {
		if s.CPU != cpu {
			continue
		}
		assert.Check(t, s.Missing == 0)
		records := trace.Unfold(s.Records, 0)
		for i := range records {
			ev, err := records[i].Decode()
			assert.NilError(t, err)
			switch b := ev.Body.(type) {
			case trace.Softirq:
				switch {
				case b.Vec != cpus.NetRX:
				case ev.Type == trace.SoftirqEntry:
					assert.Check(t, open == nil, "an entry within a run")
					open = &softirqRun{entry: ev.Time, tid: ev.TID}
				case open == nil:
					t.Error("an exit without its entry")
				default:
					open.exit = ev.Time
					runs = append(runs, *open)
					open = nil
				}
			case trace.Wake:
				if open != nil {
					open.woke = append(open.woke, b)
				}
			case trace.ShortRuns:
				if b.Vec == cpus.NetRX {
					short.Count += b.Count
					short.NS += b.NS
				}
			}
		}
	}
	assert.Check(t, open == nil)
	return runs, short
}

// datagrams are two sockets that no other thread waits for: their softirqs wake nobody.
func datagrams(t *testing.T) (send func(), receive func()) {
	t.Helper()
	var fds [2]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		assert.NilError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		fds[i] = fd
	}
	assert.NilError(t, unix.Bind(fds[0], &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	to, err := unix.Getsockname(fds[0])
	assert.NilError(t, err)
	assert.NilError(t, unix.Connect(fds[1], to))
	return func() {
			_, err := unix.Write(fds[1], []byte("x"))
			assert.Check(t, err)
		}, func() {
			_, err := unix.Read(fds[0], make([]byte, 1))
			assert.Check(t, err)
		}
}

// irqFloor is what only a softirq that is made long reaches.
const irqFloor = 50 * time.Millisecond

// TestIRQFloor: a softirq that is long has a record, and one that wakes somebody, however
// short. Of others the sum is recorded, which is at most what they can have taken.
func TestIRQFloor(t *testing.T) {
	needRoot(t)
	cpu := pinned(t)
	send, receive := datagrams(t)
	kernel, err := tracker.New(nil, &tracker.Options{Groups: []string{"sched", "irq"}, Ring: 4 << 20, IRQFloor: irqFloor, TrackSelf: true})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kernel.Close()) })
	ring, err := flight.New(kernel, flight.BackendMmap, 4<<20)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, ring.Close()) })
	assert.NilError(t, kernel.Attach())
	softirqLong(t, ring, cpu, func() { send(); receive() })
	softirqsShort(t, ring, cpu, func() { send(); receive() })
	softirqWakes(t, ring, cpu, send, receive)
}

func softirqLong(t *testing.T, ring flight.Recorder, cpu int, exchange func()) {
	t.Helper()
	s := slowirq.Attach(t, "softirq_entry", cpus.NetRX, true, irqFloor+10*time.Millisecond)
	recordedRuns(t, ring, cpu)
	s.Arm()
	truth, err := s.Wait(exchange)
	assert.NilError(t, err)
	runs, _ := recordedRuns(t, ring, cpu)
	found := 0
	for _, r := range runs {
		if r.entry <= truth.Start && r.exit >= truth.End && r.tid == unix.Gettid() {
			found++
		}
	}
	assert.Check(t, found == 1, "%d runs from before %d to after %d: %+v", found, truth.Start, truth.End, runs)
}

func softirqsShort(t *testing.T, ring flight.Recorder, cpu int, exchange func()) {
	t.Helper()
	var short trace.ShortRuns
	sent := uint32(0)
	for try := 0; short.Count == 0 && try < 50; try++ { // too few of a slow machine make no sum
		recordedRuns(t, ring, cpu)
		begin := time.Now()
		for range 2000 {
			exchange()
			sent++
		}
		took := time.Since(begin)
		runs, s := recordedRuns(t, ring, cpu)
		for _, r := range runs {
			assert.Check(t, len(r.woke) > 0 || time.Duration(r.exit-r.entry) >= irqFloor,
				"a run of %v that woke nobody", time.Duration(r.exit-r.entry))
		}
		assert.Check(t, s.NS <= uint64(took), "%v of %v", time.Duration(s.NS), took)
		short.Count += s.Count
	}
	t.Logf("%d added up of %d", short.Count, sent)
	assert.Check(t, short.Count > 0)
}

func softirqWakes(t *testing.T, ring flight.Recorder, cpu int, send, receive func()) {
	t.Helper()
	ready, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		ready <- unix.Gettid()
		receive()
	}()
	reader := <-ready
	found := false
	for try := 0; !found && try < 200; try++ { // the reader must have begun to wait
		time.Sleep(5 * time.Millisecond)
		recordedRuns(t, ring, cpu)
		send()
		runs, _ := recordedRuns(t, ring, cpu)
		for _, r := range runs {
			for _, w := range r.woke {
				if w.TID != reader {
					continue
				}
				kind, vec := w.Runs()
				assert.Check(t, kind == trace.SoftirqEntry && vec == cpus.NetRX, "woken by %v %d", kind, vec)
				found = true
			}
		}
		select {
		case <-done:
			if !found {
				t.Fatal("the reader was woken outside of what is recorded")
			}
		default:
		}
	}
	assert.Check(t, found)
}
