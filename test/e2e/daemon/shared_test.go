package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	tailcamclient "github.com/tailcam/tailcam/clients/go"
	asked "github.com/tailcam/tailcam/internal/activities/ask"
)

// TestSharedRows: what is known of a process, and not of which of its tokens, is in the
// table and in rows of a kind of their own, with the numbers that the process reads itself.
func TestSharedRows(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(entry("other", "wakeup", "1h", "{comm: sleep}")),
		"--activities-enabled", "true", "--activities-groups", "scheduler,block,pagecache,interrupts")
	h, err := tailcamclient.Open(d.socket, nil)
	assert.NilError(t, err)
	defer h.Close()
	th := h.Thread()
	defer th.Release()
	const half = 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "both"))
	assert.NilError(t, err)
	defer f.Close()
	unix.Sync()
	for i := range int64(2) {
		th.Switch(h.Token("writer"))
		_, err := f.WriteAt(make([]byte, half), i*half)
		assert.NilError(t, err)
		th.Switch(0)
	}
	assert.NilError(t, unix.Syncfs(int(f.Fd())))
	eventually(t, "an interrupt comes on top of a thread", func() bool {
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		}
		return h.Shared().MachineNS > 0
	})

	rows := func(args ...string) map[string]asked.Row {
		kinds := map[string]asked.Row{}
		for _, r := range lines[asked.Row](t, d.ok(append([]string{"activities", "-o", "json"}, args...)...)) {
			if r.Kind != "" {
				kinds[r.Kind] = r
			}
		}
		return kinds
	}
	eventually(t, "a scan has seen the process", func() bool { return len(rows()) == 2 })
	before := h.Shared()
	assert.Check(t, before.WritebackBytes >= 2*half, "%+v", before)
	all := rows()
	after := h.Shared()
	between := func(from, n, to uint64) bool { return from <= n && n <= to }
	assert.Check(t, between(before.WritebackBytes, all["shared"].Values["writeback_bytes"], after.WritebackBytes), "%+v", all)
	assert.Check(t, between(before.MachineNS, all["machine"].Values["machine_ns"], after.MachineNS), "%+v", all)
	pid := strconv.Itoa(os.Getpid())
	mine := rows("--by", "pid", "--filter", "pid="+pid)
	assert.Check(t, mine["shared"].Key == pid && mine["shared"].Values["writeback_bytes"] >= before.WritebackBytes, "%+v", mine)
	assert.Check(t, is.Len(rows("--filter", "name=writer"), 0))
	shown := d.ok("activities")
	for _, want := range []string{"NOT OF ONE", "shared ", "writeback_bytes", "machine ", "machine_ns"} {
		assert.Check(t, strings.Contains(shown, want), "no %q in %s", want, shown)
	}
}
