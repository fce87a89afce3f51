package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
)

// Machine is the machine that rules are for.
type Machine interface {
	// Devices lists the names of the present disks.
	Devices() []string
	// LookupUser returns the id of a user.
	LookupUser(name string) (uint32, error)
	// CheckExecutable fails if a file cannot be run as an action. Its error
	// continues a sentence that begins with the path.
	CheckExecutable(path string) error
}

// LocalMachine is this machine. The disks are read once. The zero value is ready to
// use, and safe for concurrent use.
type LocalMachine struct {
	once  sync.Once
	disks []string
}

// Devices lists /sys/block.
func (m *LocalMachine) Devices() []string {
	m.once.Do(func() {
		entries, err := os.ReadDir("/sys/block")
		if err != nil {
			return
		}
		for _, e := range entries {
			m.disks = append(m.disks, e.Name())
		}
	})
	return m.disks
}

// LookupUser asks the user database of the machine.
func (m *LocalMachine) LookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user id of %s: %w", name, err)
	}
	return uint32(uid), nil
}

// CheckExecutable looks at the file itself, not at who may run it.
func (m *LocalMachine) CheckExecutable(path string) error {
	info, err := os.Stat(filepath.Clean(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("does not exist")
	case err != nil:
		return fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Mode().Perm()&0o111 == 0:
		return errors.New("is not executable")
	}
	return nil
}
