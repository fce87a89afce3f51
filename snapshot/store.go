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

// Permissions in a store. Its directory can be entered but not listed by others:
// actions that run as another user must reach the snapshot they are given.
const (
	storeMode = 0o751
	dirMode   = 0o750
	fileMode  = 0o640
)

const lockFile = ".lock"

// maxOld is how many snapshots of earlier releases retention reads at a time.
const maxOld = 250

// inodes is how many inodes a snapshot needs besides those of its streams.
const inodes = 16

var (
	// ErrLocked means that another daemon uses the store.
	ErrLocked = errors.New("another tailcam uses this directory")
	// ErrNoSpace means that the file system has less free space than it must keep.
	ErrNoSpace = errors.New("not enough free space")
)

// StoreOptions configures a Store.
type StoreOptions struct {
	Dir       string // created if missing
	Retention Retention
	MinFree   uint64      // bytes to keep free on the file system
	Logger    *zap.Logger // nil: no log
	// Thread, if set, is called once on the store's thread.
	Thread func()

	uptime uptime // for tests; nil: the kernel's
}

// Store is the directory of snapshots. All methods may be called concurrently.
// Operations that may hang with the file system run on a thread of the store, see
// iothread.
type Store struct {
	dir       string
	minFree   atomic.Uint64
	log       *zap.Logger
	disk      *iothread.Thread
	diskMu    sync.Mutex // serializes Run
	operation operation
	uptime    uptime
	now       func() time.Time // for log limits

	number   atomic.Uint64
	replaced atomic.Uint64 // times the directory was replaced

	// dirMu serializes changes of the directory.
	dirMu       sync.Mutex
	closing     bool
	lock        *os.File // nil: directory not available
	id          dirID
	lockID      dirID
	state       state
	unsaved     int64 // nanoseconds of state not on disk yet
	storeErrors logLimiter

	removeErrors logLimiter

	mu          sync.Mutex // never held during slow operations: the outlier path takes it
	keep        Retention
	held        map[string]*hold // by id
	drafts      map[string]bool  // by id: being written
	unremovable map[string]time.Time
	removals    map[string]uint64 // by limit

	index index

	queries chan struct{} // one token per query that may hang
	usage   Usage         // last known usage; protected by mu
}

// openLimit bounds the time to open a store.
const openLimit = 10 * time.Second

// OpenStore locks the directory, removes incomplete snapshots of earlier runs and
// resumes the numbering. It returns ErrLocked if another daemon uses the directory, and
// iothread.ErrTimeout if its file system does not respond.
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
		dir: dir, log: o.Logger, uptime: o.uptime, now: time.Now, disk: iothread.Start(o.Thread),
		keep: o.Retention, held: map[string]*hold{}, drafts: map[string]bool{}, unremovable: map[string]time.Time{},
		removals: map[string]uint64{}, queries: make(chan struct{}, 4),
		index: index{maxOld: maxOld},
	}
	s.SetMinFree(o.MinFree)
	opened, swept := make(chan error, 1), make(chan struct{})
	go func() {
		s.dirMu.Lock()
		err := s.attach()
		s.dirMu.Unlock()
		opened <- err
		if err == nil {
			_ = s.Run("remove incomplete snapshots", func() error { s.sweep(); return nil }) // logs its errors
		}
		close(swept)
	}()
	timer := time.NewTimer(openLimit)
	defer timer.Stop()
	select {
	case err = <-opened:
	case <-timer.C:
		what, _ := s.operation.current()
		err = fmt.Errorf("%w (%s): repair it, or set another snapshots.dir", iothread.ErrTimeout, what)
	}
	if err != nil {
		s.disk.Close()
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	select {
	case <-swept:
	case <-time.After(sweepLimit): // continues in the background; snapshots wait for it
	}
	return s, nil
}

// sweepLimit bounds how long OpenStore waits for the clean-up.
const sweepLimit = 2 * time.Second

// Dir returns the absolute path of the store.
func (s *Store) Dir() string { return s.dir }

// Path returns the path of a snapshot, whether it exists or not.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id) }

// Close saves the state and unlocks the store. If the file system hangs, it returns
// nevertheless and leaves one thread behind.
func (s *Store) Close() error {
	defer s.disk.Close()
	if !s.dirMu.TryLock() {
		return nil // the hung operation owns the lock file, which is released with the process
	}
	defer s.dirMu.Unlock()
	if s.lock == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run("save the state", func() error { // logs its errors
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

// NewID allocates the id of the next snapshot. It never blocks.
func (s *Store) NewID(t time.Time, rule string) string {
	return ID{Time: t, Rule: rule, Number: s.number.Add(1)}.String()
}

// Replaced returns how often the directory was found removed or replaced.
func (s *Store) Replaced() uint64 { return s.replaced.Load() }

// Draft is a snapshot being written under a temporary name.
type Draft struct {
	Dir string // temporary directory to write to

	id    string
	store *Store
	done  bool
}

// Create makes room for about size more bytes according to the retention policy and
// creates a temporary directory. It returns ErrNoSpace if less than MinFree would
// remain, and ErrLocked if the directory was replaced by one that another daemon uses.
func (s *Store) Create(id string, size uint64) (*Draft, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	if err := s.attach(); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	s.setDraft(id, true)
	dir := filepath.Join(s.dir, tmpPrefix+id)
	err = s.Run("make room", func() error {
		s.saveState(false)
		s.retain(&storedSnapshot{id: parsed, bytes: size, held: true}, false)
		if err := CheckSpace(s.dir, s.minFree.Load(), size); err != nil {
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

// SetMinFree changes how many bytes are to stay free on the file system.
func (s *Store) SetMinFree(bytes uint64) { s.minFree.Store(bytes) }

// CheckSpace returns ErrNoSpace if a directory has no inodes for a snapshot, or if less
// than minFree bytes would remain on its file system after writing one of size bytes.
func CheckSpace(dir string, minFree, size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("check free space of %s: %w", dir, err)
	}
	if fs.Files > 0 && fs.Ffree < inodes {
		return fmt.Errorf("%w: %s has %d inodes free, a snapshot needs up to %d: remove files there",
			ErrNoSpace, dir, fs.Ffree, inodes)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < minFree || free-minFree < size {
		return fmt.Errorf("%w: %s has %d bytes free, the snapshot needs about %d and snapshots.min_free keeps %d: free some, or lower snapshots.min_free",
			ErrNoSpace, dir, free, size, minFree)
	}
	return nil
}

// Run runs f on the store's thread and waits for it. f accesses files of the store and
// must close what it opens. Stalled reports what while f hangs.
func (s *Store) Run(what string, f func() error) error {
	s.diskMu.Lock()
	defer s.diskMu.Unlock()
	s.operation.start(what)
	defer s.operation.end()
	return s.disk.Do(f)
}

// Commit syncs all files and renames the directory to its final name. The snapshot is
// held, as by Store.Hold, until release is called.
func (p *Draft) Commit() (dir string, release func(), err error) {
	if p.done {
		return "", nil, errors.New("commit snapshot: already done")
	}
	s := p.store
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	final := s.Path(p.id)
	release = s.hold(p.id, p.Dir)
	// One call: on a busy machine each switch to the thread has to wait.
	err = s.Run("sync", func() error {
		if err := syncTree(p.Dir, func(path string) { s.setStep("sync " + path) }); err != nil {
			return err
		}
		if err := os.Rename(p.Dir, final); err != nil {
			return err
		}
		p.done = true
		s.setDraft(p.id, false)
		if err := syncPath(s.dir); err != nil {
			// The snapshot is complete and visible; only a power loss could undo the
			// rename.
			s.storeErrors.error(s.log, s.now(), "cannot sync the snapshot store", zap.Error(err))
		}
		s.retain(nil, false)
		return nil
	})
	if err != nil {
		release()
		p.Abort()
		return "", nil, fmt.Errorf("commit snapshot %s: %w", p.id, spaceError(err))
	}
	return final, release, nil
}

// Abort removes the draft. It does nothing after Commit.
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

// spaceError wraps the errors of a full file system in ErrNoSpace.
func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// syncTree sets the mode of all files and syncs them, each directory after its content.
func syncTree(dir string, progress func(path string)) error {
	if err := os.Chmod(dir, dirMode); err != nil {
		return err
	}
	if err := startSync(dir); err != nil {
		return err
	}
	err := walkTree(dir, func(path string, _ os.DirEntry) error {
		progress(path)
		return syncPath(path)
	})
	if err != nil {
		return err
	}
	return syncPath(dir)
}

// walkTree visits the regular files and directories below dir, each directory after its
// content.
func walkTree(dir string, visit func(path string, e os.DirEntry) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if err := walkTree(path, visit); err != nil {
				return err
			}
		case !e.Type().IsRegular():
			continue
		}
		if err := visit(path, e); err != nil {
			return err
		}
	}
	return nil
}

// startSync sets the mode of all files and starts to write them out, without waiting. The
// changes of all of them are then in one transaction of the file system: the first sync
// waits for it, and the others find it complete, where each had one of its own.
func startSync(dir string) error {
	return walkTree(dir, func(path string, e os.DirEntry) error {
		if e.IsDir() {
			return os.Chmod(path, dirMode)
		}
		if err := os.Chmod(path, fileMode); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // syncTree reports errors
		return f.Close()
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}
