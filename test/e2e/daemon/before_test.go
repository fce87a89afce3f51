package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
)

// TestBefore: an outlier's wait is told beside the many before it, of the same thread in the
// same call, and what took longer is named: here the writer, who came late.
func TestBefore(t *testing.T) {
	needRoot(t)
	const often, late = 60, 60 * time.Millisecond
	cat := filepath.Join(publicDir(t, ""), "cat-before")
	out, err := exec.Command("cp", "--dereference", "/bin/cat", cat).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	d := start(t, rulesFile(entry("reads", "offcpu", "50ms", "{comm: cat-before}", "snapshot: {after: 5ms, every: 1us, burst: 100}")))
	reader := exec.Command(cat)
	pipe, err := reader.StdinPipe()
	assert.NilError(t, err)
	reader.Stdout = io.Discard
	assert.NilError(t, reader.Start())
	runtime.LockOSThread() // who writes is one thread, which sleeps itself
	defer runtime.UnlockOSThread()
	for range often {
		sleepAsThread(t, 2*time.Millisecond)
		_, err = pipe.Write([]byte{'x'})
		assert.NilError(t, err)
	}
	var b *explain.Before
	for round := 1; b == nil || len(b.Changes) == 0; round++ { // on a busy machine those before may have been late, too
		assert.Assert(t, round <= 30, "nothing differs: %+v", b)
		before := len(d.list())
		sleepAsThread(t, late)
		_, err = pipe.Write([]byte{'x'})
		assert.NilError(t, err)
		eventually(t, "a snapshot", func() bool { return len(d.list()) > before })
		dir := d.list()[before].Dir
		var r explain.Report
		assert.NilError(t, json.Unmarshal([]byte(readText(t, dir, snapshot.ExplainJSONFile)), &r))
		if b = r.Outliers[0].Before; b != nil {
			text := readText(t, dir, snapshot.ExplainTextFile)
			assert.Check(t, strings.Contains(text, b.Text("")), "%s", text)
		}
		for range 2 * round {
			sleepAsThread(t, 2*time.Millisecond)
			_, err = pipe.Write([]byte{'x'})
			assert.NilError(t, err)
		}
	}
	assert.NilError(t, pipe.Close())
	assert.NilError(t, reader.Wait())
	assert.Check(t, b.Of == "waits" && b.In == "read" && b.Whose == "thread" && b.NS >= int64(late) && b.Count >= 8 &&
		b.MedianNS < b.NS/2 && b.Compared >= 5 && b.Changes[0].NS > b.Changes[0].BeforeNS, "%+v", b)
}

// sleepAsThread sleeps in the kernel, where the runtime would let another thread wait.
func sleepAsThread(t *testing.T, d time.Duration) {
	t.Helper()
	left := unix.NsecToTimespec(d.Nanoseconds())
	for {
		err := unix.Nanosleep(&left, &left)
		if !errors.Is(err, unix.EINTR) {
			assert.NilError(t, err)
			return
		}
	}
}
