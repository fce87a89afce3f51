package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/lockfile"
	"github.com/tailcam/tailcam/internal/pack"
	"github.com/tailcam/tailcam/snapshot"
)

// Directories of a spool. What a file's name and directory say is all of its state, so
// that each step is one rename or one unlink.
const (
	tmpDir   = "tmp"   // being packed; emptied at the start
	queueDir = "queue" // ID.tailcam, or ID.redacted-KINDS.tailcam: to be sent. Its modification time is the spool's own clock, see now.
	doneDir  = "done"  // ID, empty: sent or lost. Kept as long as the snapshot is.
)

// clockFile has the spool's clock as its modification time.
const clockFile = "clock"

// errNoRoom means that a pack alone is larger than the spool may be.
var errNoRoom = errors.New("it is larger than the spool may be")

// waiting is a pack to be sent.
type waiting struct {
	bytes int64
	added time.Duration // on the spool's clock
}

// spool is the directory of packs that wait. The daemon adds to it and removes what
// exceeds it; the sender, another process, removes what was sent. Its methods may be
// called concurrently, but for add, expire and forget.
type spool struct {
	dir     string
	lock    *os.File
	redact  *redaction
	before  []string      // snapshots whose packs were removed by openSpool, as they were redacted otherwise
	base    time.Duration // the clock at the start
	started time.Time

	disk  sync.Mutex // the queue on disk is as in memory, but for what the sender does
	mu    sync.Mutex // not held during disk access
	queue map[string]waiting
	bytes int64
}

// openSpool opens a spool whose packs are redacted as r says. It removes others, which are
// never sent.
func openSpool(dir string, r *redaction) (*spool, error) {
	s := &spool{dir: dir, redact: r, started: time.Now(), queue: map[string]waiting{}}
	for _, d := range []string{"", tmpDir, queueDir, doneDir} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("open the spool: %w", err)
		}
	}
	var err error
	if s.lock, err = lockfile.Take(filepath.Join(dir, ".lock"), nil); err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	if st, err := os.Stat(filepath.Join(dir, clockFile)); err == nil {
		s.base = max(0, time.Duration(st.ModTime().UnixNano()))
	}
	left, err := os.ReadDir(filepath.Join(dir, tmpDir))
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, tmpDir, e.Name())))
	}
	if err == nil {
		err = s.removeOthers()
	}
	if err == nil {
		_, err = s.reconcile()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the spool: %w", err), s.lock.Close())
	}
	return s, nil
}

func (s *spool) close() error { return errors.Join(s.saveClock(), s.lock.Close()) }

// now is for how long spools in this directory were in use: a wall clock that is set
// expires nothing.
func (s *spool) now() time.Duration { return s.base + time.Since(s.started) }

func (s *spool) saveClock() error {
	name := filepath.Join(s.dir, clockFile)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("save the spool's clock: %w", err)
	}
	t := time.Unix(0, int64(s.now()))
	return errors.Join(f.Close(), os.Chtimes(name, t, t))
}

func (s *spool) queued(id string) string {
	return filepath.Join(s.dir, queueDir, s.redact.fileName(id))
}
func (s *spool) done(id string) string { return filepath.Join(s.dir, doneDir, id) }

// known reports whether a snapshot waits, was sent or was lost.
func (s *spool) known(id string) bool {
	s.mu.Lock()
	_, ok := s.queue[id]
	s.mu.Unlock()
	return ok || exists(s.done(id))
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// mark notes that a snapshot needs nothing more. The mark need not survive a crash of
// the machine: the target is asked before anything is sent again.
func (s *spool) mark(id string) error {
	f, err := os.OpenFile(s.done(id), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// size is what waits.
func (s *spool) size() (count int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue), s.bytes
}

func (s *spool) has(id string, w waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += w.bytes - s.queue[id].bytes
	s.queue[id] = w
}

// left notes that a pack is no longer in the queue, and reports whether it was known to be.
func (s *spool) left(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.queue[id]
	s.bytes -= w.bytes
	delete(s.queue, id)
	return ok
}

// reconcile reads the queue, and returns what the sender has removed without a word.
func (s *spool) reconcile() (gone []string, err error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	entries, err := os.ReadDir(filepath.Join(s.dir, queueDir))
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		id, ok := s.redact.idOf(e.Name())
		st, err := e.Info()
		if !ok || err != nil || !st.Mode().IsRegular() {
			continue // not ours, or gone
		}
		there[id] = true
		s.has(id, waiting{st.Size(), max(0, time.Duration(st.ModTime().UnixNano()))})
	}
	s.mu.Lock()
	for id := range s.queue {
		if !there[id] {
			gone = append(gone, id)
		}
	}
	s.mu.Unlock()
	for _, id := range gone {
		s.left(id)
	}
	return gone, nil
}

// ruleOf returns the rule of a snapshot.
func ruleOf(id string) string {
	parsed, err := snapshot.ParseID(id)
	if err != nil {
		return ""
	}
	return parsed.Rule
}

// limits bound a spool, in bytes: its size, and what it leaves free on the file system.
type limits struct{ quota, minFree int64 }

// add packs a snapshot's directory. It returns those that had to go for it: errNoRoom
// means that this one had to, errNotRedacted that nothing of it may be sent.
func (s *spool) add(ctx context.Context, dir, id string, l limits) (dropped []string, err error) {
	raw, err := treeSize(dir)
	if err != nil {
		return nil, err
	}
	copied, err := s.redact.room(dir, raw)
	if err != nil {
		return nil, err
	}
	raw += copied
	for {
		free, err := s.free(l)
		if err != nil {
			return dropped, err
		}
		if free >= raw {
			break
		}
		id, ok := s.dropOne()
		if !ok {
			break // packed, it may fit
		}
		dropped = append(dropped, id)
	}
	free, err := s.free(l)
	if err != nil {
		return dropped, err
	}
	if free -= copied; free < 0 {
		return dropped, errNoRoom
	}
	size, err := s.pack(ctx, dir, id, min(free, l.quota))
	defer os.Remove(filepath.Join(s.dir, tmpDir, id)) //nolint:errcheck // it is gone if all went well
	if err != nil {
		return dropped, err
	}
	for _, bytes := s.size(); bytes+size > l.quota; _, bytes = s.size() {
		id, ok := s.dropOne()
		if !ok {
			return dropped, errNoRoom // what is left is being sent
		}
		dropped = append(dropped, id)
	}
	w := waiting{size, s.now()}
	s.disk.Lock()
	defer s.disk.Unlock()
	s.has(id, w) // first: the sender may be fast
	if err := s.commit(id, w); err != nil {
		s.left(id)
		return dropped, err
	}
	return dropped, nil
}

// free is what the file system has for packs.
func (s *spool) free(l limits) (int64, error) {
	free, err := linux.FreeBytes(s.dir)
	return max(0, free-l.minFree), err
}

// treeSize is an upper bound of what a snapshot takes when packed.
func treeSize(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err == nil {
			total += st.Size() + 4096
		}
		return err
	})
	return total, err
}

func (s *spool) pack(ctx context.Context, dir, id string, most int64) (int64, error) {
	dir, summary, remove, err := s.redact.copy(ctx, dir, filepath.Join(s.dir, tmpDir))
	if err != nil {
		return 0, err
	}
	defer remove()
	f, err := os.OpenFile(filepath.Join(s.dir, tmpDir, id), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	w := &limitedWriter{w: f, left: most}
	_, err = pack.WriteRedacted(w, dir, summary)
	if err == nil {
		err = f.Sync()
	}
	return most - w.left, errors.Join(err, f.Close())
}

// commit makes a pack visible to the sender, for good.
func (s *spool) commit(id string, w waiting) error {
	tmp, t := filepath.Join(s.dir, tmpDir, id), time.Unix(0, int64(w.added))
	if err := os.Chtimes(tmp, t, t); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.queued(id)); err != nil {
		return err
	}
	d, err := os.Open(filepath.Join(s.dir, queueDir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// dropOne removes the oldest pack of the rule that takes most, so that a noisy rule does
// not cost a rare one its packs. What is being sent stays.
func (s *spool) dropOne() (string, bool) {
	by := map[string]int64{}
	s.mu.Lock()
	ids := make([]string, 0, len(s.queue))
	for id, w := range s.queue {
		by[ruleOf(id)] += w.bytes
		ids = append(ids, id)
	}
	queue := s.queue
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(by[ruleOf(b)], by[ruleOf(a)]), cmp.Compare(ruleOf(a), ruleOf(b)),
			cmp.Compare(queue[a].added, queue[b].added), cmp.Compare(a, b))
	})
	s.mu.Unlock()
	for _, id := range ids {
		if s.drop(id) {
			return id, true
		}
	}
	return "", false
}

// expire removes what has waited for longer than most.
func (s *spool) expire(most time.Duration) (expired []string) {
	s.mu.Lock()
	var old []string
	for id, w := range s.queue {
		if s.now()-w.added > most {
			old = append(old, id)
		}
	}
	s.mu.Unlock()
	for _, id := range old {
		if s.drop(id) {
			expired = append(expired, id)
		}
	}
	return expired
}

// drop removes a pack that is not being sent. It is not packed again.
func (s *spool) drop(id string) bool {
	f, err := os.Open(s.queued(id))
	if err != nil {
		return false // sent meanwhile: reconcile finds out
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || exists(s.done(id)) {
		return false
	}
	if os.Remove(s.queued(id)) != nil {
		return false
	}
	_ = s.mark(id) // without it, it is packed again
	return s.left(id)
}

// forget removes the marks of snapshots that are not there any more.
func (s *spool) forget(there map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(s.dir, doneDir))
	for _, e := range entries {
		if id := e.Name(); !there[id] && !exists(s.queued(id)) {
			err = errors.Join(err, os.Remove(s.done(id)))
		}
	}
	return err
}
