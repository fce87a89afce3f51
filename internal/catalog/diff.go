package catalog

import (
	"cmp"
	"slices"
	"time"

	"github.com/tailcam/tailcam/explain"
)

// Side is one of two compared outliers.
type Side struct {
	Name    string      `json:"name"` // the snapshot's id, or the file
	Dir     string      `json:"dir,omitempty"`
	Outlier int         `json:"outlier"` // number in the report, from 1
	Of      int         `json:"of"`
	Time    *time.Time  `json:"time,omitempty"`
	Rule    string      `json:"rule"`
	Track   string      `json:"track"`
	Task    explain.Who `json:"task"`
	DelayNS int64       `json:"delay_ns"`
	Verdict string      `json:"verdict"`

	parts, roots []Part
}

// NewSide returns outlier n of a report, counted from 1; 0: the slowest one.
func NewSide(name string, r *explain.Report, n int) Side {
	if n == 0 {
		n = 1
		for i := range r.Outliers {
			if r.Outliers[i].DelayNS > r.Outliers[n-1].DelayNS {
				n = i + 1
			}
		}
	}
	o := &r.Outliers[n-1]
	s := Side{Name: name, Outlier: n, Of: len(r.Outliers), Rule: o.Rule, Track: o.Track, Task: o.Task, DelayNS: o.DelayNS, Verdict: o.Verdict,
		parts: o.Parts, roots: o.Roots}
	if len(s.roots) == 0 {
		s.roots = s.parts
	}
	return s
}

// Diff compares the time of two outliers.
type Diff struct {
	A        Side     `json:"a"`
	B        Side     `json:"b"`
	ChangeNS int64    `json:"change_ns"` // B minus A
	Parts    []Change `json:"parts"`     // largest change first; they add up to ChangeNS
	Roots    []Change `json:"roots"`     // the same for the root causes
}

// Values of Change.Became.
const (
	New     = "new"     // only in B
	Gone    = "gone"    // only in A
	Longer  = "longer"  // in B
	Shorter = "shorter" // in B
	Same    = "same"    // within 5 % or a microsecond
)

// Change is the change of one part.
type Change struct {
	Cause    explain.Cause `json:"cause"`
	Kind     string        `json:"kind"`
	By       string        `json:"by"` // without thread ids, which differ between runs
	ANS      int64         `json:"a_ns"`
	BNS      int64         `json:"b_ns"`
	ChangeNS int64         `json:"change_ns"`
	Became   string        `json:"became"`
}

// Compare compares two outliers.
func Compare(a, b Side) *Diff {
	return &Diff{A: a, B: b, ChangeNS: b.DelayNS - a.DelayNS, Parts: changes(a.parts, b.parts), Roots: changes(a.roots, b.roots)}
}

func changes(a, b []Part) []Change {
	type id struct {
		cause    explain.Cause
		kind, by string
	}
	at := map[id]int{}
	out := []Change{}
	find := func(p *Part) *Change {
		by, kind := Culprit(p)
		k := id{p.Cause, kind, by}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, Change{Cause: p.Cause, Kind: kind, By: by})
		}
		return &out[i]
	}
	for i := range a {
		find(&a[i]).ANS += a[i].NS
	}
	for i := range b {
		find(&b[i]).BNS += b[i].NS
	}
	for i := range out {
		c := &out[i]
		c.ChangeNS = c.BNS - c.ANS
		c.Became = became(c.ANS, c.BNS)
	}
	slices.SortStableFunc(out, func(x, y Change) int {
		return cmp.Or(cmp.Compare(abs(y.ChangeNS), abs(x.ChangeNS)), cmp.Compare(y.BNS, x.BNS))
	})
	return out
}

func became(a, b int64) string {
	switch {
	case abs(b-a) <= max(max(a, b)/20, 1000) && a > 0 && b > 0:
		return Same
	case a == 0 && b > 0:
		return New
	case b == 0 && a > 0:
		return Gone
	case b > a:
		return Longer
	case b < a:
		return Shorter
	}
	return Same
}

func abs(n int64) int64 { return max(n, -n) }
