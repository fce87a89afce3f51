package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/lockfile"
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
}

// Store is the directory that holds the snapshots. All methods may be called
// by several goroutines.
type Store struct {
	dir     string
	minFree uint64
	log     *zap.Logger
	lock    *os.File

	number    atomic.Uint64
	retaining sync.Mutex // one run of the retention policy at a time

	mu   sync.Mutex // never held over slow work: an outlier may wait for it
	keep Retention
	held map[string]*hold // by id
}

// OpenStore locks the directory, removes what crashed runs left half done, and
// continues the numbering. ErrLocked if another daemon has it.
func OpenStore(o StoreOptions) (*Store, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	lock, err := lockDir(dir, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, minFree: o.MinFree, log: o.Logger, lock: lock,
		keep: o.Retention, held: map[string]*hold{},
	}
	if err := s.recover(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return s, nil
}

// makeDir leaves a directory that exists as it is: it may not be ours alone.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as /var/lib: the store below it is not open
		return err
	}
	err := os.Mkdir(dir, storeMode)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil // a file of that name fails at the lock
	case err != nil:
		return err
	}
	return os.Chmod(dir, storeMode) // whatever the umask says
}

func lockDir(dir string, log *zap.Logger) (*os.File, error) {
	f, err := lockfile.Take(filepath.Join(dir, lockFile), &lockfile.Options{
		Mode: fileMode, ReadOnly: true,
		TakenOver: func(pid int) {
			log.Warn("an earlier tailcam was killed and cannot end: its directory is taken", zap.Int("pid", pid), zap.String("dir", dir))
		},
	})
	var held *lockfile.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("lock snapshot store %s: %w: stop it, or set another snapshots.dir", dir, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock snapshot store: %w", err)
	}
	return f, nil
}

// recover removes leftovers and finds the highest number.
func (s *Store) recover() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("open snapshot store: %w", err)
	}
	for _, e := range entries {
		if leftover(e.Name()) {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return fmt.Errorf("remove leftover of a crashed run: %w", err)
			}
			s.log.Info("removed leftover of a crashed run", zap.String("name", e.Name()))
			continue
		}
		if id, err := ParseID(e.Name()); err == nil {
			s.number.Store(max(s.number.Load(), id.Number))
		}
	}
	return nil
}

// leftover tells our own temporary names from other programs'.
func leftover(name string) bool {
	rest, ok := strings.CutPrefix(name, tmpPrefix)
	if !ok {
		return false
	}
	_, err := ParseID(strings.TrimPrefix(rest, gonePrefix))
	return err == nil
}

// Dir is the absolute path of the store.
func (s *Store) Dir() string { return s.dir }

// Path is where the snapshot with that id is, or will be.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id) }

// Close unlocks the store.
func (s *Store) Close() error {
	if err := s.lock.Close(); err != nil {
		return fmt.Errorf("close snapshot store: %w", err)
	}
	return nil
}

// NewID allocates the name of the next snapshot. It never blocks.
func (s *Store) NewID(t time.Time, rule string) string {
	return ID{Time: t, Rule: rule, Number: s.number.Add(1)}.String()
}

// Pending is a snapshot that is being written, under a temporary name.
type Pending struct {
	Dir string // write here

	id    string
	store *Store
	done  bool
}

// Create makes room for about size more bytes by the retention policy and
// makes the temporary directory. ErrNoSpace if that would leave less than
// MinFree.
func (s *Store) Create(id string, size uint64) (*Pending, error) {
	if _, err := ParseID(id); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	s.retain(1, size)
	if err := s.checkSpace(size); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, tmpPrefix+id)
	if err := os.Mkdir(dir, dirMode); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", spaceError(err))
	}
	return &Pending{Dir: dir, id: id, store: s}, nil
}

// checkSpace fails when less than MinFree would be left after size more bytes.
func (s *Store) checkSpace(size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("check free space of %s: %w", s.dir, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < s.minFree || free-s.minFree < size {
		return fmt.Errorf("%w: %s has %d bytes free, the snapshot needs about %d and snapshots.min_free keeps %d: free some, or lower snapshots.min_free",
			ErrNoSpace, s.dir, free, size, s.minFree)
	}
	return nil
}

// Commit syncs all files and gives the directory its final name. The snapshot
// comes back held, as Store.Hold does.
func (p *Pending) Commit() (dir string, release func(), err error) {
	if p.done {
		return "", nil, errors.New("commit snapshot: already done")
	}
	if err := syncTree(p.Dir); err != nil {
		p.Abort()
		return "", nil, fmt.Errorf("commit snapshot %s: %w", p.id, spaceError(err))
	}
	final := p.store.Path(p.id)
	release = p.store.hold(p.id, p.Dir)
	if err := os.Rename(p.Dir, final); err != nil {
		release()
		p.Abort()
		return "", nil, fmt.Errorf("commit snapshot %s: %w", p.id, spaceError(err))
	}
	p.done = true
	if err := syncPath(p.store.dir); err != nil {
		// It is complete and visible; only a power loss could undo the rename.
		p.store.log.Warn("cannot sync the snapshot store", zap.Error(err))
	}
	p.store.retain(0, 0)
	return final, release, nil
}

// Abort removes what was written. It does nothing after Commit.
func (p *Pending) Abort() {
	if p.done {
		return
	}
	p.done = true
	if err := os.RemoveAll(p.Dir); err != nil {
		p.store.log.Error("cannot remove an abandoned snapshot; the next start tries again",
			zap.String("dir", p.Dir), zap.Error(err))
	}
}

// spaceError marks the ways in which a file system says that it is full.
func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// syncTree gives all files their modes and writes them to the disk, the
// directories after what they hold.
func syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := syncTree(path); err != nil {
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
