package snapshot

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// A snapshot whose outlier is not named lets others be written before it, and
// is written without the names in the end.
func TestUnnamedDelaysNobody(t *testing.T) {
	rec := newMemRecorder(1000)
	done, onDone := collecting()
	m, stop := running(t, Options{Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, OnDone: onDone})
	defer stop()
	submit := func(name string) *events.Outlier {
		now := linux.Monotonic()
		rec.write(0, now)
		rec.outlier(now)
		o := outlierAt(name, now-1, now)
		o.Raw.User = []uint64{0x1000}
		o.NewEnrichment()
		assert.Assert(t, m.Submit(o, rule(name, time.Millisecond)) != "", "no snapshot")
		return o
	}
	stuck := submit("stuck")
	for m.Stats().Drains < 3 { // its window has ended
		time.Sleep(10 * time.Millisecond)
		m.Release()
	}
	other := submit("other")
	other.Enrichment.Learn(func(o *events.Outlier) { o.Stacks.User = []string{"main+0x1"} })
	other.Enrichment.Done()
	var order []string
	for range 2 {
		d := <-done
		assert.NilError(t, d.Err, "%v", d.Err)
		o := meta(t, d.Dir).Outliers[0]
		order = append(order, o.Rule)
		want := map[string][]string{"stuck": {"[unknown] 0x1000"}, "other": {"main+0x1"}}[o.Rule]
		assert.Check(t, slices.Equal(o.Stacks.User, want) && o.Partial == (o.Rule == "stuck"),
			"%s: partial %t, user stack %v", o.Rule, o.Partial, o.Stacks.User)
	}
	assert.Check(t, slices.Equal(order, []string{"other", "stuck"}), "written in the order %v", order)
	stuck.Enrichment.Done() // nobody waits for it any more
}

// A panic over one snapshot costs this one: what it cannot explain is saved
// without, what it cannot write fails, and the next one is whole.
func TestPanicsCostOneSnapshot(t *testing.T) {
	rec := newMemRecorder(1000)
	explained, written := 0, 0
	g := guard.New(nil)
	m, stop := running(t, Options{
		Recorder: rec, Store: testStore(t, StoreOptions{}), RingRecords: 1000, Guard: g,
		Explain: func(*trace.Reader, *Meta, func() *Names) (*Explanation, error) {
			if explained++; explained == 1 {
				panic("a trace that nobody thought of")
			}
			return &Explanation{}, nil
		},
		BeforeTrace: func(string) error {
			if written++; written == 2 {
				panic("a record that nobody thought of")
			}
			return nil
		},
	})
	dir, err := m.TakeNow("first")
	assert.NilError(t, err)
	notes := meta(t, dir).Notes
	assert.Check(t, strings.Contains(strings.Join(notes, "\n"), "not explained: panic in explain"),
		"notes %q", notes)
	var panicked *guard.PanicError
	_, err = m.TakeNow("second")
	assert.Check(t, errors.As(err, &panicked), "got %v", err)
	_, err = m.TakeNow("third")
	assert.Check(t, err, "the next one")
	stop()
	s := m.Stats()
	assert.Check(t, s.Taken == 2 && s.Failed == 1, "%+v", s)
	for _, c := range g.Counts() {
		want := map[string]uint64{"explain": 1, "snapshot": 1}[c.Place]
		assert.Check(t, c.Count == want, "%s: %d panics, want %d", c.Place, c.Count, want)
	}
	left := leftovers(t, m.opts.Store.Dir())
	assert.Check(t, len(left) == 0, "left behind: %v", left)
}
