package loss

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/sequence"
)

// TestMain lets the test program be the generator and the sleepers, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case sequence.Verb:
			os.Exit(sequence.Main(os.Args[2:]))
		case sleepersVerb:
			os.Exit(sleepers(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// sleepersVerb makes it n threads that wait, and are let go at the same time.
const sleepersVerb = "sleep-together"

// sleeperComm is their name.
const sleeperComm = "rec-sleeper"

func sleepers(count string) int {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2
	}
	debug.SetMaxThreads(n + 100)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, "sleepers:", err)
		return 1
	}
	name := append([]byte(sleeperComm), 0)
	var ready, all sync.WaitGroup
	ready.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // without its name it is missed
			ready.Done()
			var b [1]byte
			for {
				if _, err := unix.Read(pipe[0], b[:]); err != unix.EINTR {
					return
				}
			}
		})
	}
	ready.Wait()
	time.Sleep(5 * threshold) // the last one is asleep by then, and slow
	if err := unix.Close(pipe[1]); err != nil {
		return 1
	}
	all.Wait()
	return 0
}
