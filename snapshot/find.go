package snapshot

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

var (
	// ErrNoSnapshot means that no snapshot has the id.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrAmbiguous means that several snapshots match the prefix.
	ErrAmbiguous = errors.New("ambiguous snapshot id")
)

// IDs lists the complete snapshots in a directory, oldest first. It opens no snapshot,
// so it is fast with thousands of them and does not notice damaged ones.
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

// Find returns the element of names that equals what, or the only one with that prefix.
func Find(names []string, what string) (string, error) {
	if what == "" {
		return "", fmt.Errorf("%w: empty id", ErrNoSnapshot)
	}
	if strings.ContainsRune(what, os.PathSeparator) || strings.HasPrefix(what, ".") {
		return "", fmt.Errorf("%q is a path, not a snapshot id: name its directory with --dir", what)
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
	return "", fmt.Errorf("%w: %q matches %s, %s%s: use a longer prefix", ErrAmbiguous, what, found[0], found[1], moreSuffix(len(found)-2))
}

func moreSuffix(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// minShortID is the minimum length of a short id: the time in seconds.
const minShortID = len("20260102T150405")

// Short returns the shortest unique prefix of each id, in the same order.
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

// commonPrefix returns the length of the common prefix in bytes.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
