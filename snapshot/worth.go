package snapshot

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

// WorthFile holds what retention goes by: the worst outlier of each rule in a snapshot.
// It is small, so that thousands can be compared without reading their snapshot.json.
const WorthFile = "worth.json"

const (
	worthVersion = 1
	maxWorth     = 64 << 10 // bytes of worth.json
	maxWorthMeta = 4 << 20  // bytes of a snapshot.json that is read in its place
	maxClaims    = 32       // rules of one snapshot
	maxRuleName  = 256
	maxCulprit   = 96
)

// claim is the worst outlier that a snapshot has of a rule.
type claim struct {
	Rule    string `json:"rule"`
	DelayNS int64  `json:"delay_ns"`
	Culprit string `json:"culprit,omitempty"` // what it is blamed on, without numbers
}

type worthJSON struct {
	Version  int     `json:"version"`
	Outliers []claim `json:"outliers"`
}

// worthOf returns the worst outlier of each rule, the worst rule first.
func worthOf(m *Meta) []claim {
	var all []claim
	for i := range m.Outliers {
		o := &m.Outliers[i]
		all = append(all, claim{Rule: o.Rule, DelayNS: o.DelayNS, Culprit: Culprit(o.Explained)})
	}
	return worst(all)
}

// worst keeps the worst valid claim of each rule.
func worst(all []claim) []claim {
	best := map[string]claim{}
	for _, c := range all {
		if c.Rule == "" || len(c.Rule) > maxRuleName || c.DelayNS <= 0 {
			continue
		}
		if c.DelayNS > best[c.Rule].DelayNS {
			c.Culprit = text.Clean(c.Culprit[:min(len(c.Culprit), maxCulprit)])
			best[c.Rule] = c
		}
	}
	out := slices.AppendSeq([]claim{}, maps.Values(best))
	slices.SortFunc(out, func(a, b claim) int {
		return cmp.Or(cmp.Compare(b.DelayNS, a.DelayNS), cmp.Compare(a.Rule, b.Rule))
	})
	return out[:min(len(out), maxClaims)]
}

// Culprit names what an outlier is blamed on, without the numbers of tasks; "": that is
// not known.
func Culprit(e *events.Explained) string {
	if e == nil {
		return ""
	}
	return culpritOf(e.Cause, e.ByKind, e.By)
}

// culpritOf names a culprit and what it does, without its numbers.
func culpritOf(cause, kind, by string) string {
	return strings.TrimSpace(cause + " " + CulpritName(kind, by))
}

// CulpritName is the name of a culprit without its numbers: kworker/3:1 and kworker/0:2 are
// one, and so is a task after a restart. Devices keep theirs: sda1 is not sdb1.
func CulpritName(kind, by string) string {
	if kind != "task" {
		return by
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, by))
}

// readWorth reads the claims of the snapshot in dir from worth.json. It reports false if
// there is none, or it is not valid. A file may be cut off or edited, and an action may
// have put its own in its place: whatever it says only changes the order of removal.
func readWorth(dir string, owner uint32) ([]claim, bool) {
	path := filepath.Join(dir, WorthFile)
	if st, err := os.Lstat(path); err != nil || !ownedBy(st, owner) {
		return nil, false
	}
	data, err := ReadFile(path, maxWorth)
	var w worthJSON
	if err != nil || json.Unmarshal(data, &w) != nil || w.Version != worthVersion {
		return nil, false
	}
	return worst(w.Outliers), true
}

// readOldWorth is readWorth for a snapshot of an earlier release, from snapshot.json;
// nil if that is not known.
func readOldWorth(dir string) []claim {
	data, err := ReadFile(filepath.Join(dir, MetaFile), maxWorthMeta)
	if err != nil {
		return nil
	}
	var m struct {
		Outliers []struct {
			Rule      string `json:"rule"`
			DelayNS   int64  `json:"delay_ns"`
			Explained *struct {
				Cause  string `json:"cause"`
				By     string `json:"by"`
				ByKind string `json:"by_kind"`
			} `json:"explained"`
		} `json:"outliers"`
	}
	if json.Unmarshal(data, &m) != nil {
		return nil
	}
	var all []claim
	for i := range m.Outliers {
		o := &m.Outliers[i]
		c := claim{Rule: o.Rule, DelayNS: o.DelayNS}
		if e := o.Explained; e != nil {
			c.Culprit = culpritOf(e.Cause, e.ByKind, e.By)
		}
		all = append(all, c)
	}
	return worst(all)
}

// ownedBy reports whether a file is regular and belongs to the owner or to root.
func ownedBy(st os.FileInfo, owner uint32) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Mode().IsRegular() && (sys.Uid == owner || sys.Uid == 0)
}
