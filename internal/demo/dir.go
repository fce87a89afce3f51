package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tailcam/tailcam/internal/dirs"
)

// DefaultDir holds the snapshots of the latest demos.
const DefaultDir = "/var/lib/tailcam/demo"

const (
	keepDemos = 3
	// inUse is the age below which a directory may be that of a demo that
	// runs now; it is far longer than one takes.
	inUse      = 10 * time.Minute
	nameLayout = "20060102T150405.000Z"
	dirMode    = 0o751 // as that of the daemon's snapshots
)

// makeDir makes the directory of this demo's snapshots, and removes those of
// demos long ago.
func makeDir(parent string, now time.Time) (string, error) {
	temporary := parent == ""
	if temporary {
		parent = DefaultDir
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", fmt.Errorf("demo: snapshot directory: %w", err)
	}
	dir := filepath.Join(parent, now.UTC().Format(nameLayout))
	if _, err = dirs.Make(parent, dirMode); err == nil {
		err = os.Mkdir(dir, dirMode)
	}
	switch {
	case err == nil:
		prune(parent, now)
		return dir, nil
	case !temporary:
		return "", fmt.Errorf("demo: create snapshot directory: %w", err)
	}
	if dir, err = os.MkdirTemp("", "tailcam-demo-snapshots-"); err != nil {
		return "", fmt.Errorf("demo: create snapshot directory: %w", err)
	}
	return dir, nil
}

// prune keeps the latest directories of demos. It touches nothing that has not
// the name of one, and nothing that may be in use. What cannot be removed stays.
func prune(parent string, now time.Time) {
	entries, err := os.ReadDir(parent) // sorted: the oldest first
	if err != nil {
		return
	}
	var demos []os.DirEntry
	for _, e := range entries {
		if _, err := time.Parse(nameLayout, e.Name()); err == nil && e.IsDir() {
			demos = append(demos, e)
		}
	}
	for _, e := range demos[:max(0, len(demos)-keepDemos)] {
		made, err := time.Parse(nameLayout, e.Name())
		if err != nil || now.Sub(made) < inUse {
			continue
		}
		//nolint:errcheck // the next demo tries again
		os.RemoveAll(filepath.Join(parent, e.Name()))
	}
}

// removeIfEmpty removes the directory of a demo that was ended before it had a
// snapshot. Files of the store's own begin with a dot.
func removeIfEmpty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Name()[0] != '.' {
			return
		}
	}
	//nolint:errcheck // an empty directory at worst
	os.RemoveAll(dir)
}
