package daemon

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestBesideOtherTracers: others count the run time of BPF programs, and hold all the
// memory that perf rings may lock without CAP_IPC_LOCK. The daemon works beside them with
// rings of plain memory; with perf's, it works if it may lock more, else it says what to change.
func TestBesideOtherTracers(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "its capabilities and limits are the unit's")
	prlimit, setpriv := needTool(t, "prlimit", "util-linux"), needTool(t, "setpriv", "util-linux")
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	assert.NilError(t, err)
	defer stats.Close()
	lockPerfMemory(t)

	uid := newUID()
	works := func(t *testing.T, h *home, d *running) {
		t.Helper()
		naps(t, uid, 3, 5*time.Millisecond, 1)
		settled(t, d, "nap", 3)
		checkSnapshot(t, byHand(d, "beside other tracers"))
		d.stop(syscall.SIGTERM)
	}
	with := func(h *home, backend string, more ...string) []string {
		return append(append(more, prlimit, "--memlock=0:0"), h.command("--recorder-backend", backend)...)
	}
	rules := rulesFile(napRule("nap", uid, "snapshot: {after: 1ms, every: 1ms}"))
	less := []string{setpriv, "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"}
	for _, backend := range []string{"mmap", "perf"} {
		t.Run(backend, func(t *testing.T) {
			h := newHome(t, rules)
			works(t, h, h.exec(t, with(h, backend)))
		})
	}
	t.Run("mmap without CAP_IPC_LOCK", func(t *testing.T) {
		h := newHome(t, rules)
		works(t, h, h.exec(t, with(h, "mmap", less...)))
	})
	t.Run("perf without CAP_IPC_LOCK", func(t *testing.T) {
		h := newHome(t, rules)
		argv := with(h, "perf", less...)
		a := outcome(t, exec.CommandContext(t.Context(), argv[0], argv[1:]...))
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "perf_event_mlock_kb"), "%+v", a)
		_, err := os.Lstat(h.socket)
		assert.Check(t, os.IsNotExist(err), "it has left its socket")
	})
}

// lockPerfMemory maps perf rings until the user's share (kernel.perf_event_mlock_kb for
// each CPU) is used up, for as long as the test runs.
func lockPerfMemory(t *testing.T) {
	t.Helper()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY}
	attr.Size = uint32(unsafe.Sizeof(attr))
	const ring = 4 << 20
	for range 2 {
		fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
		assert.NilError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		m, err := unix.Mmap(fd, 0, os.Getpagesize()+ring, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		assert.NilError(t, err)
		t.Cleanup(func() { _ = unix.Munmap(m) }) // with the test's own end, else
	}
}
