package provoke

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// Spinner is the name of the thread that a child spins in.
const Spinner = "recorded-spin"

const (
	spinVerb = "recorded-spin"
	readVerb = "recorded-read"
)

// Child does what the test program was started for by StartSpinner or
// RunReader, and does not return then. TestMain calls it first.
func Child() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case spinVerb:
		spin()
	case readVerb:
		if err := read(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func spin() {
	runtime.LockOSThread()
	name := append([]byte(Spinner), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		os.Exit(1)
	}
	for {
		_ = time.Now()
	}
}

// StartSpinner starts a process that computes until the end of the test.
func StartSpinner(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", spinVerb)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	assert.NilError(t, child.Start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// read waits for its standard input to end, and reads size bytes of a file.
func read(path, size string) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(io.Discard, f, n)
	return err
}

// RunReader has a process read size bytes of a file, after its id was handed to begin.
func RunReader(t *testing.T, path string, size int, begin func(pid int)) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", readVerb, path, strconv.Itoa(size))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	begin(cmd.Process.Pid)
	assert.Check(t, in.Close())
	assert.NilError(t, cmd.Wait())
}
