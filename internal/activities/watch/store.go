package watch

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/tracker/histogram"
)

// Bounds of what is remembered.
const (
	// namesPerUser are the names that a user's activities are told apart by, and namesInAll
	// those of all users. Others are Other.
	namesPerUser, namesInAll = 64, 256
	// latest and slowest are the activities of a name that are remembered, and recordsInAll
	// those of all names: the name that has most of them forgets first.
	latest, slowest = 256, 32
	recordsInAll    = 4096
	// slowestFor is how long a slow one is remembered, in nanoseconds.
	slowestFor = 3600e9
)

// Other is the name of those whose user has too many names.
const Other = "other"

// Totals are those of one name and user since the start.
type Totals struct {
	Name      string
	UID       uint32
	Histogram histogram.Histogram // elapsed times
	Values    Values
}

// named is what is remembered of a name.
type named struct {
	Totals
	latest  []*Record // oldest first
	slowest []*Record // slowest first
}

type nameKey struct {
	uid  uint32
	name string
}

// store remembers activities that ended.
type store struct {
	names map[nameKey]*named
	users map[uint32]int // names of each
	count int            // of records
}

func newStore() store { return store{names: map[nameKey]*named{}, users: map[uint32]int{}} }

// of finds or makes the place of a name.
func (s *store) of(uid uint32, name string) *named {
	if n := s.names[nameKey{uid, name}]; n != nil {
		return n
	}
	if s.users[uid] >= namesPerUser || len(s.names) >= namesInAll {
		uid, name = noUser, Other
		if n := s.names[nameKey{uid, name}]; n != nil {
			return n
		}
	} else {
		s.users[uid]++
	}
	n := &named{Totals: Totals{Name: name, UID: uid}}
	s.names[nameKey{uid, name}] = n
	return n
}

// noUser is that of Other: too many names of several users.
const noUser = ^uint32(0)

func (s *store) add(r *Record) {
	n := s.of(r.UID, r.Name)
	n.Histogram.Add(r.Elapsed(), 1)
	n.Values.add(&r.Values)
	n.latest = append(n.latest, r)
	s.count++
	if len(n.latest) > latest {
		s.forget(n)
	}
	s.addSlow(n, r)
	if s.count > recordsInAll {
		s.forgetOne()
	}
}

// addSlow remembers r among the slowest of its name, if it is.
func (s *store) addSlow(n *named, r *Record) {
	n.slowest = slices.DeleteFunc(n.slowest, func(o *Record) bool {
		old := r.End-min(o.End, r.End) > slowestFor
		if old {
			s.count--
		}
		return old
	})
	if len(n.slowest) == slowest && n.slowest[slowest-1].Elapsed() >= r.Elapsed() {
		return
	}
	i, _ := slices.BinarySearchFunc(n.slowest, r, func(a, b *Record) int { return cmp.Compare(b.Elapsed(), a.Elapsed()) })
	n.slowest = slices.Insert(n.slowest, i, r)
	if s.count++; len(n.slowest) > slowest {
		n.slowest[slowest] = nil
		n.slowest = n.slowest[:slowest]
		s.count--
	}
}

// forget drops the oldest of the latest of a name.
func (s *store) forget(n *named) {
	n.latest[0] = nil
	n.latest = n.latest[1:]
	s.count--
}

// forgetOne drops one of the name that has most.
func (s *store) forgetOne() {
	var most *named
	for _, n := range s.names {
		if most == nil || len(n.latest) > len(most.latest) {
			most = n
		}
	}
	if len(most.latest) > 0 {
		s.forget(most)
	}
}

// totals are those of all names, in the order of names and users.
func (s *store) totals() []Totals {
	list := make([]Totals, 0, len(s.names))
	for _, n := range s.names {
		list = append(list, n.Totals)
	}
	slices.SortFunc(list, func(a, b Totals) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return list
}

// records are all that are remembered, each once, the latest first.
func (s *store) records() []*Record {
	seen := map[*Record]bool{}
	var list []*Record
	for _, n := range s.names {
		for _, r := range slices.Concat(n.latest, n.slowest) {
			if !seen[r] {
				seen[r] = true
				list = append(list, r)
			}
		}
	}
	slices.SortFunc(list, func(a, b *Record) int { return cmp.Or(cmp.Compare(b.End, a.End), cmp.Compare(a.ID, b.ID)) })
	return list
}
