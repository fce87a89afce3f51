package symbols

import (
	"errors"
	"os"
	"sync"
	"time"
)

// unwindCache keeps files mapped for unwinding. It is safe for concurrent use.
type unwindCache struct {
	mu    sync.Mutex
	files map[fileID]*unwindFile
	bytes int64 // mapped
	index int64 // bytes in memory

	loading map[fileID]*unwindLoad
}

// unwindLoad is a file being read, which may hang.
type unwindLoad struct {
	begun time.Time
	done  chan struct{} // closed when err is set, and the file is in the cache if there is none
	err   error
}

// peek returns a file's table if it is known. put gives it back.
func (c *unwindCache) peek(id fileID) *unwindFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.files[id]
	if u != nil {
		u.users++
		u.used = time.Now()
	}
	return u
}

// get returns a file's table, which put gives back. load is called without a lock, in
// its own goroutine with its own descriptor. Only the first callers wait for a slow file,
// up to unwindWait; loading goes on, so that a later call finds the result.
func (c *unwindCache) get(id fileID, f *os.File, load func(*os.File) (*unwindFile, error)) (*unwindFile, error) {
	l, err := c.begin(id, f, load)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(time.Until(l.begun.Add(unwindWait)))
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		return nil, errBusy
	}
	if l.err != nil {
		return nil, l.err
	}
	if u := c.peek(id); u != nil {
		return u, nil
	}
	return nil, errors.New("too many or too large files are mapped")
}

// begin starts loading a file unless that was begun before.
func (c *unwindCache) begin(id fileID, f *os.File, load func(*os.File) (*unwindFile, error)) (*unwindLoad, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loading[id]; l != nil {
		return l, nil
	}
	if len(c.loading) >= maxUnwindLoading {
		return nil, errBusy
	}
	own, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	if c.loading == nil {
		c.loading = map[fileID]*unwindLoad{}
	}
	l := &unwindLoad{begun: time.Now(), done: make(chan struct{})}
	c.loading[id] = l
	go func() {
		defer own.Close()
		u, err := load(own)
		c.mu.Lock()
		defer c.mu.Unlock()
		defer close(l.done)
		delete(c.loading, id)
		if l.err = err; err == nil {
			c.addLocked(id, u)
		}
	}()
	return l, nil
}

func (c *unwindCache) addLocked(id fileID, u *unwindFile) {
	if c.files[id] != nil { // since the caller looked
		u.mapped.close()
		return
	}
	if c.files == nil {
		c.files = map[fileID]*unwindFile{}
	}
	u.id, u.used = id, time.Now()
	c.files[id] = u
	c.count(u, 1)
	c.trimLocked()
}

// put gives back what get returned; nil and the vDSO are no matter.
func (c *unwindCache) put(u *unwindFile) {
	if u == nil || u.mapped == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u.users--
}

// trimLocked unmaps what was not used for longest, unless it is in use.
func (c *unwindCache) trimLocked() {
	for len(c.files) > maxUnwindFiles || c.bytes > maxUnwindBytes || c.index > maxIndexBytes {
		var oldest *unwindFile
		for _, u := range c.files {
			if u.users == 0 && (oldest == nil || u.used.Before(oldest.used)) {
				oldest = u
			}
		}
		if oldest == nil {
			return
		}
		c.dropLocked(oldest)
	}
}

func (c *unwindCache) dropLocked(u *unwindFile) {
	delete(c.files, u.id)
	c.count(u, -1)
	u.mapped.close()
}

func (c *unwindCache) count(u *unwindFile, sign int64) {
	c.bytes += sign * int64(len(u.mapped.data))
	if u.table != nil {
		c.index += sign * u.table.Bytes()
	}
}
