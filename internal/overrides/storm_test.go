package overrides

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// gale lets a rule be refused so often a second, and returns when it was
// paused, or resumed, and for how long.
type gale struct {
	storms Storms
	now    time.Time
	total  Counts
}

func newGale() *gale {
	g := &gale{storms: Storms{Rate: 100}, now: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}
	g.storms.Update(g.now, map[string]Counts{"r": {}})
	return g
}

// blow lasts until something happens, or for so long.
func (g *gale) blow(perSecond uint64, long time.Duration) (begin []Storm, end []string, after time.Duration) {
	from := g.now
	for g.now.Sub(from) < long && len(begin)+len(end) == 0 {
		g.now = g.now.Add(StormWindow)
		g.total.Limited += perSecond / uint64(time.Second/StormWindow)
		begin, end = g.storms.Update(g.now, map[string]Counts{"r": g.total})
	}
	return begin, end, g.now.Sub(from)
}

func TestStormIsPausedAndBacksOff(t *testing.T) {
	g := newGale()
	for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		begin, _, after := g.blow(100000, time.Minute)
		assert.Assert(t, len(begin) == 1 && begin[0].Rule == "r" && begin[0].Until.Sub(g.now) == want &&
			begin[0].Pauses == i+1, "pause %d: %+v, want one of %v", i+1, begin, want)
		assert.Check(t, after <= 300*time.Millisecond, "pause %d came after %v", i+1, after)
		n := begin[0].PerSecond
		assert.Check(t, n >= 99000 && n <= 101000, "%v a second", n)
		s, ok := g.storms.Paused("r")
		assert.Check(t, ok && s.Until.Equal(begin[0].Until), "paused: %+v, %v", s, ok)
		_, end, lasted := g.blow(0, time.Hour)
		assert.Check(t, slices.Equal(end, []string{"r"}) && lasted == want,
			"pause %d ended: %v after %v", i+1, end, lasted)
	}
	// Calm for as long as the last pause: the next one is a first one.
	g.blow(0, 11*time.Minute)
	begin, _, _ := g.blow(100000, time.Minute)
	assert.Check(t, len(begin) == 1 && begin[0].Pauses == 1, "after a calm: %+v", begin)
}

func TestStormOrNot(t *testing.T) {
	for _, k := range []struct {
		name      string
		perSecond uint64
		long      time.Duration
		pauses    bool
	}{
		{"its rate", 100, time.Minute, false},
		{"nine times its rate", 900, time.Minute, false},
		{"ten times its rate, for a second", 1000, time.Second, false},
		{"ten times its rate", 1000, 3 * time.Second, true},
		{"all threads late at once", 1000000, StormWindow, false},
		{"a storm", 6000, time.Second, true},
	} {
		g := newGale()
		begin, _, after := g.blow(k.perSecond, k.long)
		more, _, _ := g.blow(0, 5*time.Second)
		assert.Check(t, len(more) == 0, "%s: paused afterwards", k.name)
		assert.Check(t, (len(begin) > 0) == k.pauses, "%s: paused %v after %v", k.name, begin, after)
	}
}

// What is resumed or changed begins anew; what is gone is forgotten.
func TestStormForgotten(t *testing.T) {
	g := newGale()
	assert.Check(t, !g.storms.Reset("r") && !g.storms.Reset("none"), "not paused, and resumed")
	g.blow(100000, time.Minute)
	assert.Check(t, slices.Equal(g.storms.Rules(), []string{"r"}) && g.storms.Reset("r") &&
		len(g.storms.Rules()) == 0, "paused: %v", g.storms.Rules())
	begin, _, _ := g.blow(100000, time.Minute)
	assert.Check(t, len(begin) == 1 && begin[0].Pauses == 1, "after it was resumed: %+v", begin)
	g.storms.Update(g.now, nil)
	assert.Check(t, len(g.storms.Rules()) == 0, "a rule that is gone is paused")
	// Another rule has the number now, and has counted less.
	g.storms.Update(g.now, map[string]Counts{"r": {Limited: 1000000}})
	if begin, _ := g.storms.Update(g.now.Add(StormWindow), map[string]Counts{"r": {}}); len(begin) > 0 {
		t.Errorf("counted backwards: %+v", begin)
	}
	none := Storms{}
	for i := range uint64(100) {
		begin, _ := none.Update(g.now.Add(time.Duration(i)*StormWindow), map[string]Counts{"r": {Limited: i * 1000000}})
		assert.Assert(t, len(begin) == 0, "paused without a limit")
	}
}
