// Package pins keeps BPF objects alive while no process of tailcam runs: in a directory
// of a BPF file system, or in the file descriptor store of systemd.
package pins

import "regexp"

// Store keeps BPF objects by their names. Its methods may be called from several
// goroutines at once.
type Store interface {
	// Put keeps the object of a descriptor; one of the same name is replaced.
	Put(name string, fd int) error
	// Get returns a descriptor of an object, which the caller closes; os.ErrNotExist if
	// there is none.
	Get(name string) (fd int, err error)
	// Remove forgets an object. One that is not there is no error.
	Remove(name string) error
	// Names lists what is kept.
	Names() ([]string, error)
	// Lasting reports, during a stop that was asked for, whether what is kept is for the next
	// daemon: the stop is half of a restart. An error is why that is not known.
	Lasting() (bool, error)
	// Sync returns when what was removed is held by nobody on the store's behalf, or an error
	// if that takes too long: who closes it then detaches it, and not the store's owner.
	Sync() error
	// String is where the objects are, for messages.
	String() string
	// Close ends the use of the store. What it keeps stays.
	Close() error
}

// nameRule is what names are: the BPF file system reserves dots, and the descriptor store
// colons. What is called otherwise is not ours.
var nameRule = regexp.MustCompile(`^(map|prog|link|state)-[a-z0-9_]{1,80}$`)

// Complete is the object that is put last and removed first: without it, what a store has
// is of somebody who was interrupted.
const Complete = "state-loaded"

// Clear forgets all objects of a store.
func Clear(s Store) error {
	if err := s.Remove(Complete); err != nil {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
