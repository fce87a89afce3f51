package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// idTime is the time format of ids. It sorts lexically.
const idTime = "20060102T150405.000000000Z"

// tmpPrefix marks incomplete snapshots.
const tmpPrefix = ".tmp-"

// gonePrefix follows tmpPrefix on snapshots being removed.
const gonePrefix = "gone-"

// manualRule takes the place of the rule in manual snapshots.
const manualRule = "manual"

// ID is the parsed id of a snapshot, which is the name of its directory.
type ID struct {
	Time   time.Time // of the first outlier, or of the manual request; UTC
	Rule   string    // or "manual"
	Number uint64    // increases within a store
}

// String formats an id, such as 20261120T231502.123456789Z-wakeup-000042.
func (id ID) String() string {
	return fmt.Sprintf("%s-%s-%06d", id.Time.UTC().Format(idTime), id.Rule, id.Number)
}

// ParseID parses the result of ID.String.
func ParseID(name string) (ID, error) {
	first, last := strings.IndexByte(name, '-'), strings.LastIndexByte(name, '-')
	if first < 0 || last <= first+1 {
		return ID{}, fmt.Errorf("invalid snapshot id %q: want TIME-RULE-NUMBER", name)
	}
	t, err := time.Parse(idTime, name[:first])
	if err != nil {
		return ID{}, fmt.Errorf("invalid snapshot id %q: %w", name, err)
	}
	n, err := strconv.ParseUint(name[last+1:], 10, 64)
	if err != nil {
		return ID{}, fmt.Errorf("invalid snapshot id %q: %w", name, err)
	}
	id := ID{Time: t.UTC(), Rule: name[first+1 : last], Number: n}
	if strings.ContainsAny(id.Rule, "/\x00") {
		return ID{}, fmt.Errorf("invalid snapshot id %q: the rule contains a slash", name)
	}
	return id, nil
}

// compareIDs orders ids by number, oldest first. The wall clock may have been set, so
// times only order snapshots of different stores.
func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), a.Time.Compare(b.Time), cmp.Compare(a.Rule, b.Rule))
}

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
		return "", fmt.Errorf("%q is a path, not a snapshot id: name its directory with --snapshots-dir", what)
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
