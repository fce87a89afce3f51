package guest

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/pagecache"
)

// TestPagecache: the programs load on every kernel; pages of a disk that are read are told
// as misses, and as hits if the kernel says so, and those that are dropped with who did it.
func TestPagecache(t *testing.T) {
	inGuest(t)
	const bytes = 1 << 20
	want := uint64(bytes / os.Getpagesize())
	f, err := os.Open(slowDisk)
	assert.NilError(t, err)
	defer f.Close()
	drop := func() { assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) }
	drop()
	w, err := pagecache.Open(nil)
	assert.NilError(t, err)
	defer func() { assert.Check(t, w.Close()) }()
	buf := make([]byte, bytes)
	for range 2 {
		n, err := f.ReadAt(buf, 0)
		assert.Assert(t, n == bytes, "%v", err)
	}
	drop()
	assert.NilError(t, w.Read())
	r := w.Report(pagecache.ColumnTotal, 0)
	at := slices.IndexFunc(r.Files, func(f pagecache.File) bool { return "/dev/"+f.Disk == slowDisk })
	assert.Assert(t, at >= 0, "%+v", r)
	got := &r.Files[at]
	// The kernel may read ahead of what was asked for.
	assert.Check(t, got.Misses >= want && got.Misses <= 2*want && got.Evicted == got.Misses && got.CachedPages == 0, "%+v", got)
	assert.Check(t, (got.Hits == nil) == slices.ContainsFunc(r.Missing, func(m pagecache.Missing) bool { return m.Column == pagecache.ColumnHits }), "%+v", r.Missing)
	if got.Hits != nil {
		assert.Check(t, *got.Hits == want && *got.Lookups == 2*want, "%d hits of %d lookups, not %d", *got.Hits, *got.Lookups, want)
	}
	assert.Check(t, len(got.RemovedBy) == 1 && got.RemovedBy[0].How == "invalidate" && got.RemovedBy[0].PID == os.Getpid(), "%+v", got.RemovedBy)
	for _, m := range r.Missing {
		t.Logf("%s: %s", m.Column, m.Reason)
	}
}
