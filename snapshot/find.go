package snapshot

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Errors of Find.
var (
	// ErrNoSnapshot means that there is none of that id.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrAmbiguous means that several begin so.
	ErrAmbiguous = errors.New("several snapshots begin so")
)

// IDs lists the names of the complete snapshots in a directory, oldest first by
// their numbers. It
// reads no file, so it is quick with thousands; they may be broken inside.
func IDs(dir string) ([]string, error) {
	ids, err := listIDs(dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return names, nil
}

// Find picks the one of names that is what, or the only one that begins so.
func Find(names []string, what string) (string, error) {
	if what == "" {
		return "", fmt.Errorf("%w: the id is empty", ErrNoSnapshot)
	}
	if strings.ContainsRune(what, os.PathSeparator) || strings.HasPrefix(what, ".") {
		return "", fmt.Errorf("%q is a path: name a snapshot by its id, and its directory by --dir", what)
	}
	var found []string
	for _, name := range names {
		if name == what {
			return name, nil
		}
		if strings.HasPrefix(name, what) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: %q", ErrNoSnapshot, what)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%w: %q is %s, %s%s: write more of it", ErrAmbiguous, what, found[0], found[1], moreSuffix(len(found)-2))
}

func moreSuffix(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// minShortID is what of an id is shown at least: its time to the second.
const minShortID = len("20260102T150405")

// Short is the beginning of each id, in the order of names, that no other of
// them has.
func Short(names []string) []string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	unique := make(map[string]string, len(names))
	for i, name := range sorted {
		n := minShortID
		if i > 0 {
			n = max(n, commonPrefix(name, sorted[i-1])+1)
		}
		if i+1 < len(sorted) {
			n = max(n, commonPrefix(name, sorted[i+1])+1)
		}
		unique[name] = name[:min(n, len(name))]
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = unique[name]
	}
	return out
}

// commonPrefix is how many bytes two texts begin with in common.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
