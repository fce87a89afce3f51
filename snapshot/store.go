package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/snapshot/iothread"
)

// Modes of what a store holds. A store that tailcam makes can be entered by
// anyone who knows a snapshot's name, but not listed: actions that run as
// another user must reach the one snapshot that they are given.
const (
	storeMode = 0o751
	dirMode   = 0o750
	fileMode  = 0o640
)

const lockFile = ".lock"

// inodes is how many a snapshot needs besides those of its CPUs' streams.
const inodes = 16

// Errors that callers tell apart.
var (
	// ErrLocked means that another daemon uses the store.
	ErrLocked = errors.New("another tailcam uses this directory")
	// ErrNoSpace means that the file system has less free than it must keep.
	ErrNoSpace = errors.New("not enough free space")
)

// StoreOptions configures a Store.
type StoreOptions struct {
	Dir       string // made if missing
	Retention Retention
	MinFree   uint64      // bytes that stay free on the file system
	Logger    *zap.Logger // nil: silent
	// Thread, if set, is called once on the thread that works on the disk.
	Thread func()

	uptime uptime // nil: the kernel's; for tests
}

// Store is the directory that holds the snapshots. All methods may be called
// by several goroutines. Whatever may hang with its file system runs on a thread
// of its own, see iothread.
type Store struct {
	dir       string
	minFree   uint64
	log       *zap.Logger
	disk      *iothread.Thread
	diskMu    sync.Mutex // of Run
	operation operation
	uptime    uptime
	now       func() time.Time // for limits of the log

	number   atomic.Uint64
	replaced atomic.Uint64 // times that the directory was

	// dirMu is held while something is made or removed in the directory.
	dirMu       sync.Mutex
	closing     bool
	lock        *os.File // nil: the directory is not to be had
	id          dirID
	lockID      dirID
	state       state
	unsaved     int64 // nanoseconds of state
	storeErrors logLimiter

	removeErrors logLimiter

	mu          sync.Mutex // never held over slow work: an outlier may wait for it
	keep        Retention
	held        map[string]*hold // by id
	drafts      map[string]bool  // by id: being written
	unremovable map[string]time.Time

	queries chan struct{} // a token each question that may hang
	usage   Usage         // as it was last; under mu
}

// openLimit bounds how long a store may take to open.
const openLimit = 10 * time.Second

// OpenStore locks the directory, removes what crashed runs left half done, and
// continues the numbering. ErrLocked if another daemon has it,
// iothread.ErrTimeout if its file system does not answer.
func OpenStore(o StoreOptions) (*Store, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.uptime == nil {
		o.uptime = readUptime()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	s := &Store{
		dir: dir, minFree: o.MinFree, log: o.Logger, uptime: o.uptime, now: time.Now, disk: iothread.Start(o.Thread),
		keep: o.Retention, held: map[string]*hold{}, drafts: map[string]bool{}, unremovable: map[string]time.Time{},
		queries: make(chan struct{}, 4),
	}
	opened, swept := make(chan error, 1), make(chan struct{})
	go func() {
		s.dirMu.Lock()
		err := s.attach()
		s.dirMu.Unlock()
		opened <- err
		if err == nil {
			_ = s.Run("remove what was left", func() error { s.sweep(); return nil }) // sweep logs
		}
		close(swept)
	}()
	timer := time.NewTimer(openLimit)
	defer timer.Stop()
	select {
	case err = <-opened:
	case <-timer.C:
		what, _ := s.operation.current()
		err = fmt.Errorf("%w (%s): set another snapshots.dir, or mend it", iothread.ErrTimeout, what)
	}
	if err != nil {
		s.disk.Close()
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	select {
	case <-swept:
	case <-time.After(sweepLimit): // it goes on; snapshots wait for it
	}
	return s, nil
}

// sweepLimit is how long the start waits for leftovers to be removed.
const sweepLimit = 2 * time.Second

// Dir is the absolute path of the store.
func (s *Store) Dir() string { return s.dir }

// Path is where the snapshot with that id is, or will be.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id) }

// Close unlocks the store. While its file system does not answer, it still does,
// and an operation that hangs keeps no more than its thread.
func (s *Store) Close() error {
	defer s.disk.Close()
	if !s.dirMu.TryLock() {
		return nil // whoever hangs has the lock file, which goes with the process
	}
	defer s.dirMu.Unlock()
	if s.lock == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run("save the store's memory", func() error { // saveState logs
			s.closing = true
			s.saveState(true)
			return nil
		})
	}()
	select {
	case <-done:
	case <-time.After(sweepLimit):
	}
	err := s.lock.Close()
	s.lock = nil
	if err != nil {
		return fmt.Errorf("close snapshot store: %w", err)
	}
	return nil
}

// NewID allocates the name of the next snapshot. It never blocks.
func (s *Store) NewID(t time.Time, rule string) string {
	return ID{Time: t, Rule: rule, Number: s.number.Add(1)}.String()
}

// Replaced counts how often the directory was found removed or replaced.
func (s *Store) Replaced() uint64 { return s.replaced.Load() }

// Draft is a snapshot that is being written, under a temporary name.
type Draft struct {
	Dir string // write here

	id    string
	store *Store
	done  bool
}

// Create makes room for about size more bytes by the retention policy and
// makes the temporary directory. ErrNoSpace if that would leave less than
// MinFree, ErrLocked if the directory was replaced by one that another daemon
// uses.
func (s *Store) Create(id string, size uint64) (*Draft, error) {
	if _, err := ParseID(id); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	if err := s.attach(); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	s.setDraft(id, true)
	dir := filepath.Join(s.dir, tmpPrefix+id)
	err := s.Run("make room", func() error {
		s.saveState(false)
		s.retain(1, size)
		if err := s.checkSpace(size); err != nil {
			return err
		}
		if err := os.Mkdir(dir, dirMode); err != nil {
			return fmt.Errorf("create snapshot: %w", spaceError(err))
		}
		return nil
	})
	if err != nil {
		s.setDraft(id, false)
		return nil, err
	}
	return &Draft{Dir: dir, id: id, store: s}, nil
}

func (s *Store) setDraft(id string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is {
		s.drafts[id] = true
	} else {
		delete(s.drafts, id)
	}
}

func (s *Store) isDraft(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drafts[id]
}

// checkSpace fails when less than MinFree would be left after size more bytes.
func (s *Store) checkSpace(size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("check free space of %s: %w", s.dir, err)
	}
	if fs.Files > 0 && fs.Ffree < inodes {
		return fmt.Errorf("%w: %s has %d inodes free, a snapshot needs up to %d: remove files there",
			ErrNoSpace, s.dir, fs.Ffree, inodes)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < s.minFree || free-s.minFree < size {
		return fmt.Errorf("%w: %s has %d bytes free, the snapshot needs about %d and snapshots.min_free keeps %d: free some, or lower snapshots.min_free",
			ErrNoSpace, s.dir, free, size, s.minFree)
	}
	return nil
}

// Run runs f, which writes or reads files of the store, on the store's thread, and
// waits for it. f must close what it opens. Meanwhile Stalled tells of what.
func (s *Store) Run(what string, f func() error) error {
	s.diskMu.Lock()
	defer s.diskMu.Unlock()
	s.operation.start(what)
	defer s.operation.end()
	return s.disk.Do(f)
}

// Commit syncs all files and gives the directory its final name. The snapshot
// comes back held, as Store.Hold does.
func (p *Draft) Commit() (dir string, release func(), err error) {
	if p.done {
		return "", nil, errors.New("commit snapshot: already done")
	}
	s := p.store
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	final := s.Path(p.id)
	release = s.hold(p.id, p.Dir)
	// In one go: where CPUs are busy each change of threads has to wait.
	err = s.Run("sync", func() error {
		if err := s.syncTree(p.Dir); err != nil {
			return err
		}
		if err := os.Rename(p.Dir, final); err != nil {
			return err
		}
		p.done = true
		s.setDraft(p.id, false)
		if err := syncPath(s.dir); err != nil {
			// It is complete and visible; only a power loss could undo the rename.
			s.storeErrors.error(s.log, s.now(), "cannot sync the snapshot store", zap.Error(err))
		}
		s.retain(0, 0)
		return nil
	})
	if err != nil {
		release()
		p.Abort()
		return "", nil, fmt.Errorf("commit snapshot %s: %w", p.id, spaceError(err))
	}
	return final, release, nil
}

// Abort removes what was written. It does nothing after Commit.
func (p *Draft) Abort() {
	if p.done {
		return
	}
	p.done = true
	s := p.store
	_ = s.Run("remove an abandoned snapshot", func() error {
		name := filepath.Base(p.Dir)
		if err := removeBelow(s.dir, name); err != nil {
			s.markUnremovable(name, err)
		}
		return nil
	})
	s.setDraft(p.id, false)
}

// spaceError marks the ways in which a file system says that it is full.
func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// syncTree is the package's, and tells how far it is.
func (s *Store) syncTree(dir string) error {
	return syncTree(dir, func(path string) { s.setStep("sync " + path) })
}

// syncTree gives all files their modes and writes them to the disk, the
// directories after what they hold.
func syncTree(dir string, progress func(path string)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := syncTree(path, progress); err != nil {
				return err
			}
			continue
		}
		if !e.Type().IsRegular() {
			continue
		}
		if err := os.Chmod(path, fileMode); err != nil {
			return err
		}
		progress(path)
		if err := syncPath(path); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return err
	}
	return syncPath(dir)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}
