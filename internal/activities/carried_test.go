package activities

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// What a thread carried when it left its CPU is known afterwards, once for each change.
func TestCarried(t *testing.T) {
	a := start(t, nil)
	c, p := newClient(t, a, Opening{})
	var tid uint32
	token := c.begin()
	c.onThread(func(s *thread) {
		tid = s.tid
		s.carry(token)
		for range 20 {
			time.Sleep(100 * time.Microsecond)
		}
		s.carry(0)
		time.Sleep(100 * time.Microsecond)
	})
	list := slices.DeleteFunc(a.Carried(), func(e abi.ActivityCarried) bool { return e.Tid != tid })
	slices.SortFunc(list, func(a, b abi.ActivityCarried) int { return int(int64(a.TimeNs - b.TimeNs)) })
	assert.Assert(t, len(list) >= 2 && len(list) <= 5, "%d changes are noted", len(list)) // the runtime may switch in between
	began, left := -1, -1
	for i := range list {
		e := &list[i]
		assert.Assert(t, uint64(e.Serial) == p.Key() && e.Inside == tid, "%+v", e)
		switch {
		case e.Half[0].Token == uint32(token) && began < 0:
			began = i
		case e.Half[0].Token == 0 && e.Half[1].Token == uint32(token) && left < 0:
			left = i
		}
	}
	assert.Assert(t, began >= 0 && left > began, "%+v", list)
	assert.Assert(t, list[left].Half[1].SinceNs <= list[left].Half[0].SinceNs)
}

// Who had evicted a page that is read again is known, unless that was nobody with a token.
func TestEvicted(t *testing.T) {
	a := start(t, nil)
	c, p := newClient(t, a, Opening{})
	dir, err := os.MkdirTemp(".", ".evicted-") // on a disk, which the usual place may not be
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "file")
	assert.NilError(t, os.WriteFile(path, make([]byte, 8*os.Getpagesize()), 0o600))
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, f.Sync())
	evict := func() { assert.Check(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) }
	reads := func(s *thread) {
		_, err := f.ReadAt(make([]byte, 8*os.Getpagesize()), 0)
		assert.Check(t, err)
	}
	var reader, evictor uint32
	again := func(evicts func(s *thread)) (pages int) {
		c.onThread(evicts)
		c.onThread(func(s *thread) {
			reader = s.tid
			s.carry(c.begin())
			reads(s)
		})
		for _, e := range a.Evicted() {
			if e.Tid == reader && e.ByTid == evictor && uint64(e.By.Serial) == p.Key() {
				pages += int(e.Pages)
			}
		}
		return pages
	}
	pages := again(func(s *thread) {
		evictor = s.tid
		s.carry(c.begin())
		reads(s)
		evict()
	})
	assert.Equal(t, pages, 8)
	assert.Equal(t, again(func(s *thread) {
		reads(s)
		evict() // for nobody
	}), 0)

	// While nobody takes part, pages may come back and be evicted by another, unseen.
	c.onThread(func(s *thread) {
		s.carry(c.begin())
		reads(s)
		evict()
	})
	p.Close()
	c, _ = newClient(t, a, Opening{})
	c.onThread(func(s *thread) {
		reader = s.tid
		s.carry(c.begin())
		reads(s)
	})
	for _, e := range a.Evicted() {
		assert.Check(t, e.Tid != reader, "evicted before: %+v", e)
	}
}
