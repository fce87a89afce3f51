package daemon

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestLimiter: two rules on the same outliers, one thread, so that their order
// is certain: each rule gets exactly the snapshots that its limit allows.
func TestLimiter(t *testing.T) {
	needRoot(t)
	uid := newUID()
	limits := map[string]limit{"one": {time.Second, 1}, "three": {time.Second, 3}}
	d := start(t, rulesFile(
		napRule("one", uid, "snapshot: {before: 20ms, after: 5ms, every: 1s}"),
		napRule("three", uid, "snapshot: {before: 20ms, after: 5ms, every: 1s, burst: 3}"),
	))
	const n = 70
	naps(t, uid, n, 30*time.Millisecond, 1)
	for name, l := range limits {
		outliers := settled(t, d, name, n)
		want := l.allowed(outliers)
		suppressed := uint64(0)
		for i := range outliers {
			if got := outliers[i].Snapshot != nil; got != want[i] {
				t.Errorf("rule %s: outlier %d of %d at %d has a snapshot: %v, the limit says %v", name, i, n, outliers[i].EndMono, got, want[i])
			}
			if want[i] && outliers[i].Suppressed != suppressed {
				t.Errorf("rule %s: outlier %d says that %d were suppressed, not %d", name, i, outliers[i].Suppressed, suppressed)
			}
			if suppressed++; want[i] {
				suppressed = 0
			}
		}
	}
	account(t, d, n, "one", "three")
}

// TestLimiterBursts: the same from many threads at once.
func TestLimiterBursts(t *testing.T) {
	needRoot(t)
	uid := newUID()
	limits := map[string]limit{"one": {time.Second, 1}, "three": {time.Second, 3}}
	d := start(t, rulesFile(
		napRule("one", uid, "snapshot: {after: 5ms, every: 1s}"),
		napRule("three", uid, "snapshot: {after: 5ms, every: 1s, burst: 3}"),
	))
	n := 0
	for range 4 {
		n += len(naps(t, uid, 64, 10*time.Millisecond, 16))
		time.Sleep(300 * time.Millisecond)
	}
	for name, l := range limits {
		l.hold(t, name, settled(t, d, name, n))
	}
	account(t, d, n, "one", "three")
}

// limit is a rule's snapshot.every and burst.
type limit struct {
	every time.Duration
	burst int
}

// allowed is what the limit says to outliers in the order of their exits.
func (l limit) allowed(outliers []events.Outlier) []bool {
	out := make([]bool, len(outliers))
	empty := int64(0) // when the bucket is empty again
	slack := int64(l.burst-1) * l.every.Nanoseconds()
	for i := range outliers {
		now := int64(outliers[i].EndMono)
		if empty <= now+slack {
			out[i] = true
			empty = max(empty, now) + l.every.Nanoseconds()
		}
	}
	return out
}

// hold holds that no burst+1 outliers with a snapshot lie within every.
func (l limit) hold(t *testing.T, name string, outliers []events.Outlier) {
	t.Helper()
	var at []uint64
	for i := range outliers {
		if outliers[i].Snapshot != nil {
			at = append(at, outliers[i].EndMono)
		}
	}
	assert.Check(t, len(at) != 0, "rule %s: none of %d outliers has a snapshot", name, len(outliers))
	for i := l.burst; i < len(at); i++ {
		assert.Check(t, at[i]-at[i-l.burst] >= uint64(l.every),
			"rule %s: %d snapshots within %v", name, l.burst+1, time.Duration(at[i]-at[i-l.burst]))
	}
}

// settled waits until the daemon has handled all outliers of a rule, and
// returns them in the order of their exits.
func settled(t *testing.T, d *running, name string, n int) []events.Outlier {
	t.Helper()
	var outliers []events.Outlier
	eventually(t, "all outliers are published", func() bool {
		outliers = d.events(name)
		return len(outliers) >= n
	})
	assert.Check(t, len(outliers) == n, "rule %s: %d outliers, injected were %d", name, len(outliers), n)
	sortByExit(outliers)
	return outliers
}

func sortByExit(outliers []events.Outlier) {
	slices.SortStableFunc(outliers, func(a, b events.Outlier) int { return cmp.Compare(a.EndMono, b.EndMono) })
}

// account holds that every outlier that wanted a snapshot got one of its own,
// shares one, or was suppressed and counted; nothing twice, nothing lost.
func account(t *testing.T, d *running, n int, names ...string) (snapshots []*snapshot.Meta) {
	t.Helper()
	promised := map[string]int{} // snapshot to its outliers
	for _, name := range names {
		with := 0
		for _, o := range settled(t, d, name, n) {
			if o.Snapshot != nil {
				with++
				promised[*o.Snapshot]++
			}
		}
		s := d.status()
		r := s.rule(name)
		skipped := s.loss("snapshot_skipped", name)
		assert.Check(t, r.Outliers == uint64(n) && r.Lost == 0,
			"rule %s: status tells of %d outliers and %d lost, injected were %d", name, r.Outliers, r.Lost, n)
		assert.Check(t, uint64(with)+r.Suppressed+skipped == uint64(n) && s.loss("snapshot_limited", name) == r.Suppressed,
			"rule %s: %d with a snapshot, %d suppressed, %d skipped are not %d", name, with, r.Suppressed, skipped, n)
	}
	eventually(t, "all promised snapshots are on disk", func() bool { return len(d.list()) >= len(promised) })
	listed := 0
	for _, s := range d.list() {
		m, _ := checkSnapshot(t, s.Dir)
		assert.Check(t, promised[m.ID] == len(m.Outliers),
			"%s holds %d outliers, %d were promised to it", m.ID, len(m.Outliers), promised[m.ID])
		listed++
		snapshots = append(snapshots, m)
	}
	assert.Check(t, listed == len(promised), "%d snapshots on disk, promised were %d", listed, len(promised))
	s := d.status()
	assert.Check(t, s.Snapshots.Count == listed && s.Snapshots.Failed == 0,
		"status tells of %d snapshots and %d failed, there are %d", s.Snapshots.Count, s.Snapshots.Failed, listed)
	return snapshots
}
