package snapshot

import (
	"cmp"
	"fmt"
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
