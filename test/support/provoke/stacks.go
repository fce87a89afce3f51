package provoke

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Stacks provokes a long wait in the kernel, and work in user space and in the kernel, and
// looks for each in the stacks of the history.
func Stacks(t *testing.T, history *History) {
	history = history.with(t)
	resolver := symbols.New(nil)
	has := func(s *trace.Stack, function string) bool {
		frames, err := resolver.KernelNames(slices.DeleteFunc(slices.Clone(s.Frames[:]), func(a uint64) bool { return a == 0 }))
		return err == nil && slices.ContainsFunc(frames, func(f string) bool { return waitsites.Function(f) == function })
	}
	pid := os.Getpid()
	zero, err := os.Open("/dev/zero")
	assert.NilError(t, err)
	defer zero.Close()
	buffer := make([]byte, 8<<20)
	history.Until(func() {
		var pipe [2]int
		assert.NilError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
		time.AfterFunc(25*time.Millisecond, func() { _, _ = unix.Write(pipe[1], []byte{1}) })
		_, err := unix.Read(pipe[0], buffer[:1])
		assert.NilError(t, err)
		for _, fd := range pipe {
			assert.NilError(t, unix.Close(fd))
		}
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
			_, err := zero.Read(buffer)
			assert.NilError(t, err)
		}
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
			memory, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			assert.NilError(t, err)
			assert.NilError(t, unix.Madvise(memory, unix.MADV_POPULATE_WRITE))
			assert.NilError(t, unix.Munmap(memory))
		}
		for end, n := time.Now().Add(50*time.Millisecond), 0; n == 0 || time.Now().Before(end); {
			for n = range 1 << 16 { // mostly in user space, even where the clock is a system call
			}
		}
	}, map[string]func(trace.Event) bool{
		"a wait for a pipe": body(trace.WaitStack, func(_ trace.Event, s trace.Stack) bool {
			return s.PID == pid && !s.User && (has(&s, "pipe_read") || has(&s, "anon_pipe_read"))
		}),
		"a long run in the kernel": body(trace.RunStack, func(_ trace.Event, s trace.Stack) bool {
			interrupt := slices.ContainsFunc([]string{"hrtimer_interrupt", "__hrtimer_run_queues", "asm_sysvec_apic_timer_interrupt", "el1_interrupt"},
				func(f string) bool { return has(&s, f) })
			return s.PID == pid && !s.User && has(&s, "vfs_read") && !interrupt
		}),
		"its outer frames": body(trace.RunStack, func(_ trace.Event, s trace.Stack) bool {
			return s.PID == pid && s.Outer && (has(&s, "handle_mm_fault") || has(&s, "do_madvise"))
		}),
		"a long run in user space": body(trace.RunStack, func(_ trace.Event, s trace.Stack) bool {
			return s.PID == pid && s.User && s.Frames[0] != 0 && s.Frames[0]>>47 == 0
		}),
		"a sample in the kernel": body(trace.Sample, func(_ trace.Event, s trace.Stack) bool {
			return s.PID == pid && !s.User && has(&s, "vfs_read")
		}),
		"a sample in user space": body(trace.Sample, func(_ trace.Event, s trace.Stack) bool {
			return s.PID == pid && s.User && s.Frames[0] != 0 && s.Frames[0]>>47 == 0
		}),
	})
}
