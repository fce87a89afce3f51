package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	client "github.com/tailcam/tailcam/clients/go"
	"github.com/tailcam/tailcam/internal/pagecache"
)

// TestCacheRequests: tailcam cache asks the daemon which request a task worked for as it had pages of a
// file leave, and what it is called.
func TestCacheRequests(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(entry("sleeps", "offcpu", "1h", "{comm: nobody}", "snapshot: false")), "--activities-enabled", "true")
	h, err := client.Open(d.socket, nil)
	assert.NilError(t, err)
	defer h.Close()
	dir, err := os.MkdirTemp(".", ".cache-") // on a disk, which the usual place may not be
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	path, err := filepath.Abs(filepath.Join(dir, "file"))
	assert.NilError(t, err)
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()

	token, stop, stopped := h.Token("report"), make(chan struct{}), make(chan error)
	go func() {
		thread := h.Thread()
		defer thread.Release()
		thread.Switch(token)
		defer thread.Switch(0)
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			_, err := f.WriteAt(make([]byte, os.Getpagesize()), 0)
			if err == nil {
				err = f.Sync()
			}
			if err == nil {
				err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
			}
			if err != nil {
				<-stop
				stopped <- err
				return
			}
		}
	}()
	out := d.ok("cache", "--for", "2s", "--file", path, "-o", "json")
	shown := d.verb("cache", "--for", "1s", "--file", path)
	close(stop)
	assert.NilError(t, <-stopped)

	report := lines[pagecache.Report](t, out)[0]
	assert.Assert(t, len(report.Files) == 1, "%s", out)
	removers := report.Files[0].RemovedBy
	i := slices.IndexFunc(removers, func(r pagecache.Remover) bool { return r.PID == os.Getpid() && r.How == "invalidate" })
	assert.Assert(t, i >= 0, "%s", out)
	requests := removers[i].Requests
	assert.Assert(t, len(requests) == 1 && requests[0].Name == "report" && requests[0].Pages > 0, "%s", out)
	want := fmt.Sprintf(".%d.%d", uint32(token), token>>32)
	assert.Assert(t, strings.HasSuffix(requests[0].Token, want), "%s, not ...%s", requests[0].Token, want)
	assert.Assert(t, shown.code == 0 && strings.Contains(shown.out, "report, token "+requests[0].Token), "%+v", shown)
}
